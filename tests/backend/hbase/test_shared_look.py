"""A look that is shared: never older than the question, and done for many at once."""

from __future__ import annotations

import threading

import pytest

from belvedere.backend.hbase.shared_look import SharedLook
from belvedere.errors import StoreUnavailable
from tests.cluster.real import until


class Slow:
    """A look that lasts until it is let go, and answers with what was there when it began."""

    def __init__(self) -> None:
        self.now, self.begun = 0, 0
        self.fails = False
        self.go = threading.Semaphore(0)

    def __call__(self) -> int:
        self.begun += 1
        found = self.now
        assert self.go.acquire(timeout=60.0)
        if self.fails:
            self.fails = False
            raise StoreUnavailable("nobody is there")
        return found


def asking(look: SharedLook[int], found: list[int | str]) -> threading.Thread:
    def ask() -> None:
        try:
            found.append(look())
        except StoreUnavailable as error:
            found.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def waiting(look: SharedLook[int], count: int) -> None:
    """Until so many wait for a look that somebody else does."""
    until(lambda: len(look._changed._waiters) == count, 60.0, "some who wait")  # type: ignore[attr-defined]


def test_who_asks_during_a_look_gets_a_newer_one_together_with_all_others() -> None:
    slow = Slow()
    look: SharedLook[int] = SharedLook(slow)
    early: list[int | str] = []
    late: list[int | str] = []
    threads = [asking(look, early)]
    until(lambda: slow.begun == 1, 60.0, "a look that has begun")
    slow.now = 1
    threads += [asking(look, late) for _ in range(20)]
    waiting(look, 20)
    slow.go.release(2)
    for thread in threads:
        thread.join(60.0)
    assert early == [0] and late == [1] * 20 and slow.begun == 2


def test_one_after_the_other_each_looks() -> None:
    slow = Slow()
    look: SharedLook[int] = SharedLook(slow)
    slow.go.release(3)
    for number in range(3):
        slow.now = number
        assert look() == number


def test_a_failure_is_told_to_the_one_who_looked_and_the_others_look_again() -> None:
    slow = Slow()
    look: SharedLook[int] = SharedLook(slow)
    first: list[int | str] = []
    others: list[int | str] = []
    slow.fails = True
    threads = [asking(look, first)]
    until(lambda: slow.begun == 1, 60.0, "a look that has begun")
    threads += [asking(look, others) for _ in range(3)]
    waiting(look, 3)
    slow.go.release(2)
    for thread in threads:
        thread.join(60.0)
    assert first == ["nobody is there"] and others == [0, 0, 0] and slow.begun == 2


@pytest.mark.parametrize("threads", [8])
def test_an_answer_is_never_older_than_its_question(threads: int) -> None:
    clock = iter(range(10**9))
    look: SharedLook[int] = SharedLook(lambda: next(clock))
    wrong: list[tuple[int, int]] = []

    def ask() -> None:
        for _ in range(300):
            before = next(clock)
            found = look()
            if found < before:
                wrong.append((before, found))

    running = [threading.Thread(target=ask, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60.0)
    assert not wrong
