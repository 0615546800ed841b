"""The figures of a process, for Prometheus: one `Metrics` per process, with a registry of its own.

Drivers call the methods; nothing here reads the roles. `METRICS` is the one list of what exists, and
docs/reference/metrics.md is compared with it. Every metric has the labels `pool`, `role` and `server` (the member).

Figures that change by themselves (the lag grows while nothing happens) are computed when they are read.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import prometheus_client as prometheus

Kind = Literal["counter", "gauge", "histogram"]

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
COMMON_LABELS = ("pool", "role", "server")
EPOCH_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
BUSY_WINDOW = 10.0
"""Seconds that the busy share looks back, at least."""


@dataclass(frozen=True)
class Metric:
    """`name` as Prometheus shows it, without the suffixes that a counter or a histogram adds."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


METRICS = (
    Metric("belvedere_build_info", "gauge", "always 1; the labels say what runs", ("version", "protocol")),
    Metric("belvedere_queue_rows", "gauge", "rows that were received and wait for their epoch, by stage", ("stage",)),
    Metric(
        "belvedere_queue_batches", "gauge", "batches that were received and wait for their epoch, by stage", ("stage",)
    ),
    Metric("belvedere_lag_seconds", "gauge", "age of the oldest change that is not committed yet, 0 if there is none"),
    Metric("belvedere_busy_ratio", "gauge", "share of the last 10 s or more that was spent working, 0 to 1"),
    Metric("belvedere_busy_seconds", "counter", "time spent working"),
    Metric(
        "belvedere_epoch_seconds",
        "histogram",
        "time that one epoch took in a step: `plan`, `flow`, `stage` (with its number), `persist`, `commit`, `total`",
        ("step", "stage"),
    ),
    Metric("belvedere_epochs_committed", "counter", "epochs that were committed"),
    Metric("belvedere_committed_epoch_timestamp_seconds", "gauge", "the newest committed epoch; it is a time"),
    Metric(
        "belvedere_attempts_repeated", "counter", "epochs that were begun again, by the class of reason", ("reason",)
    ),
    Metric("belvedere_stage_rows_in", "counter", "changed rows that a zone received", ("stage", "zone")),
    Metric("belvedere_stage_rows_out", "counter", "changed rows that a zone sent on", ("stage", "zone")),
    Metric("belvedere_view_rows", "counter", "rows of a view that were written, removed ones included", ("view",)),
    Metric("belvedere_state_rows", "gauge", "rows of state held in memory", ("zone",)),
    Metric("belvedere_state_bytes", "gauge", "memory that the state takes", ("zone",)),
    Metric("belvedere_cache_hits", "counter", "times that a row needed a key of state which was in memory"),
    Metric("belvedere_cache_misses", "counter", "keys of state that had to be read from the store"),
    Metric("belvedere_spilled_bytes", "counter", "bytes of received batches that were put on disk to save memory"),
    Metric(
        "belvedere_duplicates_dropped",
        "counter",
        "repeats that were dropped: `entries`, `rows` or `batches`",
        ("kind",),
    ),
    Metric("belvedere_buckets_moved", "counter", "buckets that came to this server or left it"),
    Metric("belvedere_buckets_owned", "gauge", "buckets that this server owns, of 16,384"),
    Metric("belvedere_input_bytes", "gauge", "bytes in INPUT that are not committed yet"),
    Metric(
        "belvedere_backlog_bytes", "gauge", "bytes that the store keeps for the views: logs of base tables, and INPUT"
    ),
    Metric(
        "belvedere_backlog_limit_bytes", "gauge", "bytes of backlog at which base tables take no more rows; 0: no limit"
    ),
    Metric("belvedere_followed_log_files", "gauge", "files of its log that another system keeps for the pool"),
    Metric("belvedere_followed_log_seconds", "gauge", "since when the oldest entry of that log waits for the pool"),
    Metric("belvedere_sessions_suspended", "counter", "times that the connection to ZooKeeper was gone"),
    Metric("belvedere_sessions_lost", "counter", "sessions in ZooKeeper that ended without being closed"),
    Metric(
        "belvedere_quarantined_rows",
        "gauge",
        "rows of a view in quarantine, or row keys of a base table that cannot be read",
        ("view",),
    ),
    Metric("belvedere_load_share", "gauge", "how much was read of the rows that a table had before", ("table",)),
    Metric("belvedere_load_remaining_seconds", "gauge", "how long that will take at the speed so far", ("table",)),
    Metric("belvedere_store_unmerged_rows", "gauge", "rows that the store has in memory, and not in its tables yet"),
    Metric(
        "belvedere_store_held_up_seconds", "counter", "time that writers of state waited for the store to merge rows"
    ),
    Metric("belvedere_store_scanned_rows", "counter", "versions of rows that scans of the store (builds) looked at"),
    Metric("belvedere_send_backlog_bytes", "gauge", "bytes queued for other members and not received by them yet"),
    Metric("belvedere_peers_unreachable", "gauge", "members that the last delivery did not reach"),
)

_CLASSES: dict[Kind, Callable[..., Any]] = {
    "counter": prometheus.Counter,
    "gauge": prometheus.Gauge,
    "histogram": functools.partial(prometheus.Histogram, buckets=EPOCH_SECONDS),
}


class Metrics:
    """Thread-safe. Counts and times are added, levels (queue, state, quarantine) are set."""

    def __init__(
        self,
        pool: str,
        role: str,
        member: str,
        *,
        version: str = "",
        protocol: int = 0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._registry = prometheus.CollectorRegistry()
        self._families = {metric.name: self._make(metric) for metric in METRICS}
        self._common = (pool, role, member)
        self._children: dict[tuple[str, ...], Any] = {}
        self._oldest: float | None = None
        self._busy = _BusyShare(monotonic)
        prometheus.ProcessCollector(registry=self._registry)
        self._child("belvedere_build_info", version, str(protocol)).set(1)
        self._child("belvedere_lag_seconds").set_function(self._lag)
        self._child("belvedere_busy_ratio").set_function(self._busy.ratio)

    # --- what waits

    def queue(self, rows: int, batches: int, stage: int | None = None) -> None:
        """`stage`: what they wait for, in a view server; elsewhere they wait to be planned."""
        label = "" if stage is None else str(stage)
        self._child("belvedere_queue_rows", label).set(rows)
        self._child("belvedere_queue_batches", label).set(batches)

    def oldest_change(self, received: float | None) -> None:
        """When the oldest change that is not committed was received (seconds since 1970); None: there is none."""
        self._oldest = received

    def input_bytes(self, size: int) -> None:
        self._child("belvedere_input_bytes").set(size)

    def backlog(self, size: Callable[[], int], limit: int) -> None:
        """Where to read the size when it is asked for: a disk that hangs must not hold up the main loop."""
        self._child("belvedere_backlog_bytes").set_function(size)
        self._child("belvedere_backlog_limit_bytes").set(limit)

    def followed_log(self, files: int, seconds: float) -> None:
        self._child("belvedere_followed_log_files").set(files)
        self._child("belvedere_followed_log_seconds").set(seconds)

    def merging(self, rows: Callable[[], int]) -> None:
        """Where to read the rows when they are asked for."""
        self._child("belvedere_store_unmerged_rows").set_function(rows)

    def held_up(self, seconds: float) -> None:
        self._child("belvedere_store_held_up_seconds").inc(max(0.0, seconds))

    def scanned(self, rows: int) -> None:
        self._child("belvedere_store_scanned_rows").inc(rows)

    def send_backlog(self, backlog: Callable[[], int], troubles: Callable[[], Iterable[object]]) -> None:
        """Where to read both when they are asked for: `Transport.backlog` and `Transport.troubles`."""
        self._child("belvedere_send_backlog_bytes").set_function(backlog)
        self._child("belvedere_peers_unreachable").set_function(lambda: len(list(troubles())))

    # --- work

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Around work that must not run twice at the same time (the main loop, a stage)."""
        start = self._monotonic()
        try:
            yield
        finally:
            self.worked(self._monotonic() - start)

    def worked(self, seconds: float) -> None:
        """So long something was done."""
        self._busy.add(seconds)
        self._child("belvedere_busy_seconds").inc(max(0.0, seconds))

    def epoch_step(self, step: str, seconds: float, stage: int | None = None) -> None:
        """One epoch spent so long in a step: plan, flow, stage, persist, commit, total."""
        self._child("belvedere_epoch_seconds", step, "" if stage is None else str(stage)).observe(seconds)

    def committed(self, epoch: int) -> None:
        """An epoch (milliseconds) was committed."""
        self._child("belvedere_epochs_committed").inc()
        self._child("belvedere_committed_epoch_timestamp_seconds").set(epoch / 1000)

    def attempt_repeated(self, reason: str) -> None:
        """Open epochs are done again; the reason is one of few words (member lost, leader changed, failed, ...)."""
        self._child("belvedere_attempts_repeated", reason).inc()

    def stage_rows(self, stage: int, zone: str, received: int, sent: int) -> None:
        self._child("belvedere_stage_rows_in", str(stage), zone).inc(received)
        self._child("belvedere_stage_rows_out", str(stage), zone).inc(sent)

    def view_rows(self, view: str, written: int) -> None:
        self._child("belvedere_view_rows", view).inc(written)

    def duplicates(self, kind: Literal["entries", "rows", "batches"], count: int) -> None:
        self._child("belvedere_duplicates_dropped", kind).inc(count)

    # --- state

    def state(self, zone: str, rows: int, size: int) -> None:
        self._child("belvedere_state_rows", zone).set(rows)
        self._child("belvedere_state_bytes", zone).set(size)

    def cache(self, hits: int, misses: int) -> None:
        self._child("belvedere_cache_hits").inc(hits)
        self._child("belvedere_cache_misses").inc(misses)

    def spilled(self, size: int) -> None:
        self._child("belvedere_spilled_bytes").inc(size)

    def quarantined(self, view: str, rows: int) -> None:
        self._child("belvedere_quarantined_rows", view).set(rows)

    def load(self, table: str, share: float, remaining_s: float | None) -> None:
        self._child("belvedere_load_share", table).set(share)
        if remaining_s is not None:
            self._child("belvedere_load_remaining_seconds", table).set(remaining_s)

    def loaded(self, table: str) -> None:
        """All of it was read: its series end."""
        self._forget(table, "belvedere_load_share", "belvedere_load_remaining_seconds")

    def forget_view(self, view: str) -> None:
        """The view was dropped: its series end."""
        self._forget(view, "belvedere_view_rows", "belvedere_quarantined_rows")

    def forget_zone(self, zone: str) -> None:
        """No view has this zone any more: what it holds is not told."""
        self._forget(zone, "belvedere_state_rows", "belvedere_state_bytes")

    def _forget(self, label: str, *names: str) -> None:
        for name in names:
            if self._children.pop((name, label), None) is not None:
                self._families[name].remove(*self._common, label)

    # --- membership

    def ring(self, owned: int, moved: int) -> None:
        """A ring was adopted: buckets owned in it, and how many came or went."""
        self._child("belvedere_buckets_owned").set(owned)
        self._child("belvedere_buckets_moved").inc(moved)

    def session_suspended(self) -> None:
        self._child("belvedere_sessions_suspended").inc()

    def session_lost(self) -> None:
        self._child("belvedere_sessions_lost").inc()

    # --- reading

    def render(self) -> bytes:
        """The text that Prometheus scrapes (`CONTENT_TYPE`)."""
        return prometheus.generate_latest(_WithoutCreated(self._registry))

    def value(self, name: str, **labels: str) -> float | None:
        """One sample, by its full name, for status and tests; None if there is none."""
        common = dict(zip(COMMON_LABELS, self._common, strict=True))
        return self._registry.get_sample_value(name, common | labels)

    def _make(self, metric: Metric) -> Any:
        return _CLASSES[metric.kind](
            metric.name, metric.meaning, (*COMMON_LABELS, *metric.labels), registry=self._registry
        )

    def _child(self, name: str, *labels: str) -> Any:
        """The series with these labels. Looked up here, since prometheus_client's own look-up takes a lock and time."""
        key = (name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._families[name].labels(*self._common, *labels)
        return child

    def _lag(self) -> float:
        return 0.0 if self._oldest is None else max(self._clock() - self._oldest, 0.0)


class _BusyShare:
    """Work done since a moment that lies one to two windows back."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._total = 0.0
        self._before = self._start = (monotonic(), 0.0)

    def add(self, seconds: float) -> None:
        self._total += seconds
        if self._monotonic() - self._start[0] >= BUSY_WINDOW:
            self._before, self._start = self._start, (self._monotonic(), self._total)

    def ratio(self) -> float:
        since, done = self._before
        elapsed = self._monotonic() - since
        return min((self._total - done) / elapsed, 1.0) if elapsed > 0 else 0.0


class _WithoutCreated:
    """A registry without the `_created` series that nobody asked for and that double a scrape."""

    def __init__(self, registry: prometheus.CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
