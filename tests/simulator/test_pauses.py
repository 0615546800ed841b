"""What a pause of the leader must not shorten."""

from __future__ import annotations

import pytest

from belvedere.cluster.coordination.clock import Clock
from tests.simulator import runner

SEED = 3
"""The leader is paused, and hears of a commit before its next tick."""


def test_a_commit_that_is_heard_of_after_a_pause_is_not_dated_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not runner.run(SEED).wrong
    monkeypatch.setattr(Clock, "overdue", lambda self: False)
    assert "the retention is" in runner.run(SEED).wrong
