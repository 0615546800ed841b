"""Pools that get TLS, or lose it: which pods are replaced at once, until when, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import MUTUAL, NONE, ViewPoolSpec
from belvedere_operator.decide.pool_saying import problem_of, replaced_at_once


def deployment(
    told: str | None, *, strategy: str = "RollingUpdate", replicas: int = 2, **status: int
) -> dict[str, Any]:
    annotations = {} if told is None else {"annotations": {"belvedere.dev/tls": told}}
    return {
        "kind": "Deployment",
        "metadata": {"generation": 3, "labels": {"belvedere.dev/role": "viewserver"}},
        "spec": {"replicas": replicas, "strategy": {"type": strategy}, "template": {"metadata": annotations}},
        "status": {"observedGeneration": 3, "updatedReplicas": replicas} | status,
    }


TABLE = [
    ("as it should be", deployment(MUTUAL), MUTUAL, False),
    ("of an operator that knew no TLS", deployment(None), MUTUAL, True),
    ("it never had TLS and should not", deployment(None), NONE, False),
    ("it loses TLS", deployment(MUTUAL), NONE, True),
    ("there are no pods that could be left", deployment(None, replicas=0), MUTUAL, False),
    ("not all have changed", deployment(MUTUAL, strategy="Recreate", updatedReplicas=1), MUTUAL, True),
    ("nobody has looked yet", deployment(MUTUAL, strategy="Recreate", observedGeneration=2), MUTUAL, True),
    ("all have changed", deployment(MUTUAL, strategy="Recreate"), MUTUAL, False),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case[0])
def test_who_is_replaced_at_once(case: tuple[str, dict[str, Any], str, bool]) -> None:
    _, found, mode, at_once = case
    assert replaced_at_once([found], mode) == (frozenset({"viewserver"}) if at_once else frozenset())


@pytest.mark.parametrize(
    ("tls", "good"),
    [
        ({}, True),
        ({"certificateLifetime": "1h", "authorityLifetime": "6h"}, True),
        ({"certificateLifetime": "59m"}, False),
        ({"certificateLifetime": "100d", "authorityLifetime": "365d"}, False),
    ],
)
def test_lifetimes_leave_time_to_rotate(tls: dict[str, str], good: bool) -> None:
    problem = problem_of(read(ViewPoolSpec, {"tls": tls}), "zk:2181/x")
    assert (problem is None) is good
    assert good or (problem is not None and problem[0] == "InvalidSpec" and "six times" in problem[1])
