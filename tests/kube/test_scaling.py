"""End to end: the number of view servers follows the load by itself."""

from __future__ import annotations

import json

import pytest

from tests.kube.installed import AUTOSCALED, READY_SECONDS, Installed, Load, ready
from tests.kube.kubernetes import until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]


def test_an_autoscaler_follows_the_load_from_1_to_3_and_back(shop: Installed) -> None:
    """A real HorizontalPodAutoscaler, the operator's external metrics, view servers with little CPU."""
    patch = ("patch", "viewpool", "default", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": AUTOSCALED}))
    until(lambda: limited(shop) == ["200m"], READY_SECONDS, "a view server with a limit")
    ready(shop, "viewserver", 1)
    with Load(shop, seed=60, rows=400) as load:
        with shop.timed("load to three view servers Ready"):
            ready(shop, "viewserver", 3)
        load.more()
    with shop.timed("end of the load to one view server"):
        ready(shop, "viewserver", 1)
    assert load.result["writes"] > 0
    # Every decision has its figures.
    shop.told("ViewPool", "default", "ScaledUp: view servers 1 -> ", "ScaledDown: view servers 2 -> 1", "% busy of 30%")
    shop.kubectl(*patch, json.dumps({"spec": {"autoscaling": None, "templates": None, "replicas": 1}}))
    until(lambda: limited(shop) == [None], READY_SECONDS, "a view server without a limit")
    ready(shop, "viewserver", 1)


def limited(shop: Installed) -> list[str | None]:
    return [pod["spec"]["containers"][0]["resources"].get("limits", {}).get("cpu") for pod in shop.pods("viewserver")]
