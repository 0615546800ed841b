"""Belvedere as users have it: the chart is installed, the shop of `examples/` is applied, clients are beside it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.kube import http_shop, images, plain_pool
from tests.kube.kubernetes import CommandFailed, Kubernetes, Object, until

ROOT = Path(__file__).parents[2]
CHART, EXAMPLE = ROOT / "charts" / "belvedere", ROOT / "examples" / "shop.yaml"
VALUES = Path(__file__).parent / "values.yaml"
SYSTEM, SHOP, RELEASE = "belvedere-system", "shop", "belvedere"
OPERATOR = f"{RELEASE}-operator"
URL = "http://default-gateway:8080"
READY_SECONDS = 400.0
"""Generous: the machine may be busy with other tests."""
PROGRAM = Path(http_shop.__file__).read_text()

AUTOSCALED = {
    "autoscaling": {"minReplicas": 1, "maxReplicas": 3, "targetBusy": 30, "scaleDownAfter": "10s"},
    # So that a load which this machine can make is more than one of them can do.
    "templates": {"viewserver": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}},
}


def values() -> Object:
    """Those of the file, with the images that this cluster has."""
    given: Object = yaml.safe_load(VALUES.read_text())
    for part, image in ((given["image"], images.BELVEDERE), (given["operator"]["image"], images.OPERATOR)):
        part["repository"], _, part["tag"] = image.name.rpartition(":")
    given["zookeeper"]["bundled"]["image"] = images.ZOOKEEPER
    return given


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": plain_pool.RESTRICTED}}


def client(name: str, role: str | None) -> list[Object]:
    """A pod with the image's Python and a token; its account has a role of the cluster in this namespace, or none."""
    main = plain_pool.container(name, images.BELVEDERE.name, ["-c", "sleep infinity"], {}, command=["sh"])
    deployment = plain_pool.deployment(name, main)
    pod = deployment["spec"]["template"]["spec"]
    pod |= {"serviceAccountName": name, "automountServiceAccountToken": True, "terminationGracePeriodSeconds": 1}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name}],
    }
    return [account, deployment, *([binding] if role else [])]


@dataclass
class Installed:
    """The cluster with Belvedere, and how long each step took."""

    cluster: Kubernetes
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[what] = round(time.monotonic() - begun, 1)
        print(f"{what}: {self.seconds[what]:g} s")

    @contextmanager
    def explained(self, namespace: str) -> Iterator[None]:
        """A failure comes with what a person would look at."""
        try:
            yield
        except CommandFailed as failure:
            seen = [
                self.cluster.kubectl("--namespace", namespace, "get", "pods", "-o", "wide"),
                self.cluster.kubectl("--namespace", namespace, "events"),
            ]
            raise CommandFailed("\n".join([str(failure), *seen])) from None

    def install(self) -> None:
        self.cluster.apply(namespace(SYSTEM))
        words = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", SYSTEM, "--values", "-")
        wait = ("--wait", f"--timeout={READY_SECONDS:g}s", "--take-ownership")
        with self.timed("helm install to all pods Ready"), self.explained(SYSTEM):
            self.cluster.helm(*words, *wait, stdin=yaml.safe_dump(values()), seconds=READY_SECONDS + 60)

    def apply_shop(self) -> None:
        self.cluster.apply(namespace(SHOP))
        self.cluster.apply(*client("editor", "edit"), *client("stranger", None), namespace=SHOP)
        with self.timed("apply of the first views to Ready, with their pool"), self.explained(SHOP):
            self.kubectl("apply", "--server-side", "-f", str(EXAMPLE))
            for kind in ("basetable", "materializedview", "viewpool"):
                self.kubectl("wait", kind, "--all", "--for=condition=Ready", f"--timeout={READY_SECONDS:g}s")
        for name in ("editor", "stranger"):
            self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={READY_SECONDS:g}s")

    def kubectl(self, *words: str, stdin: str | None = None, seconds: float = READY_SECONDS + 60) -> str:
        return self.cluster.kubectl("--namespace", SHOP, *words, stdin=stdin, seconds=seconds)

    def get(self, kind: str, name: str) -> Object:
        return self.cluster.get(kind, name, namespace=SHOP)

    def http(self, path: str, client: str = "editor") -> tuple[int, Any]:
        """Status and answer of the gateway, for a pod."""
        words = ("exec", "-i", f"deploy/{client}", "--", "python", "-", URL, "status", path)
        told = json.loads(self.kubectl(*words, stdin=PROGRAM).splitlines()[-1])
        return told["status"], told["answer"]

    def verify(self, view: str) -> str:
        """A view against its recomputation by DuckDB, in a pod of the pool; fails where they differ."""
        return self.kubectl("exec", "deploy/default-gateway", "--", "belvedere", "verify", view).strip()

    def pods(self, role: str) -> list[Object]:
        """Of one role of the pool, without those that are going."""
        items = self.cluster.get("pods", "-l", f"belvedere.dev/role={role}", namespace=SHOP)["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, pod: Object) -> None:
        """Without a word: no SIGTERM, no grace."""
        meta = pod["metadata"]
        words = ("delete", "pod", meta["name"], "--grace-period=0", "--force")
        self.cluster.kubectl("--namespace", meta["namespace"], *words)

    def condition(self, kind: str, name: str, type: str) -> str:
        """Its status and reason: `True Ready`."""
        for found in self.get(kind, name).get("status", {}).get("conditions", ()):
            if found["type"] == type:
                return f"{found['status']} {found['reason']}"
        return ""


class Load:
    """Writes from the editor's pod until the end of the block; then everything must be there, once, and views exact."""

    def __init__(self, shop: Installed, seed: int, rows: int = 20) -> None:
        self._shop, self._words = shop, (str(seed), str(rows))
        self.result: dict[str, Any] = {}

    def __enter__(self) -> Load:
        self._shop.kubectl("exec", "deploy/editor", "--", "rm", "-f", http_shop.STOP)
        words = ["kubectl", "--namespace", SHOP, "exec", "-i", "deploy/editor", "--", "python", "-", URL, "load"]
        self._process = subprocess.Popen(
            [*words, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._shop.cluster.environment,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(PROGRAM)
        self._process.stdin.close()
        self.more(1)
        return self

    def more(self, comparisons: int = 2) -> None:
        """It goes on writing and comparing."""
        assert self._process.stdout is not None
        for _ in range(comparisons):
            line = self._process.stdout.readline()
            assert line.startswith("{"), line + self._process.stdout.read()

    def __exit__(self, kind: object, *_: object) -> None:
        assert self._process.stdout is not None
        try:
            if kind is None:
                self._shop.kubectl("exec", "deploy/editor", "--", "touch", http_shop.STOP)
                rest = self._process.stdout.read()
                assert self._process.wait(240) == 0, rest
                self.result = json.loads(rest.splitlines()[-1])
                print(f"load: {self.result}")
        finally:
            self._process.stdout.close()
            self._process.kill()
            self._process.wait()


def ready(shop: Installed, role: str, count: int) -> None:
    def is_so() -> bool:
        pods = shop.pods(role)
        conditions = [c for pod in pods for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"]
        return len(pods) == count and [c["status"] for c in conditions] == ["True"] * count

    until(is_so, READY_SECONDS, f"{count} pods of role {role}, all Ready")
