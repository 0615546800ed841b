"""Trying again: pauses, deadlines, and who ends it. Time is a number here; nothing sleeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.scanning import Piece, resumed_scan
from belvedere.errors import DataError, PeerUnavailable, StoreUnavailable
from belvedere.protocol.ring import buckets_of
from belvedere.retry import Backoff, Deadline, Retry, Superseded, poll


class Clock:
    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Shown:
    def __init__(self) -> None:
        self.history: list[str] = []

    def set(self, reason: str) -> None:
        self.history.append(reason)

    def clear(self) -> None:
        self.history.append("")


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    return attempt


def test_pauses_grow_up_to_a_limit_and_begin_anew() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.next() == 1.0


def test_it_is_tried_until_it_works_and_people_see_why_it_takes_long() -> None:
    clock, shown = Clock(), Shown()
    retry = Retry(backoff=Backoff(1.0, 2.0), outage=shown, sleep=clock.sleep)
    assert retry.run(failing(3, StoreUnavailable("gone"))) == "done"
    assert clock.slept == [1.0, 2.0, 2.0]
    assert shown.history == ["gone", "gone", "gone", ""]


def test_errors_that_are_no_outage_pass_at_once() -> None:
    clock = Clock()
    with pytest.raises(DataError, match="bad row"):
        Retry(sleep=clock.sleep).run(failing(1, DataError("bad row")))
    assert clock.slept == []


def test_without_time_for_another_try_the_last_error_says_what_gave_up() -> None:
    clock = Clock()
    deadline = Deadline(4.0, now=clock.now)
    retry = Retry("asking", deadline=deadline, backoff=Backoff(1.0, 9.0), sleep=clock.sleep)
    with pytest.raises(PeerUnavailable, match=r"asking: gave up after 4 s: nobody there"):
        retry.run(failing(9, PeerUnavailable("nobody there")))
    assert clock.slept == [1.0, 2.0], "a pause of 4 s would end behind the deadline"
    assert not deadline.over


def test_a_try_that_nobody_names_ends_with_its_own_error() -> None:
    clock, error = Clock(), PeerUnavailable("nobody there")
    with pytest.raises(PeerUnavailable) as found:
        Retry(deadline=Deadline(0.0, now=clock.now), sleep=clock.sleep).run(failing(1, error))
    assert found.value is error


def test_progress_renews_time_and_pauses_where_nobody_asked_for_just_this_time() -> None:
    for renewable, left in ((True, 4.0), (False, 1.0)):
        clock = Clock()
        deadline = Deadline(4.0, renewable=renewable, now=clock.now)
        retry = Retry(deadline=deadline, backoff=Backoff(1.0, 9.0), sleep=clock.sleep)
        retry.failed(PeerUnavailable("once"))
        retry.failed(PeerUnavailable("twice"))
        retry.progressed()
        assert deadline.left(100.0) == left
        if renewable:
            retry.failed(PeerUnavailable("later"))
            assert clock.slept == [1.0, 2.0, 1.0]


def test_what_nobody_wants_any_more_is_not_tried() -> None:
    clock, tries = Clock(), 0

    def attempt() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailable("gone")

    with pytest.raises(Superseded):
        Retry(wanted=lambda: tries < 2, sleep=clock.sleep).run(attempt)
    assert tries == 2


def test_a_sleep_that_was_interrupted_ends_it() -> None:
    with pytest.raises(StoreUnavailable, match="gone"):
        Retry(sleep=lambda seconds: True).run(failing(9, StoreUnavailable("gone")))


def test_polling_ends_with_the_condition_or_at_the_deadline() -> None:
    clock = Clock()
    assert poll(lambda: clock.time >= 3.0, Deadline(None), Backoff(1.0, 4.0), clock.sleep)
    assert clock.slept == [1.0, 2.0]
    clock = Clock()
    assert not poll(lambda: False, Deadline(2.5, now=clock.now), Backoff(1.0, 4.0), clock.sleep)
    assert clock.slept == [1.0, 1.5]


def test_a_scan_that_breaks_off_goes_on_behind_the_last_row() -> None:
    ids = np.random.default_rng(7).integers(0, 1 << 40, (64, 2), dtype=np.uint64)
    ids[::3, 0] = ids[0, 0]  # many in one bucket
    buckets = buckets_of(ids)
    ids = ids[np.lexsort((ids[:, 1], ids[:, 0], buckets))]
    buckets = buckets_of(ids)
    values = pa.array([str(i).encode() for i in range(len(ids))], pa.binary())
    clock, begun = Clock(), []

    def begin(bucket: int) -> list[Piece]:
        begun.append(bucket)
        rows = np.flatnonzero(buckets >= bucket)

        def pieces() -> object:
            for i, start in enumerate(range(0, len(rows), 5)):
                if i == len(begun):
                    raise StoreUnavailable("gone")
                at = rows[start : start + 5]
                yield ids[at], values.take(pa.array(at))

        return pieces()  # type: ignore[return-value]

    pieces = list(resumed_scan(begin, 0, Retry(sleep=clock.sleep)))
    assert [v for _, part in pieces for v in part.to_pylist()] == values.to_pylist()
    assert len(begun) > 2 and begun == sorted(begun), "it begins where it broke off"
