"""A leader begins its term with what the record names, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere.protocol import driving as d
from belvedere.protocol.coordinator import CoordinatorPhase
from belvedere.protocol.pins import HORIZONS, PinDocument, horizon_of
from tests.protocol.table_top import TableTop
from tests.protocol.test_coordinator import check_once, pool


def carried_out(table: TableTop, kind: type[Any]) -> list[Any]:
    """All instructions of this kind, from now on."""
    found: list[Any] = []
    carry_out = table._carry_out

    def noting(name: Any, instruction: Any) -> None:
        if isinstance(instruction, kind):
            found.append(instruction)
        carry_out(name, instruction)

    table._carry_out = noting  # type: ignore[method-assign]
    return found


def leads(table: TableTop) -> bool:
    leader = table.leader()
    return leader is not None and leader.phase is CoordinatorPhase.LEADING


def test_a_successor_publishes_what_its_predecessor_committed() -> None:
    """Who may have died between the commit and telling readers of it."""
    table = pool(5, coordinators=2)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    table.kill(table.leader().me)
    published = carried_out(table, d.Publish)
    table.run_until(lambda: leads(table))
    assert [told.plan.epoch for told in published] == [table.commits[0].epoch]


def test_a_plan_that_is_not_what_the_record_names_stops_the_leader() -> None:
    table = pool(5, coordinators=2)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    assert table.record is not None
    pointer = table.record[0].committed_plan
    assert pointer is not None
    right = table.documents[pointer.document]
    table.documents[pointer.document] = right.replace(b'"rows":1', b'"rows":2')
    assert table.documents[pointer.document] != right
    table.kill(table.leader().me)
    resigned = carried_out(table, d.Resign)
    table.run_until(lambda: bool(resigned))
    assert f"{pointer.document!r} has another digest than the record says" in resigned[0].reason
    table.documents[pointer.document] = right
    table.write("a")
    table.run_until(lambda: not table.chunks, 60_000)
    check_once(table, {"a": 2})


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_that_was_prepared_in_an_earlier_term_is_forgotten(seed: int) -> None:
    table = pool(seed, coordinators=2)
    table.write("a")
    table.run_until(lambda: leads(table) and table.leader()._prepared is not None)
    first = table.leader()
    other = next(name for name in table.machines if name.startswith("coordinator") and name != first.me)
    table._tell(first.me, d.Elected(False))
    table._tell(other, d.Elected(True))
    table.write("a")
    table.run_until(lambda: not table.chunks)
    table._tell(other, d.Elected(False))
    table._tell(first.me, d.Elected(True))
    table.run_until(lambda: leads(table) and table.leader() is first)
    table.write("a")
    table.run_until(lambda: not table.chunks)
    check_once(table, {"a": 3})


@pytest.mark.parametrize("seed", range(4))
def test_a_catalog_that_was_offered_in_an_earlier_term_is_forgotten(seed: int) -> None:
    """Whoever offered it is told to look, and finds nothing: it must not come later."""
    table = pool(seed, coordinators=2)
    table.write("a")
    table.run_until(lambda: leads(table) and len(table.commits) == 1)
    first = table.leader()
    table._tell(first.me, d.CatalogOffered(1, 1, b"offered", 1))
    table.run_until(lambda: first._catalog.offer is not None and first._catalog.offer.durable)
    table._tell(first.me, d.Elected(False))
    (told,) = table.taken
    assert told.ticket == 1 and "look whether the change has happened" in told.refused
    table._tell(first.me, d.Elected(True))
    table.run_until(lambda: leads(table) and table.leader() is first)
    for commits in (2, 3):
        table.write("a")
        table.run_until(lambda commits=commits: len(table.commits) >= commits)  # type: ignore[misc]
    assert {plan.catalog for plan in table.commits} == {0}
    table._tell(first.me, d.CatalogOffered(2, 1, b"offered again", 1))
    table.run_until(lambda: table.commits[-1].catalog == 1)
    assert table.documents[table.commits[-1].catalog_document] == b"offered again"


def test_pins_are_listed_again_after_the_horizon_was_raised() -> None:
    """A reader that found its pin not below the horizon relies on the second listing."""
    table = pool(5)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    pinned = table.commits[0].epoch
    carry_out = table._carry_out

    def with_pin(name: Any, instruction: Any) -> None:
        raises = isinstance(instruction, d.WriteDocument) and instruction.name.startswith(HORIZONS)
        if raises and horizon_of([instruction.name]) > pinned:
            # The pin is durable before this horizon is: its reader finds an older one.
            table.documents[PinDocument("reader", pinned).document] = b""
        carry_out(name, instruction)

    table._carry_out = with_pin  # type: ignore[method-assign]
    collected = len(table.collected)
    for _ in range(6):
        table.write("a")
        table.run_until(lambda: not table.chunks)
        table.run(1_500)
    found = [horizon for horizon, _ in table.collected[collected:]]
    assert horizon_of([name for name in table.documents if name.startswith(HORIZONS)]) > pinned, "it was raised"
    assert found and max(found) <= pinned
