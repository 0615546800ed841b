"""End to end: views, pools and the operator are taken away. These tests end the `shop` of those before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kube.cluster import Cluster
from tests.kube.installed import OPERATOR, READY_SECONDS, RELEASE, SHOP, SYSTEM, Installed
from tests.kube.kubernetes import until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]


# What is granted and is not asked for in these tests, with the reason why it has to be.
NOT_TRIED = {
    ("rbac.authorization.k8s.io", "rolebindings", "create"): "pools with an image of Spark",
    ("rbac.authorization.k8s.io", "rolebindings", "patch"): "pools with an image of Spark",
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
        shop.cluster.kubectl("delete", "namespace", SHOP, "--timeout=600s", seconds=660)


def requests_of_the_operator(shop: Installed) -> list[dict[str, Any]]:
    if not isinstance(shop.cluster, Cluster):
        pytest.skip("the audit log of the cluster that BELVEDERE_E2E_KUBECONFIG names is not ours to read")
    user = f"system:serviceaccount:{SYSTEM}:{OPERATOR}"
    lines = shop.cluster.layout.audit_log.read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["user"]["username"] == user]


def needed_by(entries: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    # Its own objects, under roles that others see as well.
    reader = {("", "configmaps", "get"), ("", "configmaps", "list"), ("", "configmaps", "watch")}
    return asked(entries) - reader


def test_the_operator_asks_for_nothing_that_it_may_not(shop: Installed) -> None:
    entries = requests_of_the_operator(shop)
    # By its roles: a namespace that goes refuses new objects as well, with the same code.
    decision = "authorization.k8s.io/decision"
    refused = {
        (e["verb"], e["objectRef"]["resource"]) for e in entries if e.get("annotations", {}).get(decision) == "forbid"
    }
    assert not refused, "it asks for what it may not do"
    assert needed_by(entries) <= granted(shop)


@pytest.mark.long
def test_the_operator_has_no_rights_that_nobody_needs(shop: Installed) -> None:
    """After all other tests of pods (`make e2e`): what is needed is what they made it do."""
    needed, rights = needed_by(requests_of_the_operator(shop)), granted(shop)
    assert rights - needed <= NOT_TRIED.keys(), f"rights that nobody needs: {rights - needed - NOT_TRIED.keys()}"
    assert NOT_TRIED.keys() <= rights, "rights that are not there (any more)"


def test_uninstalling_leaves_nothing_but_the_definitions(shop: Installed) -> None:
    shop.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")

    def left() -> list[str]:
        kinds = "clusterrole,clusterrolebinding,validatingwebhookconfiguration,apiservice,namespace"
        names = shop.cluster.kubectl("get", kinds, "-o", "name").split()
        ours = [name for name in names if RELEASE in name and not name.endswith((SYSTEM, ".belvedere.dev"))]
        return [*ours, *(name for name in names if "external.metrics" in name)]

    until(lambda: not left(), READY_SECONDS, "the end of what the operator made for itself")
    assert "materializedviews.belvedere.dev" in shop.cluster.kubectl("get", "crd", "-o", "name")
    shop.cluster.kubectl("delete", "namespace", SYSTEM, "--timeout=600s", seconds=660)
