"""What the objects of a pool are made from, and the parts that all of them share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.view_pool import MUTUAL, RoleTemplate, SparkSpec, TlsSpec, ViewPoolSpec, ZooKeeperTlsSpec
from belvedere_operator.names import POOL_LABEL, ROLE_LABEL, label_value, object_name
from belvedere_operator.settings import Settings

FLIGHT_PORT, HTTP_PORT, SINK_PORT, GATEWAY_PORT = 7400, 7401, 7402, 8080
MANAGED_BY = "app.kubernetes.io/managed-by"

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Which APIs of others the cluster has."""

    service_monitors: bool = False
    keda: bool = False


@dataclass(frozen=True, slots=True)
class PoolInput:
    """A ViewPool with everything that its objects depend on."""

    name: str
    namespace: str
    uid: str
    spec: ViewPoolSpec
    settings: Settings = field(default_factory=Settings)
    replicas: int = 1
    """View servers, from spec.replicas: the number is the autoscaler's where there is one."""
    zookeeper: str = ""
    """Hosts and path of this pool."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    external_metrics: bool = True
    """Whether the external metrics of this cluster are the operator's to serve."""

    zookeeper_secret: str = ""
    """The Secret with the credentials of the pool's nodes in ZooKeeper; empty: everybody may see and change them."""
    zookeeper_tls: ZooKeeperTlsSpec | None = None
    """How its processes speak TLS with ZooKeeper; None: they do not."""
    at_once: frozenset[str] = frozenset()
    """Roles whose pods are replaced all at once: those before cannot talk to those that come."""

    @property
    def tls(self) -> TlsSpec:
        return self.spec.tls or TlsSpec()

    @property
    def mutual_tls(self) -> bool:
        return self.tls.mode == MUTUAL

    @property
    def owns_store(self) -> bool:
        return self.spec.backend is None or "state=served" in self.spec.backend

    @property
    def follows_hbase(self) -> bool:
        return self.spec.backend is not None and self.spec.backend.startswith("hbase://")

    @property
    def sink_port(self) -> int:
        """Where distributors take the log of HBase. The port that a node shows is the pod's, too: it is registered."""
        return self.spec.sink_host_port or SINK_PORT

    @property
    def image(self) -> str:
        return self.spec.image or self.settings.image

    @property
    def spark(self) -> SparkSpec:
        """How jobs of Spark are set up: what the pool says, and else the operator's settings."""
        own, general = self.spec.spark, self.settings.spark
        if own is None:
            return general
        given = {f.name: value for f in fields(own) if (value := getattr(own, f.name)) not in (None, {}, ())}
        return replace(general, **given)

    @property
    def has_spark(self) -> bool:
        return bool(self.spark.image)

    def template(self, role: str) -> RoleTemplate:
        given = getattr(self.spec.templates, role) if self.spec.templates is not None else None
        return given or RoleTemplate()

    def object_name(self, *parts: str) -> str:
        return object_name(self.name, *parts)

    def selector(self, role: str | None = None) -> dict[str, str]:
        """Labels that pods of the pool, or of one role of it, have and no others."""
        found = {POOL_LABEL: label_value(self.name)}
        return found | ({ROLE_LABEL: role} if role else {})

    def labels(self, role: str | None = None) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": "belvedere",
            "app.kubernetes.io/instance": label_value(self.name),
            MANAGED_BY: "belvedere-operator",
            **({"app.kubernetes.io/component": role} if role else {}),
            **self.selector(role),
        }

    def owner(self) -> Document:
        return {
            "apiVersion": API_VERSION,
            "kind": "ViewPool",
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def meta(self, name: str, role: str | None = None) -> Document:
        """Metadata of an object that goes with the pool."""
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(role),
            "ownerReferences": [self.owner()],
        }


def selector_text(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
