"""`ViewPool`: the processes that maintain views together, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from belvedere_operator.api.base_table import DELETE, RETAIN
from belvedere_operator.api.condition import Condition
from belvedere_operator.api.durations import POSITIVE
from belvedere_operator.api.fields import Rule, prop

HPA, KEDA, NONE = "hpa", "keda", "none"
MUTUAL = "mutual"
ACTIVE, DRY_RUN = "active", "dryRun"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"
JAVA_MEMORY = r"^[1-9][0-9]*[mg]$"
ROLES = ("coordinator", "distributor", "viewserver", "store", "gateway")


@dataclass(frozen=True, slots=True)
class AutoscalingSpec:
    """So many view servers as the load needs."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.minReplicas <= self.maxReplicas", "minReplicas must not be above maxReplicas"),
    )
    max_replicas: int = prop("The most view servers.", required=True, minimum=1, maximum=1000)
    min_replicas: int = prop("The fewest view servers.", default=1, minimum=1, maximum=1000)
    target_lag: str | None = prop(
        "How long changes may wait. Default: the strictest freshness of the pool's views, else 2s.",
        duration=True,
        rules=(Rule(POSITIVE, "targetLag must be longer than nothing"),),
    )
    target_busy: int = prop(
        "Percent of their time that view servers should be busy: above it there are more of them, below it fewer.",
        default=70,
        minimum=10,
        maximum=95,
    )
    scale_down_after: str = prop(
        "How long fewer view servers must have sufficed before one is taken away.", default="2m", duration=True
    )
    scaler: str = prop(
        "Who changes the number: an HorizontalPodAutoscaler (hpa), a ScaledObject of KEDA (keda), or nobody (none).",
        default=HPA,
        enum=[HPA, KEDA, NONE],
    )
    mode: str = prop(
        "active: the number follows the load. dryRun: status and Events say what would be done, and nothing is done.",
        default=ACTIVE,
        enum=[ACTIVE, DRY_RUN],
    )


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """The volume of the pool's own store."""

    size: str = prop("Size of the volume.", default="10Gi", maxLength=32, pattern=QUANTITY)
    storage_class_name: str | None = prop("Storage class of the volume. Default: that of the cluster.", maxLength=253)
    backlog_limit: str | None = prop(
        "How much the store keeps for views that have not caught up before it refuses rows, such as 8GiB.",
        maxLength=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)?$",
    )


@dataclass(frozen=True, slots=True)
class ZooKeeperTlsSpec:
    """TLS with ZooKeeper."""

    secret: str = prop(
        "A Secret with `ca.crt`: who signed ZooKeeper's certificates.", required=True, minLength=1, maxLength=253
    )
    client_certificate: bool = prop(
        "Show `tls.crt` of that Secret, with the key `tls.key`. ZooKeeper takes its subject for an identity: give each "
        "pool one of its own.",
        default=False,
    )


@dataclass(frozen=True, slots=True)
class ZooKeeperSpec:
    """The ZooKeeper that coordinates the pool."""

    hosts: str = prop(
        "HOST:PORT[,HOST:PORT…][/PATH].",
        required=True,
        minLength=1,
        maxLength=1024,
        pattern=r"^[^/,\s]+(,[^/,\s]+)*(/\S*)?$",
    )
    credentials_secret: str | None = prop(
        "A Secret with the key `credentials`, one line USER:PASSWORD; with it only this user sees the pool's nodes.",
        maxLength=253,
    )
    tls: ZooKeeperTlsSpec | None = prop("Speak TLS with ZooKeeper. Its certificates must carry the names in hosts.")


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """Certificates that members of the pool show each other; the operator issues and replaces them."""

    mode: str = prop(
        "mutual: all connections between members, gateways and Jobs are encrypted, both sides show certificates of the "
        "pool. none: plain text, for anyone who reaches the port. A change replaces all pods at once.",
        default=MUTUAL,
        enum=[MUTUAL, NONE],
    )
    certificate_lifetime: str = prop(
        "How long a certificate of a role lasts; it is replaced when half of that is over. At least 1h.",
        default="72h",
        duration=True,
        rules=(Rule(POSITIVE, "certificateLifetime must be longer than nothing"),),
    )
    authority_lifetime: str = prop(
        "How long the pool's authority lasts; it is replaced when a third is left. At least six times "
        "certificateLifetime.",
        default="365d",
        duration=True,
        rules=(Rule(POSITIVE, "authorityLifetime must be longer than nothing"),),
    )


@dataclass(frozen=True, slots=True)
class RoleTemplate:
    """How the pods of one role are set up; what is given here takes the place of the operator's defaults."""

    requests: dict[str, Any] = prop("Resources that are requested, such as cpu and memory.", default={})
    limits: dict[str, Any] = prop("Resources that are the limit.", default={})
    node_selector: dict[str, str] = prop("Labels of nodes that pods may run on.", default={})
    tolerations: tuple[dict[str, Any], ...] = prop("Taints of nodes that pods tolerate.", default=(), open=True)
    affinity: dict[str, Any] = prop("Kubernetes' own affinity.", default={}, open=True)
    priority_class_name: str | None = prop("Priority class of the pods.", maxLength=253)
    annotations: dict[str, str] = prop("Annotations of the pods.", default={})
    labels: dict[str, str] = prop("Labels of the pods, beside those of the operator.", default={})
    memory_limit: str | None = prop(
        "Memory for rows on their way, beyond which they spill to disk, such as 512MiB.",
        maxLength=32,
        pattern=r"^[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)?$",
    )


@dataclass(frozen=True, slots=True)
class TemplatesSpec:
    """How pods are set up, by role."""

    coordinator: RoleTemplate | None = prop("Pods of coordinators.")
    distributor: RoleTemplate | None = prop("Pods of distributors.")
    viewserver: RoleTemplate | None = prop("Pods of view servers.")
    store: RoleTemplate | None = prop("The pod of the store.")
    gateway: RoleTemplate | None = prop("Pods of gateways.")


@dataclass(frozen=True, slots=True)
class SparkPodSpec:
    """A pod of Spark."""

    heap: str | None = prop("Memory of Java, such as 512m or 2g. Default: 1g.", maxLength=16, pattern=JAVA_MEMORY)
    overhead: str | None = prop(
        "Memory beside it, for Python. Default: 512m of the driver, 1g of an executor.",
        maxLength=16,
        pattern=JAVA_MEMORY,
    )
    cpu: str | None = prop("CPU that is requested. Default: 250m.", maxLength=32, pattern=QUANTITY)
    node_selector: dict[str, str] = prop("Labels of nodes that it may run on.", default={})
    tolerations: tuple[dict[str, Any], ...] = prop("Taints of nodes that it tolerates.", default=(), open=True)
    affinity: dict[str, Any] = prop("Kubernetes' own affinity.", default={}, open=True)
    priority_class_name: str | None = prop("Its priority class.", maxLength=253)
    annotations: dict[str, str] = prop("Annotations.", default={})
    labels: dict[str, str] = prop("Labels, beside those of the operator.", default={})


@dataclass(frozen=True, slots=True)
class SparkSpec:
    """Jobs of Spark: verifications, and what else is asked of all rows of the pool."""

    image: str | None = prop(
        "The image of drivers and executors (viewserver/Dockerfile.spark). Default: that of the operator; where there "
        "is none, there are no jobs of Spark.",
        maxLength=1024,
    )
    executors: int | None = prop("Executors of a job. Default: 2.", minimum=1, maximum=1000)
    cores: int | None = prop("Tasks that an executor has at a time. Default: 1.", minimum=1, maximum=64)
    auto_above: str | None = prop(
        "Where the engine is `auto`: Spark recomputes views of which there are more bytes, their own and those of the "
        "tables below. Default: 1Gi.",
        maxLength=32,
        pattern=QUANTITY,
    )
    driver: SparkPodSpec | None = prop("The driver's pod.")
    executor: SparkPodSpec | None = prop("Pods of executors.")
    conf: dict[str, str] = prop("More settings of Spark, by their names.", default={})


@dataclass(frozen=True, slots=True)
class ViewPoolSpec:
    """What the pool is."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.backend) && has(self.storage)) || self.backend.contains('state=served')",
            "backend and storage contradict each other: with a backend the operator runs no store, unless it leaves the"
            " state to one (hbase://…?state=served); keep one of them",
        ),
        Rule(
            "!has(self.sinkHostPort) || (has(self.backend) && self.backend.startsWith('hbase://'))",
            "sinkHostPort is for pools whose backend is an hbase",
        ),
        Rule(
            "oldSelf.hasValue() || !(has(self.replicas) && has(self.autoscaling))",
            "replicas and autoscaling contradict each other; keep one of them",
            on_create_too=True,
        ),
        Rule(
            "has(self.backend) == has(oldSelf.backend) && (!has(self.backend) || self.backend == oldSelf.backend)",
            "the backend of a pool cannot change: its state and views live there; create another pool",
        ),
    )
    backend: str | None = prop(
        "URL of where state and views live: hbase://ZOOKEEPER[,…][:PORT]/NAMESPACE, whose tables are base tables as "
        "well (with ?state=served the operator runs a store for everything but the views), or served://HOST:PORT. "
        "Without it the operator runs a store for the pool.",
        maxLength=1024,
        rules=(
            Rule(
                "self.matches('^(served://[^/:]+:[0-9]+|hbase://[^/?]+/[A-Za-z0-9_]+([?][^?]*)?)$')",
                "backend must be hbase://ZOOKEEPER:PORT/NAMESPACE or served://HOST:PORT; without it the operator runs "
                "a store",
            ),
        ),
    )
    sink_host_port: int | None = prop(
        "With hbase: the port of its node at which region servers outside of the cluster reach a distributor. Without "
        "it they reach pods by their addresses.",
        minimum=1,
        maximum=65535,
    )
    storage: StorageSpec | None = prop("The volume of the store that the operator runs.")
    replicas: int | None = prop(
        "How many view servers. With autoscaling it is the autoscaler's, and not to be given.", minimum=1, maximum=1000
    )
    autoscaling: AutoscalingSpec | None = prop("Let the number of view servers follow the load.")
    distributors: int = prop("How many distributors.", default=2, minimum=1, maximum=100)
    coordinators: int = prop("How many coordinators; one leads, the others wait.", default=2, minimum=1, maximum=9)
    gateways: int = prop("How many gateways (the HTTP API).", default=2, minimum=1, maximum=100)
    epoch: str | None = prop(
        "The shortest epoch. Default: 20ms.",
        duration=True,
        rules=(Rule(POSITIVE, "epoch must be longer than nothing"),),
    )
    retention: str | None = prop(
        "How long epochs stay readable; at least 9s. Default: 60s.",
        duration=True,
        rules=(Rule(POSITIVE, "retention must be longer than nothing"),),
    )
    state_limit: str | None = prop(
        "How much state and rows the views of the pool may have together, such as 20Gi. A view that would go beyond "
        "it, by the forecast, is refused.",
        maxLength=32,
        pattern=QUANTITY,
    )
    zookeeper: ZooKeeperSpec | None = prop("The ZooKeeper to use. Default: that of the operator.")
    tls: TlsSpec | None = prop("Encryption between the members of the pool. Default: mutual TLS.")
    image: str | None = prop("The image of all processes. Default: that of the operator.", maxLength=1024)
    image_pull_policy: str | None = prop("When the image is pulled.", enum=["Always", "IfNotPresent", "Never"])
    image_pull_secrets: tuple[str, ...] = prop("Names of Secrets for the registry of the image.", default=())
    templates: TemplatesSpec | None = prop("How pods are set up.")
    spark: SparkSpec | None = prop("Jobs of Spark in this pool. Default: as the operator has them.")
    reclaim_policy: str = prop(
        "What happens when the pool is deleted to the volume of its store, and to what it has in HBase (replication "
        "peer, namespace): Retain keeps it, and a pool of the same name goes on with it; until then HBase keeps its "
        "log for the peer. Delete deletes it; of HBase a Job does, after the pods have ended.",
        default=RETAIN,
        enum=[RETAIN, DELETE],
    )


@dataclass(frozen=True, slots=True)
class ScalingStatus:
    """What the autoscaler sees, and what it made of it."""

    desired: int | None = prop("How many view servers the load needs.")
    target_lag: str | None = prop("The lag that is aimed at.")
    explanation: str | None = prop("Why, with figures.")


@dataclass(frozen=True, slots=True)
class PendingDrop:
    """A view or a table whose resource is gone while its pool could not be asked to drop it."""

    kind: str = prop("MaterializedView or BaseTable.", required=True)
    name: str = prop("Its name in SQL.", required=True)


@dataclass(frozen=True, slots=True)
class ViewPoolStatus:
    """What was found."""

    observed_generation: int | None = prop("The generation that the status is about.", minimum=0)
    conditions: tuple[Condition, ...] = prop(
        "Ready: views are maintained and can be read. Progressing: pods are being made or replaced. Stalled: an epoch "
        "fails again and again. StoreBound, HotKey: more view servers would not help. Autoscaling: the number of view "
        "servers follows the load. Secured: members show each other certificates.",
        default=(),
        schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: int | None = prop("View servers that there are.")
    ready_replicas: int | None = prop("View servers that take part.")
    selector: str | None = prop("Selects the pods of the view servers.")
    views: int | None = prop("Views of the pool.")
    ready_views: int | None = prop("Views that can be read.")
    tables: int | None = prop("Base tables of the pool.")
    lag: str | None = prop("How far the views are behind, about.")
    gateway: str | None = prop("URL of the pool's HTTP API inside the cluster.")
    zookeeper: str | None = prop("Hosts and path of the pool in ZooKeeper.")
    scaling: ScalingStatus | None = prop("What the autoscaler sees.")
    pending_drops: tuple[PendingDrop, ...] = prop("What will be dropped as soon as the pool answers.", default=())
    figures_time: str | None = prop("When the figures were taken.", format="date-time")
