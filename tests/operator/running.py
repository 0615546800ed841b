"""A running operator and running gateways for tests, against a real API server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from belvedere_operator.build.inputs import Capabilities
from belvedere_operator.kube.client import Kube
from belvedere_operator.kube.config import Access, of_kubeconfig
from belvedere_operator.metrics import Metrics
from belvedere_operator.process import Leading
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.reconcile.pool_round import Cluster, PoolRounds
from belvedere_operator.reconcile.resources import PoolKey, Resources
from belvedere_operator.settings import Settings
from tests.kube.kubernetes import PATIENCE_S, Kubernetes, until

ROOT = Path(__file__).resolve().parents[2]
NOBODY = "http://127.0.0.1:9"
"""The discard port: a connection is refused at once."""
SETTINGS = Settings(zookeeper="zookeeper:2181")


@contextlib.contextmanager
def gateway(directory: Path) -> Iterator[str]:
    """The URL of a real `belvedere serve` over a database of its own."""
    words = [sys.executable, "-m", "belvedere.cli.main", "--db", str(directory / "pool.bv"), "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'viewserver'}{os.pathsep}{ROOT / 'operator'}"}
    with (directory / "serve.log").open("w") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert " at http" in line, (directory / "serve.log").read_text()
            yield line.split(" at ")[1].strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
            process.stdout.close()


@dataclass
class RunningOperator:
    """An operator in this process. `urls`: gateways by namespace; others have none."""

    cluster: Kubernetes
    settings: Settings = SETTINGS
    capabilities: Capabilities = field(default_factory=Capabilities)
    urls: dict[str, str] = field(default_factory=dict)
    other_provider: str = ""

    def __post_init__(self) -> None:
        self.access: Access = of_kubeconfig(self.cluster.kubeconfig)
        self.kube = Kube(self.access)
        self.resources = Resources()
        self.gateways = Gateways(locate=self.locate, timeout=10.0)
        seen = Cluster(lambda: self.capabilities, lambda: self.other_provider)
        self.rounds = PoolRounds(self.kube, self.resources, self.gateways, self.settings, seen)
        self.leading = Leading(self.access, self.kube, self.resources, self.rounds, (), Metrics())

    def locate(self, key: PoolKey) -> str:
        return self.urls.get(key[0], NOBODY)

    def point(self, namespace: str, url: str) -> None:
        """From now on the gateway of this namespace is that one."""
        self.urls[namespace] = url
        for key in self.resources.pools():
            if key[0] == namespace:
                self.gateways.forget(key)
                self.leading.queue.add(key, 0.0)

    def start(self) -> None:
        own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.settings.namespace}}
        self.cluster.apply(own)  # it keeps Secrets there
        self.leading.start()

    def stop(self) -> None:
        self.leading.stop(15.0)
        self.kube.close()


@dataclass(frozen=True)
class Shop:
    """A namespace of a test."""

    cluster: Kubernetes
    namespace: str

    def apply(self, *resources: dict[str, Any]) -> None:
        self.cluster.apply(*resources, namespace=self.namespace)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self.cluster.get(kind, name, namespace=self.namespace)

    def exists(self, kind: str, name: str) -> bool:
        return bool(self.kubectl("get", kind, name, "--ignore-not-found", "-o", "name").strip())

    def kubectl(self, *words: str) -> str:
        return self.cluster.kubectl(*words, "-n", self.namespace)

    def condition(self, kind: str, name: str, type: str) -> tuple[str, str, str]:
        """Status, reason and message; empty if there is none."""
        for one in self.get(kind, name).get("status", {}).get("conditions", ()):
            if one["type"] == type:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def wait(self, kind: str, name: str, type: str, status: str, reason: str = "", seconds: float = PATIENCE_S) -> str:
        """For a condition; its message."""

        def found() -> str | None:
            told = self.condition(kind, name, type)
            good = told[0] == status and reason in ("", told[1])
            return told[2] or "-" if good else None

        try:
            return until(found, seconds, f"{kind} {name}: {type}={status} {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; found {self.condition(kind, name, type)}") from None

    def events(self, kind: str, name: str) -> list[tuple[str, str]]:
        """Reasons and messages, in the order in which they were written: a time has only seconds."""
        items = self.cluster.get("events", namespace=self.namespace)["items"]
        mine = [e for e in items if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]
        return [(e["reason"], e["message"]) for e in sorted(mine, key=lambda e: int(e["metadata"]["resourceVersion"]))]

    def told(self, kind: str, name: str, reason: str, message: str = "") -> str:
        """Wait for an Event whose message has this in it; its message. It is written after the status that it is of."""

        def found() -> str | None:
            return next((text for r, text in self.events(kind, name) if r == reason and message in text), None)

        try:
            return until(found, PATIENCE_S, f"{kind} {name}: Event {reason} {message}")
        except AssertionError as error:
            raise AssertionError(f"{error}; found {self.events(kind, name)}") from None


def resource(kind: str, called: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "belvedere.dev/v1alpha1", "kind": kind, "metadata": {"name": called}, "spec": spec}


def table(called: str, **spec: Any) -> dict[str, Any]:
    columns = [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal(12,2)"}]
    return resource("BaseTable", called, **({"columns": columns, "key": ["id"]} | spec))


def view(called: str, query: str, **spec: Any) -> dict[str, Any]:
    return resource("MaterializedView", called, query=query, **spec)
