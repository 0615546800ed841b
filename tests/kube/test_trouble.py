"""End to end: pods are killed and evicted while clients write and read."""

from __future__ import annotations

import json

import pytest

from tests.kube.installed import OPERATOR, READY_SECONDS, SHOP, SYSTEM, Installed, Load, ready
from tests.kube.kubernetes import CommandFailed, Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]


def leader(shop: Installed) -> Object:
    """Once there is one: a lease may still name a pod that is gone."""

    def found() -> Object | None:
        holder = shop.cluster.get("lease", OPERATOR, namespace=SYSTEM)["spec"]["holderIdentity"]
        pods = shop.cluster.get("pods", "-l", "app.kubernetes.io/component=operator", namespace=SYSTEM)["items"]
        return next((pod for pod in pods if holder.startswith(pod["metadata"]["name"])), None)

    return until(found, READY_SECONDS, "a pod of the operator that leads")


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
    before = leader(shop)
    with Load(shop, seed=30) as load:
        shop.kill(before)
        with shop.timed("kill of the operator to the next change carried out"):
            shop.kubectl("scale", "viewpool/default", "--replicas=2")
            until(lambda: len(shop.pods("viewserver")) == 2, READY_SECONDS, "a second view server")
        # Its container may have lived on for a moment and have done it: then the next leader comes a bit later.
        assert leader(shop)["metadata"]["name"] != before["metadata"]["name"]
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
        until(lambda: evicted(shop, path, json.dumps(eviction)), READY_SECONDS, "an eviction that is allowed")
        until(
            lambda: shop.pods("viewserver") and shop.pods("viewserver") != [pod], READY_SECONDS, "another view server"
        )
        ready(shop, "viewserver", 1)
        load.more()
    assert load.result["writes"] > 0


@pytest.mark.long
def test_an_image_that_is_not_there_is_named_and_nothing_is_lost(shop: Installed) -> None:
    """Pods that work stay until those of the new image do; the store is one pod, and comes back with its volume."""
    patch = ("patch", "viewpool", "default", "--type=merge", "-p")
    with Load(shop, seed=41) as load:
        load.more(1)
    shop.kubectl(*patch, json.dumps({"spec": {"image": "localhost/belvedere:missing", "imagePullPolicy": "Never"}}))
    told = shop.wait("viewpool", "default", "Progressing", "False Trouble")
    assert "ErrImageNeverPull" in told and "localhost/belvedere:missing" in told
    shop.kubectl(*patch, json.dumps({"spec": {"image": None, "imagePullPolicy": None}}))
    with Load(shop, seed=42) as load:
        load.more(1)
    assert load.result["writes"] > 0, "what was there before is there, and views are exact"
    shop.wait("viewpool", "default", "Progressing", "False Settled")


def evicted(shop: Installed, path: str, eviction: str) -> bool:
    """As `kubectl drain` does it: the budget's controller may not have counted yet, and then it says: later."""
    try:
        shop.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=eviction)
    except CommandFailed as refusal:
        assert "disruption budget" in str(refusal), refusal
        return False
    return True
