"""How many view servers a pool needs: single moments, and a whole autoscaler over hours of load."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from belvedere_operator.decide.load import Assessment, Limit, Sample, Target, assess
from belvedere_operator.gateway import Load

TARGET = Target(lag_s=2.0, busy=0.7, least=1, most=10)


def steady(lag_s: float, *busy: float, seconds: int = 30) -> list[Sample]:
    return [Sample(float(at), Load(lag_s * 1000, busy)) for at in range(0, seconds + 1, 5)]


CASES = [
    ("idle", steady(0.02, 0.05, 0.05, 0.05), 3, 1, Limit.NONE),
    ("as it should be", steady(0.02, 0.7, 0.68, 0.72), 3, 3, Limit.NONE),
    ("within a tenth", steady(0.02, 0.75, 0.75), 2, 2, Limit.NONE),
    ("busy", steady(0.5, 0.95, 0.95), 2, 3, Limit.NONE),
    ("busy and late", steady(4.0, 1.0, 1.0), 2, 4, Limit.NONE),
    ("very late: at most three times as many at once", steady(300.0, 1.0), 1, 3, Limit.NONE),
    ("never beyond the most", steady(300.0, *[1.0] * 9), 9, 10, Limit.NONE),
    ("late, and nobody is busy", steady(8.0, 0.1, 0.15, 0.1), 3, 3, Limit.STORE),
    ("late, and one is busy", steady(8.0, 0.97, 0.1, 0.1), 3, 3, Limit.KEY),
    ("one alone is busy: it may be the load", steady(8.0, 0.97), 1, 3, Limit.NONE),
    ("late for a moment only", steady(8.0, 0.1, 0.1, seconds=5), 2, 6, Limit.NONE),
    ("no figures", [], 4, 4, Limit.NONE),
    ("a pool without view servers", steady(0.0), 2, 1, Limit.NONE),
]


@pytest.mark.parametrize(("case", "samples", "servers", "desired", "limit"), CASES, ids=[case[0] for case in CASES])
def test_moments(case: str, samples: list[Sample], servers: int, desired: int, limit: Limit) -> None:
    found = assess(samples, TARGET, servers)
    assert (found.desired, found.limit) == (desired, limit), found.explanation


def test_a_lag_that_melts_away_asks_for_nobody() -> None:
    falling = [Sample(float(at), Load(max(0, 20 - at) * 1000.0, (0.8, 0.8))) for at in range(0, 12, 2)]
    found = assess(falling, TARGET, 2)
    assert found.lag == 0.0 and "catching up" in found.explanation
    rising = [Sample(float(at), Load(at * 1000.0, (0.8, 0.8))) for at in range(4, 16, 2)]
    assert assess(rising, TARGET, 2).lag > 2


def test_a_load_that_grew_counts_soon_and_one_that_fell_later() -> None:
    def step(before: float, after: float) -> list[Sample]:
        return [Sample(float(at), Load(100.0, (before if at < 20 else after,))) for at in range(0, 31, 2)]

    assert assess(step(0.1, 1.0), TARGET, 1).busy == pytest.approx(1.0)
    assert assess(step(1.0, 0.1), TARGET, 1).busy > 0.5


def test_figures_of_a_limit_hold_the_number() -> None:
    found = assess(steady(8.0, 0.1, 0.1), TARGET, 2)
    assert hpa(2, found, TARGET) == 2
    assert "the number stays" in found.explanation and "8.0 s of 2 s" in found.explanation


def test_a_limit_is_not_concluded_from_a_lag_that_comes_and_goes() -> None:
    """A merge of the store may take seconds: it is the limit when changes wait all the time."""
    lags = [8.0, 8.0, 8.0, 8.0, 8.0, 0.5, 8.0]
    samples = [Sample(5.0 * number, Load(lag * 1000, (0.1, 0.1))) for number, lag in enumerate(lags)]
    assert assess(samples, TARGET, 2).limit is Limit.NONE
    assert assess([*samples, *(Sample(at, samples[-1].load) for at in (35.0, 40.0))], TARGET, 2).limit is Limit.STORE


def hpa(replicas: int, found: Assessment, target: Target) -> int:
    """What Kubernetes makes of the two metrics (AverageValue), from its documentation."""

    def by(value: float, average: float) -> int:
        ratio = value / (average * replicas)
        return replicas if abs(1 - ratio) <= 0.1 else math.ceil(round(value / average, 3))

    return min(target.most, max(target.least, by(found.busy, target.busy), by(found.lag, 1.0)))


class Pool:
    """A pool as a queue: so many rows arrive per second, each view server does 100; and the HPA above it."""

    def __init__(self, arriving: Callable[[int], float]) -> None:
        self.arriving, self.queue, self.replicas = arriving, 0.0, 1
        self.samples: list[Sample] = []
        self.numbers: list[int] = []
        self.lags: list[float] = []
        self._recommended: list[tuple[int, int]] = []

    def run(self, seconds: int, window: int = 120) -> None:
        for now in range(seconds):
            capacity, arrived = 100.0 * self.replicas, self.arriving(now)
            done = min(capacity, self.queue + arrived)
            self.queue += arrived - done
            lag_s = self.queue / capacity
            self.lags.append(lag_s)
            self.samples.append(Sample(float(now), Load(lag_s * 1000, (done / capacity,) * self.replicas)))
            self.samples = [one for one in self.samples if one.at > now - 30]
            if now % 15 == 14:
                self._scale(now, window)
            self.numbers.append(self.replicas)

    def _scale(self, now: int, window: int) -> None:
        wanted = hpa(self.replicas, assess(self.samples, TARGET, self.replicas), TARGET)
        self._recommended.append((now, wanted))
        floor = max(number for at, number in self._recommended if at > now - window)
        if wanted > self.replicas:
            self.replicas = min(wanted, max(self.replicas * 2, self.replicas + 2))
        elif floor < self.replicas and now % 30 == 29:
            self.replicas -= 1

    def changes(self) -> int:
        return sum(1 for a, b in zip(self.numbers, self.numbers[1:], strict=False) if a != b)


def test_a_load_is_answered_with_as_many_as_it_needs_and_no_more() -> None:
    pool = Pool(lambda now: 50.0 if now < 100 else 450.0 if now < 1000 else 50.0)
    pool.run(1800)
    assert pool.numbers[95] == 1
    assert pool.numbers[990] in (7, 6) and max(pool.numbers) <= 9
    assert max(pool.lags[250:1000]) < 2.0
    assert pool.numbers[-1] == 1


def test_a_square_wave_does_not_make_it_flap() -> None:
    """Bursts of a minute, faster than a view server is worth starting: the number stays at what a burst needs."""
    pool = Pool(lambda now: 400.0 if now // 60 % 2 else 40.0)
    pool.run(3600)
    half = len(pool.numbers) // 2
    later = [a != b for a, b in zip(pool.numbers[half:], pool.numbers[half + 1 :], strict=False)]
    assert sum(later) == 0, f"{pool.changes()} changes: {sorted(set(pool.numbers[half:]))}"
    restless = Pool(pool.arriving)
    restless.run(3600, window=1)
    assert restless.changes() > 50  # it is the window that calms it


def test_a_steady_load_between_two_numbers_does_not_make_it_flap() -> None:
    for load in range(60, 500, 10):
        pool = Pool(lambda now, load=load: float(load))  # type: ignore[misc]
        pool.run(1200)
        assert len(set(pool.numbers[600:])) == 1, f"load {load}: {pool.numbers[600::30]}"
        assert max(pool.lags[600:]) < 2.0
