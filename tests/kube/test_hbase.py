"""End to end: a pool over an HBase in a pod, and what remains of it there when it is deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.kube import hbase_pods, images
from tests.kube.cluster import Cluster
from tests.kube.installed import READY_SECONDS, SHOP, Installed
from tests.kube.kubernetes import CommandFailed, Object, until

pytestmark = [pytest.mark.timeout(2400), pytest.mark.slow, pytest.mark.long]
API, POOL, NAMESPACE = "belvedere.dev/v1alpha1", "over-hbase", "over_hbase"
SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}


def resource(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def resources(reclaim_policy: str) -> list[Object]:
    counts = dict.fromkeys(("coordinators", "distributors", "gateways", "replicas"), 1)
    templates = dict.fromkeys(("coordinator", "distributor", "viewserver", "gateway"), SMALL)
    backend = f"hbase://hbase:{hbase_pods.ZOOKEEPER}/{NAMESPACE}"
    columns = [
        {"name": "id", "type": "bigint", "encoding": "long"},
        {"name": "customer", "type": "int", "cell": "d:customer", "encoding": "int"},
        {"name": "total", "type": "decimal(12,2)", "cell": "d:total", "encoding": "text"},
    ]
    table = {"table": "orders", "setReplicationScope": True}
    query = "SELECT customer, count(*) AS n, sum(total) AS total FROM hb_orders GROUP BY customer"
    return [
        resource("ViewPool", POOL, backend=backend, reclaimPolicy=reclaim_policy, templates=templates, **counts),
        resource("BaseTable", "hb-orders", pool=POOL, columns=columns, key=["id"], hbase=table),
        resource("MaterializedView", "hb-spend", pool=POOL, query=query),
    ]


@pytest.fixture(scope="module")
def over_hbase(shop: Installed) -> Iterator[Installed]:
    """The shop, with an HBase that has a table with a hundred rows."""
    if isinstance(shop.cluster, Cluster):
        shop.cluster.import_image(images.hbase_archive())
    shop.cluster.apply(*hbase_pods.hbase(SHOP), namespace=SHOP)
    with shop.timed("HBase in a pod, until it has a table"):
        shop.kubectl("rollout", "status", "statefulset/hbase", f"--timeout={READY_SECONDS:g}s")
        assert application(shop, "create", "0", "100")["rows"] == 100
    yield shop
    shop.kubectl("delete", "statefulset/hbase", "service/hbase")


def application(shop: Installed, *words: str) -> dict[str, Any]:
    command = ("exec", "-i", "deploy/editor", "--", "python", "-", *words)
    found: dict[str, Any] = json.loads(shop.kubectl(*command, stdin=hbase_pods.PROGRAM).splitlines()[-1])
    return found


def expected(rows: int) -> list[dict[str, Any]]:
    groups = [[id for id in range(rows) if id % 7 == customer] for customer in range(7)]
    totals = [sum((Decimal(id) + Decimal("0.25") for id in ids), Decimal(0)) for ids in groups]
    return [
        {"customer": customer, "n": len(ids), "total": f"{total:.2f}"}
        for customer, (ids, total) in enumerate(zip(groups, totals, strict=True))
    ]


def view(shop: Installed) -> Any:
    return shop.http("/v1/relations/hb_spend/rows", pool=POOL)[1].get("rows")


def made(shop: Installed, reclaim_policy: str, rows: int) -> None:
    shop.cluster.apply(*resources(reclaim_policy), namespace=SHOP)
    for what in (f"vp/{POOL}", "bt/hb-orders", "mv/hb-spend"):
        with shop.explained(SHOP):
            shop.kubectl("wait", what, "--for=condition=Ready", f"--timeout={READY_SECONDS:g}s")
    until(lambda: view(shop) == expected(rows), READY_SECONDS, "the rows that were there")


def deleted(shop: Installed) -> None:
    """Users delete in any order; nothing waits for ever."""
    shop.kubectl("delete", f"vp/{POOL}", "bt/hb-orders", "mv/hb-spend", "--timeout=700s", seconds=800)


def test_views_over_hbase_are_exact_and_nothing_is_left_in_it(over_hbase: Installed) -> None:
    shop = over_hbase
    with shop.timed("a pool over HBase with a view of its rows"):
        made(shop, "Delete", 100)
    application(shop, "put", "100", "300")
    until(lambda: view(shop) == expected(300), READY_SECONDS, "what was written since")
    verified = shop.kubectl("exec", f"deploy/{POOL}-gateway", "--", "belvedere", "verify", "hb_spend")
    assert "equal a recomputation" in verified
    left = application(shop, "left")
    assert NAMESPACE in left["peers"] and NAMESPACE in left["namespaces"]
    with shop.timed("delete of a pool over HBase, with its peer and namespace"):
        deleted(shop)
    left = application(shop, "left")
    assert NAMESPACE not in left["peers"] and NAMESPACE not in left["namespaces"]
    assert application(shop, "put", "0", "0")["rows"] == 300, "tables of users stay as they are"
    assert "Discarded: " in shop.events("ViewPool", POOL)
    # A pool of that name begins anew: nothing of the first one is believed.
    application(shop, "put", "300", "350")
    made(shop, "Retain", 350)
    deleted(shop)
    left = application(shop, "left")
    assert NAMESPACE in left["peers"] and NAMESPACE in left["namespaces"]
    assert "PeerRetained: " in shop.events("ViewPool", POOL)
    application(shop, "put", "350", "400")
    made(shop, "Delete", 400)  # it goes on where it was: what was written meanwhile comes from the log


def test_a_pool_goes_when_its_hbase_is_away_and_says_what_is_left(over_hbase: Installed) -> None:
    shop = over_hbase
    try:
        shop.get("vp", POOL)
    except CommandFailed:
        made(shop, "Delete", 400)
    shop.kubectl("scale", "statefulset/hbase", "--replicas=0")
    until(lambda: not shop.cluster.get("pods", "-l", "app=hbase", namespace=SHOP)["items"], READY_SECONDS, "its end")
    with shop.timed("delete of a pool whose HBase is away"):
        deleted(shop)
    told = shop.events("ViewPool", POOL)
    assert "NotDiscarded: " in told and f"--pool {POOL}" in told
