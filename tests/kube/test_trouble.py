"""End to end: pods are killed and evicted while clients write and read."""

from __future__ import annotations

import json

import pytest

from tests.kube.installed import OPERATOR, READY_SECONDS, SHOP, SYSTEM, Installed, Load, ready
from tests.kube.kubernetes import Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]


def leader(shop: Installed) -> Object:
    holder = shop.cluster.get("lease", OPERATOR, namespace=SYSTEM)["spec"]["holderIdentity"]
    pods = shop.cluster.get("pods", "-l", "app.kubernetes.io/component=operator", namespace=SYSTEM)["items"]
    found: list[Object] = [pod for pod in pods if holder.startswith(pod["metadata"]["name"])]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    "victim",
    [
        "viewserver",
        "gateway",
        "coordinator",
        "distributor",
        pytest.param("store", marks=pytest.mark.long),
    ],
)
def test_a_pod_of_the_pool_is_killed_under_load(shop: Installed, victim: str) -> None:
    pods = shop.pods(victim)
    with Load(shop, seed=20) as load:
        shop.kill(pods[0])
        load.more()
        ready(shop, victim, len(pods))
    assert load.result["writes"] > 0


def test_the_operator_that_leads_is_killed_and_another_one_goes_on(shop: Installed) -> None:
    before = leader(shop)["metadata"]["name"]
    with Load(shop, seed=30) as load:
        shop.kill(leader(shop))
        with shop.timed("kill of the operator to the next change carried out"):
            shop.kubectl("scale", "viewpool/default", "--replicas=2")
            until(lambda: len(shop.pods("viewserver")) == 2, READY_SECONDS, "a second view server")
        assert leader(shop)["metadata"]["name"] != before
        load.more()
        shop.kubectl("scale", "viewpool/default", "--replicas=1")
        ready(shop, "viewserver", 1)
    assert load.result["writes"] > 0


def test_an_eviction_respects_the_budget_and_is_never_impossible(shop: Installed) -> None:
    """The one view server may be evicted, as a drain of its node does: it withdraws, and another one comes."""
    (pod,) = shop.pods("viewserver")
    meta = {"name": pod["metadata"]["name"], "namespace": SHOP}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    path = f"/api/v1/namespaces/{SHOP}/pods/{meta['name']}/eviction"
    with Load(shop, seed=40) as load:
        shop.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
        until(
            lambda: shop.pods("viewserver") and shop.pods("viewserver") != [pod], READY_SECONDS, "another view server"
        )
        ready(shop, "viewserver", 1)
        load.more()
    assert load.result["writes"] > 0
