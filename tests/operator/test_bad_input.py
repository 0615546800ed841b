"""What goes wrong around an operator: each has a clear status, and nothing is lost. A real API server, no pods."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere_operator.admission.webhook import configuration
from belvedere_operator.kube.client import Kube, Resource
from belvedere_operator.kube.config import of_kubeconfig
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.reconcile.pool_round import PoolRounds
from belvedere_operator.reconcile.resources import Resources
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, CommandFailed, until
from tests.operator.running import SETTINGS, RunningOperator, Shop, gateway, resource, table, view

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def operator(crds: Cluster) -> Iterator[RunningOperator]:
    running = RunningOperator(crds)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def shop(operator: RunningOperator, url: str, namespace: str) -> Shop:
    operator.urls[namespace] = url
    return Shop(operator.cluster, namespace)


class Killed(BaseException):
    """The process ends here, whatever it was about to do."""


class MortalKube(Kube):
    """Ends its process at one of its requests: before the API server has it, or after."""

    left = 0
    after = False

    def request(self, method: str, path: str, body: Any = None, **more: Any) -> Resource:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        found = super().request(method, path, body, **more)
        if self.left == 0:
            raise Killed
        return found


def test_an_operator_that_is_killed_at_any_request_is_followed_by_one_that_ends_it(
    crds: Cluster, namespace: str, url: str
) -> None:
    """Rounds of operators that live for 1, 2, 3, … requests more than the one before, then one that lives."""
    shop = Shop(crds, namespace)
    crds.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SETTINGS.namespace}})  # for its Secrets
    shop.apply(resource("ViewPool", "default", replicas=1))
    shop.apply(table("k-orders"), view("k-view", "SELECT id FROM k_orders"))
    kube = MortalKube(of_kubeconfig(crds.kubeconfig))
    deaths = 0
    for number in range(1, 200):
        kube.left, kube.after = number, number % 2 == 0
        resources = Resources()
        rounds = PoolRounds(kube, resources, Gateways(locate=lambda key: url), SETTINGS)
        try:
            resources.load(kube, [namespace])
            for _ in range(2):
                rounds.run((namespace, "default"))
        except Killed:
            deaths += 1
            if number == 4:  # somebody changes it meanwhile
                kube.left = 0
                shop.apply(view("k-view", "SELECT id, total FROM k_orders"))
            continue
        break
    kube.left = 0
    assert deaths > 4
    status = shop.get("mv", "k-view")["status"]
    assert status["observedGeneration"] == 2 and shop.condition("mv", "k-view", "Ready")[0] == "True"
    assert "total" in json.dumps(kube_rows(url, "k_view"))
    shop.kubectl("delete", "mv", "k-view", "--wait=false")
    for number in range(1, 200):
        kube.left = number
        resources = Resources()
        rounds = PoolRounds(kube, resources, Gateways(locate=lambda key: url), SETTINGS)
        try:
            resources.load(kube, [namespace])
            rounds.run((namespace, "default"))
        except Killed:
            continue
        break
    assert not shop.exists("mv", "k-view") and kube_rows(url, "k_view") is None
    kube.close()


def kube_rows(url: str, relation: str) -> Any:
    """What the pool says of a relation; None if it has none of that name."""
    try:
        with urllib.request.urlopen(f"{url}/v1/relations/{relation}", timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        assert error.code == 404
        return None


def test_a_text_that_changes_while_it_is_applied_ends_as_the_last_one(shop: Shop, url: str) -> None:
    shop.apply(table("l-orders"))
    for number in range(8):
        shop.apply(view("l-view", f"SELECT id, total, {number} AS version FROM l_orders"))
    shop.apply(view("l-view", "SELECT id, total, 8 AS the_last FROM l_orders"))
    until(lambda: shop.get("mv", "l-view").get("status", {}).get("observedGeneration") == 9, PATIENCE_S, "the last one")
    shop.wait("mv", "l-view", "Built", "True")
    until(lambda: "the_last" in json.dumps(kube_rows(url, "l_view")), PATIENCE_S, "the last one in the pool")


def test_somebody_elses_hand_on_our_objects_is_named_and_taken_off(shop: Shop) -> None:
    shop.apply(resource("ViewPool", "held", replicas=2))
    until(lambda: shop.exists("deployment", "held-viewserver"), PATIENCE_S, "its deployment")
    shop.kubectl("scale", "deployment/held-viewserver", "--replicas=5")

    message = shop.told("ViewPool", "held", "FieldConflict", "Deployment held-viewserver")
    assert "kubectl" in message and "taken the fields back" in message
    until(lambda: shop.get("deployment", "held-viewserver")["spec"]["replicas"] == 2, PATIENCE_S, "what the pool says")


def test_one_name_in_sql_in_two_pools_is_two_views_and_in_one_pool_the_older_has_it(shop: Shop) -> None:
    shop.apply(table("m-orders"), view("m-first", "SELECT id FROM m_orders", name="m_same"))
    shop.wait("mv", "m-first", "Ready", "True")
    shop.apply(view("m-second", "SELECT id FROM m_orders", name="m_same"))
    assert "MaterializedView 'm-first' is 'm_same' in SQL already" in shop.wait("mv", "m-second", "Ready", "False")
    shop.apply(view("m-third", "SELECT id FROM m_orders", name="m_same", pool="m-other"))
    shop.wait("mv", "m-third", "Ready", "False", "PoolMissing")
    shop.kubectl("delete", "mv", "m-second", "--timeout=150s")
    assert shop.condition("mv", "m-first", "Ready")[0] == "True", "the loser goes without the view of the other"


def test_a_pod_that_does_not_come_up_is_named_with_the_reason(shop: Shop) -> None:
    """No kubelet is here: the pod says what one would."""
    shop.apply(resource("ViewPool", "bad", replicas=1))
    until(lambda: shop.exists("deployment", "bad-viewserver"), PATIENCE_S, "its deployment")
    selector = ("-l", "belvedere.dev/pool=bad,belvedere.dev/role=viewserver", "-o", "name")
    pod = until(lambda: shop.kubectl("get", "pod", *selector).strip(), PATIENCE_S, "a pod")
    state = {"waiting": {"reason": "ErrImagePull", "message": "registry/none:9 was not found"}}
    container = {"name": "viewserver", "image": "registry/none:9", "imageID": "", "ready": False, "restartCount": 0}
    # No node is here either, which every other pod says.
    status = {"phase": "Pending", "conditions": [], "containerStatuses": [container | {"state": state}]}
    shop.kubectl("patch", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    expected = f"viewserver: pod {pod.removeprefix('pod/')}: ErrImagePull: registry/none:9 was not found"
    until(lambda: expected in shop.condition("vp", "bad", "Progressing")[2], PATIENCE_S, expected)
    assert "Unschedulable: no nodes available" in shop.wait("vp", "bad", "Progressing", "False", "Trouble")


def test_without_its_webhook_no_sql_is_stored_and_deletion_works(shop: Shop, crds: Cluster) -> None:
    """Fails closed: an error that comes later is seen by fewer people. What the operator itself writes (finalizers) and
    what means nothing to the SQL (labels) is not judged, or a view could not go."""
    shop.apply(table("n-orders"), view("n-view", "SELECT id FROM n_orders"))
    shop.wait("mv", "n-view", "Ready", "True")
    assert shop.get("mv", "n-view")["metadata"]["finalizers"], "something holds it"
    name = f"dead-{shop.namespace}"
    crds.apply(configuration(name, {"url": "https://127.0.0.1:9/admission"}, [shop.namespace]))
    try:
        until(lambda: _refused(shop), PATIENCE_S, "a refusal")
        assert "connection refused" in _refused(shop)
        with pytest.raises(CommandFailed, match="failed calling webhook"):
            shop.apply(view("n-view", "SELECT id, total FROM n_orders"))
        shop.kubectl("label", "mv", "n-view", "team=data")
        shop.kubectl("delete", "mv", "n-view", "--timeout=150s")
        assert not shop.exists("mv", "n-view")
    finally:
        crds.kubectl("delete", "validatingwebhookconfiguration", name)


def _refused(shop: Shop) -> str:
    """What is said of a new view; empty if it was stored."""
    try:
        shop.apply(view("n-other", "SELECT total FROM n_orders"))
    except CommandFailed as failure:
        return str(failure)
    return ""
