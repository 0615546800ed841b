"""What another system said last, when it does not answer now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from belvedere.cluster.roles import overview
from belvedere.cluster.roles.overview import LastTold
from belvedere.errors import StoreUnavailable
from tests.cluster.real import until


@pytest.fixture
def told() -> Iterator[LastTold[int]]:
    with ThreadPoolExecutor(2) as pool:
        yield LastTold(pool)


def fails() -> int:
    raise StoreUnavailable("nobody is there")


def test_it_is_what_is_answered_now_or_else_the_last(told: LastTold[int]) -> None:
    assert told(fails) is None
    assert told(lambda: 1) == 1
    assert told(fails) == 1
    assert told(lambda: 2) == 2


def test_who_does_not_answer_is_asked_once_and_not_waited_for(
    told: LastTold[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MEMBER_SECONDS", 0.01)
    answers, asked = threading.Event(), []

    def ask() -> int:
        asked.append(True)
        assert answers.wait(60.0)
        return len(asked)

    assert [told(ask) for _ in range(5)] == [None] * 5 and len(asked) == 1
    answers.set()
    until(lambda: told(ask) == 1, 60.0, "the answer that came late")
    until(lambda: told(ask) == 2, 60.0, "another one")


def test_other_errors_are_told(told: LastTold[int]) -> None:
    with pytest.raises(ZeroDivisionError):
        told(lambda: 1 // 0)
