"""A pool over HBase that is deleted: what is done at each step, and that no step lasts for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest

from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import ViewPoolSpec
from belvedere_operator.build.discarding import DEADLINE_S, discarding
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.decide.farewell import GIVE_UP_S, STOP_S, Step, next_step
from belvedere_operator.kube.client import KubeError
from belvedere_operator.reconcile.leaving import take_leave
from tests.operator.test_build import ZOOKEEPER, environment

HBASE = {"backend": "hbase://zk1,zk2:2181/shop_views", "reclaimPolicy": "Delete"}


def pool(spec: dict[str, Any] | None = None, **more: Any) -> PoolInput:
    found = read(ViewPoolSpec, HBASE if spec is None else spec)
    return PoolInput("default", "shop", "uid", found, zookeeper=ZOOKEEPER, **more)


def job(type: str = "", message: str = "") -> dict[str, Any]:
    return {"status": {"conditions": [{"type": type, "status": "True", "message": message}]} if type else {}}


LATE, LONG = STOP_S + 1, GIVE_UP_S + 1


@pytest.mark.parametrize(
    ("spec", "age", "members", "found", "goes", "step", "reason"),
    [
        ({}, 0, 5, None, False, Step.LET_GO, None),
        ({"backend": "served://s:1"}, 0, 5, None, False, Step.LET_GO, None),
        ({"backend": HBASE["backend"]}, 0, 5, None, False, Step.LET_GO, "PeerRetained"),
        (HBASE, 0, 5, None, False, Step.STOP, None),
        (HBASE, LATE, 5, None, False, Step.DISCARD, None),
        (HBASE, 1, 0, None, False, Step.DISCARD, None),
        (HBASE, 1, 0, job(), False, Step.WAIT, None),
        (HBASE, LATE, 5, job(), False, Step.WAIT, None),
        (HBASE, 1, 0, job("Complete"), False, Step.LET_GO, "Discarded"),
        (HBASE, LONG, 0, job("Complete"), False, Step.LET_GO, "Discarded"),
        (HBASE, 1, 0, job("Failed", "BackoffLimitExceeded"), False, Step.LET_GO, "NotDiscarded"),
        (HBASE, 1, 0, None, True, Step.LET_GO, "NotDiscarded"),
        (HBASE, LONG, 0, job(), False, Step.LET_GO, "NotDiscarded"),
        (HBASE, LONG, 5, None, False, Step.LET_GO, "NotDiscarded"),
    ],
)
def test_steps(
    spec: dict[str, Any], age: float, members: int, found: Any, goes: bool, step: Step, reason: str | None
) -> None:
    farewell = next_step(pool(spec), age, members, found, goes)
    assert (farewell.step, farewell.event and farewell.event.reason) == (step, reason)
    if reason not in (None, "Discarded"):
        assert farewell.event is not None and farewell.event.warning
        assert "belvedere discard 'hbase://zk1,zk2:2181/shop_views' --pool default" in farewell.event.message


def test_the_job_ends_before_nobody_waits_for_it_any_more() -> None:
    assert STOP_S + DEADLINE_S < GIVE_UP_S
    made = discarding(pool(zookeeper_secret="default-zookeeper"))
    assert made["spec"]["activeDeadlineSeconds"] == DEADLINE_S
    template = made["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert container["args"] == ["discard", HBASE["backend"], "--pool", "default", "--yes"]
    told = environment(template)
    assert told["BELVEDERE_ZOOKEEPER"] == ZOOKEEPER
    assert told["BELVEDERE_ZOOKEEPER_CREDENTIALS"] == "/etc/belvedere/zookeeper/credentials"
    assert {"name": "zookeeper", "mountPath": "/etc/belvedere/zookeeper", "readOnly": True} in container["volumeMounts"]
    assert template["spec"]["automountServiceAccountToken"] is False
    assert (
        container["securityContext"]["readOnlyRootFilesystem"] and template["spec"]["securityContext"]["runAsNonRoot"]
    )
    assert made["metadata"]["labels"]["belvedere.dev/role"] == "discard", "no member"


class Api:
    """What `take_leave` asks of the API server."""

    def __init__(self, pods: list[str], refusal: KubeError | None = None) -> None:
        self.pods, self.refusal = pods, refusal
        self.made: list[dict[str, Any]] = []
        self.changed: list[tuple[str, Any]] = []

    def get(self, *_: Any) -> Any:
        return job() if self.made else None

    def list(self, version: str, kind: str, namespace: str, **_: Any) -> list[dict[str, Any]]:
        if kind == "Pod":
            return [{"metadata": {"labels": {"belvedere.dev/role": role}}} for role in self.pods]
        return [{"kind": kind, "spec": {"replicas": count}} for count in (2, 0)]

    def merge(self, of: Any, change: Any) -> None:
        self.changed.append((of["kind"], change))

    def create(self, made: dict[str, Any]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.made.append(made)


def test_members_are_stopped_before_anything_is_removed() -> None:
    api: Any = Api(["gateway", "coordinator", "verify"])
    assert take_leave(api, pool(), 0).step is Step.STOP
    assert api.changed == [(kind, {"spec": {"replicas": 0}}) for kind in ("Deployment", "StatefulSet")]
    assert not api.made
    api.pods = ["gateway", "verify"]
    assert take_leave(api, pool(), 9).step is Step.DISCARD
    assert [one["metadata"]["name"] for one in api.made] == ["default-discard"]
    assert take_leave(api, pool(), 10).step is Step.WAIT and len(api.made) == 1


@pytest.mark.parametrize(
    ("status", "step"), [(403, Step.LET_GO), (409, Step.DISCARD)], ids=["the namespace goes", "it is there already"]
)
def test_a_job_that_is_not_taken_holds_nothing(status: int, step: Step) -> None:
    api: Any = Api([], KubeError(status, "Refused", "no"))
    assert take_leave(api, pool(), 1).step is step


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    api: Any = Api([], KubeError(0, "Unreachable", "no"))
    with pytest.raises(KubeError):
        take_leave(api, pool(), 1)
    assert json.dumps(api.made) == "[]"
