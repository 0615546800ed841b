"""What an autoscaler is told: of which pool, which of the two figures, from samples of the last seconds."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from belvedere_operator.decide.load import WINDOW_S
from belvedere_operator.external.metrics_api import BASE, ExternalMetrics
from belvedere_operator.gateway import Load, PoolUnreachable
from belvedere_operator.kube.client import Kube
from belvedere_operator.metrics import Metrics
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.reconcile.sampling import APART_S, Sampling
from belvedere_operator.serving import Request
from tests.operator.resources import resource, view

POOL = resource("ViewPool", "default", {"replicas": 2, "autoscaling": {"maxReplicas": 8, "targetBusy": 50}})


class Cluster:
    """A namespace with one pool and its views."""

    def __init__(self, *views: dict[str, Any]) -> None:
        self._views = list(views)

    def get(self, api: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return POOL if (kind, namespace, name) == ("ViewPool", "shop", "default") else None

    def list(self, api: str, kind: str, namespace: str) -> list[dict[str, Any]]:
        return self._views


class Pools:
    """Gateways that tell a load, which costs a request."""

    def __init__(self, lag_ms: float = 20.0, *busy: float) -> None:
        self.now, self.asked, self.told, self.fails = 0.0, 0, Load(lag_ms, busy), False

    def of(self, key: tuple[str, str]) -> Pools:
        return self

    def load(self) -> Load:
        self.asked += 1
        if self.fails:
            raise PoolUnreachable("nobody answers")
        return self.told

    def sampling(self) -> Sampling:
        return Sampling(cast(Gateways, self), lambda: self.now)


def api(pools: Pools, sampling: Sampling, *views: dict[str, Any]) -> ExternalMetrics:
    return ExternalMetrics(cast(Kube, Cluster(*views)), sampling, Metrics(), lambda: ("front-proxy",))


def ask(of: ExternalMetrics, metric: str, selector: str = "pool=default", namespace: str = "shop") -> tuple[int, Any]:
    path = f"{BASE}/namespaces/{namespace}/{metric}"
    answer = of.answer(Request("GET", path, {"labelSelector": [selector]}, peer_names=("front-proxy",)))
    return answer.code, json.loads(answer.body)


def value(of: ExternalMetrics, metric: str) -> str:
    code, told = ask(of, metric)
    assert code == 200, told
    (item,) = told["items"]
    assert (item["metricName"], item["metricLabels"]) == (metric, {"pool": "default"})
    return str(item["value"])


def test_busy_is_the_work_that_there_is_and_lag_the_work_that_waits() -> None:
    """Both in view servers, in thousandths: 0.75 and 0.5 of one work, and changes wait for thrice the target."""
    pools = Pools(6_000.0, 0.75, 0.5)
    told = api(pools, pools.sampling())
    assert (value(told, "belvedere_busy_viewservers"), value(told, "belvedere_lag_viewservers")) == ("1250m", "6000m")
    pools = Pools(20.0, 0.75, 0.5)
    told = api(pools, pools.sampling())
    assert (value(told, "belvedere_busy_viewservers"), value(told, "belvedere_lag_viewservers")) == ("1250m", "0m")


def test_the_freshness_that_a_view_asks_for_decides_what_waits_too_long() -> None:
    pools = Pools(900.0, 0.5, 0.5)
    assert value(api(pools, pools.sampling()), "belvedere_lag_viewservers") == "0m"
    strict = view("spend", spec={"freshness": "500ms"})
    assert value(api(pools, pools.sampling(), strict), "belvedere_lag_viewservers") == "3600m"
    elsewhere = view("spend", spec={"freshness": "500ms", "pool": "other"})
    assert value(api(pools, pools.sampling(), elsewhere), "belvedere_lag_viewservers") == "0m"


@pytest.mark.parametrize(
    ("selector", "namespace", "code", "message"),
    [
        ("", "shop", 400, "say which pool"),
        ("pool=other", "shop", 404, "no ViewPool 'other' in namespace 'shop'"),
        ("pool=default", "else", 404, "no ViewPool 'default' in namespace 'else'"),
    ],
)
def test_of_no_pool_nothing_is_told(selector: str, namespace: str, code: int, message: str) -> None:
    pools = Pools(20.0, 0.5)
    found, told = ask(api(pools, pools.sampling()), "belvedere_lag_viewservers", selector, namespace)
    assert found == code and message in told["message"]


def test_of_a_pool_that_does_not_answer_nothing_is_told_and_the_number_stays() -> None:
    pools = Pools(20.0, 0.5)
    pools.fails = True
    code, told = ask(api(pools, pools.sampling()), "belvedere_busy_viewservers")
    assert code == 503 and "nobody answers" in told["message"]


def test_a_pool_is_asked_once_a_second_and_what_is_old_is_forgotten() -> None:
    pools = Pools(20.0, 0.5)
    sampling, key = pools.sampling(), ("shop", "default")
    for _ in range(3):
        assert len(sampling.of(key)) == 1
    assert pools.asked == 1
    for step in range(1, 60):
        pools.now = step * APART_S
        found = sampling.of(key)
        assert found[-1].at == pools.now and found[0].at >= pools.now - WINDOW_S
    assert found[0].at == pools.now - WINDOW_S and pools.asked == 60
    sampling.forget(key)
    pools.now += APART_S
    assert len(sampling.of(key)) == 1
