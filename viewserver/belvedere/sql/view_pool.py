"""`ViewPool` manifests: the processes of a pool and how they are set up.

spec:
  backend: served://store:7400                     # where the pool's state and views live
  replicas: 3                                      # view servers; or
  autoscaling: {minReplicas: 2, maxReplicas: 8, targetLag: 2s}
  distributors: 2
  epoch: 20ms                                      # the shortest epoch
  retention: 1h                                    # how long epochs stay readable

Fields that only say how Kubernetes runs the processes (`KUBERNETES_FIELDS`) are known by name; the API server checks
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from belvedere.sql.yaml_document import YamlDocument

POOL_FIELDS = ("backend", "replicas", "autoscaling", "distributors", "epoch", "retention")
KUBERNETES_FIELDS = (
    *("coordinators", "gateways", "storage", "zookeeper", "image", "imagePullPolicy", "imagePullSecrets"),
    *("templates", "stateLimit", "reclaimPolicy", "tls", "sinkHostPort", "spark"),
)
AUTOSCALING_FIELDS = ("minReplicas", "maxReplicas", "targetLag", "targetBusy", "scaleDownAfter", "scaler", "mode")


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """So many view servers that changes wait about as long as `target_lag_ms`."""

    least: int
    most: int
    target_lag_ms: int | None


@dataclass(frozen=True, slots=True)
class ViewPool:
    """None: the default of the processes."""

    name: str
    backend: str | None
    replicas: int | None
    autoscaling: Autoscaling | None
    distributors: int | None
    epoch_ms: int | None
    retention_ms: int | None


def read_pool(spec: YamlDocument, resource: str) -> ViewPool:
    """The pool that the fields describe; refused where they contradict each other."""
    spec.mapping(POOL_FIELDS + KUBERNETES_FIELDS)
    backend = spec.optional("backend")
    if backend is not None and not re.match(r"[a-z][a-z0-9+.-]*:", backend.text()):
        raise backend.fail(f"{backend.value!r} is no URL", "such as served://HOST:PORT")
    replicas, autoscaling = spec.optional("replicas"), spec.optional("autoscaling")
    if replicas is not None and autoscaling is not None:
        raise spec.fail("replicas and autoscaling contradict each other", "keep one of them")
    distributors, epoch, retention = spec.optional("distributors"), spec.optional("epoch"), spec.optional("retention")
    return ViewPool(
        resource,
        None if backend is None else backend.text(),
        None if replicas is None else replicas.number_from(1),
        None if autoscaling is None else _autoscaling(autoscaling),
        None if distributors is None else distributors.number_from(1),
        None if epoch is None else epoch.duration(least_ms=1),
        None if retention is None else retention.duration(least_ms=1),
    )


def _autoscaling(fields: YamlDocument) -> Autoscaling:
    fields.mapping(AUTOSCALING_FIELDS)
    least, lag = fields.optional("minReplicas"), fields.optional("targetLag")
    at_least = 1 if least is None else least.number_from(1)
    most = fields.require("maxReplicas").number_from(at_least)
    return Autoscaling(at_least, most, None if lag is None else lag.duration(least_ms=1))
