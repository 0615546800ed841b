"""A server that is left out while its session lives goes on with work that others have committed: it writes nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulator import runner
from tests.simulator.trace import Trace

SEEDS = range(32, 44)


def test_servers_that_are_left_out_with_work_in_progress_write_nothing_else() -> None:
    effects: Counter[str] = Counter()
    for seed in SEEDS:
        trace = Trace()
        assert not runner.run(seed, trace=trace, theme="late computation").wrong, f"seed {seed}"
        effects += trace.effects
    assert effects["hangs"] > 5 and effects["was told that it is left out"], effects


@pytest.mark.parametrize("rule", ["the store refuses", "the record is asked"])
def test_either_rule_suffices_where_nobody_tells_them(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message may come after the write: what it says is a courtesy."""
    from belvedere.backend.memory import MemoryStore
    from belvedere.protocol import viewserver

    monkeypatch.setattr(viewserver.ViewServer, "_left_out", lambda self, generation: [])
    if rule == "the store refuses":
        monkeypatch.setattr(viewserver, "overtaken", lambda state, epoch, attempt: "")
        sign = "was refused a load below the horizon"
    else:
        monkeypatch.setattr(MemoryStore, "_check_horizon", lambda self, table, below: None)
        sign = "wrote nothing: overtaken"
    effects: Counter[str] = Counter()
    for seed in SEEDS:
        trace = Trace()
        outcome = runner.run(seed, trace=trace, theme="late computation")
        # An engine that computes on state that is not there may notice; it writes nothing then, either.
        assert not outcome.judged, f"seed {seed}: {outcome.wrong}"
        effects += trace.effects
    assert effects[sign], effects
