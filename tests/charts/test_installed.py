"""The chart on a real API server: what it installs is taken, upgraded and removed without a trace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts.conftest import CHART
from tests.kube import cluster
from tests.kube.cluster import Cluster
from tests.kube.fixtures import require_binaries
from tests.kube.kubernetes import PATIENCE_S, CommandFailed, until
from tests.operator.running import RunningOperator, Shop, gateway, table, view

pytestmark = pytest.mark.timeout(900)
# The kinds of the Prometheus operator and of cert-manager are not there.
KINDS = (
    "serviceaccount,service,configmap,deployment,statefulset,role,rolebinding,poddisruptionbudget,networkpolicy,"
    "clusterrole,clusterrolebinding"
)
DEFINITIONS = tuple(f"{plural}.belvedere.dev" for plural in ("basetables", "materializedviews", "viewpools"))


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of its own: definitions belong to one release, and other tests have theirs."""
    state = tmp_path_factory.mktemp("charts") / "state"
    running = cluster.up_control_plane(state, require_binaries(), ends_with_parent=True)
    yield running
    running.down()


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """Of the release, with restricted Pod Security, as people should have it."""
    name = f"systems-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


def of_release(kube: Cluster, namespace: str) -> set[str]:
    selector = ("-l", "app.kubernetes.io/part-of=belvedere", "-o", "name")
    return set(kube.kubectl("get", KINDS, "--namespace", namespace, *selector).split())


def install(kube: Cluster, namespace: str, *words: str) -> None:
    """As a release of this namespace, also where definitions are left of one in another."""
    where = ("--namespace", namespace, "--take-ownership")
    kube.helm("upgrade", "--install", "shop", str(CHART), *where, *words)


def test_it_is_installed_upgraded_and_uninstalled(control_plane: Cluster, namespace: str) -> None:
    install(control_plane, namespace)
    assert len(of_release(control_plane, namespace)) >= 18
    control_plane.established(*DEFINITIONS)
    created = until(
        lambda: control_plane.get("pods", namespace=namespace)["items"], PATIENCE_S, "pods that Pod Security admits"
    )
    assert created
    install(control_plane, namespace, "--set", "operator.replicas=1", "--set", "networkPolicy.enabled=false")
    found = control_plane.get("deployment", "shop-belvedere-operator", namespace=namespace)
    assert found["spec"]["replicas"] == 1
    assert "networkpolicy.networking.k8s.io/shop-belvedere-operator" not in of_release(control_plane, namespace)
    control_plane.helm("uninstall", "shop", "--namespace", namespace)
    assert of_release(control_plane, namespace) == set()
    kept = control_plane.kubectl("get", "crd", "-o", "name")
    assert "viewpools.belvedere.dev" in kept, "views go with their definitions: these are kept"


def test_a_definition_that_was_changed_is_upgraded(control_plane: Cluster, namespace: str) -> None:
    """Helm's own folder for definitions would leave it as it is."""
    install(control_plane, namespace)
    path = "/spec/versions/0/additionalPrinterColumns"
    change = [{"op": "remove", "path": path}]
    control_plane.kubectl("patch", "crd", "viewpools.belvedere.dev", "--type=json", "-p", json.dumps(change))
    assert not control_plane.get("crd", "viewpools.belvedere.dev")["spec"]["versions"][0].get(
        "additionalPrinterColumns"
    )
    install(control_plane, namespace, "--set", "operator.leaseSeconds=20")
    assert control_plane.get("crd", "viewpools.belvedere.dev")["spec"]["versions"][0]["additionalPrinterColumns"]
    control_plane.helm("uninstall", "shop", "--namespace", namespace)


def test_rights_of_users_are_as_said(control_plane: Cluster, namespace: str) -> None:
    """A user with the cluster's role edit may read rows of views; one with the role view sees definitions only."""
    install(control_plane, namespace)
    for role in ("view", "edit"):
        words = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er", "--namespace", namespace)
        control_plane.kubectl(*words)

    def may(user: str, verb: str, kind: str, part: str = "") -> bool:
        what = (f"{kind}.belvedere.dev", f"--subresource={part}")
        words = ("auth", "can-i", verb, *what, f"--as={user}", "--namespace", namespace)
        try:
            return control_plane.kubectl(*words).strip() == "yes"
        except CommandFailed:
            return False

    until(lambda: may("editer", "get", "materializedviews", "rows"), PATIENCE_S, "the aggregated role")
    assert may("editer", "create", "basetables", "rows")
    assert may("viewer", "list", "materializedviews")
    assert not may("viewer", "get", "materializedviews", "rows")
    assert not may("viewer", "create", "materializedviews")
    control_plane.helm("uninstall", "shop", "--namespace", namespace)


def test_an_operator_works_with_definitions_of_an_older_version(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Somebody upgraded the operator alone (`crds.install=false`): what the definitions do not have is not stored, and
    everything else goes on, without an end of writes."""
    install(control_plane, namespace)
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
    later = (f"{schema}/status/properties/zonePath", f"{schema}/status/properties/figuresTime")
    change = [{"op": "remove", "path": path} for path in later]
    control_plane.kubectl("patch", "crd", "materializedviews.belvedere.dev", "--type=json", "-p", json.dumps(change))
    control_plane.established(*DEFINITIONS)
    control_plane.apply(view("probe", "SELECT 1 AS x", suspend=True, pool="nobody"), namespace=namespace)
    until(lambda: not stores_zone_paths(control_plane, namespace), PATIENCE_S, "the older definition in force")
    with gateway(tmp_path) as url:
        running = RunningOperator(control_plane, urls={namespace: url})
        running.start()
        try:
            shop = Shop(control_plane, namespace)
            shop.apply(table("old-orders"), view("old-view", "SELECT id FROM old_orders"))
            shop.wait("mv", "old-view", "Built", "True")
            status = shop.get("mv", "old-view")["status"]
            assert status["zones"] and "zonePath" not in status
            versions: list[str] = []

            def settled() -> bool:
                running.leading.queue.add((namespace, "default"), 0.0)
                versions.append(shop.get("mv", "old-view")["metadata"]["resourceVersion"])
                return len(versions) > 10 and len(set(versions[-10:])) == 1

            until(settled, PATIENCE_S, "a resource that is left alone")
            shop.kubectl("delete", "mv", "old-view", "--timeout=150s")
        finally:
            running.stop()
    install(control_plane, namespace, "--set", "operator.leaseSeconds=21")
    control_plane.helm("uninstall", "shop", "--namespace", namespace)


def stores_zone_paths(kube: Cluster, namespace: str) -> bool:
    """Whether a path that is written into the status of a view stays there."""
    words = ("patch", "mv", "probe", "--namespace", namespace, "--subresource=status", "--type=merge", "-p")
    kube.kubectl(*words, json.dumps({"status": {"zonePath": None}}))
    kube.kubectl(*words, json.dumps({"status": {"zonePath": "(a)"}}))
    return "zonePath" in kube.get("mv", "probe", namespace=namespace).get("status", {})
