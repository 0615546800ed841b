"""The process of the operator: it serves from the start, and reconciles while it leads.

Two replicas run. Both answer the API server (admission, external metrics); one, the holder of the Lease, watches and
acts. A leader that loses the Lease ends its process at once: what it was about to do is somebody else's by then.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from belvedere_operator import handlers
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.kube.config import Access
from belvedere_operator.kube.lease import LeaderLease
from belvedere_operator.metrics import Metrics
from belvedere_operator.reconcile.pool_round import PoolRounds
from belvedere_operator.reconcile.queue import Queue
from belvedere_operator.reconcile.resources import Resources
from belvedere_operator.serving import Answer, Request

log = logging.getLogger(__name__)
WORKERS = 4
RELIST_S = 600.0
ALIVE_WITHIN_S = 120.0
LOST, DONE = 1, 0
NO_DEFINITIONS = (
    "the cluster does not have the definitions of belvedere.dev: install the chart with crds.install=true, or apply "
    "the files of crds/"
)


@dataclass(slots=True)
class Leading:
    """What a leader runs: the watches and the workers."""

    access: Access
    kube: Kube
    resources: Resources
    rounds: PoolRounds
    namespaces: tuple[str, ...]
    metrics: Metrics
    queue: Queue = field(default_factory=Queue)
    _stop: threading.Event = field(default_factory=threading.Event)
    _ready: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Nothing is decided before everything is known that there is."""
        self.resources.load(self.kube, self.namespaces)
        for key in self.resources.pools():
            self.queue.add(key, 0.0)
        watch = (self.access, self.namespaces, self.resources, self.queue, self._stop, self._ready)
        self._begin("watch", lambda: handlers.watch(*watch))
        for number in range(WORKERS):
            self._begin(f"worker {number}", self._work)
        self._begin("relist", self._relist)

    def _begin(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    @property
    def alive(self) -> bool:
        """A thread that ended by itself takes the process with it."""
        return all(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (key := self.queue.take()) is not None:
            begun = time.monotonic()
            try:
                again = self.rounds.run(key)
            except KubeError as error:
                pause = self.queue.failed(key)
                self.metrics.failures.inc()
                log.warning("pool %s/%s: %s; again in %.1f s", *key, error, pause)
            except Exception:
                pause = self.queue.failed(key)
                self.metrics.failures.inc()
                log.exception("pool %s/%s: again in %.1f s", *key, pause)
            else:
                self.queue.done(key, again)
            self.metrics.round_seconds.observe(time.monotonic() - begun)
            self.metrics.waiting.set(len(self.queue))

    def _relist(self) -> None:
        """A deletion that no watch has told is found here."""
        while not self._stop.wait(RELIST_S):
            try:
                self.resources.load(self.kube, self.namespaces)
            except KubeError as error:
                log.warning("relist: %s", error)
                continue
            for key in self.resources.pools():
                self.queue.add(key)

    def stop(self, within: float) -> None:
        """Rounds under way are finished, if they are fast enough."""
        self._stop.set()
        self.queue.close()
        deadline = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


class Operator:
    """One replica."""

    def __init__(self, lease: LeaderLease, lead: Callable[[], Leading], metrics: Metrics) -> None:
        self._lease, self._lead, self._metrics = lease, lead, metrics
        self._stop = threading.Event()
        self._turned = time.monotonic()
        self._leading: Leading | None = None

    def run(self) -> int:
        """Until it is asked to stop (0), or has lost what it led (1)."""
        while not self._stop.is_set():
            self._turned = time.monotonic()
            leads = self._lease.step()
            self._metrics.leads.set(1 if leads else 0)
            if leads and self._leading is None:
                log.info("this replica leads")
                try:
                    self._leading = self._lead()
                    self._leading.start()
                except KubeError as error:
                    log.error("it cannot lead: %s", NO_DEFINITIONS if error.missing else error)
                    self._lease.release()
                    return LOST
            elif self._leading is not None and not leads:
                log.error("the lease is lost to %s: this process ends", self._lease.holder or "nobody yet")
                return LOST
            elif self._leading is not None and not self._leading.alive:
                log.error("a thread of the leader has ended: this process ends")
                return LOST
            self._stop.wait(self._lease.pause)
        if self._leading is not None:
            self._leading.stop(10.0)
        self._lease.release()
        return DONE

    def stop(self) -> None:
        self._stop.set()

    def answer(self, request: Request) -> Answer:
        """Probes and figures. A replica that waits for the lease is ready: it serves the API server."""
        match request.path:
            case "/healthz":
                alive = time.monotonic() - self._turned < ALIVE_WITHIN_S
                return Answer.of(200 if alive else 503, {"alive": alive})
            case "/readyz":
                return Answer.of(503 if self._stop.is_set() else 200, {"leads": self._lease.leads})
            case "/metrics":
                return Answer(200, self._metrics.text(), "text/plain; version=0.0.4; charset=utf-8")
        return Answer.of(404, {"message": "paths: /healthz, /readyz, /metrics"})


def identity() -> str:
    """Of this process, for the Lease."""
    return f"{os.environ.get('POD_NAME') or os.uname().nodename}-{os.getpid()}"
