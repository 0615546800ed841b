"""A thousand histories, none wrong. `make simulate SEEDS=n FIRST=m` runs others."""

from __future__ import annotations

import pytest

from tests.simulator import runner

CHUNKS, PER_CHUNK = 20, 50


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_goes_wrong(chunk: int) -> None:
    wrong = list(runner.run_many(chunk * PER_CHUNK, PER_CHUNK))
    told = [f"seed {outcome.seed}: {outcome.wrong}\n  {runner.replay_command(outcome.seed, None)}" for outcome in wrong]
    assert not wrong, "\n".join(told)
