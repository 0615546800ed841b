"""Belvedere as users have it: the chart is installed, the shop of `examples/` is applied, clients are beside it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

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
    say: Callable[[str], None] = print

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.seconds[what] = round(time.monotonic() - begun, 1)
        self.say(f"{what}: {self.seconds[what]:g} s")

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

    def install(self, chart: Path = CHART, tag: str = "") -> None:
        """Or upgrade. `tag`: of the images, if it is not that of the tests."""
        self.cluster.apply(namespace(SYSTEM))
        given = values()
        if tag:
            given["image"]["tag"] = given["operator"]["image"]["tag"] = tag
        words = ("upgrade", "--install", RELEASE, str(chart), "--namespace", SYSTEM, "--values", "-")
        wait = ("--wait", f"--timeout={READY_SECONDS:g}s", "--take-ownership")
        with self.timed("helm install to all pods Ready"), self.explained(SYSTEM):
            self.cluster.helm(*words, *wait, stdin=yaml.safe_dump(given), seconds=READY_SECONDS + 60)

    def apply_shop(self) -> None:
        """Once the namespace of a run before is gone: what is put into it would go, too."""
        phases = ("get", "namespace", SHOP, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
        until(lambda: self.cluster.kubectl(*phases) != "Terminating", READY_SECONDS, f"the end of namespace {SHOP}")
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

    def http(self, path: str, client: str = "editor", pool: str = "default") -> tuple[int, Any]:
        """Status and answer of the gateway, for a pod."""
        told = self._program(client, pool, "status", path)
        return told["status"], told["answer"]

    def read(self, *relations: str) -> list[list[Object]]:
        """All rows of each, at one epoch: two requests may be answered by gateways that know different ones."""
        reads = {"reads": [{"relation": name, "limit": http_shop.MOST} for name in relations]}
        told = self._program("editor", "default", "ask", "POST", "/v1/read", json.dumps(reads))
        return [result["rows"] for result in told["answer"]["results"]]

    def put(self, table: str, *rows: Object, pool: str = "default") -> None:
        """Repeated while nobody takes them."""
        self._program("editor", pool, "ask", "POST", f"/v1/relations/{table}/rows", json.dumps(rows))

    def _program(self, client: str, pool: str, *words: str) -> Any:
        url = f"http://{pool}-gateway:8080"
        command = ("exec", "-i", f"deploy/{client}", "--", "python", "-", url, *words)
        return json.loads(self.kubectl(*command, stdin=PROGRAM).splitlines()[-1])

    def verify(self, view: str) -> str:
        """A view against its recomputation by DuckDB, in a pod of the pool; fails where they differ."""
        return self.kubectl("exec", "deploy/default-gateway", "--", "belvedere", "verify", view).strip()

    def pods(self, role: str, pool: str = "default") -> list[Object]:
        """Of one role of a pool, without those that are going."""
        selector = f"belvedere.dev/role={role},belvedere.dev/pool={pool}"
        items = self.cluster.get("pods", "-l", selector, namespace=SHOP)["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def kill(self, pod: Object) -> None:
        """Without a word: no SIGTERM, no grace."""
        meta = pod["metadata"]
        words = ("delete", "pod", meta["name"], "--grace-period=0", "--force")
        self.cluster.kubectl("--namespace", meta["namespace"], *words)

    def condition(self, kind: str, name: str, type: str) -> str:
        """Its status, reason and message: `True Ready it can be read`."""
        for found in self.get(kind, name).get("status", {}).get("conditions", ()):
            if found["type"] == type:
                return f"{found['status']} {found['reason']} {found['message']}"
        return ""

    def wait(self, kind: str, name: str, type: str, beginning: str, seconds: float = READY_SECONDS) -> str:
        """For a condition that begins so; the whole of it."""
        seen = [""]

        def found() -> str:
            seen[0] = self.condition(kind, name, type)
            return seen[0] if seen[0].startswith(beginning) else ""

        try:
            return until(found, seconds, f"{kind} {name}: {type} {beginning}")
        except AssertionError as error:
            raise AssertionError(f"{error}; found: {seen[0]}") from None

    def told(self, kind: str, name: str, *texts: str) -> None:
        """Wait for Events that have these texts in them. They are written after the status that they are of."""
        seen = [""]

        def found() -> bool:
            seen[0] = self.events(kind, name)
            return all(text in seen[0] for text in texts)

        try:
            until(found, READY_SECONDS, f"Events of {kind} {name}: {texts}")
        except AssertionError as error:
            raise AssertionError(f"{error}; found: {seen[0]}") from None

    def events(self, kind: str, name: str) -> str:
        """One line each: reason and message."""
        items = self.cluster.get("events", namespace=SHOP)["items"]
        mine = [e for e in items if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)]
        return "\n".join(f"{e['reason']}: {e['message']}" for e in mine)


class Program:
    """A command of `http_shop.py` in the editor's pod, from the beginning of the block to its end."""

    stop = ""
    """The file that ends it."""

    def __init__(self, shop: Installed, *words: str) -> None:
        self._shop, self._words = shop, words
        self.result: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._shop.kubectl("exec", "deploy/editor", "--", "rm", "-f", self.stop)
        words = ["kubectl", "--namespace", SHOP, "exec", "-i", "deploy/editor", "--", "python", "-", URL]
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

    def more(self, lines: int = 2) -> None:
        """It goes on, and says so."""
        assert self._process.stdout is not None
        for _ in range(lines):
            line = self._process.stdout.readline()
            assert line.startswith("{"), line + self._process.stdout.read()

    def finish(self) -> None:
        """The end of the block does it, unless that is too late."""
        self._end(None)

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(kind)

    def _end(self, kind: object) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        try:
            if kind is None:
                self._shop.kubectl("exec", "deploy/editor", "--", "touch", self.stop)
                rest = self._process.stdout.read()
                assert self._process.wait(240) == 0, rest
                self.result = json.loads(rest.splitlines()[-1])
                self._shop.say(f"{self._words[0]}: {self.result}")
        finally:
            self._process.stdout.close()
            self._process.kill()
            self._process.wait()


class Load(Program):
    """Writes until the end of the block; then everything must be there, once, and views exact. `more` waits until it
    has written and compared again."""

    stop = http_shop.STOP

    def __init__(self, shop: Installed, seed: int, rows: int = 20) -> None:
        super().__init__(shop, "load", str(seed), str(rows))


class Watch(Program):
    """Reads a view until the end of the block; every read must succeed. `more` waits until it has other columns."""

    stop = http_shop.STOP_WATCH

    def __init__(self, shop: Installed, view: str) -> None:
        super().__init__(shop, "watch", view)


class Commits(Program):
    """Writes row after row until the end of the block, each when the one before is in every view."""

    stop = http_shop.STOP_WATCH

    def __init__(self, shop: Installed) -> None:
        super().__init__(shop, "commits")


def ready(shop: Installed, role: str, count: int) -> None:
    def is_so() -> bool:
        pods = shop.pods(role)
        conditions = [c for pod in pods for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"]
        return len(pods) == count and [c["status"] for c in conditions] == ["True"] * count

    until(is_so, READY_SECONDS, f"{count} pods of role {role}, all Ready")
