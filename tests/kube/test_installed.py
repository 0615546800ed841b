"""End to end: chart, operator, gateway and pool as pods; users with their own rights; trouble under load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kube.cluster import Cluster
from tests.kube.installed import AUTOSCALED, OPERATOR, RELEASE, SHOP, SYSTEM, Installed, Load, ready
from tests.kube.kubernetes import CommandFailed, Kubernetes, Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]
API = "belvedere.dev/v1alpha1"


@pytest.fixture(scope="module")
def shop(node: Kubernetes) -> Iterator[Installed]:
    made = Installed(node)
    made.install()
    made.apply_shop()
    yield made
    made.cluster.kubectl("delete", "namespace", SHOP, "--ignore-not-found", "--wait=false")


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
    until(lambda: shop.http(path, client="stranger")[0] == 200, 60.0, "the right to read views")
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
            shop.kubectl("wait", "mv", "big-spenders", "--for=condition=Ready", "--timeout=180s")
        load.more()
    found = {row["customer"]: row["n"] for row in shop.http("/v1/relations/big_spenders/rows?limit=100000")[1]["rows"]}
    spend = shop.http("/v1/relations/spend/rows?limit=100000")[1]["rows"]
    assert found == {row["customer"]: row["n"] for row in spend if row["n"] > 3} and found


def test_the_pool_is_scaled_through_its_scale_subresource_under_load(shop: Installed) -> None:
    with Load(shop, seed=3) as load:
        shop.kubectl("scale", "viewpool/default", "--replicas=2")
        ready(shop, "viewserver", 2)
        load.more()
        shop.kubectl("scale", "viewpool/default", "--replicas=1")
        ready(shop, "viewserver", 1)
        load.more()
    assert load.result["writes"] > 0


def test_an_autoscaler_follows_the_load_from_1_to_3_and_back(shop: Installed) -> None:
    """A real HorizontalPodAutoscaler, the operator's external metrics, view servers with little CPU."""
    patch = ("patch", "viewpool", "default", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": AUTOSCALED}))
    until(lambda: limited(shop) == ["200m"], 120.0, "a view server with a limit")
    ready(shop, "viewserver", 1)
    with Load(shop, seed=60, rows=400) as load:
        with shop.timed("load to three view servers Ready"):
            ready(shop, "viewserver", 3)
        load.more()
    with shop.timed("end of the load to one view server"):
        ready(shop, "viewserver", 1)
    assert load.result["writes"] > 0
    told = shop.kubectl(
        "get", "events", "-o", "jsonpath={range .items[*]}{.involvedObject.kind}: {.message}{'\\n'}{end}"
    )
    assert "New size: 3" in told or "New size: 2" in told
    shop.kubectl(*patch, json.dumps({"spec": {"autoscaling": None, "templates": None, "replicas": 1}}))
    until(lambda: limited(shop) == [None], 120.0, "a view server without a limit")
    ready(shop, "viewserver", 1)


def limited(shop: Installed) -> list[str | None]:
    return [pod["spec"]["containers"][0]["resources"].get("limits", {}).get("cpu") for pod in shop.pods("viewserver")]


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
        pytest.param("coordinator", marks=pytest.mark.long),
        pytest.param("distributor", marks=pytest.mark.long),
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
            until(lambda: len(shop.pods("viewserver")) == 2, 120.0, "a second view server")
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
        until(lambda: shop.pods("viewserver") and shop.pods("viewserver") != [pod], 120.0, "another view server")
        ready(shop, "viewserver", 1)
        load.more()
    assert load.result["writes"] > 0


# What is granted and is not asked for in these tests, with the reason why it has to be.
NOT_TRIED = {
    ("", "pods", "list"): "verifications on a schedule",
    ("batch", "cronjobs", "create"): "verifications on a schedule",
    ("batch", "cronjobs", "patch"): "verifications on a schedule",
    ("batch", "cronjobs", "delete"): "verifications on a schedule",
    ("keda.sh", "scaledobjects", "create"): "clusters with KEDA",
    ("keda.sh", "scaledobjects", "patch"): "clusters with KEDA",
    ("keda.sh", "scaledobjects", "delete"): "clusters with KEDA",
    ("monitoring.coreos.com", "servicemonitors", "create"): "clusters with the Prometheus operator",
    ("monitoring.coreos.com", "servicemonitors", "patch"): "clusters with the Prometheus operator",
    ("belvedere.dev", "viewpools/finalizers", "update"): "OwnerReferencesPermissionEnforcement (OpenShift)",
    ("belvedere.dev", "materializedviews/finalizers", "update"): "OwnerReferencesPermissionEnforcement (OpenShift)",
    ("belvedere.dev", "viewpools/admin", "update"): "asked by the gateway, not of the API server",
    ("belvedere.dev", "basetables/rows", "get"): "asked by the gateway, not of the API server",
    ("belvedere.dev", "materializedviews/rows", "get"): "asked by the gateway, not of the API server",
    ("rbac.authorization.k8s.io", "clusterroles", "bind"): "asked when a binding is made",
    ("", "secrets", "patch"): "the certificate is renewed",
    ("coordination.k8s.io", "leases", "patch"): "a leader that is asked to end hands its lease over",
}


def granted(shop: Installed) -> set[tuple[str, str, str]]:
    found = set()
    for kind in ("clusterrole", "role"):
        for each in shop.cluster.get(kind, namespace=SYSTEM)["items"]:
            if each["metadata"]["name"] in (OPERATOR, f"{OPERATOR}-pools"):
                for rule in each["rules"]:
                    found |= {
                        (group, resource, verb)
                        for group in rule["apiGroups"]
                        for resource in rule["resources"]
                        for verb in rule["verbs"]
                    }
    return found


def asked(entries: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """As authorization sees it: an apply that made the object needs the right to create it as well."""
    found = set()
    for entry in entries:
        reference = entry.get("objectRef") or {}
        if "resource" not in reference:
            continue  # discovery
        resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
        group = reference.get("apiGroup", "")
        found.add((group, resource, entry["verb"]))
        if entry["verb"] == "patch" and entry["responseStatus"]["code"] == 201:
            found.add((group, resource, "create"))
    return found


def test_a_namespace_goes_with_its_views_and_their_pool(shop: Installed) -> None:
    """Nothing holds it up: finalizers are let go while everything behind them goes, too."""
    with shop.timed("delete of a namespace with views and their pool"):
        shop.cluster.kubectl("delete", "namespace", SHOP, "--timeout=240s", seconds=300)


def test_the_operator_has_the_rights_that_it_needs_and_no_more(shop: Installed) -> None:
    if not isinstance(shop.cluster, Cluster):
        pytest.skip("the audit log of the cluster that BELVEDERE_E2E_KUBECONFIG names is not ours to read")
    user = f"system:serviceaccount:{SYSTEM}:{OPERATOR}"
    lines = shop.cluster.layout.audit_log.read_text().splitlines()
    entries = [entry for entry in map(json.loads, lines) if entry["user"]["username"] == user]
    # By its roles: a namespace that goes refuses new objects as well, with the same code.
    decision = "authorization.k8s.io/decision"
    refused = {
        (e["verb"], e["objectRef"]["resource"]) for e in entries if e.get("annotations", {}).get(decision) == "forbid"
    }
    assert not refused, "it asks for what it may not do"
    # Its own objects, under roles that others see as well.
    reader = {("", "configmaps", "get"), ("", "configmaps", "list"), ("", "configmaps", "watch")}
    needed = asked(entries) - reader
    rights = granted(shop)
    assert needed <= rights
    assert rights - needed <= NOT_TRIED.keys(), "rights that nobody needs"
    assert NOT_TRIED.keys() <= rights, "rights that are not there (any more)"


def test_uninstalling_leaves_nothing_but_the_definitions(shop: Installed) -> None:
    shop.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")

    def left() -> list[str]:
        kinds = "clusterrole,clusterrolebinding,validatingwebhookconfiguration,apiservice,namespace"
        names = shop.cluster.kubectl("get", kinds, "-o", "name").split()
        ours = [name for name in names if RELEASE in name and not name.endswith((SYSTEM, ".belvedere.dev"))]
        return [*ours, *(name for name in names if "external.metrics" in name)]

    until(lambda: not left(), 60.0, "the end of what the operator made for itself")
    assert "materializedviews.belvedere.dev" in shop.cluster.kubectl("get", "crd", "-o", "name")
    shop.cluster.kubectl("delete", "namespace", SYSTEM, "--timeout=120s", seconds=180)
