"""Pools that do not get on: members that say nothing, steps that take long, views that always fail, time that jumps."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere.protocol import driving as d
from belvedere.protocol import wire
from belvedere.protocol.catalog import FIRST_SLICE
from belvedere.protocol.coordinator import STALLED, Options
from belvedere.protocol.messages import Begin, Role
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.protocol.viewserver import ViewServer
from tests.protocol.table_top import TableTop

QUIET_MS = 2000
OPTIONS = Options(quiet_ms=QUIET_MS, collect_ms=500, retention_ms=2000, late_writer_ms=1000)
DAY_MS = 86_400_000


class Slow(ViewServer):
    """Takes so many milliseconds for each stage; says nothing meanwhile."""

    def __init__(self, me: MemberId, takes: float) -> None:
        super().__init__(me)
        self._takes = takes
        self._running: list[tuple[float, Any]] = []
        self._at = 0

    def handle(self, event: Any) -> list[Any]:
        if isinstance(event, d.Computed):
            self._running.append((self._at + self._takes, event))
            return []
        if isinstance(event, d.Tick):
            self._at = event.now
            due = [one for at, one in self._running if at <= event.now]
            self._running = [one for one in self._running if one[0] > event.now]
            return [instruction for one in due for instruction in super(Slow, self).handle(one)]
        return super().handle(event)


class Failing(ViewServer):
    """Whatever it computes fails."""

    def handle(self, event: Any) -> list[Any]:
        if isinstance(event, d.Computed):
            return super().handle(d.WorkFailed(event.epoch, event.attempt, "a bug", "sums"))
        return super().handle(event)


def pool(seed: int, *servers: Any, coordinators: int = 1) -> TableTop:
    """`servers`: what makes each, None for the usual."""
    table = TableTop(seed, OPTIONS)
    for _ in range(coordinators):
        table.start(Role.COORDINATOR)
    table.start(Role.DISTRIBUTOR)
    for make in servers:
        table.start(Role.VIEWSERVER, make)
    return table


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_says_nothing_is_left_out(seed: int) -> None:
    table = pool(seed, None, None, lambda me: Slow(me, float("inf")))
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    assert len(table.leader().epochs.generation.servers) == 2
    assert table.record is not None and table.record[0].stalled == ""


def test_a_step_that_takes_longer_than_silence_is_borne_comes_to_its_end() -> None:
    table = pool(1, lambda me: Slow(me, 5.5 * QUIET_MS))
    table.write("a")
    seen = set()

    def committed() -> bool:
        assert table.record is None or not seen.add(table.record[0].stalled)  # type: ignore[func-returns-value]
        return len(table.commits) == 1

    table.run_until(committed, 200_000)
    (stalled,) = seen - {""}
    assert "waiting for viewserver" in stalled and "nothing heard for" in stalled and "compute stage" in stalled
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2, 200_000)
    assert table.record is not None and table.record[0].stalled == ""


def test_what_failed_is_tried_again_long_before_silence_is_noticed() -> None:
    failed: list[int] = []

    class FailingAtFirst(ViewServer):
        def handle(self, event: Any) -> list[Any]:
            if isinstance(event, d.Computed) and len(failed) < 3:
                failed.append(event.attempt)
                return super().handle(d.WorkFailed(event.epoch, event.attempt, "a lost answer"))
            return super().handle(event)

    table = pool(2, FailingAtFirst)
    table.write("a")
    table.run_until(lambda: bool(failed), 200_000)
    begun = table.now
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    assert len(failed) == 3 and table.leader().failure_detector.silences == 0
    assert table.now - begun < QUIET_MS, "three pauses of 100, 200 and 400 ms"


def test_a_stalled_pool_says_so_to_whoever_changes_its_catalog() -> None:
    table = pool(3, Failing)
    table.run_until(lambda: table.leader() is not None)
    (name,) = table._coordinators()
    table.write("a")
    table.run_until(lambda: table.leader().failure_detector.failures == 1 and not table.leader()._planning)
    table._tell(name, d.CatalogOffered(1, 1, b"waits for a plan", 1))
    assert table.taken == []
    table.run_until(lambda: bool(table.taken), 200_000)
    table._tell(name, d.CatalogOffered(2, 1, b"comes later", 1))
    assert [(taken.ticket, taken.refused) for taken in table.taken] == [
        (1, f"{STALLED}: view sums: a bug"),
        (2, f"{STALLED}: view sums: a bug"),
    ]


def test_what_was_offered_to_a_stalled_pool_does_not_come_back() -> None:
    """Its document is written late, when another one of the same version is in use."""
    fails = True

    class FailingForAWhile(Failing):
        def handle(self, event: Any) -> list[Any]:
            return super().handle(event) if fails else ViewServer.handle(self, event)

    table = pool(3, FailingForAWhile)
    table.run_until(lambda: table.leader() is not None)
    (name,) = table._coordinators()
    carry_out, late = table._carry_out, list[d.WriteDocument]()

    def hold_up(who: MemberId, instruction: Any) -> None:
        if isinstance(instruction, d.WriteDocument) and instruction.data == b"first":
            late.append(instruction)
        else:
            carry_out(who, instruction)

    table._carry_out = hold_up  # type: ignore[method-assign]
    table.write("a")
    table.run_until(lambda: table.leader().failure_detector.failures == 1 and not table.leader()._planning)
    table._tell(name, d.CatalogOffered(1, 1, b"first", 1))
    table.run_until(lambda: bool(table.taken), 200_000)
    fails = False
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    table._tell(name, d.CatalogOffered(2, 1, b"second", 1))
    table.run_until(lambda: len(table.commits) == 2, 200_000)
    carry_out(name, late[0])
    table.run(100)
    assert table.documents[table.commits[-1].catalog_document] == b"second"


def test_a_long_epoch_gets_through_although_a_server_hangs_and_stays() -> None:
    table = pool(5, lambda me: Slow(me, 12 * QUIET_MS), lambda me: Slow(me, float("inf")))
    for round in range(1, 4):
        table.write("a")
        table.run_until(lambda round=round: len(table.commits) == round, 400_000)  # type: ignore[misc]


def test_a_reason_of_any_length_fits_into_the_record() -> None:
    class Verbose(ViewServer):
        def handle(self, event: Any) -> list[Any]:
            if isinstance(event, d.Computed):
                return super().handle(d.WorkFailed(event.epoch, event.attempt, "x" * 2_000_000, "sums"))
            return super().handle(event)

    table = pool(7, Verbose)
    table.write("a")
    table.run_until(lambda: table.record is not None and bool(table.record[0].stalled), 200_000)
    assert table.record is not None and table.record[0].stalled.startswith("view sums: xxx")
    assert len(wire.encode(table.record[0])) < 10_000


def test_the_first_build_of_a_pool_with_rows_goes_slice_by_slice() -> None:
    table = pool(4, None)
    table.write("a", 3)
    table.run_until(lambda: len(table.commits) == 1)
    table._tell(table._coordinators()[0], d.CatalogOffered(1, 1, b"catalog", 1, (1,)))
    table.run_until(lambda: any(plan.slices for plan in table.commits))
    assert next(plan.slices for plan in table.commits if plan.slices)[0].stop == FIRST_SLICE < BUCKETS


@pytest.mark.parametrize("seed", range(10))
def test_an_epoch_is_never_named_after_a_clock_that_was_set(seed: int) -> None:
    table = pool(seed, None, None, coordinators=2)
    written = 0
    while len(table.commits) < 3:
        table.write("a")
        written += 1
        table.run(100)
    leading = next(name for name, machine in table.machines.items() if machine is table.leader())
    table._tell(leading, d.Tick(table.now + 11 * DAY_MS))
    assert table.leader() is None
    table.write("a")
    table.run_until(lambda: not table.chunks, 100_000)
    assert table.commits[-1].epoch <= table.now
    assert table.machines[leading] is not table.leader()


def test_servers_are_sent_what_they_need_of_a_plan() -> None:
    heard: dict[str, list[Begin]] = {"server": [], "distributor": []}

    class Listening(ViewServer):
        def handle(self, event: Any) -> list[Any]:
            if isinstance(event, d.Received) and isinstance(event.message, Begin):
                heard["server"].append(event.message)
            return super().handle(event)

    table = pool(6, Listening)
    tell = table._tell

    def listen(name: MemberId, event: Any) -> None:
        if name.startswith("distributor") and isinstance(event, d.Received) and isinstance(event.message, Begin):
            heard["distributor"].append(event.message)
        tell(name, event)

    table._tell = listen  # type: ignore[method-assign]
    table.write("a", 3)
    table.run_until(lambda: len(table.commits) == 1)
    assert heard["server"] and heard["distributor"]
    assert all(begin.plan.pieces == () and begin.plan.positions == {} for begin in heard["server"])
    assert all(begin.plan.pieces and begin.plan.positions == {} for begin in heard["distributor"])
