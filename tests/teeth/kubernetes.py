"""Breaks of what the operator decides: docs/design/operator.md."""

from __future__ import annotations

from tests.teeth.breaks import Break

OPERATOR = "operator/belvedere_operator"
TESTS = "tests/operator"

BREAKS = [
    Break(
        name="a pool that does not answer is given no time",
        claim="a deleted view is dropped, or the drop is noted",
        file=f"{OPERATOR}/decide/relations.py",
        find="age_s(item.deleting, self._now) >= GRACE_S",
        instead="age_s(item.deleting, self._now) >= 0",
        noticed_by=(f"{TESTS}/test_relations.py::test_a_pool_that_cannot_drop_is_given_a_while_and_the_drop_is_noted",),
    ),
    Break(
        name="a noted drop takes a view that came back",
        claim="nothing is dropped that somebody wants",
        file=f"{OPERATOR}/decide/relations.py",
        find="if holder is not None and holder.deleting is None:\n                continue",
        instead="if holder is None:\n                pass",
        noticed_by=(f"{TESTS}/test_relations.py::test_a_noted_drop_is_forgotten_when_the_name_is_taken_up_again",),
    ),
    Break(
        name="the loser of a name drops the view of the other",
        claim="nothing is dropped that somebody wants",
        file=f"{OPERATOR}/decide/relations.py",
        find="            or holder is not item\n",
        instead="",
        noticed_by=(f"{TESTS}/test_relations.py::test_the_loser_of_a_name_goes_without_taking_the_view_with_it",),
    ),
    Break(
        name="a version that differs is taken",
        claim="a change that is to be verified is not in service before",
        file=f"{OPERATOR}/decide/trials.py",
        find="return Step.TAKE if verdict.good else Step.REFUSE",
        instead="return Step.TAKE",
        noticed_by=(f"{TESTS}/test_trials.py::test_one_that_differs_is_not_taken_and_the_version_before_answers",),
    ),
    Break(
        name="a lag of a moment is the limit of the store",
        claim="a pool is scaled where that helps",
        file=f"{OPERATOR}/decide/load.py",
        find="if any(one.load.lag_ms / 1000 <= target.lag_s for one in recent if",
        instead="if any(False for one in recent if",
        noticed_by=(f"{TESTS}/test_load.py::test_a_limit_is_not_concluded_from_a_lag_that_comes_and_goes",),
    ),
    Break(
        name="a pool grows beyond its most",
        claim="a pool is scaled where that helps",
        file=f"{OPERATOR}/decide/load.py",
        find="desired = max(target.least, min(target.most, desired))",
        instead="desired = max(target.least, desired)",
        noticed_by=(f"{TESTS}/test_load.py::test_moments",),
    ),
    Break(
        name="the two figures of an autoscaler are taken for each other",
        claim="a pool is scaled where that helps",
        file=f"{OPERATOR}/external/metrics_api.py",
        find="found.busy if metric == BUSY else found.lag",
        instead="found.lag if metric == BUSY else found.busy",
        noticed_by=(
            f"{TESTS}/test_external_metrics.py::test_busy_is_the_work_that_there_is_and_lag_the_work_that_waits",
        ),
    ),
    Break(
        name="samples of a load are never forgotten",
        claim="a pool is scaled where that helps",
        file=f"{OPERATOR}/reconcile/sampling.py",
        find="while samples[0].at < now - WINDOW_S:",
        instead="while False:",
        noticed_by=(
            f"{TESTS}/test_external_metrics.py::test_a_pool_is_asked_once_a_second_and_what_is_old_is_forgotten",
        ),
    ),
    Break(
        name="the freshness of a view is that of its pool",
        claim="status says what is so",
        file=f"{OPERATOR}/decide/saying.py",
        find="if isinstance(spec, MaterializedViewSpec) and spec.freshness is not None:",
        instead="if False:",
        noticed_by=(f"{TESTS}/test_saying.py::test_conditions_of_views",),
    ),
    Break(
        name="a pool that is stalled takes changes",
        claim="status says what is so",
        file=f"{OPERATOR}/decide/pool_saying.py",
        find="        if figures.stalled:\n            return PoolState(",
        instead="        if False:\n            return PoolState(",
        noticed_by=(f"{TESTS}/test_saying.py::test_a_pool_is_up_when_its_gateway_answers_for_it",),
    ),
    Break(
        name="an authority is retired before all have changed for a while",
        claim="members can always talk to each other",
        file=f"{OPERATOR}/decide/certificates.py",
        find="leaf.by == newest and _passed(leaf.since, wanted, now) for",
        instead="leaf.by == newest for",
        noticed_by=(f"{TESTS}/test_pool_certificates.py::test_what_is_to_be_done_follows_from_what_lies_there",),
    ),
    Break(
        name="a leader that cannot renew its lease goes on",
        claim="one operator acts",
        file=f"{OPERATOR}/kube/lease.py",
        find="if self._clock() - self._renewed > self._seconds * 2 / 3:",
        instead="if False:",
        noticed_by=(f"{TESTS}/test_parts.py::test_a_leader_that_cannot_renew_stops_before_others_take_over",),
    ),
    Break(
        name="whoever reaches the port of a member may talk to it",
        claim="members talk to members",
        file=f"{OPERATOR}/build/network.py",
        find='{"from": [members], "ports": [{"port": FLIGHT_PORT',
        instead='{"ports": [{"port": FLIGHT_PORT',
        noticed_by=(f"{TESTS}/test_build.py::test_members_are_reached_by_members_alone",),
    ),
    Break(
        name="a pod is ready while its process only lives",
        claim="pods are replaced without a gap",
        file=f"{OPERATOR}/build/pods.py",
        find='"readinessProbe": _probe("/readyz"',
        instead='"readinessProbe": _probe("/healthz"',
        noticed_by=(f"{TESTS}/test_build.py::test_a_pod_is_ready_when_its_process_says_so_and_has_minutes_to_start",),
    ),
    Break(
        name="a pod goes before the new one is there",
        claim="pods are replaced without a gap",
        file=f"{OPERATOR}/build/workloads.py",
        find='"maxSurge": 1, "maxUnavailable": 0',
        instead='"maxSurge": 0, "maxUnavailable": 1',
        noticed_by=(
            f"{TESTS}/test_build.py::test_pods_are_replaced_one_by_one_the_new_one_first_and_on_several_nodes",
        ),
    ),
    Break(
        name="a pool does not look for the volume that it had",
        claim="data outlives the pool",
        file=f"{OPERATOR}/reconcile/pool_round.py",
        find="        if of_volume or known:\n",
        instead="        if known:\n",
        noticed_by=(
            f"{TESTS}/test_operator.py::test_a_pool_comes_back_to_the_volume_that_was_kept_and_to_no_other_past",
        ),
    ),
    Break(
        name="changes of finalizers are judged as SQL",
        claim="what is deleted can go while the webhook is away",
        file=f"{OPERATOR}/admission/webhook.py",
        find=', "Fail", matchConditions=wishes)',
        instead=', "Fail")',
        noticed_by=(f"{TESTS}/test_bad_input.py::test_without_its_webhook_no_sql_is_stored_and_deletion_works",),
    ),
]
