package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	// The plugins of a cluster's Corefile. CoreDNS's own list would bring the clients of three clouds.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func runDNS() int {
	// The order in which plugins see a query.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "log", "cache", "kubernetes", "forward"}
	coremain.Run()
	return 0
}
