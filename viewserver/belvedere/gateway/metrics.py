"""Figures of a gateway for Prometheus: requests by route, what is at work, how subscribers fare.

`METRICS` is the list, and docs/reference/metrics.md is compared with it. Series that were looked up are kept, since
prometheus_client's own look-up takes a lock and time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import prometheus_client as prometheus

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
METRICS: tuple[tuple[str, Literal["counter", "gauge", "histogram"], str, tuple[str, ...]], ...] = (
    ("belvedere_http_requests", "counter", "answers, by route and status", ("route", "status")),
    ("belvedere_http_request_seconds", "histogram", "from the head of a request to the end of its answer", ("route",)),
    ("belvedere_http_at_work", "gauge", "requests that have a place", ()),
    ("belvedere_http_waiting", "gauge", "requests that wait for a place", ()),
    ("belvedere_http_connections", "gauge", "open connections", ()),
    ("belvedere_http_subscribers", "gauge", "open subscriptions", ()),
    ("belvedere_http_subscribed_views", "gauge", "views that somebody subscribes to", ()),
    ("belvedere_http_subscribers_ended", "counter", "subscriptions that were ended, by the reason", ("reason",)),
    ("belvedere_http_snapshots", "gauge", "snapshots and cursors whose epochs are kept", ()),
    ("belvedere_http_ready", "gauge", "1: it serves; 0: /readyz says why not", ()),
)


@dataclass(frozen=True)
class Sources:
    """Where to read the gauges when they are asked for."""

    at_work: Callable[[], float]
    waiting: Callable[[], float]
    connections: Callable[[], float]
    subscribers: Callable[[], float]
    views: Callable[[], float]
    snapshots: Callable[[], float]
    ready: Callable[[], float]


class GatewayMetrics:
    """One per process."""

    def __init__(self) -> None:
        self._registry = prometheus.CollectorRegistry()
        made = {name: self._make(name, kind, meaning, labels) for name, kind, meaning, labels in METRICS}
        self._families = made
        self._answers: dict[tuple[str, int], Any] = {}
        self._times: dict[str, Any] = {}
        prometheus.ProcessCollector(registry=self._registry)

    def _make(self, name: str, kind: str, meaning: str, labels: tuple[str, ...]) -> Any:
        if kind == "counter":
            return prometheus.Counter(name, meaning, labels, registry=self._registry)
        if kind == "gauge":
            return prometheus.Gauge(name, meaning, labels, registry=self._registry)
        return prometheus.Histogram(name, meaning, labels, registry=self._registry, buckets=SECONDS)

    def read_from(self, sources: Sources) -> None:
        for name, source in (
            ("at_work", sources.at_work),
            ("waiting", sources.waiting),
            ("connections", sources.connections),
            ("subscribers", sources.subscribers),
            ("subscribed_views", sources.views),
            ("snapshots", sources.snapshots),
            ("ready", sources.ready),
        ):
            self._families[f"belvedere_http_{name}"].set_function(source)

    def answered(self, route: str, status: int, seconds: float) -> None:
        answers = self._answers.get((route, status))
        if answers is None:
            answers = self._answers[route, status] = self._families["belvedere_http_requests"].labels(
                route, str(status)
            )
        answers.inc()
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = self._families["belvedere_http_request_seconds"].labels(route)
        times.observe(seconds)

    def subscriber_ended(self, reason: str) -> None:
        self._families["belvedere_http_subscribers_ended"].labels(reason).inc()

    def value(self, name: str, **labels: str) -> float | None:
        """One sample by its full name, for tests."""
        return self._registry.get_sample_value(name, labels)

    def render(self) -> bytes:
        """The text that Prometheus scrapes (`CONTENT_TYPE`)."""
        return prometheus.generate_latest(self._registry)
