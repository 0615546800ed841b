"""The operator at work: a real API server with its controllers, a real gateway over a real database. No pods run."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere_operator.build.inputs import Capabilities
from belvedere_operator.build.network import role_binding_name
from belvedere_operator.decide import relations
from belvedere_operator.names import ZOOKEEPER_PATH, paused
from belvedere_operator.reconcile import verifications
from belvedere_operator.reconcile.resources import PoolKey
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, until
from tests.operator.running import NOBODY, RunningOperator, Shop, gateway, resource, table, view

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


NOTHING: dict[str, Any] = {"metadata": {}}


def put(url: str, relation: str, *rows: dict[str, object]) -> None:
    body = json.dumps(rows).encode()
    request = urllib.request.Request(
        f"{url}/v1/relations/{relation}/rows", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def names(url: str) -> set[str]:
    with urllib.request.urlopen(f"{url}/v1/relations", timeout=60) as answer:
        return {one["name"] for one in json.load(answer)["relations"]}


def test_a_file_of_tables_and_views_becomes_ready_in_a_pool_made_on_demand(shop: Shop, url: str) -> None:
    """In any order, as one change; the pool has everything that a pool needs."""
    shop.apply(
        view("a-top", "SELECT count(*) AS n FROM a_middle"),
        view("a-middle", "SELECT id, total FROM a_orders WHERE total > 1", freshness="5s"),
        table("a-orders"),
    )
    for name in ("a-top", "a-middle"):
        shop.wait("mv", name, "Ready", "True")
        shop.wait("mv", name, "Built", "True")
    shop.wait("bt", "a-orders", "Ready", "True")
    put(url, "a_orders", {"id": 1, "total": "5.00"}, {"id": 2, "total": "0.50"})
    pool = shop.get("vp", "default")
    assert pool["metadata"]["labels"]["belvedere.dev/made-on-demand"] == "true"
    # Each is written by itself: a status, then its Events, then the status of the pool.
    until(lambda: shop.get("mv", "a-middle")["status"].get("dependants") == ["a_top"], PATIENCE_S, "its readers")
    status = shop.get("mv", "a-middle")["status"]
    assert status["sqlName"] == "a_middle"
    assert status["observedGeneration"] == 1 and status["planVersion"] >= 1 and status["zones"]
    assert shop.condition("mv", "a-middle", "Fresh")[:2] == ("True", "WithinTarget")
    for reason, message in (("Ready", "it can be read"), ("Built", "is in service")):
        shop.told("MaterializedView", "a-middle", reason, message)
    deployments = {d["metadata"]["name"]: d for d in shop.cluster.get("deployments", namespace=shop.namespace)["items"]}
    assert set(deployments) == {f"default-{role}" for role in ("coordinator", "distributor", "viewserver", "gateway")}
    assert deployments["default-viewserver"]["spec"]["replicas"] == 1
    assert shop.exists("statefulset", "default-store") and shop.exists("pdb", "default-viewserver")
    assert shop.exists("networkpolicy", "default-members") and shop.exists("service", "default-gateway")
    shop.wait("vp", "default", "Ready", "True")
    shown = shop.kubectl("get", "mv", "a-middle").splitlines()[1].split()
    assert shown[:4] == ["a-middle", "default", "True", "True"]


def test_sql_that_is_refused_is_named_with_its_position_and_the_others_go_on(shop: Shop) -> None:
    shop.apply(
        table("b-orders"),
        view("b-good", "SELECT id FROM b_orders"),
        view("b-bad", "SELECT id,\n  nonsense(total) AS x FROM b_orders"),
        view("b-waits", "SELECT id FROM b_nowhere"),
    )
    shop.wait("mv", "b-good", "Ready", "True")
    message = shop.wait("mv", "b-bad", "Accepted", "False")
    assert "line 2" in message and "nonsense" in message
    assert shop.condition("mv", "b-bad", "Ready")[:2] == ("False", "NotAccepted")
    assert "b_nowhere" in shop.wait("mv", "b-waits", "Accepted", "False", "WaitsForRelation")
    shop.apply(view("b-bad", "SELECT id, upper('x') AS x FROM b_orders"), table("b-nowhere"))
    shop.wait("mv", "b-bad", "Ready", "True")
    shop.wait("mv", "b-waits", "Ready", "True")


def test_a_changed_query_takes_the_place_of_the_old_one(shop: Shop) -> None:
    shop.apply(table("c-orders"), view("c-view", "SELECT id FROM c_orders"))
    shop.wait("mv", "c-view", "Ready", "True")
    before = shop.get("mv", "c-view")["status"]
    shop.apply(view("c-view", "SELECT id, total FROM c_orders"))

    def changed() -> bool:
        status = shop.get("mv", "c-view")["status"]
        return bool(status["applied"] != before["applied"] and shop.condition("mv", "c-view", "Built")[0] == "True")

    until(changed, PATIENCE_S, "the new version")
    status = shop.get("mv", "c-view")["status"]
    assert status["observedGeneration"] == 2 and status["planVersion"] > before["planVersion"]
    shop.apply(view("c-view", "SELECT nothing FROM c_orders"))  # a bad one leaves the old one in service
    message = shop.wait("mv", "c-view", "Accepted", "False")
    assert "nothing" in message
    assert shop.condition("mv", "c-view", "Ready")[0] == "True"
    shop.apply(view("c-view", "SELECT id, total FROM c_orders"))  # and the old text mends it
    shop.wait("mv", "c-view", "Accepted", "True")


def test_a_column_is_added(shop: Shop) -> None:
    shop.apply(table("d-orders"))
    shop.wait("bt", "d-orders", "Ready", "True")
    columns = [*table("d-orders")["spec"]["columns"], {"name": "city", "type": "string"}]
    shop.apply(table("d-orders", columns=columns), view("d-view", "SELECT id, city FROM d_orders"))
    shop.wait("mv", "d-view", "Ready", "True")


def test_suspend_and_resume(shop: Shop, url: str) -> None:
    shop.apply(table("e-orders"), view("e-view", "SELECT id FROM e_orders"))
    shop.wait("mv", "e-view", "Ready", "True")
    shop.apply(view("e-view", "SELECT id FROM e_orders", suspend=True))
    shop.wait("mv", "e-view", "Ready", "False", "Suspended")
    assert "e_view" not in names(url)
    shop.apply(view("e-view", "SELECT id FROM e_orders", suspend=False))
    shop.wait("mv", "e-view", "Ready", "True")
    assert "e_view" in names(url)


def test_deletion_drops_or_retains_and_a_table_with_views_stays(shop: Shop, url: str) -> None:
    shop.apply(
        table("f-orders", reclaimPolicy="Delete"),
        table("f-kept"),
        view("f-view", "SELECT id FROM f_orders"),
        view("f-retained", "SELECT id FROM f_kept", reclaimPolicy="Retain"),
    )
    for name in ("f-view", "f-retained"):
        shop.wait("mv", name, "Ready", "True")
    shop.kubectl("delete", "bt", "f-orders", "--wait=false")
    assert "views read it: f_view" in shop.wait("bt", "f-orders", "Ready", "False", "Deleting")
    shop.kubectl("delete", "mv", "f-view", "f-retained", "--timeout=150s")
    until(lambda: not shop.exists("bt", "f-orders"), PATIENCE_S, "the end of the table")
    assert {"f_kept", "f_retained"} <= names(url) and not {"f_view", "f_orders"} & names(url)


def test_a_view_goes_with_its_pool_gone(shop: Shop) -> None:
    shop.apply(view("g-view", "SELECT 1 AS x FROM g_orders", pool="elsewhere"))
    assert "there is no ViewPool 'elsewhere'" in shop.wait("mv", "g-view", "Ready", "False", "PoolMissing")
    shop.kubectl("delete", "mv", "g-view", "--timeout=150s")


def test_a_view_goes_though_its_pool_does_not_answer_and_is_dropped_when_it_does(
    operator: RunningOperator, shop: Shop, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.apply(table("h-orders"), view("h-view", "SELECT id FROM h_orders"))
    shop.wait("mv", "h-view", "Ready", "True")
    monkeypatch.setattr(relations, "GRACE_S", 3.0)
    operator.point(shop.namespace, NOBODY)
    shop.wait("vp", "default", "Ready", "False")
    shop.kubectl("delete", "mv", "h-view", "--timeout=150s")
    until(lambda: shop.get("vp", "default")["status"].get("pendingDrops"), PATIENCE_S, "a note of it")
    assert shop.get("vp", "default")["status"]["pendingDrops"] == [{"kind": "MaterializedView", "name": "h_view"}]
    assert "h_view" in names(url)
    operator.point(shop.namespace, url)
    until(lambda: "h_view" not in names(url), PATIENCE_S, "the drop")
    until(lambda: not shop.get("vp", "default")["status"].get("pendingDrops"), PATIENCE_S, "the end of the note")


def test_a_pool_follows_its_spec_and_is_put_right(shop: Shop, operator: RunningOperator) -> None:
    shop.apply(resource("ViewPool", "one", replicas=2, distributors=1))

    def replicas(role: str) -> int:
        return int(shop.get("deployment", f"one-{role}")["spec"]["replicas"])

    until(lambda: shop.condition("vp", "one", "Progressing")[1], PATIENCE_S, "a pool whose objects were all applied")
    assert (replicas("viewserver"), replicas("distributor")) == (2, 1)
    shop.kubectl("scale", "vp/one", "--replicas=3")
    until(lambda: replicas("viewserver") == 3, PATIENCE_S, "the third")
    shop.told("ViewPool", "one", "ScaledUp", "view servers 2 -> 3")
    shop.kubectl("scale", "deployment/one-viewserver", "--replicas=7")  # somebody else's hand
    until(lambda: replicas("viewserver") == 3, PATIENCE_S, "what the pool says")
    shop.kubectl("delete", "deployment", "one-distributor")
    until(lambda: shop.exists("deployment", "one-distributor"), PATIENCE_S, "what was deleted")
    selector = shop.get("vp", "one")["status"]["selector"]
    assert "belvedere.dev/pool=one" in selector and "belvedere.dev/role=viewserver" in selector
    shop.kubectl("delete", "vp", "one", "--timeout=150s")
    until(lambda: not shop.exists("deployment", "one-viewserver"), PATIENCE_S, "the end of its objects")
    assert not shop.exists("clusterrolebinding", role_binding_name(shop.namespace, "one"))


def test_a_pool_comes_back_to_the_volume_that_was_kept_and_to_no_other_past(shop: Shop) -> None:
    """The volume says where its pool lies in ZooKeeper: with another path its rows would be there and not be found."""
    path = f"belvedere/{shop.namespace}/kept-12345678.owned"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "data-kept-store-0", "annotations": {ZOOKEEPER_PATH: path}}
    shop.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
    shop.apply(resource("ViewPool", "kept", replicas=1), resource("ViewPool", "anew", replicas=1))

    def place(name: str) -> str:
        return str(shop.get("vp", name).get("status", {}).get("zookeeper", ""))

    for name in ("kept", "anew"):
        until(lambda name=name: place(name), PATIENCE_S, "where it lies")  # type: ignore[misc]
    assert place("kept") == f"zookeeper:2181/{path}"
    template = shop.get("statefulset", "kept-store")["spec"]["volumeClaimTemplates"][0]["metadata"]
    assert template["annotations"][ZOOKEEPER_PATH] == path
    uid = shop.get("vp", "anew")["metadata"]["uid"]
    assert place("anew") == f"zookeeper:2181/belvedere/{shop.namespace}/anew-{uid[:8]}.owned"


def test_an_autoscaler_is_made_and_taken_away(shop: Shop, operator: RunningOperator) -> None:
    shop.apply(resource("ViewPool", "two", autoscaling={"maxReplicas": 4, "minReplicas": 2}))
    shop.wait("vp", "two", "Autoscaling", "True", "Active")
    assert shop.get("vp", "two")["spec"]["replicas"] == 2
    spec = shop.get("hpa", "two-viewserver")["spec"]
    assert (spec["scaleTargetRef"]["kind"], spec["minReplicas"], spec["maxReplicas"]) == ("ViewPool", 2, 4)
    shop.kubectl("patch", "vp", "two", "--type=json", "-p", '[{"op": "remove", "path": "/spec/autoscaling"}]')
    shop.wait("vp", "two", "Autoscaling", "False", "Fixed")
    assert not shop.exists("hpa", "two-viewserver") and shop.get("vp", "two")["spec"]["replicas"] == 2


def scaled_objects() -> dict[str, Any]:
    """The definition of KEDA's kind, as far as anybody here looks at it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "scaledobjects", "singular": "scaledobject", "kind": "ScaledObject"}
    spec = {"group": "keda.sh", "scope": "Namespaced", "names": names, "versions": [version]}
    meta = {"name": "scaledobjects.keda.sh"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def test_where_another_adapter_serves_external_metrics_keda_scales(
    shop: Shop, operator: RunningOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "other_provider", "prometheus-adapter/monitoring")
    shop.cluster.apply(scaled_objects())
    shop.cluster.wait("crd/scaledobjects.keda.sh", "Established")
    shop.apply(resource("ViewPool", "scaled", autoscaling={"maxReplicas": 4}))
    message = shop.wait("vp", "scaled", "Autoscaling", "False", "AnotherMetricsProvider")
    assert "prometheus-adapter/monitoring" in message and "scaler: keda" in message
    assert not shop.exists("hpa", "scaled-viewserver")
    monkeypatch.setattr(operator, "capabilities", Capabilities(keda=True))
    shop.apply(resource("ViewPool", "scaled", autoscaling={"maxReplicas": 4, "scaler": "keda"}))
    shop.wait("vp", "scaled", "Autoscaling", "True", "Active")
    spec = shop.get("scaledobject", "scaled-viewserver")["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "belvedere.dev/v1alpha1", "kind": "ViewPool", "name": "scaled"}
    assert [one["metadata"]["url"].rpartition("/scaling/")[2] for one in spec["triggers"]] == [
        f"{shop.namespace}/scaled"
    ] * 2
    shop.apply(resource("ViewPool", "scaled", autoscaling={"maxReplicas": 4, "scaler": "none"}))
    until(lambda: not shop.exists("scaledobject", "scaled-viewserver"), PATIENCE_S, "the end of its ScaledObject")


def test_pause(shop: Shop, operator: RunningOperator) -> None:
    shop.apply(resource("ViewPool", "three", replicas=1))
    until(lambda: shop.exists("deployment", "three-viewserver"), PATIENCE_S, "its deployments")
    shop.kubectl("annotate", "vp", "three", "belvedere.dev/paused=true")
    known = (shop.namespace, "three")
    until(lambda: paused(operator.resources.pool(known) or NOTHING), PATIENCE_S, "an operator that knows it")
    shop.kubectl("scale", "vp/three", "--replicas=2")
    shop.apply(table("p-orders", pool="three"))
    shop.apply(table("p-other"))  # of another pool: it goes on, so time has passed
    shop.wait("bt", "p-other", "Ready", "True")
    assert shop.get("deployment", "three-viewserver")["spec"]["replicas"] == 1
    assert "status" not in shop.get("bt", "p-orders")
    shop.kubectl("annotate", "vp", "three", "belvedere.dev/paused-")
    until(lambda: shop.get("deployment", "three-viewserver")["spec"]["replicas"] == 2, PATIENCE_S, "the second")
    shop.wait("bt", "p-orders", "Ready", "True")


def test_a_pool_that_cannot_be_says_why(shop: Shop) -> None:
    shop.apply(resource("ViewPool", "four", retention="3s"))
    assert "at least 9s" in shop.wait("vp", "four", "Ready", "False", "InvalidSpec")


def test_a_quota_that_is_exceeded_is_named(shop: Shop) -> None:
    """Pods are refused by the quota, not by us: what the Deployment tells is passed on."""
    shop.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}},
        namespace=shop.namespace,
    )
    shop.apply(resource("ViewPool", "five"))
    assert "exceeded quota" in shop.wait("vp", "five", "Progressing", "False", "Trouble")


def test_nothing_is_written_when_nothing_is_new(
    shop: Shop, operator: RunningOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over rounds that are counted, since how long one takes is the machine's business. Figures have their minute."""
    at, rounds, run = (shop.namespace, "default"), [0], operator.rounds.run

    def counted(key: PoolKey) -> float | None:
        again = run(key)
        rounds[0] += key == at
        return again

    monkeypatch.setattr(operator.rounds, "run", counted)
    shop.apply(table("q-orders"), view("q-view", "SELECT id FROM q_orders"))
    shop.wait("mv", "q-view", "Built", "True")
    left_alone = [("", 0)]

    def settled() -> bool:
        operator.leading.queue.add(at, 0.0)
        version = shop.get("mv", "q-view")["metadata"]["resourceVersion"]
        if version != left_alone[0][0]:
            left_alone[0] = version, rounds[0]
        return rounds[0] >= left_alone[0][1] + 4

    until(settled, PATIENCE_S, "a view that is left alone over rounds")


def test_a_verification_is_scheduled_and_its_result_is_said(
    shop: Shop, operator: RunningOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pods run here: the result is written into a pod's status, as a kubelet would do."""
    monkeypatch.setattr(verifications, "EVERY_S", 0.5)
    query = "SELECT id FROM v_orders"
    shop.apply(table("v-orders"), view("v-view", query, verify={"schedule": "0 3 * * *"}))
    shop.wait("mv", "v-view", "Ready", "True")
    until(lambda: shop.exists("cronjob", "default-verify-v-view"), PATIENCE_S, "its CronJob")
    job = shop.get("cronjob", "default-verify-v-view")["spec"]
    assert (job["schedule"], job["suspend"]) == ("0 3 * * *", False)
    template = job["jobTemplate"]["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "run", "labels": template["metadata"]["labels"]}}
    spec = {"containers": [{"name": "verify", "image": "localhost/none:1"}], "restartPolicy": "Never"}
    shop.apply(pod | {"spec": spec})
    report = {"view": "v_view", "ok": False, "rows": 3, "epoch": 5, "differences": 2, "problem": None}
    ended = {"exitCode": 3, "reason": "Error", "message": json.dumps(report), "finishedAt": "2026-01-02T03:00:00Z"}
    container = {"name": "verify", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Failed", "containerStatuses": [container | {"state": {"terminated": ended}}]}
    shop.kubectl("patch", "pod", "run", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    assert shop.wait("mv", "v-view", "Verified", "False", "Different") == "2 rows differ"
    found = shop.get("mv", "v-view")["status"]["lastVerification"]
    assert (found["rows"], found["differences"], found["time"]) == (3, 2, "2026-01-02T03:00:00Z")
    shop.told("MaterializedView", "v-view", "Different", "2 rows differ")
    shop.kubectl("patch", "mv", "v-view", "--type=json", "-p", '[{"op": "remove", "path": "/spec/verify"}]')
    until(lambda: not shop.exists("cronjob", "default-verify-v-view"), PATIENCE_S, "the end of its CronJob")
    assert shop.condition("mv", "v-view", "Verified")[0] == "False"  # what was found stays


def test_a_pool_that_refuses_the_operator_says_so(shop: Shop, operator: RunningOperator) -> None:
    """An address where something else answers."""
    operator.point(shop.namespace, operator.access.server.replace("https", "http"))
    shop.apply(table("w-orders"))
    shop.wait("bt", "w-orders", "Ready", "Unknown", "PoolNotReady")


def as_a_kubelet(shop: Shop, name: str, labels: dict[str, str], owner: dict[str, Any], **status: Any) -> None:
    """A pod with the status that a kubelet would write: no pods run here."""
    meta = {"name": name, "labels": labels, "ownerReferences": [owner]}
    spec = {"containers": [{"name": "verify", "image": "localhost/none:1"}], "restartPolicy": "Never"}
    shop.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    shop.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def test_a_verification_by_spark_that_was_asked_for_is_followed_to_its_end(
    shop: Shop, operator: RunningOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job is of the real Job controller; what its pods do is written by the test."""
    monkeypatch.setattr(verifications, "EVERY_S", 0.5)
    shop.apply(table("y-orders"), view("y-view", "SELECT id FROM y_orders"))
    shop.wait("mv", "y-view", "Ready", "True")
    request = ("annotate", "mv", "y-view", "--overwrite")
    shop.kubectl(*request, "belvedere.dev/verify=spark/1")
    shop.wait("mv", "y-view", "Verified", "Unknown", "NoSpark")
    assert not shop.exists("rolebinding", "default-spark")
    spark = {"image": "localhost/spark:1", "executors": 3}
    shop.kubectl("patch", "vp", "default", "--type=merge", "-p", json.dumps({"spec": {"spark": spark}}))
    until(lambda: shop.exists("rolebinding", "default-spark"), PATIENCE_S, "the rights of drivers")
    assert shop.exists("networkpolicy", "default-spark") and shop.exists("serviceaccount", "default-spark")
    shop.kubectl(*request, "belvedere.dev/verify=spark/2")

    def told() -> dict[str, Any]:
        jobs = shop.get("mv", "y-view").get("status", {}).get("jobs", ())
        return next((one for one in jobs if one.get("request") == "spark/2"), {})

    pending = until(told, PATIENCE_S, "its Job in the status")
    assert (pending["phase"], pending["engine"]) == ("Pending", "spark")
    job = shop.get("job", pending["name"])
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("MaterializedView", "y-view")
    template = job["spec"]["template"]
    assert template["spec"]["containers"][0]["args"][2:4] == ["verify", "y_view"]
    (pod,) = until(
        lambda: shop.cluster.get("pods", "-l", f"job-name={pending['name']}", namespace=shop.namespace)["items"],
        PATIENCE_S,
        "the pod of its driver",
    )
    driver = pod["metadata"]["name"]
    running = json.dumps({"status": {"phase": "Running"}})
    shop.kubectl("patch", "pod", driver, "--subresource=status", "--type=merge", "-p", running)
    labels = {"belvedere.dev/pool": "default", "belvedere.dev/role": "executor"}
    own = {"apiVersion": "v1", "kind": "Pod", "name": driver, "uid": pod["metadata"]["uid"]}
    as_a_kubelet(shop, "y-exec-1", labels, own, phase="Running")
    until(lambda: told()["phase"] == "Running" and told()["executors"] == 1, PATIENCE_S, "its executor")
    report = {"view": "y_view", "ok": True, "rows": 0, "epoch": 5, "differences": 0, "engine": "spark"}
    ended = {"exitCode": 0, "message": json.dumps(report), "finishedAt": "2036-01-02T03:00:00Z"}
    container = {"name": "verify", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    done = {"phase": "Succeeded", "containerStatuses": [container | {"state": {"terminated": ended}}]}
    shop.kubectl("patch", "pod", driver, "--subresource=status", "--type=merge", "-p", json.dumps({"status": done}))
    assert shop.wait("mv", "y-view", "Verified", "True", "NoDifference") == "0 rows equal a recomputation"
    until(lambda: told()["phase"] == "Succeeded", PATIENCE_S, "the end of its Job")
    assert shop.get("mv", "y-view")["status"]["lastVerification"]["engine"] == "spark"
    until(lambda: "VerifyStarted" in dict(shop.events("MaterializedView", "y-view")), PATIENCE_S, "an Event of it")
    # Cleaned up, it is not made again: the request was answered.
    shop.kubectl("delete", "job", pending["name"])
    seen = shop.get("mv", "y-view")["metadata"]["resourceVersion"]
    shop.kubectl("patch", "mv", "y-view", "--type=merge", "-p", json.dumps({"spec": {"freshness": "9s"}}))
    until(
        lambda: (
            shop.get("mv", "y-view")["status"]["observedGeneration"] == 2
            and shop.get("mv", "y-view")["metadata"]["resourceVersion"] != seen
        ),
        PATIENCE_S,
        "one more round",
    )
    assert not shop.exists("job", pending["name"]) and told()["phase"] == "Succeeded"


def test_a_pool_over_hbase_is_held_until_a_job_has_removed_what_it_has_there(
    shop: Shop, operator: RunningOperator
) -> None:
    backend = "hbase://hbase:2181/shop_views"
    shop.apply(resource("ViewPool", "z-pool", backend=backend, reclaimPolicy="Delete"))
    until(lambda: shop.exists("deployment", "z-pool-coordinator"), PATIENCE_S, "its objects")
    until(lambda: shop.get("vp", "z-pool")["metadata"].get("finalizers"), PATIENCE_S, "its finalizer")
    # A member that does not end by itself, as on a node that is gone; the controllers make no more pods here.
    labels = {"belvedere.dev/pool": "z-pool", "belvedere.dev/role": "coordinator"}
    spec = {"containers": [{"name": "x", "image": "localhost/none:1"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "z-member", "labels": labels}, "spec": spec}
    shop.apply(pod)
    shop.kubectl("delete", "vp", "z-pool", "--wait=false")

    def replicas() -> set[int]:
        deployments = shop.cluster.get("deployments", "-l", "belvedere.dev/pool=z-pool", namespace=shop.namespace)
        return {one["spec"]["replicas"] for one in deployments["items"]}

    until(lambda: replicas() == {0}, PATIENCE_S, "the end of its members")
    assert not shop.exists("job", "z-pool-discard") and shop.exists("vp", "z-pool")
    shop.kubectl("delete", "pod", "z-member", "--grace-period=0", "--force")
    until(lambda: shop.exists("job", "z-pool-discard"), PATIENCE_S, "the Job")
    job = shop.get("job", "z-pool-discard")
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][:2] == ["discard", backend]
    assert shop.exists("vp", "z-pool")
    (worker,) = until(
        lambda: shop.cluster.get("pods", "-l", "job-name=z-pool-discard", namespace=shop.namespace)["items"],
        PATIENCE_S,
        "its pod",
    )
    done = json.dumps({"status": {"phase": "Succeeded"}})
    name = worker["metadata"]["name"]
    shop.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", done)
    until(lambda: not shop.exists("vp", "z-pool"), PATIENCE_S, "the end of the pool")
    until(lambda: "Discarded" in dict(shop.events("ViewPool", "z-pool")), PATIENCE_S, "an Event of it")
