"""Views that cannot be computed: plans are amended, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from belvedere.errors import Contradiction
from belvedere.protocol import driving as d
from belvedere.protocol import wire
from belvedere.protocol.amending import BLAMED_AFTER
from belvedere.protocol.coordinator import Coordinator, Options
from belvedere.protocol.driving import Elected, RecordRead, Swapped, Tick
from belvedere.protocol.leadership import Leadership
from belvedere.protocol.membership import Membership
from belvedere.protocol.messages import (
    AMENDING,
    Attempt,
    Epoch,
    EpochPlan,
    Member,
    Pointer,
    PoolState,
    Role,
    Term,
    ViewVersion,
)
from belvedere.protocol.ring import MemberId
from belvedere.protocol.viewserver import ViewServer
from tests.protocol.table_top import CLUSTER, TableTop

OPTIONS = Options(quiet_ms=20_000, collect_ms=500, retention_ms=2000, late_writer_ms=1000)
Fails = Callable[["Picky", d.Computed], "str | None"]


class Picky(ViewServer):
    """Fails for a view, unless the catalog of the plan says that it failed."""

    def __init__(self, me: MemberId, table: TableTop, fails: Fails, blames: bool = True) -> None:
        super().__init__(me)
        self._table, self._fails, self._blames = table, fails, blames
        self.failed: list[tuple[int, str]] = []

    def handle(self, event: Any) -> list[Any]:
        work = self._works.get(event.epoch) if isinstance(event, d.Computed) else None
        view = self._fails(self, event) if isinstance(event, d.Computed) else None
        if view is None or work is None or work.plan is None:
            return super().handle(event)
        if f"-{view}".encode() in self._table.documents.get(work.plan.catalog_document, b""):
            return super().handle(event)
        self.failed.append((event.attempt, view))
        views = (ViewVersion(view, 1),) if self._blames else ()
        return super().handle(d.WorkFailed(event.epoch, event.attempt, "ZeroDivisionError", view, views))


def pool(seed: int, fails: Fails, servers: int = 2, coordinators: int = 1, blames: bool = True) -> TableTop:
    table = TableTop(seed, OPTIONS)
    for _ in range(coordinators):
        table.start(Role.COORDINATOR)
    table.start(Role.DISTRIBUTOR)
    for _ in range(servers):
        table.start(Role.VIEWSERVER, lambda me: Picky(me, table, fails, blames))
    return table


def failures(table: TableTop) -> set[tuple[int, str]]:
    """(attempt, view)"""
    return {one for machine in table.machines.values() if isinstance(machine, Picky) for one in machine.failed}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("servers", [1, 3])
def test_a_view_that_always_fails_is_set_aside_and_epochs_go_on(seed: int, servers: int) -> None:
    table = pool(seed, lambda *_: "bad", servers)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    (plan,) = table.commits
    assert table.documents[plan.catalog_document] == b" -bad" and plan.amends and plan.pieces
    assert {view for _, view in failures(table)} == {"bad"}
    assert len({attempt for attempt, _ in failures(table)}) == BLAMED_AFTER
    before = len(failures(table))
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2, 200_000)
    assert len(failures(table)) == before, "what failed is not computed any more"
    assert table.record is not None and table.record[0].stalled == ""


def test_what_fails_once_or_twice_is_no_failure_of_the_view() -> None:
    attempts: set[int] = set()

    def fails(server: Picky, event: d.Computed) -> str | None:
        attempts.add(event.attempt)
        return "shaky" if len(attempts) < BLAMED_AFTER else None

    table = pool(1, fails)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    assert len({attempt for attempt, _ in failures(table)}) == BLAMED_AFTER - 1
    assert table.commits[0].amends == ""


def test_what_fails_in_different_epochs_is_not_added_up() -> None:
    epochs: dict[int, set[int]] = {}

    def fails(server: Picky, event: d.Computed) -> str | None:
        seen = epochs.setdefault(event.epoch, set())
        seen.add(event.attempt)
        return "shaky" if len(seen) < 2 else None

    table = pool(2, fails, 1)
    for count in range(1, 7):
        table.write("a")
        table.run_until(lambda count=count: not table.chunks and len(table.commits) >= count, 400_000)  # type: ignore[misc]
    assert all(plan.amends == "" for plan in table.commits)


@pytest.mark.parametrize("seed", range(4))
def test_views_that_take_turns_at_failing_are_all_set_aside(seed: int) -> None:
    table = pool(seed, lambda server, event: "even" if event.attempt % 2 else "odd", 1)
    # what is set aside is not computed: then the other one fails in every second attempt only
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1, 400_000)
    assert {view for _, view in failures(table)} == {"even", "odd"}
    written = table.documents[table.commits[0].catalog_document]
    counts = {view: len({a for a, v in failures(table) if v == view}) for view in ("even", "odd")}
    assert all(count <= BLAMED_AFTER for count in counts.values()) and BLAMED_AFTER in counts.values()
    assert b"-even" in written or b"-odd" in written


def test_a_failure_that_is_nobodys_leaves_every_view_in_place() -> None:
    table = pool(3, lambda *_: "innocent", 1, blames=False)
    table.write("a")
    table.run_until(lambda: table.record is not None and bool(table.record[0].stalled), 200_000)
    assert table.record is not None and "view innocent" in table.record[0].stalled
    assert not any(pointer.amendment for pointer in table.record[0].open)


@pytest.mark.parametrize("seed", range(6))
def test_what_fails_on_one_member_only_is_the_members(seed: int) -> None:
    broken: list[MemberId] = []

    def fails(server: Picky, event: d.Computed) -> str | None:
        broken[:] = broken or [server.me]
        return "good" if server.me == broken[0] else None

    table = pool(seed, fails, 3)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    assert table.commits[0].amends == ""
    assert broken[0] not in table.leader().epochs.generation.servers


@pytest.mark.parametrize("seed", range(40))
def test_a_leader_that_is_lost_in_the_middle_leaves_an_epoch_as_it_was_or_amended(seed: int) -> None:
    table = pool(seed, lambda *_: "bad", 2, coordinators=3)
    table.write("a")
    table.run_until(lambda: bool(failures(table)), 200_000)
    for _ in range(2):
        table.run(table.random.randrange(10, 120))
        leading = next((n for n in table._coordinators() if table.machines[n] is table.leader()), None)
        if leading is not None:
            table.kill(leading)
    table.run_until(lambda: len(table.commits) == 1, 400_000)
    assert table.documents[table.commits[0].catalog_document].endswith(b"-bad")
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2, 400_000)


@pytest.mark.parametrize("seed", range(10))
def test_open_epochs_after_the_one_that_fails_are_amended_with_it(seed: int) -> None:
    first: list[int] = []

    def fails(server: Picky, event: d.Computed) -> str | None:
        return "bad" if len(table.record[0].open) == 2 or event.epoch in first else None  # type: ignore[index]

    table = pool(seed, fails, 1)
    slow = table._carry_out

    def hold(name: MemberId, instruction: Any) -> None:
        """The first epoch is computed when there is a second one."""
        if isinstance(instruction, d.Compute) and table.record is not None and len(table.record[0].open) < 2:
            first[:] = first or [instruction.epoch]
            table._waiting.append((name, lambda: d.Tick(table.now)))
            table._later(name, lambda: d.Tick(table.now))
            held.append((name, instruction))
            return
        slow(name, instruction)

    held: list[Any] = []
    table._carry_out = hold  # type: ignore[method-assign]
    table.write("a")
    table.run_until(lambda: bool(held), 50_000)
    table.write("b")
    table.run_until(lambda: len(table.record[0].open) == 2, 50_000)  # type: ignore[index]
    table._carry_out = slow  # type: ignore[method-assign]
    for name, instruction in held:
        slow(name, instruction)
    table.run_until(lambda: len(table.commits) == 2, 400_000)
    one, two = table.commits
    assert one.amends and two.amends and one.pieces and two.pieces
    assert one.catalog_document == two.catalog_document and one.catalog == two.catalog == 1


def test_the_catalog_that_was_offered_meanwhile_is_refused_and_the_next_one_is_taken() -> None:
    table = pool(5, lambda *_: "bad", 1)
    table.write("a")
    table.run_until(lambda: table.leader() is not None)
    table.run_until(lambda: table.leader().failure_detector.failures == 1 and not table.leader()._planning, 200_000)
    (name,) = table._coordinators()
    table._tell(name, d.CatalogOffered(1, 1, b"offered to what was", 1))
    table.run_until(lambda: len(table.commits) == 1, 200_000)
    assert [taken.ticket for taken in table.taken if taken.refused] == [1]
    assert "views have failed" in table.taken[0].refused
    version = table.commits[0].catalog
    table._tell(name, d.CatalogOffered(2, version + 1, b"offered to what is -bad", 1))
    table.run_until(lambda: len(table.commits) == 2, 200_000)
    assert table.commits[1].catalog == version + 1
    assert table.documents[table.commits[1].catalog_document] == b"offered to what is -bad"


def test_a_catalog_that_is_taken_between_failures_is_amended_as_well() -> None:
    table = pool(5, lambda *_: "bad", 1)
    table.write("a")
    table.run_until(lambda: len(failures(table)) == 1 and not table.leader()._planning, 200_000)
    (name,) = table._coordinators()
    assert table.leader().failure_detector.failures == 0, "the leader has not heard of it"
    table._tell(name, d.CatalogOffered(1, 1, b"new", 1))
    table.run_until(lambda: len(table.commits) == 2, 200_000)
    assert [(plan.catalog, table.documents[plan.catalog_document]) for plan in table.commits] == [
        (2, b" -bad"),
        (3, b"new -bad"),
    ]


def test_members_of_the_protocol_before_would_go_on_so_nothing_is_amended() -> None:
    table = TableTop(6, OPTIONS)

    def coordinator(me: MemberId) -> Coordinator:
        made = Coordinator(me, CLUSTER, OPTIONS)
        made.membership = Membership(CLUSTER, oldest=AMENDING - 1, newest=AMENDING)
        made.leadership = Leadership(me, CLUSTER, oldest=AMENDING - 1, newest=AMENDING)
        return made

    table.start(Role.COORDINATOR, coordinator)
    table.start(Role.DISTRIBUTOR)
    table.start(Role.VIEWSERVER, lambda me: Picky(me, table, lambda *_: "bad"))
    old = table.start(Role.VIEWSERVER)
    table.members[old] = replace(
        table.members[old], oldest_protocol=AMENDING - 1, newest_protocol=AMENDING - 1, cluster=CLUSTER
    )
    for name, member in table.members.items():
        newest = min(member.newest_protocol, AMENDING)
        table.members[name] = replace(member, oldest_protocol=AMENDING - 1, newest_protocol=newest)
    table._members_changed()
    table.write("a")
    table.run_until(lambda: len(failures(table)) > 2 * BLAMED_AFTER or bool(table.commits), 400_000)
    assert all(plan.amends == "" for plan in table.commits)


POINTER = Pointer(Epoch(60), "plan/60-4", "digest")
BEFORE = PoolState("c1", Term(4), MemberId("me"), Attempt(9), Epoch(50), open=(POINTER,))


def _leading() -> Leadership:
    made = Leadership(MemberId("me"), "c1")
    made.handle(Tick(1_000_000))
    made.handle(Elected(True))
    made.handle(RecordRead(1, replace(BEFORE, term=Term(3)), 7, 1_000_000))
    made.handle(Swapped(2, "done", 8, 1_000_000))
    assert made.state == BEFORE
    return made


@pytest.mark.parametrize(
    "after",
    [
        replace(BEFORE, open=(replace(POINTER, document="plan/60-4-1", amendment=1),)),
        replace(BEFORE, generation=Attempt(10), open=(replace(POINTER, document="plan/60-4-2", amendment=2),)),
        replace(BEFORE, generation=Attempt(10), open=(replace(POINTER, document="plan/60-4-1"),)),
        replace(BEFORE, generation=Attempt(10), open=(replace(POINTER, digest="other", amendment=1),)),
    ],
    ids=["without a new generation", "twice at once", "without saying so", "in the same document"],
)
def test_a_plan_is_amended_once_at_a_time_and_with_a_new_generation(after: PoolState) -> None:
    with pytest.raises(Contradiction, match="a plan is amended once at a time, with a new generation"):
        _leading().propose(after)


def test_a_plan_that_was_amended_may_be_amended_again() -> None:
    leading = _leading()
    once = replace(BEFORE, generation=Attempt(10), open=(replace(POINTER, document="plan/60-4-1", amendment=1),))
    leading.propose(once)
    twice = replace(once, generation=Attempt(11), open=(replace(POINTER, document="plan/60-4-2", amendment=2),))
    leading.propose(twice)


def test_records_and_plans_of_the_version_before_are_read() -> None:
    plan = EpochPlan(Epoch(5), (), {}, 1, "catalog/1", 1)
    written = wire.encode(plan).replace(b'"amends":"",', b"")
    assert b"amends" not in written and wire.decode(written) == plan
    record = wire.encode(BEFORE).replace(b'"amendment":0,', b"")
    assert b"amendment" not in record and wire.decode(record) == BEFORE


def test_a_member_that_says_nothing_of_views_is_understood() -> None:
    assert Member(MemberId("m"), Role.VIEWSERVER).newest_protocol >= AMENDING
