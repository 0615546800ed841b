"""End to end: chart, operator, gateway and pool as pods; users with their own rights; trouble under load."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.kube.installed import READY_SECONDS, RELEASE, ROOT, SHOP, SYSTEM, Installed, Load, ready
from tests.kube.kubernetes import CommandFailed, Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
API = "belvedere.dev/v1alpha1"


def view(name: str, query: str) -> Object:
    return {"apiVersion": API, "kind": "MaterializedView", "metadata": {"name": name}, "spec": {"query": query}}


def test_helm_test_passes(shop: Installed) -> None:
    assert "Succeeded" in shop.cluster.helm("test", RELEASE, "--namespace", SYSTEM, "--timeout", "3m")


def test_views_are_exact_over_http(shop: Installed) -> None:
    with Load(shop, seed=1) as load:
        load.more(3)
    assert load.result["writes"] >= 30 and load.result["rows"] > 0
    status, answer = shop.http("/v1/relations/spend/row?key=7")
    assert status == 200, answer
    for name in ("spend", "order_lines", "city_revenue"):
        told = shop.verify(name)
        print(told)
        assert "equal a recomputation" in told and ": 0 rows" not in told


def test_who_has_no_right_gets_403_and_who_has_it_rows(shop: Installed) -> None:
    """Kubernetes' own RBAC decides; it is asked by the gateway, so a binding has an effect within seconds."""
    path = "/v1/relations/spend/rows?limit=1"
    assert shop.http(path)[0] == 200
    status, problem = shop.http(path, client="stranger")
    assert status == 403 and "materializedviews/rows" in json.dumps(problem)
    shop.kubectl("create", "role", "reader", "--verb=get", "--resource=materializedviews.belvedere.dev/rows")
    shop.kubectl("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={SHOP}:stranger")
    until(lambda: shop.http(path, client="stranger")[0] == 200, READY_SECONDS, "the right to read views")
    assert shop.http("/v1/relations/orders/rows?limit=1", client="stranger")[0] == 403


@pytest.mark.parametrize("dry_run", ["none", "server"])
def test_sql_that_cannot_work_is_refused_at_apply_with_its_place(shop: Installed, dry_run: str) -> None:
    bad = view("broken", "SELECT customer,\n  sum(totl) AS total\nFROM orders GROUP BY customer")
    with pytest.raises(CommandFailed) as refused:
        shop.kubectl("apply", "--server-side", f"--dry-run={dry_run}", "-f", "-", stdin=json.dumps(bad))
    assert "totl" in str(refused.value) and "line 2" in str(refused.value)
    assert "broken" not in shop.kubectl("get", "mv", "-o", "name")


def test_a_new_view_over_rows_that_are_there_is_built_and_exact(shop: Installed) -> None:
    big = view("big-spenders", "SELECT customer, n FROM spend WHERE n > 3")
    with Load(shop, seed=2) as load:
        with shop.timed("apply of a view to Ready, under load"):
            shop.cluster.apply(big, namespace=SHOP)
            shop.kubectl("wait", "mv", "big-spenders", "--for=condition=Ready", "--timeout=400s")
        load.more()
    big_spenders, spend = shop.read("big_spenders", "spend")
    found = {row["customer"]: row["n"] for row in big_spenders}
    assert found == {row["customer"]: row["n"] for row in spend if row["n"] > 3} and found


def test_kubectl_belvedere_asks_the_gateway_through_the_api_server(shop: Installed) -> None:
    """No port-forward, no address of the cluster's network: what somebody has who has a kubeconfig."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("operator", "viewserver"))

    def plugin(*words: str, account: str = "editor") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "belvedere_operator.plugin", "-n", SHOP, "--account", account, *words]
        environment = shop.cluster.environment | {"PYTHONPATH": path}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=READY_SECONDS)

    def told(*words: str) -> str:
        done = plugin(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    shop.put("orders", {"id": 7_000_000, "customer": 7_000_000, "placed": "2026-01-11", "total": "2.50"})
    until(lambda: plugin("get", "spend", "7000000").returncode == 0, READY_SECONDS, "a row of the view")
    row = json.loads(told("get", "spend", "7000000"))
    assert (row["customer"], row["n"], row["total"]) == (7_000_000, 1, "2.50")
    assert re.match(r"lag \d+\.\d{3} s, \d+ rows wait, epoch \d+", told("lag"))
    assert "orders" in told("explain", "spend") and told("quarantine", "spend") == ""
    assert "default" in plugin("status").stdout
    refused = plugin("verify", "spend")
    assert refused.returncode == 1 and "may not update viewpools/admin" in refused.stderr, "it costs as much as a build"
    shop.kubectl("create", "serviceaccount", "boss")
    shop.kubectl("create", "rolebinding", "boss", "--clusterrole=admin", f"--serviceaccount={SHOP}:boss")
    until(lambda: plugin("verify", "spend", account="boss").returncode == 0, READY_SECONDS, "the rights of an admin")
    whole = plugin("verify", "spend", account="boss").stdout
    assert re.search(r"^spend: \d+ rows at epoch \d+: equal$", whole, re.MULTILINE), whole
    refused = plugin("get", "spend", "7000000", account="stranger-to-all")
    assert refused.returncode == 1 and "stranger-to-all" in refused.stderr
    shop.kubectl("create", "serviceaccount", "outsider")
    refused = plugin("get", "spend", "7000000", account="outsider")
    assert refused.returncode == 1 and "materializedviews/rows" in refused.stderr


def test_the_pool_is_scaled_through_its_scale_subresource_under_load(shop: Installed) -> None:
    with Load(shop, seed=3) as load:
        shop.kubectl("scale", "viewpool/default", "--replicas=2")
        ready(shop, "viewserver", 2)
        load.more()
        shop.kubectl("scale", "viewpool/default", "--replicas=1")
        ready(shop, "viewserver", 1)
        load.more()
    assert load.result["writes"] > 0
