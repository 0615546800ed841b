"""For tests of failed views only: a process with `BELVEDERE_TEST_FAILING_VIEW=name:view group` cannot compute it."""

from __future__ import annotations

from typing import Any

from belvedere.engine.shard import Shard


def let_fail(which: str) -> None:
    """From now on this process fails where rows of that version of the view are made."""
    name, _, number = which.rpartition(":")
    step = Shard._step

    def fails(self: Shard, running: Any, one: Any, run: Any, outputs: Any) -> Any:
        fed = any(outputs[feed] is not None for feed in run.feeds)
        if fed and one.view_group.number == int(number) and name in run.views:
            raise ArithmeticError(f"view {name} of view group {number} cannot be computed here")
        return step(self, running, one, run, outputs)

    Shard._step = fails  # type: ignore[method-assign]
