"""Members of two engine versions in one pool: who takes part, when the pool goes on to the next one, who is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from belvedere.errors import Contradiction
from belvedere.protocol import driving as d
from belvedere.protocol import wire
from belvedere.protocol.coordinator import Coordinator, Options
from belvedere.protocol.engines import engine_objection, oldest_state, state_engine
from belvedere.protocol.leadership import Leadership, Leads
from belvedere.protocol.membership import Membership
from belvedere.protocol.messages import Attempt, Epoch, Member, Pointer, PoolState, Role, Term
from belvedere.protocol.ring import MemberId
from tests.protocol.table_top import CLUSTER, TableTop

OPTIONS = Options(quiet_ms=2000, collect_ms=500, retention_ms=2000, late_writer_ms=1000)


class Engines(TableTop):
    """View servers refuse plans of engines that they do not have, as `cluster.work` does."""

    def __init__(self, seed: int, leader: tuple[int, int] = (1, 2), rebuilding: frozenset[int] = frozenset()) -> None:
        super().__init__(seed, OPTIONS)
        self.rebuilding = rebuilding
        self.engines: dict[MemberId, tuple[int, int]] = {}
        self.notes: list[d.Note] = []
        self.coordinator(leader)
        self.distributor = self.add(Role.DISTRIBUTOR, (1, 2))

    def coordinator(self, engines: tuple[int, int]) -> MemberId:
        def make(me: MemberId) -> Coordinator:
            made = Coordinator(me, CLUSTER, self.options)
            made.membership = Membership(CLUSTER, engines=engines, rebuilding=self.rebuilding)
            made.leadership = Leadership(me, CLUSTER, engines=engines)
            return made

        return self.start(Role.COORDINATOR, make)

    def add(self, role: Role, engines: tuple[int, int]) -> MemberId:
        name = MemberId(f"{role.value}-{self._number + 1}")
        self.engines[name] = engines
        members = self._members_changed
        self._members_changed = lambda: None  # type: ignore[method-assign]
        assert self.start(role) == name
        self.members[name] = replace(self.members[name], oldest_engine=engines[0], newest_engine=engines[1])
        self._members_changed = members  # type: ignore[method-assign]
        self._members_changed()
        return name

    def server(self, *engines: int) -> MemberId:
        return self.add(Role.VIEWSERVER, (engines[0], engines[-1]))

    def _carry_out(self, name: MemberId, instruction: Any) -> None:
        if isinstance(instruction, d.Note):
            self.notes.append(instruction)
        if isinstance(instruction, d.Open):
            oldest, newest = self.engines[name]
            assert oldest <= instruction.plan.engine <= newest, "planned for an engine that it does not have"
            needed = oldest_state(instruction.plan.made, instruction.plan.engine, self.rebuilding)
            assert oldest <= needed, "state is in a form that it does not have"
        super()._carry_out(name, instruction)

    @property
    def engine(self) -> int:
        return 0 if self.record is None else self.record[0].engine

    def offer(self, version: int, *made: int) -> None:
        """A catalog whose view groups were made under these engines."""
        leader = next(name for name in self._coordinators() if self.machines[name] is self.leader())
        self._tell(leader, d.CatalogOffered(version, version, b"catalog %d" % version, 1, made=made))
        self.run_until(lambda: any(plan.catalog == version for plan in self.commits))

    def servers(self) -> tuple[MemberId, ...]:
        return tuple(self.leader().epochs.generation.servers)

    def distributors(self) -> tuple[MemberId, ...]:
        return tuple(self.leader().epochs.generation.distributors)

    def refusals(self) -> dict[str, str]:
        return {n.fields["member"]: n.fields["reason"] for n in self.notes if n.event == "member refused"}


@pytest.mark.parametrize("seed", range(5))
def test_an_upgrade_of_the_engine_with_an_epoch_open_does_not_hold_up_the_pool(seed: int) -> None:
    """The last member of the version before goes with an epoch open: the next version has its engine as well."""
    table = Engines(seed)
    old = table.server(1)
    table.write("a")
    table.run_until(lambda: table.record is not None and bool(table.record[0].open))
    table.kill(old)
    new = table.server(1, 2)
    table.run_until(lambda: bool(table.commits), steps=5000)
    assert [plan.engine for plan in table.commits] == [1]
    table.run_until(lambda: table.engine == 2)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2)
    assert table.commits[-1].engine == 2 and table.servers() == (new,)


@pytest.mark.parametrize("seed", range(5))
def test_a_pool_goes_on_to_the_next_engine_when_all_members_have_it_also_under_load(seed: int) -> None:
    table = Engines(seed)
    first, second = table.server(1), table.server(1)
    for _ in range(20):
        table.write("a")
        table.run(60)
    assert table.engine == 1
    for old in (first, second):
        table.leave(old)
        table.server(1, 2)
        for _ in range(20):
            table.write("a")
            table.run(60)
        assert table.engine == 1 or old == second, "there is a member that has nothing else"
    written = 0
    while table.engine == 1:
        table.write("a")
        table.run(60)
        written += 1
        assert written < 200, "load keeps it from going on"
    table.run_until(lambda: not table.chunks)
    engines = [plan.engine for plan in table.commits]
    assert engines == sorted(engines) and {1, 2} == set(engines)
    assert all(
        not state.open
        for before, state in zip(table.states, table.states[1:], strict=False)
        if 0 != before.engine != state.engine
    )


def test_an_old_member_that_comes_back_is_refused_by_name() -> None:
    table = Engines(1)
    table.server(1, 2)
    table.run_until(lambda: table.engine == 2)
    old = table.server(1)
    table.write("a")
    table.run_until(lambda: bool(table.commits))
    assert old not in table.servers()
    told = "it has engine 1, the pool has engine 2 and does not go back: start a version that has it"
    assert table.refusals() == {old: told}


def test_a_member_with_an_engine_that_nobody_else_has_is_refused_by_name() -> None:
    table = Engines(2, leader=(1, 3))
    table.server(1)
    table.run_until(lambda: table.engine == 1)
    lonely = table.server(3)
    table.write("a")
    table.run_until(lambda: bool(table.commits))
    assert lonely not in table.servers()
    told = "it has engine 3, the pool has engine 1: start a version that has both, upgrade one version at a time"
    assert table.refusals() == {lonely: told}


def test_a_pool_with_nobody_left_says_what_to_start() -> None:
    table = Engines(3)
    old = table.server(1)
    table.write("a")
    table.run_until(lambda: table.record is not None and bool(table.record[0].open))
    table.kill(old)
    new = table.server(2)
    told = f"no view server has engine 1, which the pool has ({new}): start one of a version that has it"
    table.run_until(lambda: table.record is not None and table.record[0].stalled == told)
    assert not table.commits
    table.server(1, 2)
    table.run_until(lambda: bool(table.commits))
    assert table.record is not None and table.record[0].stalled == ""


def test_a_coordinator_that_does_not_know_the_engine_of_the_pool_does_not_lead() -> None:
    state = PoolState("c1", Term(4), MemberId("other"), Attempt(9), Epoch(50), engine=2)
    made = Leadership(MemberId("me"), "c1", engines=(1, 1))
    made.handle(d.Tick(1_000_000))
    made.handle(d.Elected(True))
    made.handle(d.RecordRead(1, state, 7, 1_000_000))
    assert made.stands_back == "the pool has engine 2, this coordinator knows 1 at most"


@pytest.mark.parametrize(
    "after",
    [{"engine": 1}, {"engine": 3, "open": (Pointer(Epoch(60), "plan/60-4", "digest"),)}],
    ids=["goes back", "with an epoch open"],
)
def test_the_engine_of_the_record_grows_while_no_epoch_is_open(after: dict[str, Any]) -> None:
    state = PoolState("c1", Term(4), MemberId("me"), Attempt(9), Epoch(50), engine=2)
    made = Leadership(MemberId("me"), "c1", engines=(1, 3))
    made.handle(d.Tick(1_000_000))
    made.handle(d.Elected(True))
    made.handle(d.RecordRead(1, replace(state, term=Term(3)), 7, 1_000_000))
    assert made.handle(d.Swapped(2, "done", 8, 1_000_000)) == [Leads(state)]
    with pytest.raises(Contradiction, match="engines grow, while no epoch is open"):
        made.propose(replace(state, **after))


def test_a_record_of_the_version_before_has_the_engine_of_its_last_plan() -> None:
    table = Engines(4)
    table.server(1)
    table.write("a")
    table.run_until(lambda: bool(table.commits))
    assert table.record is not None
    state, version = table.record
    written = wire.encode(state).replace(b'"engine":1,', b"")
    old = wire.decode(written)
    assert isinstance(old, PoolState) and old.engine == 0 and b"engine" not in written
    table.record = (old, version)
    table.kill(table._coordinators()[0])
    table.coordinator((1, 2))
    table._tell(table._coordinators()[0], d.Elected(True))
    table.server(1, 2)
    table.run_until(lambda: table.engine == 1)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2)
    assert table.commits[-1].engine == 1


def test_members_that_do_not_tell_their_engine_have_the_one_of_before() -> None:
    assert (
        Member(MemberId("m"), Role.VIEWSERVER).oldest_engine,
        Member(MemberId("m"), Role.VIEWSERVER).newest_engine,
    ) == (
        2,
        2,
    )


@pytest.mark.parametrize(
    ("made", "pool", "rebuilding", "expected"),
    [
        (3, 5, (), 5),
        (3, 5, (4,), 3),
        (3, 5, (5,), 4),
        (3, 6, (4, 6), 3),
        (4, 5, (4,), 5),
        (5, 5, (5,), 5),
        (3, 4, (5,), 4),
        (0, 4, (), 4),
        (0, 4, (3,), 2),
    ],
)
def test_state_follows_the_pool_up_to_the_first_engine_that_cannot_read_it(
    made: int, pool: int, rebuilding: tuple[int, ...], expected: int
) -> None:
    assert state_engine(made, pool, rebuilding) == expected


def test_whoever_computes_needs_the_engines_of_all_state() -> None:
    assert oldest_state((5, 3, 4), 5, (4,)) == 3
    assert oldest_state((), 5, (4,)) == 5
    assert engine_objection(5, 4, 5, 4) == ""
    assert engine_objection(5, 5, 6, 4) == (
        "it has engines 5 to 6, the pool has engine 5 and views whose state is in the form of engine 4: start it when "
        "they are rebuilt (the status tells), and until then a version that has both"
    )


def test_members_that_lack_the_engine_of_older_state_come_too_early() -> None:
    """Engine 2 cannot read state of engine 1, so those with engines 2 and 3 have to wait."""
    table = Engines(5, leader=(1, 3), rebuilding=frozenset({2}))
    table.server(1)
    table.run_until(lambda: table.engine == 1)
    table.offer(1, 1)
    for old in table.servers():
        table.leave(old)
    both = table.server(1, 2)
    table.run_until(lambda: table.engine == 2)
    early = table.server(2, 3)
    table.write("a")
    table.run_until(lambda: table.commits[-1].engine == 2)
    assert table.servers() == (both,)
    assert table.refusals()[early].startswith(
        "it has engines 2 to 3, the pool has engine 2 and views whose state is in the form of engine 1: "
    )
    table.offer(2, 1, 2)  # the new versions are being built
    table.run(2000)
    assert table.servers() == (both,) and table.engine == 2
    table.offer(3, 2)  # and the old ones are dropped
    table.run_until(lambda: set(table.servers()) == {both, early})
    table.leave(both)
    table.add(Role.DISTRIBUTOR, (2, 3))
    table.leave(table.distributor)
    table.run_until(lambda: table.engine == 3)
    table.write("a")
    table.run_until(lambda: table.commits[-1].engine == 3)


def test_the_next_engine_waits_until_nothing_is_in_an_older_form() -> None:
    """Although everybody has it: the release after that would not have the oldest."""
    table = Engines(8, leader=(1, 3), rebuilding=frozenset({2}))
    old = table.server(1, 2)
    table.run_until(lambda: table.engine == 2)
    table.offer(1, 1)
    table.server(1, 3)
    table.add(Role.DISTRIBUTOR, (1, 3))
    table.leave(old)
    table.leave(table.distributor)
    table.write("a")
    table.run_until(lambda: not {old, table.distributor} & {*table.servers(), *table.distributors()})
    table.write("a")
    table.run(2000)
    assert table.engine == 2
    table.offer(2, 2)
    table.run_until(lambda: table.engine == 3)


def test_a_pool_whose_views_nobody_can_rebuild_says_what_to_start() -> None:
    table = Engines(6, leader=(1, 3), rebuilding=frozenset({2}))
    both = table.server(1, 2)
    table.run_until(lambda: table.engine == 2)
    table.offer(1, 1)
    table.kill(both)
    new = table.server(2, 3)
    told = (
        f"no view server has engines 1 and 2, which the pool needs until its views are rebuilt ({new}): "
        "start one of a version that has both"
    )
    table.run_until(lambda: table.record is not None and table.record[0].stalled == told)
    table.server(1, 2)
    table.write("a")
    table.run_until(lambda: table.record is not None and table.record[0].stalled == "")


def test_an_open_plan_of_the_catalog_before_still_needs_the_older_engine() -> None:
    """The old versions are dropped by a plan, and the plan before it may have to be repeated: whoever takes part then
    needs what that one needs."""
    table = Engines(7, leader=(1, 3), rebuilding=frozenset({2}))
    table.server(1, 2)
    table.run_until(lambda: table.engine == 2)
    table.offer(1, 1)
    coordinator = table.leader()
    table.write("a")
    table.run_until(lambda: bool(coordinator.epochs.open))
    assert coordinator._made == {1}
    coordinator._catalog.current = replace(coordinator._catalog.current, made=(2,))
    assert coordinator._made == {1, 2}
