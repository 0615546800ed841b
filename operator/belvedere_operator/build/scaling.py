"""What changes the number of a pool's view servers: an HorizontalPodAutoscaler, or a ScaledObject of KEDA.

Both scale the ViewPool through its scale subresource, never the Deployment: the operator carries the number on. Both
ask the operator for the same two figures. A pool shrinks by one view server at a time, since each one moves rows.
"""

from __future__ import annotations

from belvedere_operator.api import API_VERSION, durations
from belvedere_operator.api.view_pool import ACTIVE, HPA, KEDA, AutoscalingSpec
from belvedere_operator.build.inputs import Document, PoolInput

BUSY, LAG = "belvedere_busy_viewservers", "belvedere_lag_viewservers"
"""Names of the external metrics: view servers' worth of work, and of work that waits."""
UP_SECONDS, DOWN_SECONDS = 15, 30


def autoscalers(pool: PoolInput) -> list[Document]:
    found = pool.spec.autoscaling
    if found is None or found.mode != ACTIVE:
        return []
    if found.scaler == HPA and pool.external_metrics:
        return [_hpa(pool, found)]
    if found.scaler == KEDA and pool.capabilities.keda:
        return [_scaled_object(pool, found)]
    return []


def _target(pool: PoolInput) -> Document:
    return {"apiVersion": API_VERSION, "kind": "ViewPool", "name": pool.name}


def _behavior(spec: AutoscalingSpec) -> Document:
    """Up at once, twofold or by two; down after a while of needing less, one by one."""
    return {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Percent", "value": 100, "periodSeconds": UP_SECONDS},
                {"type": "Pods", "value": 2, "periodSeconds": UP_SECONDS},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": min(3600, int(durations.seconds(spec.scale_down_after))),
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": DOWN_SECONDS}],
        },
    }


def _hpa(pool: PoolInput, spec: AutoscalingSpec) -> Document:
    def metric(name: str, target: str) -> Document:
        return {
            "type": "External",
            "external": {
                "metric": {"name": name, "selector": {"matchLabels": {"pool": pool.name}}},
                "target": {"type": "AverageValue", "averageValue": target},
            },
        }

    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": pool.meta(pool.object_name("viewserver"), "viewserver"),
        "spec": {
            "scaleTargetRef": _target(pool),
            "minReplicas": spec.min_replicas,
            "maxReplicas": spec.max_replicas,
            "metrics": [metric(BUSY, f"{spec.target_busy * 10}m"), metric(LAG, "1")],
            "behavior": _behavior(spec),
        },
    }


def _scaled_object(pool: PoolInput, spec: AutoscalingSpec) -> Document:
    service = f"{pool.settings.name}.{pool.settings.namespace}.svc"
    url = f"http://{service}:8080/scaling/{pool.namespace}/{pool.name}"

    def trigger(name: str, target: str) -> Document:
        return {
            "type": "metrics-api",
            "metricType": "AverageValue",
            "metadata": {"url": url, "valueLocation": name, "targetValue": target},
        }

    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": pool.meta(pool.object_name("viewserver"), "viewserver"),
        "spec": {
            "scaleTargetRef": _target(pool),
            "pollingInterval": 15,
            "minReplicaCount": spec.min_replicas,
            "maxReplicaCount": spec.max_replicas,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(spec)}},
            "triggers": [trigger(BUSY, f"{spec.target_busy / 100:g}"), trigger(LAG, "1")],
        },
    }
