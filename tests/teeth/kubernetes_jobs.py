"""Breaks of docs/design/operator.md, its Jobs: results and failures told apart, what is left in HBase, rights."""

from __future__ import annotations

from tests.teeth.breaks import Break

OPERATOR = "operator/belvedere_operator"
JOBS, LEAVING = "tests/operator/test_jobs.py", "tests/operator/test_leaving.py"

BREAKS = [
    Break(
        name="a difference that a verification found is a failure of its Job",
        claim="a difference is a result",
        file=f"{OPERATOR}/decide/jobs.py",
        find="if any(exit_code(pod) == DIFFERENT for pod in own):",
        instead="if any(exit_code(pod) == DIFFERENT for pod in ()):",
        noticed_by=(f"{JOBS}::test_how_a_job_stands",),
    ),
    Break(
        name="a Job that was cleaned up is taken for one that was deleted",
        claim="what was found stays",
        file=f"{OPERATOR}/decide/jobs.py",
        find="if one.phase in (SUCCEEDED, FAILED):\n        return one",
        instead="if one.phase in (FAILED,):\n        return one",
        noticed_by=(f"{JOBS}::test_the_newest_job_is_told_until_there_is_another_one",),
    ),
    Break(
        name="a request for a verification is the same Job whatever its words",
        claim="each new text of the annotation is one more verification",
        file=f"{OPERATOR}/build/verification.py",
        find="hashlib.sha256(request.encode())",
        instead='hashlib.sha256(b"")',
        noticed_by=(f"{JOBS}::test_each_request_is_a_job_of_its_own_and_schedules_and_changes_have_the_engine_too",),
    ),
    Break(
        name="executors get a token of the cluster",
        claim="executors have no rights",
        file=f"{OPERATOR}/build/spark.py",
        find='"automountServiceAccountToken": False,',
        instead='"automountServiceAccountToken": True,',
        noticed_by=(f"{JOBS}::test_a_driver_of_spark_is_restricted_and_knows_all_that_executors_need",),
    ),
    Break(
        name="a view that only Spark may build goes to a pool without Spark",
        claim="nothing waits for a builder that never comes",
        file=f"{OPERATOR}/decide/builds.py",
        find="spec.build == SPARK and not has_spark else",
        instead="spec.build == SPARK and has_spark else",
        noticed_by=(f"{JOBS}::test_a_view_that_only_spark_may_build_waits_where_there_is_none",),
    ),
    Break(
        name="who builds is in the digest of a text",
        claim="a table that grows does not make its views be built again",
        file=f"{OPERATOR}/decide/items.py",
        find="json.dumps(self.manifest(), sort_keys=True)",
        instead="json.dumps(self.document(), sort_keys=True)",
        noticed_by=(f"{JOBS}::test_who_builds_is_decided_when_the_pool_is_told",),
    ),
    Break(
        name="what a pool has in HBase is removed while its members run",
        claim="members are stopped before anything is removed",
        file=f"{OPERATOR}/decide/farewell.py",
        find="if members and age_s < STOP_S:",
        instead="if not members and age_s < STOP_S:",
        noticed_by=(f"{LEAVING}::test_members_are_stopped_before_anything_is_removed",),
    ),
    Break(
        name="a pool waits for HBase for ever",
        claim="a deletion cannot hang",
        file=f"{OPERATOR}/decide/farewell.py",
        find="if age_s >= GIVE_UP_S:",
        instead='if age_s >= float("inf"):',
        noticed_by=(f"{LEAVING}::test_steps",),
    ),
    Break(
        name="a namespace that goes is held by a Job that it does not take",
        claim="a deletion cannot hang",
        file=f"{OPERATOR}/reconcile/leaving.py",
        find="if error.status == 403:",
        instead="if error.status == 499:",
        noticed_by=(f"{LEAVING}::test_a_job_that_is_not_taken_holds_nothing",),
    ),
    Break(
        name="the record of a pool goes before what it has in HBase",
        claim="a discard that is interrupted can be given again",
        file="viewserver/belvedere/cli/discard.py",
        find="            found = opening.discard(url, pool)\n            # last",
        instead="            remains.remove()\n            found = opening.discard(url, pool)\n            # last",
        noticed_by=("tests/cluster/test_remains.py::test_discard_removes_the_record_after_what_is_in_hbase",),
    ),
    Break(
        name="a task of Spark does not ask whether it has the engine of the pool",
        claim="executors refuse an engine version that the pool does not have",
        file="viewserver/belvedere/spark/source/pool.py",
        find="        require_engine(self.options.engine)\n",
        instead="",
        noticed_by=("tests/spark/test_pool.py::test_a_task_of_another_engine_than_the_pool_is_refused",),
    ),
]
