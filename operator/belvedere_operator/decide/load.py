"""How many view servers a pool needs, from how busy they are and how long changes wait.

Two figures, both in view servers: `busy`, the work that there is, and `lag`, the work that waits. An autoscaler
divides them by its targets and takes the greater number. They say nothing that would make it add view servers which
cannot help:

* StoreBound: changes wait although view servers are mostly idle. The backend is the limit.
* HotKey: changes wait for one view server, and the others are mostly idle. One bucket is the limit, and it cannot be
  divided.

In both cases the figures say that the number is right as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from belvedere_operator.gateway import Load

TOLERANCE = 0.1
"""As that of the HorizontalPodAutoscaler: a need within a tenth of what is there changes nothing."""
WINDOW_S = 30.0
"""How far back samples count: long enough to tell a trend, short beside the pace of an autoscaler."""
RISE_S = 8.0
"""How far back they count where the load has grown: more view servers are wanted soon, fewer later."""
SUSTAINED_S = 10.0
"""How long changes must have waited too long before that says something about the cause."""
IDLE, HOT = 0.4, 0.9
MOST_LAG_FACTOR = 3.0
"""A lag of minutes must not ask for a hundred view servers: it will be asked again in seconds."""


class Limit(StrEnum):
    NONE = "None"
    STORE = "StoreBound"
    KEY = "HotKey"


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    load: Load


@dataclass(frozen=True, slots=True)
class Target:
    """What an autoscaler aims at."""

    lag_s: float = 2.0
    busy: float = 0.7
    least: int = 1
    most: int = 1


@dataclass(frozen=True, slots=True)
class Assessment:
    """`busy` and `lag`: the external metrics. `desired`: what they come to, for people and for a dry run."""

    busy: float
    lag: float
    desired: int
    limit: Limit
    explanation: str


def assess(samples: Sequence[Sample], target: Target, servers: int) -> Assessment:
    """Of the newest sample, in the light of those before; `servers`: how many view servers there should be."""
    if not samples:
        return Assessment(servers * target.busy, 0.0, servers, Limit.NONE, "no figures yet; the number stays")
    newest = samples[-1]
    recent = [one for one in samples if newest.at - one.at <= WINDOW_S]
    newer = [one for one in recent if newest.at - one.at <= RISE_S]
    servers_told = len(newest.load.busy)
    busy = max(_mean_busy(recent, servers_told), _mean_busy(newer, servers_told), key=sum)
    working = len(busy) or servers
    total, lag = sum(busy), newest.load.lag_ms / 1000
    mean = total / working if working else 0.0
    late = lag > target.lag_s
    limit = _limit(recent, target, busy, mean) if late else Limit.NONE
    figures = f"lag {lag:.1f} s of {target.lag_s:g} s, {working} view servers {mean:.0%} busy of {target.busy:.0%}"
    if limit is not Limit.NONE:
        why = (
            "the store is the limit: view servers are mostly idle"
            if limit is Limit.STORE
            else "one view server is the limit, with keys that cannot be divided"
        )
        return Assessment(servers * target.busy, float(servers), servers, limit, f"{figures}; {why}; the number stays")
    waiting = 0.0
    if late and not _catching_up(recent, target):
        waiting = working * min(lag / target.lag_s, MOST_LAG_FACTOR)
    need = max(total / target.busy, waiting)
    desired = servers if servers and abs(need / servers - 1) <= TOLERANCE else math.ceil(need - 1e-9)
    desired = max(target.least, min(target.most, desired))
    catching = "; catching up" if late and not waiting else ""
    return Assessment(total, waiting, desired, Limit.NONE, f"{figures}{catching}; {desired} needed")


def _mean_busy(recent: Sequence[Sample], servers: int) -> list[float]:
    """Of each view server over the samples that have as many of them: one that has just come was idle."""
    alike = [one.load.busy for one in recent if len(one.load.busy) == servers]
    return [sum(column) / len(alike) for column in zip(*(sorted(one, reverse=True) for one in alike), strict=True)]


def _limit(recent: Sequence[Sample], target: Target, busy: Sequence[float], mean: float) -> Limit:
    if not busy or recent[-1].at - recent[0].at < SUSTAINED_S:
        return Limit.NONE
    if any(one.load.lag_ms / 1000 <= target.lag_s for one in recent if recent[-1].at - one.at <= SUSTAINED_S):
        return Limit.NONE
    hottest = max(busy)
    others = sorted(busy)[:-1]
    if hottest < IDLE:
        return Limit.STORE
    if others and hottest >= HOT and sum(others) / len(others) < IDLE:
        return Limit.KEY
    return Limit.STORE if mean < IDLE and hottest < HOT else Limit.NONE


def _catching_up(recent: Sequence[Sample], target: Target) -> bool:
    """The lag falls so fast that it is within its target before an autoscaler could change anything."""
    first, last = recent[0], recent[-1]
    passed = last.at - first.at
    if passed < 5.0:
        return False
    fallen = (first.load.lag_ms - last.load.lag_ms) / 1000 / passed
    return fallen > 0 and (last.load.lag_ms / 1000 - target.lag_s) / fallen <= WINDOW_S
