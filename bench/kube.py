"""Belvedere on a real Kubernetes of one node: how long people wait, and what the operator costs.

PYTHONPATH=viewserver:operator:. python -m bench.kube [--views 200] [--steps 6] [--out FILE] [PART ...]

It starts a cluster of its own, or uses the one that BELVEDERE_E2E_KUBECONFIG names, with the images that are there. The
parts are `install`, `steps`, `views`, `spike` and `remove`; in a cluster of one's own they may be run one by one, since
each leaves the pool as it found it. The table that is printed is that of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.kube import binaries, cluster, images
from tests.kube.installed import AUTOSCALED, SHOP, SYSTEM, Commits, Installed, Load, ready
from tests.kube.kubernetes import Kubernetes, Object, until

API = "belvedere.dev/v1alpha1"
IDLE_S = 60.0
PARTS = ("install", "steps", "views", "spike", "remove")
QUERIES = (
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders WHERE id % {0} = 0 GROUP BY customer",
    "SELECT id, total FROM orders WHERE customer > {0}",
    "SELECT placed, max(total) AS most FROM orders WHERE total < {0} GROUP BY placed",
    "SELECT o.id, c.city FROM orders o JOIN customers c ON o.customer = c.id WHERE o.id > {0}",
)


class Measured:
    """What was measured, said as it happens."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"cores": os.cpu_count(), "load": [round(x, 1) for x in os.getloadavg()]}

    def say(self, what: str, value: object) -> None:
        self.values[what] = value
        print(f"{what}: {value}   (load {os.getloadavg()[0]:.1f})", flush=True)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.say(f"{what}, s", round(time.monotonic() - begun, 1))


def view(name: str, query: str) -> Object:
    return {"apiVersion": API, "kind": "MaterializedView", "metadata": {"name": name}, "spec": {"query": query}}


def views(shop: Installed, measured: Measured, count: int) -> None:
    until(lambda: quiet(shop), 120.0, "a pool at rest")
    table = {"columns": [{"name": "id", "type": "bigint"}, {"name": "x", "type": "bigint"}], "key": ["id"]}
    shop.cluster.apply(
        {"apiVersion": API, "kind": "BaseTable", "metadata": {"name": "empty"}, "spec": table}, namespace=SHOP
    )
    shop.kubectl("wait", "bt/empty", "--for=condition=Ready", "--timeout=60s")
    for number in range(3):
        with measured.timed(f"apply of a view on an empty table to Ready, {number + 1}"):
            shop.cluster.apply(
                view(f"first-{number}", f"SELECT x, count(*) + {number} AS n FROM empty GROUP BY x"), namespace=SHOP
            )
            shop.kubectl("wait", f"mv/first-{number}", "--for=condition=Ready", "--timeout=120s")
    many = [view(f"many-{n}", QUERIES[n % len(QUERIES)].format(n + 1)) for n in range(count)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": many})
    with measured.timed(f"{count} views applied at once, all Ready"):
        with measured.timed(f"of that kubectl apply, with admission, of {count} views"):
            shop.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        shop.kubectl("wait", "mv", "--all", "--for=condition=Ready", "--timeout=400s")
    until(lambda: quiet(shop), 120.0, "an operator that has nothing to do")
    before, at = figures(shop), time.monotonic()
    time.sleep(IDLE_S)
    after, seconds = figures(shop), time.monotonic() - at
    for name in before.keys() & after.keys():
        used = 100 * (after[name]["process_cpu_seconds_total"] - before[name]["process_cpu_seconds_total"]) / seconds
        role = "leader" if after[name]["belvedere_operator_leads"] else "other replica"
        measured.say(f"operator ({role}) idle with {count} views, % of a core", round(used, 1))
        size = after[name]["process_resident_memory_bytes"] / 1e6
        measured.say(f"operator ({role}) idle with {count} views, MB", round(size))
    made = [f"many-{n}" for n in range(count)] + [f"first-{n}" for n in range(3)]
    with measured.timed(f"delete of {len(made)} views"):
        shop.kubectl("delete", "mv", *made, "--timeout=300s", seconds=400)
    shop.kubectl("delete", "bt", "empty", "--timeout=300s", seconds=400)


def quiet(shop: Installed) -> bool:
    status = shop.get("viewpool", "default")["status"]
    settled = {c["type"]: c["status"] for c in status["conditions"]}
    return settled["Ready"] == "True" and settled["Progressing"] == "False"


def figures(shop: Installed) -> dict[str, dict[str, float]]:
    """Of each replica of the operator, as Prometheus would see them."""
    found = {}
    for pod in shop.cluster.get("pods", "-l", "app.kubernetes.io/component=operator", namespace=SYSTEM)["items"]:
        name = pod["metadata"]["name"]
        text = shop.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{SYSTEM}/pods/{name}:8080/proxy/metrics")
        found[name] = {key: float(value) for key, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}
    return found


def steps(shop: Installed, measured: Measured, count: int) -> None:
    """One view server joins, one leaves, while a client loads the pool and another waits for each of its writes."""
    longest: dict[str, list[float]] = {"joins": [], "leaves": []}
    usual: list[float] = []
    starts: list[float] = []
    with Load(shop, seed=80, rows=50):
        for _ in range(count):
            for what, replicas in (("joins", 2), ("leaves", 1)):
                known = {pod["metadata"]["name"] for pod in shop.pods("viewserver")}
                with Commits(shop) as commits:
                    shop.kubectl("scale", "viewpool/default", f"--replicas={replicas}")
                    ready(shop, "viewserver", replicas)
                    time.sleep(6.0)  # it has its share, or is drained, by then
                took = sorted(commits.result["took"])
                longest[what].append(took[-1])
                usual.append(statistics.median(took))
                starts += [started(pod) for pod in shop.pods("viewserver") if pod["metadata"]["name"] not in known]
    for what, found in longest.items():
        measured.say(f"longest wait for a commit while one {what}, ms", sorted(found))
    measured.say("usual wait for a commit under that load, ms", round(statistics.median(usual)))
    measured.say("start of a view server's container to Ready, s", sorted(starts))


def started(pod: Object) -> float:
    (container,) = pod["status"]["containerStatuses"]
    (found,) = (one for one in pod["status"]["conditions"] if one["type"] == "Ready")
    begun = datetime.fromisoformat(container["state"]["running"]["startedAt"])
    return (datetime.fromisoformat(found["lastTransitionTime"]) - begun).total_seconds()


def spike(shop: Installed, measured: Measured) -> None:
    """A load that one view server, limited in CPU, cannot do."""
    patch = ("patch", "viewpool", "default", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": AUTOSCALED}))
    shop.kubectl("rollout", "status", "deployment/default-viewserver", "--timeout=200s")
    until(lambda: limits(shop) == ["200m"], 300.0, "one view server with a limit")
    with Load(shop, seed=81, rows=400) as load:
        with measured.timed("lag spike to a new view server Ready"):
            until(lambda: len(running(shop)) >= 2, 300.0, "a second view server")
        with measured.timed("from there to three view servers Ready"):
            ready(shop, "viewserver", 3)
        load.more()
    with measured.timed("end of the load to one view server"):
        ready(shop, "viewserver", 1)
    shop.kubectl(*patch, json.dumps({"spec": {"autoscaling": None, "templates": None, "replicas": 1}}))
    until(lambda: limits(shop) == [None], 300.0, "a view server without a limit")


def limits(shop: Installed) -> list[str | None]:
    return [pod["spec"]["containers"][0]["resources"].get("limits", {}).get("cpu") for pod in running(shop)]


def running(shop: Installed) -> list[Object]:
    def is_ready(pod: Object) -> bool:
        return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))

    return [pod for pod in shop.pods("viewserver") if is_ready(pod)]


def measure(node: Kubernetes, options: argparse.Namespace) -> Measured:
    measured = Measured()
    shop = Installed(node)
    for part in options.parts or PARTS:
        match part:
            case "install":
                with measured.timed("helm install to all pods Ready"):
                    shop.install()
                with measured.timed("apply of the shop to Ready, with its pool of nine pods"):
                    shop.apply_shop()
            case "steps":
                steps(shop, measured, options.steps)
            case "views":
                views(shop, measured, options.views)
            case "spike":
                spike(shop, measured)
            case "remove":
                with measured.timed("delete of a namespace with views and their pool"):
                    shop.cluster.kubectl("delete", "namespace", SHOP, "--timeout=400s", seconds=460)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kube")
    parser.add_argument("--views", type=int, default=200)
    parser.add_argument("--steps", type=int, default=6, help="how often a view server joins, and leaves")
    parser.add_argument("--out", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: {' '.join(PARTS)}")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    named = os.environ.get("BELVEDERE_E2E_KUBECONFIG")
    if named:
        measured = measure(Kubernetes(Path(named), None), options)
    else:
        executables = binaries.build()
        archives = [images.pause_archive(executables), images.zookeeper_archive()]
        archives += [images.archive_of(image) for image in (images.BELVEDERE, images.OPERATOR)]
        state = Path.home() / ".cache" / "belvedere" / "bench-kube"
        node = cluster.up_node(state, executables, archives, ends_with_parent=True)
        try:
            measured = measure(node, options)
        finally:
            node.down()
    text = json.dumps(measured.values, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
