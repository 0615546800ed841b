"""Answers of `external.metrics.k8s.io`, and the same figures for KEDA.

The API server asks on behalf of the autoscaler; it shows the certificate of its aggregation layer, and nobody else is
answered over TLS. Figures are taken from the pool's gateway when they are asked for, so each replica can answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.reading import InvalidSpec, read
from belvedere_operator.api.view_pool import ViewPoolSpec
from belvedere_operator.build.scaling import BUSY, LAG
from belvedere_operator.decide.items import item_of
from belvedere_operator.decide.load import Assessment, assess
from belvedere_operator.decide.pool_saying import target_lag_s
from belvedere_operator.gateway import PoolRefused, PoolUnreachable
from belvedere_operator.kube.client import Kube
from belvedere_operator.metrics import Metrics
from belvedere_operator.names import pool_of
from belvedere_operator.reconcile.pool_round import target_of
from belvedere_operator.reconcile.sampling import Sampling
from belvedere_operator.serving import Answer, Request

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
BASE = f"/apis/{GROUP}/{VERSION}"
SCALING = "/scaling/"


@dataclass(frozen=True, slots=True)
class ExternalMetrics:
    """`callers`: common names of certificates that may ask; none: whoever has one of the aggregation layer."""

    kube: Kube
    sampling: Sampling
    metrics: Metrics
    callers: Callable[[], tuple[str, ...]]

    def answer(self, request: Request) -> Answer:
        if not request.peer_names:
            return _status(
                401, "Unauthorized", "only the API server may ask: show the certificate of its aggregation layer"
            )
        allowed = self.callers()
        if allowed and not set(request.peer_names) & set(allowed):
            return _status(
                403, "Forbidden", f"{', '.join(request.peer_names)} may not ask; allowed: {', '.join(allowed)}"
            )
        path = request.path.rstrip("/")
        if path == f"/apis/{GROUP}":
            versions = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
            return Answer.of(
                200,
                {
                    "kind": "APIGroup",
                    "apiVersion": "v1",
                    "name": GROUP,
                    "versions": [versions],
                    "preferredVersion": versions,
                },
            )
        if path == BASE:
            return Answer.of(200, _listing())
        parts = path.removeprefix(BASE).strip("/").split("/")
        if not path.startswith(BASE) or len(parts) != 3 or parts[0] != "namespaces" or parts[2] not in (BUSY, LAG):
            return _status(404, "NotFound", f"no metric at {request.path}; metrics: {BUSY}, {LAG}")
        namespace, metric = parts[1], parts[2]
        selector = _selector((request.query.get("labelSelector") or [""])[0])
        answer = self._value(namespace, metric, selector)
        self.metrics.external.labels(metric, str(answer.code)).inc()
        return answer

    def _value(self, namespace: str, metric: str, selector: dict[str, str]) -> Answer:
        pool = selector.get("pool")
        if pool is None:
            return _status(400, "BadRequest", "say which pool: a selector such as pool=default")
        try:
            found = self.assess(namespace, pool)
        except PoolUnreachable as error:
            return _status(503, "ServiceUnavailable", f"pool {pool!r}: {error}")
        except PoolRefused as error:
            return _status(503, "ServiceUnavailable", f"pool {pool!r} refuses the operator: {error}")
        except LookupError as error:
            return _status(404, "NotFound", str(error.args[0]))
        value = found.busy if metric == BUSY else found.lag
        item = {
            "metricName": metric,
            "metricLabels": {"pool": pool},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": f"{round(value * 1000)}m",
        }
        kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
        return Answer.of(200, kind | {"items": [item]})

    def assess(self, namespace: str, pool: str) -> Assessment:
        """LookupError: there is no such pool."""
        resource = self.kube.get(API_VERSION, "ViewPool", namespace, pool)
        if resource is None:
            raise LookupError(f"no ViewPool {pool!r} in namespace {namespace!r}")
        try:
            spec = read(ViewPoolSpec, resource.get("spec"))
        except InvalidSpec as error:
            raise LookupError(f"ViewPool {pool!r}: {error}") from None
        views = [one for one in self.kube.list(API_VERSION, "MaterializedView", namespace) if pool_of(one) == pool]
        lag_s = target_lag_s(spec, map(item_of, views))
        return assess(self.sampling.of((namespace, pool)), target_of(spec, lag_s), spec.replicas or 1)

    def for_keda(self, request: Request) -> Answer:
        """`/scaling/NAMESPACE/POOL`: both figures as JSON. They tell no data, and are open inside the cluster."""
        parts = request.path.removeprefix(SCALING).split("/")
        if len(parts) != 2:
            return Answer.of(404, {"message": f"{SCALING}NAMESPACE/POOL"})
        try:
            found = self.assess(*parts)
        except (PoolUnreachable, PoolRefused) as error:
            return Answer.of(503, {"message": str(error)})
        except LookupError as error:
            return Answer.of(404, {"message": str(error.args[0])})
        return Answer.of(200, {BUSY: round(found.busy, 3), LAG: round(found.lag, 3), "explanation": found.explanation})


def _listing() -> dict[str, Any]:
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
        for name in (BUSY, LAG)
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": resources}


def _status(code: int, reason: str, message: str) -> Answer:
    told = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": message,
    }
    return Answer.of(code, told)


def _selector(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.replace("==", "=").split(",") if "=" in pair)


def api_service(name: str, namespace: str, authority: str, port: int = 443) -> dict[str, Any]:
    """Tells the API server whom to ask."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "caBundle": authority,
            "service": {"name": name, "namespace": namespace, "port": port},
        },
    }
