"""How a pool goes that has something in another system: nobody else would take it away.

    STOP ──no member is left, or they had long enough──▶ DISCARD ──the Job ended, or had long enough──▶ LET_GO

A replication peer that nobody answers keeps HBase's log until its disks are full. So with `reclaimPolicy: Delete` the
members are stopped (a coordinator would make the peer anew), a Job removes what the pool has, and then the pool goes.
Each step has an end by the time since the deletion, which does not depend on anybody answering: what was not done by
then is told with the command that does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from belvedere_operator.api.base_table import RETAIN
from belvedere_operator.build.inputs import PoolInput
from belvedere_operator.kube.events import Event

STOP_S = 180.0
"""How long members may take to end; more than their grace."""
GIVE_UP_S = 600.0


class Step(StrEnum):
    STOP = "Stop"
    DISCARD = "Discard"
    WAIT = "Wait"
    LET_GO = "LetGo"


@dataclass(frozen=True, slots=True)
class Farewell:
    """What is to be done now, and what there is to say of it."""

    step: Step
    event: Event | None = None


def next_step(
    pool: PoolInput, age_s: float, members: int, job: Mapping[str, Any] | None, namespace_goes: bool = False
) -> Farewell:
    """`age_s`: since the deletion. `members`: pods of it that are there. `job`: the one that discards."""
    if not pool.follows_hbase:
        return Farewell(Step.LET_GO)
    command = f"belvedere discard '{pool.spec.backend}' --pool {pool.name}"
    if pool.spec.reclaim_policy == RETAIN:
        text = (
            "spec.reclaimPolicy is Retain: HBase keeps its log for a pool of this name until its disks are full; "
            f"make one soon, or run: {command}"
        )
        return Farewell(Step.LET_GO, Event("PeerRetained", text, warning=True))
    if job is not None:
        ended = {
            str(one["type"]): str(one.get("message") or "")
            for one in (job.get("status") or {}).get("conditions") or ()
            if one.get("status") == "True"
        }
        if "Complete" in ended:
            text = "the replication peer, the namespace in HBase and the record in ZooKeeper are removed"
            return Farewell(Step.LET_GO, Event("Discarded", text))
        if "Failed" in ended:
            return Farewell(Step.LET_GO, _not_done(ended["Failed"] or "its Job failed", command))
    if namespace_goes:
        return Farewell(Step.LET_GO, _not_done("its namespace is being deleted, and takes no Job", command))
    if age_s >= GIVE_UP_S:
        return Farewell(Step.LET_GO, _not_done(f"it took more than {GIVE_UP_S:g} s", command))
    if job is not None:
        return Farewell(Step.WAIT)
    if members and age_s < STOP_S:
        return Farewell(Step.STOP)
    return Farewell(Step.DISCARD)


def _not_done(why: str, command: str) -> Event:
    text = f"what the pool has in HBase was not removed: {why}; HBase keeps its log for it: run {command}"
    return Event("NotDiscarded", text, warning=True)
