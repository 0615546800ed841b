"""An operator that ends at any moment is followed by one that knows nothing but what is in the cluster."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, until
from tests.operator.running import RunningOperator, Shop, gateway, table, view

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


def test_a_restarted_operator_goes_on_where_the_other_ended(crds: Cluster, namespace: str, url: str) -> None:
    """With nothing but what is in the cluster."""
    shop = Shop(crds, namespace)
    shop.apply(table("r-orders"), view("r-view", "SELECT id FROM r_orders"))
    for generation, query in enumerate(("SELECT id FROM r_orders", "SELECT id, total FROM r_orders"), 1):
        shop.apply(view("r-view", query))
        running = RunningOperator(crds, urls={namespace: url})
        running.start()
        try:
            until(lambda: seen(shop) == generation, PATIENCE_S, "a look of this operator")  # noqa: B023
            shop.wait("mv", "r-view", "Built", "True")
        finally:
            running.stop()
    assert "total" in relation(url, "r_view")


def seen(shop: Shop) -> int:
    """Which text of the view the operator has seen; it must not be taken for done what another one did before."""
    return int(shop.get("mv", "r-view").get("status", {}).get("observedGeneration", 0))


def relation(url: str, name: str) -> str:
    with urllib.request.urlopen(f"{url}/v1/relations/{name}", timeout=60) as answer:
        return str(answer.read())
