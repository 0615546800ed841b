"""The operator's own figures for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector


class Metrics:
    """Of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.leads = Gauge("belvedere_operator_leads", "1: this replica leads.", registry=self.registry)
        self.waiting = Gauge("belvedere_operator_queue_pools", "Pools that are due or will be.", registry=self.registry)
        self.round_seconds = Histogram(
            "belvedere_operator_round_seconds",
            "Time that a round of one pool took.",
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.failures = Counter(
            "belvedere_operator_round_failures", "Rounds that ended with an error.", registry=self.registry
        )
        self.reviews = Counter(
            "belvedere_operator_admission_reviews",
            "Reviews of the admission webhook.",
            ["kind", "verdict"],
            registry=self.registry,
        )
        self.external = Counter(
            "belvedere_operator_external_metrics_requests",
            "Requests for external metrics.",
            ["metric", "code"],
            registry=self.registry,
        )

        self.certificates = Gauge(
            "belvedere_operator_certificate_left_ratio",
            "How much of its life the certificate of a pool has left that has the least, 0 to 1.",
            ["namespace", "pool"],
            registry=self.registry,
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
