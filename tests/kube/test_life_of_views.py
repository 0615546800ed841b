"""End to end: queries change, views fail, pools break, while clients write and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kube import plain_pool
from tests.kube.installed import READY_SECONDS, SHOP, Installed, Load, Watch
from tests.kube.kubernetes import CommandFailed, Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
API = "belvedere.dev/v1alpha1"
SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}


def resource(kind: str, called: str, **spec: Any) -> Object:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": called}, "spec": spec}


def view(called: str, query: str, **spec: Any) -> Object:
    return resource("MaterializedView", called, query=query, **spec)


@contextmanager
def applied(shop: Installed, *objects: Object) -> Iterator[None]:
    """Ready, and gone in the end."""
    shop.cluster.apply(*objects, namespace=SHOP)
    names = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in objects]
    shop.kubectl("wait", *names, "--for=condition=Ready", "--timeout=400s")
    yield
    shop.kubectl("delete", *reversed(names), "--timeout=400s")


def test_a_changed_query_is_built_aside_verified_and_swapped_without_a_gap(shop: Installed) -> None:
    """Readers have one version or the other at every moment; the old text brings the old one back."""
    first = view("by-customer", "SELECT customer, count(*) AS n FROM orders GROUP BY customer")
    second = view(
        "by-customer",
        "SELECT customer, count(*) AS n, min(total) AS least FROM orders GROUP BY customer",
        verify={"changes": True},
    )
    with Load(shop, seed=70) as load, applied(shop, first), Watch(shop, "by_customer") as watch:
        with shop.timed("change of a query to the swap, verified, under load"):
            shop.cluster.apply(second, namespace=SHOP)
            watch.more(1)
        shop.wait("mv", "by-customer", "Built", "True Built")
        status = shop.get("mv", "by-customer")["status"]
        assert status["observedGeneration"] == 2
        assert shop.kubectl("get", "jobs", "-l", "belvedere.dev/view=by-customer", "-o", "name").count("job") == 1
        load.more(1)
        assert "equal a recomputation" in shop.verify("by_customer")
        broken = view("by-customer", "SELECT customer,\n  min(totl) AS least\nFROM orders GROUP BY customer")
        with pytest.raises(CommandFailed, match="no column 'totl' at line 2, column 7"):
            shop.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(broken))
        shop.cluster.apply(first, namespace=SHOP)
        watch.more(1)
        shop.wait("mv", "by-customer", "Built", "True Built")
        load.more(1)
        watch.finish()
    before, after = ["customer", "n"], ["customer", "n", "least"]
    assert watch.result["seen"] == [before, after, before] and watch.result["reads"] > 50
    until(lambda: "__next_" not in json.dumps(shop.http("/v1/relations")[1]), READY_SECONDS, "the end of the trial")


def test_a_view_that_fails_is_named_the_others_go_on_and_a_new_query_mends_it(shop: Installed) -> None:
    """View servers come that cannot compute this version of it, whatever its rows are."""
    fragile = view("fragile", "SELECT customer, sum(total) AS total FROM orders GROUP BY customer")
    env = ("set", "env", "deployment/default-viewserver")
    with Load(shop, seed=71) as load, applied(shop, fragile):
        version = shop.get("mv", "fragile")["status"]["planVersion"]
        # All at once: of two servers the one that fails alone would be left out, and never be ready.
        fails = {"name": "viewserver", "env": [{"name": "BELVEDERE_TEST_FAILING_VIEW", "value": f"fragile:{version}"}]}
        strategy = {"type": "Recreate", "rollingUpdate": None}
        patch = {"spec": {"strategy": strategy, "template": {"spec": {"containers": [fails]}}}}
        shop.kubectl("patch", "deployment", "default-viewserver", "-p", json.dumps(patch))
        told = shop.wait("mv", "fragile", "Ready", "False ViewFailed")
        assert "ArithmeticError: view fragile of view group" in told and "another query mends it" in told
        until(
            lambda: shop.http("/v1/relations/fragile/rows?limit=1")[0] == 409, READY_SECONDS, "a gateway that knows it"
        )
        shop.told("MaterializedView", "fragile", "ViewFailed: Ready: it cannot be computed")
        load.more()
        for name in ("spend", "order-lines", "city-revenue"):
            assert shop.condition("mv", name, "Ready").startswith("True")
        mended = view("fragile", "SELECT customer, sum(total) AS total, count(*) AS n FROM orders GROUP BY customer")
        shop.cluster.apply(mended, namespace=SHOP)
        shop.wait("mv", "fragile", "Ready", "True")
        load.more(1)
        assert "equal a recomputation" in shop.verify("fragile")
        shop.kubectl(*env, "BELVEDERE_TEST_FAILING_VIEW-")
        shop.kubectl("rollout", "status", "deployment/default-viewserver", "--timeout=400s")
        load.more(1)


def test_a_view_is_verified_by_its_cron_job_and_says_what_was_found(shop: Installed) -> None:
    """The run of this night, asked for now: its pod recomputes the view, and the operator reads how it ended."""
    patch = ("patch", "mv", "spend", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": {"verify": {"schedule": "0 3 * * *"}}}))
    job = "default-verify-spend"
    until(lambda: job in shop.kubectl("get", "cronjobs", "-o", "name"), READY_SECONDS, "its CronJob")
    with Load(shop, seed=73) as load:
        shop.kubectl("create", "job", f"--from=cronjob/{job}", "this-night")
        told = shop.wait("mv", "spend", "Verified", "True NoDifference")
        assert "rows equal a recomputation" in told
        load.more(1)
    found = shop.get("mv", "spend")["status"]["lastVerification"]
    assert found["rows"] > 0 and found["epoch"] > 0 and found["differences"] == 0
    shop.kubectl(*patch, json.dumps({"spec": {"verify": None}}))
    until(lambda: job not in shop.kubectl("get", "cronjobs", "-o", "name"), READY_SECONDS, "the end of its CronJob")
    shop.kubectl("delete", "job", "this-night", "--ignore-not-found", "--timeout=400s")


def test_a_pool_without_zookeeper_says_so_its_views_can_be_deleted_and_others_go_on(shop: Installed) -> None:
    """Two pools; one loses the ZooKeeper that it has for itself. What was promised meanwhile is done afterwards."""
    roles = ("coordinator", "distributor", "viewserver", "store", "gateway")
    counts = dict.fromkeys(("coordinators", "distributors", "gateways", "replicas"), 1)
    far = resource(
        "ViewPool",
        "far",
        zookeeper={"hosts": f"zookeeper:{plain_pool.ZOOKEEPER_PORT}"},
        templates=dict.fromkeys(roles, SMALL),
        reclaimPolicy="Delete",
        **counts,
    )
    columns = [{"name": "id", "type": "bigint"}, {"name": "total", "type": "bigint"}]
    orders = resource("BaseTable", "far-orders", pool="far", columns=columns, key=["id"], reclaimPolicy="Delete")
    views = [view(f"far-{name}", "SELECT id, total FROM far_orders", pool="far") for name in ("kept", "gone")]
    shop.cluster.apply(*plain_pool.zookeeper(), namespace=SHOP)
    shop.cluster.apply(far, orders, *views, namespace=SHOP)
    shop.kubectl("wait", "vp/far", "bt/far-orders", "mv/far-kept", "mv/far-gone", *READY)
    shop.put("far_orders", {"id": 1, "total": 7}, {"id": 2, "total": 8}, pool="far")
    with Load(shop, seed=72) as load:
        shop.kubectl("scale", "statefulset/zookeeper", "--replicas=0")
        told = shop.wait("vp", "far", "Ready", "False")
        print(f"a pool without ZooKeeper: {told}")
        load.more()
        with shop.timed("delete of a view whose pool does not answer"):
            shop.kubectl("delete", "mv", "far-gone", "--timeout=400s")
        assert shop.get("vp", "far")["status"]["pendingDrops"] == [{"kind": "MaterializedView", "name": "far_gone"}]
        assert shop.condition("vp", "default", "Ready").startswith("True")
        for name in ("spend", "order-lines", "city-revenue"):
            assert shop.condition("mv", name, "Ready").startswith("True")
        shop.kubectl("scale", "statefulset/zookeeper", "--replicas=1")
        load.more()
    assert load.result["writes"] > 0, "the other pool does not notice"
    shop.wait("vp", "far", "Ready", "True")
    until(lambda: not shop.get("vp", "far")["status"].get("pendingDrops"), READY_SECONDS, "the drop that was noted")
    assert shop.http("/v1/relations/far_gone/rows?limit=1", pool="far")[0] == 404
    rows = shop.http("/v1/relations/far_kept/rows", pool="far")[1]["rows"]
    assert rows == [{"id": 1, "total": 7}, {"id": 2, "total": 8}]
    shop.kubectl("delete", "mv/far-kept", "bt/far-orders", "vp/far", "--timeout=400s")
    until(lambda: not shop.pods("store", pool="far"), READY_SECONDS, "the end of its pods")
    shop.kubectl("delete", "statefulset/zookeeper", "service/zookeeper", "configmap/zookeeper")


def test_a_pool_that_is_deleted_and_made_again_has_its_rows(shop: Installed) -> None:
    """The volume stays (`Retain`), and says where the pool lies in ZooKeeper; the credentials for that are the same."""
    roles = ("coordinator", "distributor", "viewserver", "store", "gateway")
    counts = dict.fromkeys(("coordinators", "distributors", "gateways", "replicas"), 1)
    columns = [{"name": "id", "type": "bigint"}, {"name": "total", "type": "bigint"}]
    everything = [
        resource("ViewPool", "again", templates=dict.fromkeys(roles, SMALL), **counts),
        resource("BaseTable", "again-orders", pool="again", columns=columns, key=["id"]),
        view("again-all", "SELECT id, total FROM again_orders", pool="again"),
    ]
    names = ("mv/again-all", "bt/again-orders", "vp/again")
    rows, places = [{"id": 1, "total": 7}, {"id": 2, "total": 8}], []
    for life in ("first", "second"):
        shop.cluster.apply(*everything, namespace=SHOP)
        with shop.timed(f"a pool of five pods, its {life} life, to Ready"):
            shop.kubectl("wait", *names, *READY)
        places.append(shop.get("vp", "again")["status"]["zookeeper"])
        if life == "first":
            shop.put("again_orders", *rows, pool="again")
        for relation in ("again_orders", "again_all"):
            until(lambda of=relation: rows_of(shop, of) == rows, READY_SECONDS, f"rows of {relation}")  # type: ignore[misc]
        shop.kubectl("delete", *names, "--timeout=400s")
        until(lambda: not shop.pods("store", pool="again"), READY_SECONDS, "the end of its pods")
    assert places[0] == places[1]
    shop.kubectl("delete", "pvc", "data-again-store-0", "--timeout=400s")


def rows_of(shop: Installed, relation: str) -> Any:
    status, answer = shop.http(f"/v1/relations/{relation}/rows", pool="again")
    return answer["rows"] if status == 200 else None


READY = ("--for=condition=Ready", "--timeout=400s")
