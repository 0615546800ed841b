// Command hyperkube is a whole Kubernetes node and control plane in one executable: one build and one file in the cache
// instead of nine. The first argument, or the name by which it is called (a symbolic link `kubectl`), says which part
// runs.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// What each component's own main registers.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// parts run with os.Args as if each were an executable of its own; the command is made late, since making one
// registers flags and metrics.
var parts = map[string]func() int{
	"coredns": runDNS,
	"etcd":    func() int { etcdmain.Main(os.Args); return 0 },
	"kubectl": func() int { return cli.Run(kubectl.NewDefaultKubectlCommand()) },
	"kubelet": func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },

	"kube-apiserver":          func() int { return run(apiserver.NewAPIServerCommand) },
	"kube-controller-manager": func() int { return run(controllers.NewControllerManagerCommand) },
	"kube-proxy":              func() int { return run(proxy.NewProxyCommand) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
}

func run(command func() *cobra.Command) int {
	return cli.Run(command())
}

func main() {
	if part, known := parts[filepath.Base(os.Args[0])]; known {
		os.Exit(part())
	}
	if len(os.Args) > 1 {
		if part, known := parts[os.Args[1]]; known {
			os.Args = os.Args[1:]
			os.Exit(part())
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(parts)), ", ")
	fmt.Fprintf(os.Stderr, "usage: hyperkube PART [FLAG...]; the parts are %s\n", names)
	os.Exit(2)
}
