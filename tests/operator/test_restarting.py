"""An operator that ends at any moment is followed by one that knows nothing but what is in the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.cluster import Cluster
from tests.kube.kubernetes import until
from tests.operator.running import PATIENCE_S, RunningOperator, Shop, gateway, table, view


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


def test_a_restarted_operator_goes_on_where_the_other_ended(crds: Cluster, namespace: str, url: str) -> None:
    """With nothing but what is in the cluster."""
    shop = Shop(crds, namespace)
    shop.apply(table("r-orders"), view("r-view", "SELECT id FROM r_orders"))
    for query in ("SELECT id FROM r_orders", "SELECT id, total FROM r_orders"):
        shop.apply(view("r-view", query))
        running = RunningOperator(crds, urls={namespace: url})
        running.start()
        try:
            until(lambda: shop.get("mv", "r-view").get("status", {}).get("applied"), PATIENCE_S, "the view")
            shop.wait("mv", "r-view", "Built", "True")
        finally:
            running.stop()
    assert shop.get("mv", "r-view")["status"]["observedGeneration"] == 2
