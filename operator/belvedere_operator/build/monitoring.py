"""ServiceMonitors, where the Prometheus operator is there to read them."""

from __future__ import annotations

from belvedere_operator.build.inputs import Document, PoolInput


def service_monitors(pool: PoolInput) -> list[Document]:
    if not pool.capabilities.service_monitors:
        return []
    # A gateway tells its figures to whoever shows a token that the cluster knows: here, that of Prometheus.
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    return [
        _monitor(pool, "metrics", {"path": "/metrics"}),
        _monitor(pool, "gateway", {"path": "/v1/metrics", "bearerTokenFile": token}),
    ]


def _monitor(pool: PoolInput, service: str, endpoint: Document) -> Document:
    name = pool.object_name(service)
    only = {"sourceLabels": ["__meta_kubernetes_service_name"], "regex": name, "action": "keep"}
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": pool.meta(name),
        "spec": {
            "jobLabel": "app.kubernetes.io/name",
            "selector": {"matchLabels": pool.selector()},
            "namespaceSelector": {"matchNames": [pool.namespace]},
            "endpoints": [{"port": "http", "interval": "15s", "relabelings": [only], **endpoint}],
        },
    }
