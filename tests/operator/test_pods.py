"""What is said of pods that do not come up."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere_operator.decide.pods import trouble, troubles
from belvedere_operator.names import ROLE_LABEL


def pod(role: str = "viewserver", /, name: str = "a", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {ROLE_LABEL: role}}, "status": status}


def waiting(why: str, text: str = "", **ended: Any) -> dict[str, Any]:
    last = {"lastState": {"terminated": ended}} if ended else {}
    return {"containerStatuses": [{"image": "x:1", "state": {"waiting": {"reason": why, "message": text}}, **last}]}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no cpu"}
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("it runs", {"containerStatuses": [{"state": {"running": {}}}]}, ""),
    ("it starts", waiting("ContainerCreating"), ""),
    ("nothing is known", {}, ""),
    ("no node", {"conditions": [UNSCHEDULABLE]}, "Unschedulable: 0/3 nodes: no cpu"),
    ("no image", waiting("ImagePullBackOff", "pulling image x:1"), "ImagePullBackOff: pulling image x:1"),
    ("it may not be pulled", waiting("ErrImageNeverPull"), "ErrImageNeverPull: x:1"),
    (
        "it ends again and again",
        waiting("CrashLoopBackOff", "back-off 20s", reason="Error", exitCode=2, message="line\nerror: no ZooKeeper"),
        "CrashLoopBackOff: it ended with Error (2): error: no ZooKeeper",
    ),
]


@pytest.mark.parametrize(("case", "status", "expected"), CASES, ids=[case for case, _, _ in CASES])
def test_trouble(case: str, status: dict[str, Any], expected: str) -> None:
    assert trouble(pod(**status)) == expected


def test_one_pod_of_each_role_is_named_and_none_that_is_going() -> None:
    bad = waiting("ErrImagePull", "no such image")
    going = pod(name="0", **bad)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = troubles([pod("store", name="b", **bad), going, pod(name="c", **bad), pod("gateway", name="d")])
    assert found == {"viewserver": "pod c: ErrImagePull: no such image", "store": "pod b: ErrImagePull: no such image"}
