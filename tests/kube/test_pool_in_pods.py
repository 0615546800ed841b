"""A pool whose processes are pods: its views are exact while members come, go and are killed.

No operator takes part: these are the images, and what the roles ask of a cluster.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kube import plain_pool, shop
from tests.kube.kubernetes import Kubernetes, Object, until

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
NAMESPACE = "plain"
URL = f"belvedere://coordinator:{plain_pool.FLIGHT}"
READY_SECONDS = 400.0
PROGRAM = Path(shop.__file__).read_text()


class Shop:
    """The pool and its client, from outside."""

    def __init__(self, cluster: Kubernetes) -> None:
        self.cluster = cluster

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = READY_SECONDS + 60) -> str:
        return self.cluster.kubectl("--namespace", NAMESPACE, *words, stdin=stdin, seconds=seconds)

    def ask(self, *words: str) -> dict[str, Any]:
        """The last line of the program in the client's pod."""
        lines = self.kubectl("exec", "-i", "deploy/client", "--", "python", "-", URL, *words, stdin=PROGRAM)
        answer: dict[str, Any] = json.loads(lines.splitlines()[-1])
        return answer

    def pods(self, app: str) -> list[Object]:
        items = self.cluster.get("pods", "-l", f"app={app}", namespace=NAMESPACE)["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def scale(self, viewservers: int) -> None:
        self.kubectl("scale", "deployment/viewserver", f"--replicas={viewservers}")
        self.kubectl("rollout", "status", "deployment/viewserver", f"--timeout={READY_SECONDS:g}s")
        until(lambda: self.sharing() == viewservers, READY_SECONDS, f"{viewservers} view servers with a share")

    def sharing(self) -> int:
        """View servers that own keys."""
        return int(self.ask("status")["sharing"])


@pytest.fixture(scope="module")
def pool(node: Kubernetes) -> Iterator[Shop]:
    """In a namespace that admits only pods without rights."""
    labels = {"name": NAMESPACE, "labels": plain_pool.RESTRICTED}
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": labels})
    node.apply(*plain_pool.zookeeper(), *plain_pool.pool(), namespace=NAMESPACE)
    made = Shop(node)
    for workload in (
        "statefulset/zookeeper",
        "statefulset/store",
        *(f"deployment/{name}" for name in ROLES),
        "deployment/client",
    ):
        made.kubectl("rollout", "status", workload, f"--timeout={READY_SECONDS:g}s")
    made.ask("create")
    yield made
    node.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


ROLES = ("coordinator", "distributor", "viewserver")


class Load:
    """Writes from the client's pod, until the end of the block; then everything must be there, once."""

    def __init__(self, pool: Shop, seed: int) -> None:
        self._pool, self._seed = pool, seed
        self.result: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []

    def __enter__(self) -> Load:
        self._pool.kubectl("exec", "deploy/client", "--", "rm", "-f", shop.STOP)
        words = [
            "kubectl",
            "--namespace",
            NAMESPACE,
            "exec",
            "-i",
            "deploy/client",
            "--",
            "python",
            "-",
            URL,
            "load",
            str(self._seed),
        ]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._pool.cluster.environment,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(PROGRAM)
        self._process.stdin.close()
        self.more(1)
        return self

    def more(self, lines: int = 2) -> None:
        """It goes on writing and comparing."""
        assert self._process.stdout is not None
        for _ in range(lines):
            line = self._process.stdout.readline()
            assert line.startswith("{"), line + self._process.stdout.read()
            self.lines.append(json.loads(line))

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._process.stdout is not None
        try:
            if kind is None:
                self._pool.kubectl("exec", "deploy/client", "--", "touch", shop.STOP)
                rest = self._process.stdout.read()
                assert self._process.wait(180) == 0, rest
                self.result = json.loads(rest.splitlines()[-1])
        finally:
            self._process.stdout.close()
            self._process.kill()
            self._process.wait()


def test_views_are_exact_and_no_process_has_a_right(pool: Shop) -> None:
    with Load(pool, seed=1) as load:
        load.more(3)
    assert load.result["writes"] >= 60 and load.result["epochs"] >= 3
    assert pool.ask("check")["orders"] > 0
    status = pool.kubectl("exec", "deploy/viewserver", "--", "cat", "/proc/1/status")
    assert re.search(r"^Uid:\s+10001\s", status, re.MULTILINE)
    assert re.search(r"^CapEff:\s+0000000000000000$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)


def test_kernels_are_in_the_image(pool: Shop) -> None:
    (pod,) = pool.pods("viewserver")
    assert "compiling kernels" not in pool.kubectl("logs", pod["metadata"]["name"])


def test_members_join_and_leave_under_load(pool: Shop) -> None:
    (old,) = pool.pods("viewserver")
    with Load(pool, seed=2) as load:
        pool.scale(2)
        (new,) = (pod for pod in pool.pods("viewserver") if pod["metadata"]["name"] != old["metadata"]["name"])
        print(f"view server: {seconds_to_ready(new):g} s from the start of its process to Ready")
        load.more()
        pool.scale(1)
        load.more()
    assert load.result["writes"] > 0
    assert pool.ask("check")["orders"] > 0


def seconds_to_ready(pod: Object) -> float:
    (container,) = pod["status"]["containerStatuses"]
    started = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    (ready,) = (found for found in pod["status"]["conditions"] if found["type"] == "Ready")
    return (datetime.fromisoformat(ready["lastTransitionTime"]) - started).total_seconds()


def test_sigterm_to_process_1_withdraws_and_ends_well(pool: Shop) -> None:
    """As in a node drain or a rolling upgrade. The container is started again, and shows how the last one ended."""
    (pod,) = pool.pods("viewserver")
    name = pod["metadata"]["name"]
    pool.kubectl("exec", name, "--", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")

    def ended() -> Any:
        (found,) = pool.cluster.get("pod", name, namespace=NAMESPACE)["status"]["containerStatuses"]
        return found["lastState"].get("terminated")

    assert until(ended, READY_SECONDS, "the end of process 1")["exitCode"] == 0
    until(lambda: pool.sharing() == 1, READY_SECONDS, "a view server with a share")
    assert pool.ask("check")["orders"] > 0


@pytest.mark.parametrize(
    "victim",
    [
        "viewserver",
        "coordinator",
        pytest.param("distributor", marks=pytest.mark.long),
        pytest.param("store", marks=pytest.mark.long),
    ],
)
def test_a_pod_is_killed_under_load(pool: Shop, victim: str) -> None:
    (pod,) = pool.pods(victim)
    with Load(pool, seed=10 + len(victim)) as load:
        begun = time.monotonic()
        pool.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
        load.more()
        print(f"{victim}: {len(load.lines)} comparisons, the last {time.monotonic() - begun:.1f} s after the kill")
    assert load.result["writes"] > 0
    assert pool.ask("check")["orders"] > 0
