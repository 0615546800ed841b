"""What the operator is told when it starts: options, each also an environment variable `BELVEDERE_OPERATOR_…`."""

from __future__ import annotations

from dataclasses import dataclass, field

from belvedere_operator.api.view_pool import SparkSpec


@dataclass(frozen=True, slots=True)
class Settings:
    """The same for all pools; a ViewPool may say otherwise for itself."""

    image: str = "belvedere-viewserver:latest"
    image_pull_policy: str = "IfNotPresent"
    zookeeper: str = ""
    """Hosts of the ZooKeeper for pools that name none; pools lie below /belvedere/NAMESPACE in it."""
    zookeeper_credentials: bool = True
    """Give each pool in that ZooKeeper credentials of its own."""
    zookeeper_authority: str = ""
    """A file: who signed its certificates. Pools speak TLS with it then."""
    namespace: str = "belvedere-system"
    """Where the operator itself runs: its lease, certificates and Services."""
    name: str = "belvedere-operator"
    """Of its Service, lease and secrets."""
    watched: tuple[str, ...] = ()
    """Namespaces; none: all of the cluster."""
    compiler: str = ""
    """URL of a gateway beside the operator that compiles SQL while a pool has none."""
    metrics_provider: bool = True
    """Serve external.metrics.k8s.io, unless somebody else does."""
    gateway_role: str = "belvedere-gateway"
    """The ClusterRole that lets gateways ask Kubernetes who may do what; empty: somebody else binds it."""
    spark: SparkSpec = field(default_factory=SparkSpec)
    """Jobs of Spark in pools that say nothing else. Without an image there are none."""
    spark_role: str = "belvedere-spark"
    """The ClusterRole that drivers of Spark have in their namespace, for executors; empty: somebody else binds it."""
    owner: str = ""
    """A ClusterRole with which the operator's cluster-wide objects (webhook, APIService) go when it is uninstalled."""
    base_url: str = ""
    """Where the API server reaches the operator, if not by its Service: for an operator outside of the cluster."""
    rotation_pause_s: float = 600.0
    """How long members of a pool are given to read new certificates before the next step of a rotation."""
