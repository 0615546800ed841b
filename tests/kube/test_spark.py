"""End to end: views are recomputed by Spark, its driver a Job and its executors pods, while pods are killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kube import damage, images
from tests.kube.cluster import Cluster
from tests.kube.installed import READY_SECONDS, RELEASE, SHOP, Installed, Load
from tests.kube.kubernetes import Object, until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow, pytest.mark.long]
SMALL = {"heap": "512m", "overhead": "512m", "cpu": "50m"}
SPARK = {"image": images.SPARK.name, "executors": 1, "driver": SMALL, "executor": SMALL}
PROGRAM = Path(damage.__file__).read_text()


@pytest.fixture(scope="module")
def spark_pool(shop: Installed) -> Iterator[Installed]:
    """The shop, whose pool has an image of Spark, with some rows."""
    if isinstance(shop.cluster, Cluster):
        with shop.timed("import of the image of Spark"):
            shop.cluster.import_image(images.archive_of(images.SPARK))
    patch = ("patch", "viewpool", "default", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": {"spark": SPARK}}))
    until(lambda: "default-spark" in shop.kubectl("get", "rolebinding", "-o", "name"), READY_SECONDS, "its rights")
    with Load(shop, seed=80) as load:
        load.more(2)
    yield shop
    shop.kubectl(*patch, json.dumps({"spec": {"spark": None}}))


def ask(shop: Installed, view: str, request: str) -> None:
    shop.kubectl("annotate", "mv", view, f"belvedere.dev/verify={request}", "--overwrite")


def job(shop: Installed, view: str, request: str) -> dict[str, Any]:
    jobs = shop.get("mv", view).get("status", {}).get("jobs", ())
    return next((one for one in jobs if one.get("request") == request), {})


def ended(shop: Installed, view: str, request: str) -> dict[str, Any]:
    """The Job of a request, when it has ended and its result is in the status."""

    def found() -> dict[str, Any]:
        told = job(shop, view, request)
        if told.get("phase") not in ("Succeeded", "Failed"):
            return {}
        when = shop.get("mv", view)["status"].get("lastVerification", {}).get("time", "")
        return told if when >= told["startedAt"] or told["phase"] == "Failed" else {}

    try:
        return until(found, READY_SECONDS, f"the end of the verification {request} of {view}")
    except AssertionError as error:
        pods = shop.kubectl("get", "pods", "-o", "wide")
        raise AssertionError(f"{error}; {job(shop, view, request)}\n{pods}") from None


def drivers(shop: Installed, request: str, view: str) -> list[Object]:
    """Pods of a Job that run."""
    name = until(lambda: job(shop, view, request).get("name"), READY_SECONDS, f"a Job for {request}")
    pods = shop.cluster.get("pods", "-l", f"job-name={name}", namespace=SHOP)["items"]
    return [
        pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def executors(shop: Installed, driver: str) -> list[Object]:
    """Of one driver, those that run."""
    return [
        pod
        for pod in shop.pods("executor")
        if pod["metadata"]["ownerReferences"][0]["name"] == driver and pod["status"].get("phase") == "Running"
    ]


def damaged(shop: Installed, *words: str) -> dict[str, Any]:
    # A store takes writes of epochs that are not collected yet; a pool that nobody writes to has only old ones.
    shop.put("orders", {"id": 999_999, "customer": 1, "placed": "2026-01-01", "total": "1.00"})
    told = shop.kubectl("exec", "-i", "deploy/default-gateway", "--", "python", "-", *words, stdin=PROGRAM)
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def test_a_view_is_recomputed_in_pods_and_planted_damage_is_found(spark_pool: Installed) -> None:
    shop = spark_pool
    with shop.timed("verification of a view by Spark in pods, from the request to the result"):
        ask(shop, "spend", "spark/equal")
        (driver,) = until(lambda: drivers(shop, "spark/equal", "spend"), READY_SECONDS, "a driver")
        (executor,) = until(lambda: executors(shop, driver["metadata"]["name"]), READY_SECONDS, "an executor")
        found = ended(shop, "spend", "spark/equal")
    assert (found["phase"], found["engine"]) == ("Succeeded", "spark"), found
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert executor["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    status = shop.get("mv", "spend")["status"]
    assert shop.condition("mv", "spend", "Verified").startswith("True NoDifference"), status
    assert status["lastVerification"]["engine"] == "spark" and status["lastVerification"]["rows"] > 10
    assert "VerifyStarted: verification by spark" in shop.events("MaterializedView", "spend")
    until(lambda: not shop.pods("executor"), READY_SECONDS, "the end of its executors")
    planted = damaged(shop, "plant", "spend")
    try:
        ask(shop, "spend", "spark/damaged")
        found = ended(shop, "spend", "spark/damaged")
        assert found["phase"] == "Succeeded", "a difference is a result"
        told = shop.wait("mv", "spend", "Verified", "False Different", 60)
        assert "rows differ" in told
        assert shop.get("mv", "spend")["status"]["lastVerification"]["differences"] >= 1
    finally:
        damaged(shop, "undo", "spend", *(str(planted[name]) for name in ("id", "epoch", "value", "key")))
    assert "equal a recomputation" in shop.verify("spend")


@pytest.mark.long
def test_an_executor_and_the_driver_are_killed_and_the_result_comes_all_the_same(spark_pool: Installed) -> None:
    shop = spark_pool
    ask(shop, "order-lines", "spark/executor")
    (driver,) = until(lambda: drivers(shop, "spark/executor", "order-lines"), READY_SECONDS, "a driver")
    name = driver["metadata"]["name"]
    (first,) = until(lambda: executors(shop, name), READY_SECONDS, "an executor")
    shop.kill(first)
    found = ended(shop, "order-lines", "spark/executor")
    assert (found["phase"], found["attempts"]) == ("Succeeded", 1), "the driver replaced it"
    assert shop.condition("mv", "order-lines", "Verified").startswith("True")
    ask(shop, "order-lines", "spark/driver")
    (driver,) = until(lambda: drivers(shop, "spark/driver", "order-lines"), READY_SECONDS, "a driver")
    name = driver["metadata"]["name"]
    until(lambda: executors(shop, name), READY_SECONDS, "an executor")
    shop.kill(driver)
    found = ended(shop, "order-lines", "spark/driver")
    assert found["phase"] == "Succeeded" and found["attempts"] == 2, found
    assert shop.condition("mv", "order-lines", "Verified").startswith("True")
    assert "VerifyRestarted" in shop.events("MaterializedView", "order-lines")
    until(lambda: not shop.pods("executor"), READY_SECONDS, "the end of all executors, those of the dead driver too")


@pytest.mark.long
def test_a_view_is_built_by_spark_over_rows_that_are_there_while_writes_go_on(spark_pool: Installed) -> None:
    shop = spark_pool
    query = "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer"
    spec = {"query": query, "build": "spark"}
    meta = {"name": "by-spark"}
    built = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "MaterializedView", "metadata": meta, "spec": spec}
    with Load(shop, seed=81) as load:
        with shop.timed("build of a view by Spark in pods, under load"):
            shop.cluster.apply(built, namespace=SHOP)
            (driver,) = until(lambda: shop.pods("build"), READY_SECONDS, "the driver of its build")
            shop.wait("mv", "by-spark", "Built", "True Built")
        load.more(1)
    told = next(one for one in shop.get("mv", "by-spark")["status"]["jobs"] if one["kind"] == "Build")
    assert (told["phase"], told["engine"]) in (("Succeeded", "spark"), ("Running", "spark")), told
    assert driver["spec"]["serviceAccountName"] == "default-spark"
    assert "BuildStarted" in shop.events("MaterializedView", "by-spark")
    assert "equal a recomputation" in shop.verify("by_spark")
    planted = damaged(shop, "plant", "by_spark")
    shop.kubectl("annotate", "mv", "by-spark", "belvedere.dev/repair=repair/1")

    def repaired() -> dict[str, Any]:
        found: dict[str, Any] = shop.get("mv", "by-spark")["status"].get("lastRepair", {})
        return found

    assert until(repaired, READY_SECONDS, f"the repair of {planted}")["whole"] is True
    assert "Repaired: view by_spark: 1 rows mended" in shop.events("MaterializedView", "by-spark")
    assert "equal a recomputation" in shop.verify("by_spark")
    shop.kubectl("delete", "mv", "by-spark", "--timeout=400s")


@pytest.mark.long
def test_a_schedule_runs_spark_and_a_change_is_verified_by_it(spark_pool: Installed) -> None:
    shop = spark_pool
    patch = ("patch", "mv", "city-revenue", "--type=merge", "-p")
    shop.kubectl(*patch, json.dumps({"spec": {"verify": {"schedule": "* * * * *", "engine": "spark"}}}))

    def verified() -> dict[str, Any]:
        told: dict[str, Any] = shop.get("mv", "city-revenue")["status"].get("lastVerification", {})
        return told if told.get("engine") == "spark" else {}

    assert until(verified, READY_SECONDS, "a verification by schedule")["differences"] == 0
    shop.kubectl(*patch, json.dumps({"spec": {"verify": None}}))
    until(
        lambda: "cronjob" not in shop.kubectl("get", "cronjob", "-o", "name"), READY_SECONDS, "the end of its CronJob"
    )


# Spark looks for volumes that it never made, when it ends; it goes on without.
NEVER_MADE = {("persistentvolumeclaims", "list"), ("persistentvolumeclaims", "deletecollection")}


def test_drivers_have_the_rights_that_they_need_and_no_more(spark_pool: Installed) -> None:
    shop = spark_pool
    if not isinstance(shop.cluster, Cluster):
        pytest.skip("the audit log of the cluster that BELVEDERE_E2E_KUBECONFIG names is not ours to read")
    user = f"system:serviceaccount:{SHOP}:default-spark"
    lines = shop.cluster.layout.audit_log.read_text().splitlines()
    asked = [entry for entry in map(json.loads, lines) if entry["user"]["username"] == user]
    decision = "authorization.k8s.io/decision"
    forbidden = {
        (e["objectRef"]["resource"], e["verb"]) for e in asked if e.get("annotations", {}).get(decision) == "forbid"
    }
    assert forbidden <= NEVER_MADE
    (rule,) = shop.cluster.get("clusterrole", f"{RELEASE}-spark")["rules"]
    granted = {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    needed = {(e["objectRef"]["resource"], e["verb"]) for e in asked if "resource" in (e.get("objectRef") or {})}
    assert needed - NEVER_MADE == granted
