"""Threads that start, and calls that run to their end, whatever is raised in the thread that wants them."""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest

from belvedere import waiting
from tests.interrupts.injecting import Injected
from tests.interrupts.storm import PATIENCE


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_thread_begins_though_an_exception_for_its_maker_meets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    strikes = 0

    def start(*arguments: Any, original: Callable[..., Any] = _thread.start_new_thread) -> Any:
        # The interpreter looks for the thread by its number, and finds the newest that has it.
        nonlocal strikes
        started = original(*arguments)
        if not strikes:
            strikes += 1
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(threading.get_ident()), ctypes.py_object(Injected)
            )
        return started

    monkeypatch.setattr(_thread, "start_new_thread", start)
    met_the_maker = 0
    for _ in range(20):
        strikes, ran = 0, threading.Semaphore(0)
        try:
            waiting.start_thread(ran.release, "belvedere-test", lambda error: None)
        except Injected:
            met_the_maker += 1  # the new thread was quicker than the exception
            continue
        assert ran.acquire(timeout=PATIENCE)
    assert met_the_maker < 20


def test_an_uninterrupted_call_gives_its_result_or_its_error() -> None:
    assert waiting.uninterrupted(lambda: threading.current_thread().name) == "belvedere-call"
    with pytest.raises(ValueError, match="as it was"):
        waiting.uninterrupted(lambda: int("as it was"))
