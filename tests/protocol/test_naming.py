"""Epochs from which on names mean something else are published before anything is committed behind them."""

from __future__ import annotations

from typing import Any

from belvedere.protocol import driving as d
from belvedere.protocol.epoch import OpenEpoch
from belvedere.protocol.messages import Epoch, EpochPlan, Pointer, Role, Slice
from belvedere.protocol.naming import Naming
from belvedere.protocol.ring import BUCKETS
from tests.protocol.table_top import TableTop


def epoch(number: int, catalog: str = "c/1", built: int = BUCKETS) -> OpenEpoch:
    plan = EpochPlan(Epoch(number), (), {}, 1, catalog, 1, (Slice(1, 0, built),))
    return OpenEpoch(plan, Pointer(Epoch(number), f"plan/{number}", ""), 0)


def numbers(naming: Naming, *ready: OpenEpoch) -> list[int]:
    return [one.plan.epoch for one in naming.may_commit(ready)]


def test_commits_end_at_the_first_epoch_with_other_names_until_it_is_published() -> None:
    naming = Naming()
    naming.restore(epoch(1).plan)
    assert numbers(naming, epoch(2)) == []
    naming.published(Epoch(1))
    assert numbers(naming, epoch(2), epoch(3)) == [2, 3]
    assert numbers(naming, epoch(2, "c/2"), epoch(3, "c/2")) == [2]
    naming.committed(epoch(2, "c/2").plan)
    assert numbers(naming, epoch(3, "c/2")) == []
    naming.published(Epoch(1))
    assert numbers(naming, epoch(3, "c/2")) == []
    naming.published(Epoch(2))
    assert numbers(naming, epoch(3, "c/2"), epoch(4, "c/2", built=9), epoch(5, "c/2", built=9)) == [3, 4]


class Unpublishing(TableTop):
    """A store that takes no published epochs while `held`."""

    held = False

    def _carry_out(self, name: Any, instruction: Any) -> None:
        if not (isinstance(instruction, d.Publish) and self.held):
            super()._carry_out(name, instruction)


def test_a_successor_finds_every_change_of_names_in_the_record() -> None:
    """While it is not published nothing is committed behind it, so that the record names it."""
    table = Unpublishing(4)
    for role in (Role.COORDINATOR, Role.COORDINATOR, Role.DISTRIBUTOR, Role.VIEWSERVER):
        table.start(role)
    table.run_until(lambda: table.leader() is not None)
    table.held = True
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)  # the first one: names mean something for the first time
    for _ in range(4):
        table.write("a")
        table.run(400)
    assert len(table.commits) == 1
    table.held = False
    table.kill(next(n for n, m in table.machines.items() if m is table.leader()))
    table.run_until(lambda: not table.chunks)
