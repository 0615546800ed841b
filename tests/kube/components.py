"""What a cluster is made of, as command lines and configuration files: pure, so that it can be read in one place.

Settings that differ from those of a production cluster have one of three reasons, said beside them: nothing here has
to survive the machine, tests cannot wait for minutes, or the machine must stay as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE, NODE_LINK, NODE_IP = "node-1", "kube0", "172.30.0.1"
POD_CIDR, SERVICE_CIDR, SERVICE_IP = "10.244.0.0/24", "10.96.0.0/16", "10.96.0.1"
DOMAIN = "cluster.local"
PAUSE_IMAGE = "localhost/pause:1"
APP_USER = 10001
"""The user of the project's images; volumes belong to it (see `controller_manager`)."""
VOLUMES = Path("/tmp/hostpath_pv")
"""Where the controller manager makes volumes: not a setting. In the cluster another directory is mounted over it."""


@dataclass(frozen=True)
class Layout:
    """Where a cluster lives. `node`: with kubelet and containers, in a network of its own; else a few processes on
    the machine's loopback."""

    state: Path
    hyperkube: Path
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    node: bool
    name: str
    images: tuple[Path, ...] = ()
    """Archives that are there from the start; the pause image is one of them."""

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def admin(self) -> Path:
        return self.pki / "admin.kubeconfig"

    @property
    def containerd_socket(self) -> Path:
        return self.state / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """Below each hierarchy; of this cluster only, since a kubelet ends what it does not know."""
        return f"belvedere-{self.name}"

    @property
    def audit_log(self) -> Path:
        return self.state / "log" / "audit.jsonl"

    def dump(self) -> str:
        fields = {**vars(self), "images": [str(path) for path in self.images]}
        return json.dumps({name: str(value) if isinstance(value, Path) else value for name, value in fields.items()})

    @staticmethod
    def load(text: str) -> Layout:
        fields = json.loads(text)
        paths = {name: Path(fields[name]) for name in ("state", "hyperkube")}
        return Layout(**{**fields, **paths, "images": tuple(Path(path) for path in fields["images"])})


Command = tuple[str, ...]


def etcd(at: Layout) -> Command:
    client, peer = f"http://127.0.0.1:{at.etcd_port}", f"http://127.0.0.1:{at.etcd_peer_port}"
    return (
        *(str(at.hyperkube), "etcd", f"--data-dir={at.state}/etcd"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
        "--unsafe-no-fsync",  # nothing here outlives the machine
        "--log-level=warn",
    )


def api_server(at: Layout) -> Command:
    routing = (
        # Aggregated APIs and webhooks are asked at the addresses of their pods.
        (f"--advertise-address={NODE_IP}", "--enable-aggregator-routing=true")
        if at.node
        # On loopback, which no Service may name: they are behind URLs, or Services of type ExternalName.
        else ("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--bind-address=127.0.0.1")
    )
    return (
        *(str(at.hyperkube), "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{at.etcd_port}"),
        *(f"--secure-port={at.api_port}", f"--service-cluster-ip-range={SERVICE_CIDR}", *routing),
        *(f"--client-ca-file={at.pki}/ca.crt", f"--tls-cert-file={at.pki}/apiserver.crt"),
        f"--tls-private-key-file={at.pki}/apiserver.key",
        *(f"--kubelet-client-certificate={at.pki}/admin.crt", f"--kubelet-client-key={at.pki}/admin.key"),
        *(f"--kubelet-certificate-authority={at.pki}/ca.crt", "--kubelet-preferred-address-types=InternalIP"),
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={at.pki}/service-accounts.pub",
        f"--service-account-signing-key-file={at.pki}/service-accounts.key",
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true"),
        *(f"--requestheader-client-ca-file={at.pki}/front-proxy-ca.crt",),
        *("--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User"),
        *("--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-"),
        f"--proxy-client-cert-file={at.pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={at.pki}/front-proxy-client.key",
        # Who asked for what: tests compare it with what a role allows.
        *(f"--audit-policy-file={at.state}/audit.json", f"--audit-log-path={at.audit_log}"),
        "--shutdown-delay-duration=0s",
    )


def audit_policy() -> dict[str, Any]:
    """Requests of service accounts, without those of the cluster itself."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],  # a watch is told when it starts, and again when it ends, minutes later
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    }


def controller_manager(at: Layout) -> Command:
    # Volumes of class host-path: the provisioner makes them for its own user with mode 0750, whatever a pod's fsGroup.
    # So it is the user of our images, and may still read the keys of root.
    capabilities = "+dac_override,+dac_read_search"
    as_app = ("setpriv", f"--reuid={APP_USER}", f"--regid={APP_USER}", "--clear-groups")
    volumes = (*as_app, f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", "--") if at.node else ()
    return (
        *(*volumes, str(at.hyperkube), "kube-controller-manager"),
        f"--kubeconfig={at.pki}/controller-manager.kubeconfig",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={at.pki}/service-accounts.key",
        *(f"--root-ca-file={at.pki}/ca.crt", f"--cluster-signing-cert-file={at.pki}/ca.crt"),
        *(f"--cluster-signing-key-file={at.pki}/ca.key", "--allocate-node-cidrs=false"),
        *(("--enable-hostpath-provisioner=true",) if at.node else ()),
        # Decisions in seconds: tests wait for them.
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--horizontal-pod-autoscaler-downscale-stabilization=10s",
        *("--kube-api-qps=200", "--kube-api-burst=400"),
        *("--leader-elect=false", "--secure-port=0"),
    )


def scheduler(at: Layout) -> Command:
    kubeconfig = f"{at.pki}/scheduler.kubeconfig"
    return (
        *(str(at.hyperkube), "kube-scheduler", f"--kubeconfig={kubeconfig}"),
        *("--leader-elect=false", "--secure-port=0"),
    )


def containerd(at: Layout) -> Command:
    return ("containerd", "--config", f"{at.state}/containerd.toml")


def containerd_config(at: Layout, plugins: Path) -> str:
    # Without CAP_SYS_RESOURCE a score cannot be lowered, as it otherwise is for pause: hence restrict_oom_score_adj.
    return f"""\
version = 2
root = "{at.state}/containerd"
state = "{at.state}/containerd-run"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{at.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{at.state}/containerd-opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{at.state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""


def cni(at: Layout) -> dict[str, Any]:
    addresses = {"type": "host-local", "dataDir": f"{at.state}/cni/ipam", "ranges": [[{"subnet": POD_CIDR}]]}
    bridge = {"type": "bridge", "bridge": "cni0", "isDefaultGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}


def kubelet(at: Layout) -> Command:
    return (
        *(str(at.hyperkube), "kubelet", f"--config={at.state}/kubelet.json"),
        *(f"--kubeconfig={at.pki}/kubelet.kubeconfig", f"--hostname-override={NODE}", f"--node-ip={NODE_IP}"),
        *(f"--root-dir={at.state}/kubelet", f"--cert-dir={at.state}/kubelet/pki"),
    )


def kubelet_config(at: Layout, most_files: int) -> dict[str, Any]:
    client = {"clientCAFile": f"{at.pki}/ca.crt"}
    nearly_full = {"nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": client},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{at.pki}/kubelet-serving.crt",
        "tlsPrivateKeyFile": f"{at.pki}/kubelet-serving.key",
        "containerRuntimeEndpoint": f"unix://{at.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{at.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDomain": DOMAIN,
        "clusterDNS": [NODE_IP],
        "resolvConf": f"{at.state}/resolv.conf",
        "podLogsDir": f"{at.state}/pod-logs",
        "volumePluginDir": f"{at.state}/kubelet/volume-plugins",
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,  # lower ones take CAP_SYS_RESOURCE
        "maxOpenFiles": most_files,
        "enforceNodeAllocatable": ["pods"],
        # The machine's memory and disk are shared with others: the node fails late.
        "evictionHard": {"memory.available": "100Mi", **nearly_full},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "imageMinimumGCAge": "24h",
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "nodeStatusReportFrequency": "30s",
        "maxPods": 100,
        "registerNode": True,
    }


def kube_proxy(at: Layout) -> Command:
    return (str(at.hyperkube), "kube-proxy", f"--config={at.state}/proxy.json")


def kube_proxy_config(at: Layout) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{at.pki}/proxy.kubeconfig"},
        "mode": "nftables",
        "clusterCIDR": POD_CIDR,
        "hostnameOverride": NODE,
        "bindAddress": NODE_IP,
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
        "oomScoreAdj": 0,
        "conntrack": {"maxPerCore": 0, "min": 0},  # the machine's own stay
        "nftables": {"minSyncPeriod": "100ms"},
    }


def coredns(at: Layout) -> Command:
    return (str(at.hyperkube), "coredns", "-conf", f"{at.state}/Corefile")


def corefile(at: Layout) -> str:
    return f"""\
.:53 {{
    bind {NODE_IP}
    errors
    cache 5
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {at.admin}
        ttl 5
    }}
}}
"""


def resolver() -> str:
    """For commands that are run inside: as in a pod of the namespace default."""
    return f"nameserver {NODE_IP}\nsearch default.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\noptions ndots:5\n"


def storage_class() -> dict[str, Any]:
    """The only one, and the default: a directory of the node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "host-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
    }
