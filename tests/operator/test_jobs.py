"""Jobs that work on views: which engine, what they are made of, how they stand, and what is said of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from belvedere_operator.api.condition import by_type
from belvedere_operator.api.materialized_view import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    JobStatus,
    MaterializedViewStatus,
    RepairStatus,
    VerificationStatus,
    VerifySpec,
)
from belvedere_operator.api.reading import read, written
from belvedere_operator.api.view_pool import SparkPodSpec, SparkSpec, ViewPoolSpec
from belvedere_operator.build.building import building
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.build.pool import objects
from belvedere_operator.build.repairing import repairing
from belvedere_operator.build.verification import Verified, requested, trial, verification
from belvedere_operator.decide import jobs
from belvedere_operator.decide.builds import due
from belvedere_operator.decide.engines import NO_SPARK, bytes_below, choose
from belvedere_operator.decide.items import item_of
from belvedere_operator.decide.relations import decide
from belvedere_operator.decide.saying import Found, events_of_view, status_of
from belvedere_operator.gateway import PoolFigures, SparkBuild, TableFigures, ViewFigures, _spark_builds
from belvedere_operator.reconcile.builds import Builds
from belvedere_operator.reconcile.repairs import Repairs, repair_of
from belvedere_operator.settings import Settings
from tests.operator.resources import NOW, applied, figures, view
from tests.operator.test_build import ZOOKEEPER
from tests.operator.test_saying import UP

GIB = 1 << 30
VIEW = Verified("daily-spend", "v-uid", "daily_spend", "spark")


def pool(spec: dict[str, Any] | None = None, **general: Any) -> PoolInput:
    given = Settings(spark=SparkSpec(**{"image": "spark:1", **general}))
    return PoolInput("default", "shop", "uid", read(ViewPoolSpec, spec or {}), given, zookeeper=ZOOKEEPER)


def sized(view_bytes: int | None, table_bytes: int | None) -> PoolFigures:
    views = {
        "low": ViewFigures(bytes=view_bytes, reads=("Orders",)),
        "top": ViewFigures(bytes=1, reads=("low", "customers")),
        "circle": ViewFigures(bytes=1, reads=("circle",)),
    }
    tables = {"orders": TableFigures(10, table_bytes), "customers": TableFigures(10, 5)}
    return PoolFigures(7, 0.0, 0, (), tables, views)


@pytest.mark.parametrize(
    ("wanted", "size", "has_spark", "above", "engine", "problem"),
    [
        ("duckdb", 99 * GIB, True, None, "duckdb", ""),
        ("spark", 1, True, None, "spark", ""),
        ("spark", 1, False, None, "spark", NO_SPARK),
        ("auto", 99 * GIB, False, None, "duckdb", ""),
        ("auto", GIB // 2, True, None, "duckdb", ""),
        ("auto", 2 * GIB, True, None, "spark", ""),
        ("auto", 2 * GIB, True, "10Gi", "duckdb", ""),
        ("auto", 2000, True, "1k", "spark", ""),
        ("auto", None, True, None, "duckdb", ""),
    ],
)
def test_which_engine(
    wanted: str, size: int | None, has_spark: bool, above: str | None, engine: str, problem: str
) -> None:
    chosen = choose(wanted, "LOW", None if size is None else sized(0, size), has_spark, above)
    assert (chosen.engine, chosen.problem) == (engine, problem) and chosen.why


def test_the_size_of_a_view_is_that_of_all_that_is_read() -> None:
    assert bytes_below("top", sized(100, 1000)) == 1 + 1000 + 5, "views below are recomputed from tables"
    assert bytes_below("low", sized(None, None)) is None
    assert bytes_below("nothing", sized(1, 1)) is None
    assert bytes_below("circle", sized(1, 1)) == 1


# ---------------------------------------------------------------------- objects


def words(template: dict[str, Any]) -> list[str]:
    (container,) = template["spec"]["containers"]
    found: list[str] = container["args"]
    return found


def settings_of(template: dict[str, Any]) -> dict[str, str]:
    told = words(template)
    given = [told[i + 1] for i, word in enumerate(told) if word == "--conf"]
    return dict(one.split("=", 1) for one in given)


def test_a_driver_of_spark_is_restricted_and_knows_all_that_executors_need() -> None:
    job = requested(pool(), VIEW, "spark/1", VerifySpec(deadline="10m"))
    assert job["metadata"]["annotations"] == {"belvedere.dev/request": "spark/1"}
    assert job["metadata"]["ownerReferences"][0]["uid"] == "v-uid"
    assert job["metadata"]["labels"]["belvedere.dev/engine"] == "spark"
    spec = job["spec"]
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (600, 86_400)
    assert spec["backoffLimit"] >= 3, "a driver that is killed is started again"
    actions = [(rule["action"], list(rule)[1]) for rule in spec["podFailurePolicy"]["rules"]]
    assert actions == [("FailJob", "onExitCodes"), ("Ignore", "onPodConditions")]
    template = spec["template"]
    assert template["spec"]["serviceAccountName"] == "default-spark" and template["spec"]["restartPolicy"] == "Never"
    (container,) = template["spec"]["containers"]
    assert container["image"] == "spark:1" and container["name"] == "verify"
    env = {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert (env["POD_IP"], env["POD_NAME"]) == ("status.podIP", "metadata.name")
    executor = json.loads(env["BELVEDERE_SPARK_EXECUTOR"])
    for pod in (template["spec"], executor["spec"]):
        (main,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and main["securityContext"]["readOnlyRootFilesystem"]
        assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v] == ["default-tls-client"]
        assert {m["mountPath"] for m in main["volumeMounts"]} == {"/tmp", "/etc/belvedere/tls"}
    assert executor["spec"]["automountServiceAccountToken"] is False, "executors have no rights"
    assert executor["spec"]["serviceAccountName"] == "default-pool"
    assert executor["metadata"]["labels"]["belvedere.dev/role"] == "executor"
    told = words(template)
    assert told[:4] == ["--url", "belvedere+tls://default-coordinator.shop.svc:7400", "verify", "daily_spend"]
    assert (
        told[told.index("--summary") + 1] == "/dev/termination-log" and told[told.index("--master") + 1][:6] == "k8s://"
    )
    gib = (1 << 30) + (512 << 20)
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"] == str(gib)
    conf = settings_of(template)
    assert conf["spark.executor.instances"] == "2" and conf["spark.kubernetes.namespace"] == "shop"


def test_what_a_pool_says_of_spark_comes_before_what_the_operator_says() -> None:
    given = {
        "image": "own:2",
        "executors": 5,
        "driver": {"heap": "2g", "overhead": "256m", "nodeSelector": {"disk": "fast"}},
        "executor": {"heap": "512m", "cpu": "2", "tolerations": [{"key": "spark"}], "labels": {"team": "data"}},
        "conf": {"spark.executor.memory": "700m", "spark.x": "y"},
    }
    own = pool({"spark": given, "imagePullSecrets": ["registry"], "tls": {"mode": "none"}}, cores=3, executors=9)
    template = requested(own, VIEW, "1", VerifySpec())["spec"]["template"]
    conf = settings_of(template)
    (container,) = template["spec"]["containers"]
    assert container["image"] == "own:2" and conf["spark.executor.instances"] == "5"
    assert conf["spark.executor.cores"] == "3", "what the pool does not say"
    assert conf["spark.executor.memory"] == "700m" and conf["spark.x"] == "y", "settings by name come last"
    assert conf["spark.kubernetes.executor.request.cores"] == "2"
    assert conf["spark.kubernetes.container.image.pullSecrets"] == "registry"
    assert template["spec"]["nodeSelector"] == {"disk": "fast"}
    assert container["resources"]["limits"]["memory"] == str((2 << 30) + (256 << 20))
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    executor = json.loads(env["BELVEDERE_SPARK_EXECUTOR"])
    assert executor["spec"]["tolerations"] == [{"key": "spark"}] and executor["metadata"]["labels"]["team"] == "data"
    assert executor["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert words(template)[1].startswith("belvedere://") and "BELVEDERE_TLS_KEY" not in env


def test_a_pool_has_an_account_and_policies_for_spark_only_where_there_is_an_image() -> None:
    def named(of: PoolInput) -> set[tuple[str, str]]:
        return {(d["kind"], d["metadata"]["name"]) for d in objects(of) if d["metadata"]["name"].endswith("-spark")}

    assert named(pool(image=None)) == set()
    kinds = {"ServiceAccount", "RoleBinding", "NetworkPolicy"}
    assert named(pool()) == named(pool({"spark": {"image": "x"}}, image=None)) == {(k, "default-spark") for k in kinds}
    of = {d["kind"]: d for d in objects(pool()) if d["metadata"]["name"] == "default-spark"}
    assert of["RoleBinding"]["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "belvedere-spark",
    }
    assert of["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "default-spark", "namespace": "shop"}]
    policy = of["NetworkPolicy"]["spec"]
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == [7078, 7079]
    (selected,) = policy["podSelector"]["matchExpressions"]
    assert set(selected["values"]) >= {"verify", "executor"} and rule["from"] == [
        {"podSelector": policy["podSelector"]}
    ]
    members = next(d for d in objects(pool()) if d["metadata"]["name"] == "default-members")["spec"]["ingress"][0]
    executor = json.loads(
        next(
            one["value"]
            for one in requested(pool(), VIEW, "1", VerifySpec())["spec"]["template"]["spec"]["containers"][0]["env"]
            if one["name"] == "BELVEDERE_SPARK_EXECUTOR"
        )
    )
    (peers,) = members["from"]
    assert peers["podSelector"]["matchLabels"].items() <= executor["metadata"]["labels"].items(), "they reach the pool"
    assert [p["port"] for p in members["ports"]] == [7400]


def test_each_request_is_a_job_of_its_own_and_schedules_and_changes_have_the_engine_too() -> None:
    first, again, other = (requested(pool(), VIEW, text, VerifySpec()) for text in ("a", "a", "b"))
    assert first == again and first["metadata"]["name"] != other["metadata"]["name"]
    cron = verification(pool(), VIEW, VerifySpec("@daily"), True)
    assert cron["spec"]["suspend"] is True
    assert "--master" in words(cron["spec"]["jobTemplate"]["spec"]["template"])
    assert "--master" in words(trial(pool(), VIEW, "abc", VerifySpec(changes=True))["spec"]["template"])
    plain = requested(pool(), Verified("v", "u", "v", "duckdb"), "a", VerifySpec())["spec"]["template"]["spec"]
    assert plain["automountServiceAccountToken"] is False and plain["containers"][0]["image"] != "spark:1"


# ---------------------------------------------------------------------- how they stand


def job(name: str = "j", *, active: int = 0, failed: int = 0, ended: str = "", **more: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"startTime": "2026-01-01T00:00:00Z", "active": active, "failed": failed}
    if ended:
        one = {"type": ended, "status": "True", "lastTransitionTime": "2026-01-01T00:09:00Z", "message": "too often"}
        status["conditions"] = [one]
    if ended == "Complete":
        status |= {"completionTime": "2026-01-01T00:05:00Z", "succeeded": 1}
    meta = {"name": name, "uid": f"uid-{name}", "labels": {"belvedere.dev/engine": "spark"}}
    return {"metadata": meta | more, "status": status}


def pod(name: str, owner: str, role: str = "verify", phase: str = "Running", **ended: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "labels": {"belvedere.dev/role": role},
        "ownerReferences": [{"name": owner, "uid": f"uid-{owner}"}],
        "creationTimestamp": f"2026-01-01T00:00:{len(name):02d}Z",
    }
    state = {"terminated": ended} if ended else {"running": {}}
    return {"metadata": meta, "status": {"phase": phase, "containerStatuses": [{"state": state}]}}


def test_how_a_job_stands() -> None:
    waiting = pod("p", "j", phase="Pending")
    waiting["status"]["containerStatuses"] = [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}}}]
    found = jobs.job_status(job(active=1), [waiting])
    assert (found.phase, found.message, found.attempts) == (PENDING, "ErrImagePull: no such", 1)
    pods = [pod("p", "j"), pod("e1", "p", "executor"), pod("e2", "p", "executor", "Pending"), pod("x", "q", "executor")]
    found = jobs.job_status(job(active=1, annotations={"belvedere.dev/request": "spark/2"}), pods)
    assert (found.phase, found.executors, found.engine, found.request) == (RUNNING, 1, "spark", "spark/2")
    restarted = jobs.job_status(job(active=1, failed=1), [pod("p", "j", phase="Failed", exitCode=137), pod("pp", "j")])
    assert (restarted.phase, restarted.attempts) == (RUNNING, 2)
    good = jobs.job_status(job(ended="Complete"), [pod("p", "j", phase="Succeeded", exitCode=0)])
    assert (good.phase, good.completed_at, good.executors) == (SUCCEEDED, "2026-01-01T00:05:00Z", None)
    different = jobs.job_status(job(failed=1, ended="Failed"), [pod("p", "j", phase="Failed", exitCode=3)])
    assert different.phase == SUCCEEDED, "a difference is a result"
    dead = [pod("p", "j", exitCode=1, message="old"), pod("pp", "j", exitCode=1, message="warning\nerror: no Java")]
    failed = jobs.job_status(job(failed=2, ended="Failed"), dead)
    assert (failed.phase, failed.message) == (FAILED, "too often; it said: error: no Java")
    assert failed.completed_at == "2026-01-01T00:09:00Z"
    assert read(JobStatus, written(failed), "status") == failed


def told(name: str, phase: str, attempts: int = 1, at: str = "1", message: str | None = None) -> JobStatus:
    return JobStatus("Verify", name, phase, "spark", None, at, None, attempts, None, message)


def test_the_newest_job_is_told_until_there_is_another_one() -> None:
    old, new, unborn = told("a", SUCCEEDED, at="1"), told("b", RUNNING, at="2"), JobStatus("Verify", "c", PENDING)
    assert jobs.newest([new, old]) == (new,) and jobs.newest([unborn, new]) == (unborn,)
    assert jobs.merged([old], []) == (old,), "cleaned up"
    assert jobs.merged([old], [new]) == (new,)
    (gone,) = jobs.merged([new], [])
    assert (gone.phase, gone.message) == (FAILED, "it was deleted")


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ([], [told("a", RUNNING)], ["VerifyStarted"]),
        ([], [told("a", SUCCEEDED)], []),
        ([told("a", PENDING)], [told("a", RUNNING)], []),
        ([told("a", RUNNING)], [told("a", RUNNING, 2)], ["VerifyRestarted"]),
        ([told("a", RUNNING, 2)], [told("a", RUNNING, 2)], []),
        ([told("a", RUNNING)], [told("a", FAILED, 1, "1", "why")], ["VerifyFailed"]),
        ([told("a", FAILED)], [told("a", FAILED)], []),
        ([told("a", FAILED)], [told("b", PENDING)], ["VerifyStarted"]),
    ],
)
def test_events_of_jobs(before: list[JobStatus], after: list[JobStatus], reasons: list[str]) -> None:
    assert [event.reason for event in jobs.events(before, after)] == reasons


# ---------------------------------------------------------------------- what is said of the view


def said(found: Found, before: MaterializedViewStatus | None = None) -> MaterializedViewStatus:
    item = applied(view("spend"))
    if before is not None:
        item = applied(view("spend", status=written(before)))
    status = status_of(item, found)
    assert isinstance(status, MaterializedViewStatus)
    return status


def test_a_verification_that_could_not_be_carried_out_is_not_known_until_one_is() -> None:
    right = VerificationStatus("2026-01-01T00:00:00Z", 7, 10, 0, "10 rows equal", "spark")
    first = said(Found(UP, figures("spend"), NOW, verifications={"spend": (True, right)}))
    assert by_type(first.conditions)["Verified"].status == "True"
    running = said(Found(UP, figures("spend"), NOW, jobs_seen=True, jobs={"spend": (told("j", RUNNING),)}), first)
    assert by_type(running.conditions)["Verified"].status == "True" and running.jobs[0].phase == RUNNING
    failed = (told("j", FAILED, 3, "1", "BackoffLimitExceeded"),)
    broken = said(Found(UP, figures("spend"), NOW, jobs_seen=True, jobs={"spend": failed}), running)
    condition = by_type(broken.conditions)["Verified"]
    assert (condition.status, condition.reason) == ("Unknown", "JobFailed")
    assert condition.message == "Job j found nothing: BackoffLimitExceeded"
    assert [e.reason for e in events_of_view(running, broken)] == ["VerifyFailed"]
    assert broken.last_verification == right, "what was found before stays"
    unseen = said(Found(UP, figures("spend"), NOW), broken)
    assert unseen.jobs == broken.jobs, "nobody looked"
    mended = said(Found(UP, figures("spend"), NOW, verifications={"spend": (True, right)}), broken)
    assert by_type(mended.conditions)["Verified"].status == "True"


def test_a_view_that_wants_spark_where_there_is_none_says_so() -> None:
    found = Found(UP, figures("spend"), NOW, problems={"spend": NO_SPARK}, requests={"spend": "spark/1"})
    status = said(found)
    condition = by_type(status.conditions)["Verified"]
    assert (condition.status, condition.reason, condition.message) == ("Unknown", "NoSpark", NO_SPARK)
    assert status.verify_request == "spark/1", "it is answered: nobody waits for it"
    assert "NoSpark" in [event.reason for event in events_of_view(MaterializedViewStatus(), status)]


def test_a_request_is_read_from_the_annotation() -> None:
    assert item_of(view("v", annotations={"belvedere.dev/verify": "spark/7"})).verify_request == "spark/7"
    assert item_of(view("v")).verify_request == ""
    assert len(item_of(view("v", annotations={"belvedere.dev/verify": "x" * 999})).verify_request) == 128


def test_a_pods_memory_is_in_units_of_java() -> None:
    small = SparkPodSpec(heap="512m", overhead="300m")
    template = requested(pool(driver=small), VIEW, "1", VerifySpec())["spec"]["template"]
    memory = template["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert memory == str(812 << 20), "and not in Kubernetes' thousandths of a byte"


# ---------------------------------------------------------------------- builds


def spark_build(group: int = 5, *views: str, since: int = 7) -> SparkBuild:
    return SparkBuild(group, views or ("spend",), since)


def test_a_build_is_a_job_of_a_view_group_that_goes_on_after_each_driver() -> None:
    made = building(pool(), spark_build(5, "spend", "daily_spend"))
    assert made["metadata"]["name"] == "default-build-5"
    assert made["metadata"]["annotations"] == {"belvedere.dev/views": "daily_spend,spend"}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "ViewPool", "several views may be in it"
    spec = made["spec"]
    assert "activeDeadlineSeconds" not in spec and spec["backoffLimit"] >= 10
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["FailJob", "Ignore"]
    assert words(spec["template"])[2:5] == ["build", "daily_spend", "spend"]
    assert spec["template"]["spec"]["serviceAccountName"] == "default-spark"


@pytest.mark.parametrize(
    ("build", "table_bytes", "has_spark", "above", "told"),
    [
        ("spark", 1, True, None, "spark"),
        ("epochs", 9 * GIB, True, None, "epochs"),
        ("auto", 9 * GIB, True, None, "spark"),
        ("auto", 9 * GIB, True, "10Gi", "auto"),
        ("auto", 9 * GIB, False, None, "auto"),
        ("auto", 1000, True, None, "auto"),
        ("auto", None, True, None, "auto"),
    ],
)
def test_who_builds_is_decided_when_the_pool_is_told(
    build: str, table_bytes: int | None, has_spark: bool, above: str | None, told: str
) -> None:
    item = item_of(view("spend", "SELECT id FROM Orders", spec={"build": build}))
    seen = PoolFigures(7, 0.0, 0, (), {"orders": TableFigures(1, table_bytes), "others": TableFigures(1, 99 * GIB)}, {})
    plan = decide([item], UP, seen, now=NOW, has_spark=has_spark, auto_above=above)
    (document,) = plan.documents()
    assert document["spec"]["build"] == told
    assert plan.apply[0].digest() == item.digest(), "the same text, whoever builds it: it is not applied again"


def test_a_view_that_only_spark_may_build_waits_where_there_is_none() -> None:
    item = item_of(view("spend", spec={"build": "spark"}))
    plan = decide([item], UP, figures(), now=NOW, has_spark=False)
    assert plan.apply == () and plan.waiting[item.key] == ("NoSpark", NO_SPARK)


def test_builds_by_spark_are_read_from_the_status() -> None:
    told = {
        "building": [
            {"views": ["a"], "done": 1, "total": 4},
            {"views": ["b", "c"], "done": 0, "total": 4, "by": "spark", "view_group": 3, "since": 0, "state": "waits"},
            {"views": ["d"], "done": 0, "total": 4, "by": "spark", "view_group": 4, "since": 9},
        ]
    }
    found = list(_spark_builds(told))
    assert found == [SparkBuild(3, ("b", "c"), 0, "waits"), SparkBuild(4, ("d",), 9)]
    assert due(found) == found[1:]


class Api:
    """What `Builds` asks of the API server."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.asked = 0

    def list(self, version: str, kind: str, *_: Any, **__: Any) -> list[dict[str, Any]]:
        self.asked += 1
        return self.jobs if kind == "Job" else []

    def create(self, made: dict[str, Any]) -> None:
        made["metadata"]["uid"] = "uid"
        self.jobs.append(made)


def test_a_job_is_made_once_for_a_build_and_again_when_it_was_deleted() -> None:
    api: Any = Api()
    times = iter(range(0, 10_000, 1))
    tending = Builds(api, lambda: float(next(times)))
    item, seen = item_of(view("spend")), figures("spend", spark_builds=(spark_build(5), spark_build(6, since=0)))
    for _ in range(3):
        found = tending.tend(pool(), [item], seen)
    assert [one["metadata"]["name"] for one in api.jobs] == ["default-build-5"], "the other one has to wait"
    assert [(one.kind, one.phase) for one in found["spend"]] == [("Build", PENDING)] and tending.under_way
    api.jobs.clear()
    tending.tend(pool(), [item], seen)
    assert len(api.jobs) == 1
    api.jobs[0] |= {"status": job(ended="Complete")["status"]}
    found = tending.tend(pool(), [item], figures("spend"))
    assert found["spend"][0].phase == SUCCEEDED and not tending.under_way
    before = api.asked
    assert tending.tend(pool(), [item], figures("spend")) == found and api.asked == before, "nobody waits"
    assert tending.tend(pool(image=None), [item], seen) == found, "without an image there are no Jobs"


def test_a_build_that_spark_could_not_do_is_said_of_the_view() -> None:
    failed = JobStatus("Build", "default-build-5", FAILED, "spark", message="too often")
    building_view = figures("spend", more={"spend": ViewFigures(state="Building", progress=10, reads=("orders",))})
    status = said(Found(UP, building_view, NOW, jobs_seen=True, jobs={"spend": (failed,)}))
    condition = by_type(status.conditions)["Built"]
    assert (condition.status, condition.reason) == ("False", "BuildFailed")
    assert condition.message.startswith("Job default-build-5: too often; delete it to try again")
    built = said(Found(UP, figures("spend"), NOW, jobs_seen=True, jobs={"spend": (failed,)}))
    assert by_type(built.conditions)["Built"].status == "True", "another one did it"


# ---------------------------------------------------------------------- repairs


def ended_pod(code: int, message: str) -> dict[str, Any]:
    return pod("p", "default-repair-x", "repair", "Failed" if code else "Succeeded", exitCode=code, message=message)


def test_a_repair_is_a_job_for_each_request() -> None:
    plain, dry, everything = (
        repairing(pool(), "daily-spend", "v-uid", "daily_spend", how) for how in ("1", "dry-run/1", "all/1")
    )
    assert len({one["metadata"]["name"] for one in (plain, dry, everything)}) == 3
    commands = [one["spec"]["template"]["spec"]["containers"][0]["command"][4:] for one in (plain, dry, everything)]
    assert commands == [["daily_spend"], ["daily_spend", "--dry-run"], ["daily_spend", "--all"]], "never in the shell's"
    assert plain["metadata"]["ownerReferences"][0]["uid"] == "v-uid"
    assert plain["metadata"]["annotations"]["belvedere.dev/request"] == "1"
    assert plain["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [3]
    (container,) = plain["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_what_became_of_a_repair() -> None:
    good = repair_of(ended_pod(0, "view spend: 2 rows mended (epoch 9)\n"))
    assert good is not None and good.whole and good.message == "view spend: 2 rows mended (epoch 9)"
    left = repair_of(ended_pod(3, "view spend: 2 rows would be replaced, as of epoch 9\n  missing x\n"))
    assert (
        left is not None
        and left.whole is False
        and left.message == "view spend: 2 rows would be replaced, as of epoch 9"
    )
    assert repair_of(ended_pod(1, "error: no pool")) is None and repair_of(pod("p", "j")) is None


def test_a_repair_is_asked_for_once_and_its_end_is_told() -> None:
    api: Any = Api()
    times = iter(range(10_000))
    tending = Repairs(api, lambda: float(next(times)))
    resource = view("spend", annotations={"belvedere.dev/repair": "repair/7"})
    seen = tending.tend(pool(), [item_of(resource)], figures("spend"))
    assert seen.requests == {"spend": "repair/7"} and seen.jobs["spend"][0].kind == "Repair" and seen.under_way
    answered = item_of(resource | {"status": {"repairRequest": "repair/7"}})
    assert tending.tend(pool(), [answered], figures("spend")).requests == {} and len(api.jobs) == 1
    unread = Repairs(Api(), lambda: 0.0)  # type: ignore[arg-type]  # what it asks for is there
    assert unread.tend(pool(), [item_of(resource)], figures()).requests == {}, "it waits for the view"
    result = RepairStatus("2026-01-01T00:00:00Z", False, "2 rows are not right yet")
    status = said(Found(UP, figures("spend"), NOW, repairs={"spend": result}, repair_requests={"spend": "repair/7"}))
    assert (status.last_repair, status.repair_request) == (result, "repair/7")
    (event,) = [one for one in events_of_view(MaterializedViewStatus(), status) if one.reason == "NotRepaired"]
    assert event.warning and event.message == "2 rows are not right yet"
    assert "NotRepaired" not in [one.reason for one in events_of_view(status, status)]
