"""The role machines together, on a table: epochs get through, in order, each change once, whoever dies meanwhile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from belvedere.protocol import driving as d
from belvedere.protocol.catalog import SMALLEST_SLICE
from belvedere.protocol.coordinator import Options
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import BUCKETS
from tests.protocol.table_top import TableTop


def pool(seed: int, servers: int = 3, distributors: int = 2, coordinators: int = 1) -> TableTop:
    table = TableTop(seed)
    for role, count in ((Role.COORDINATOR, coordinators), (Role.DISTRIBUTOR, distributors), (Role.VIEWSERVER, servers)):
        for _ in range(count):
            table.start(role)
    return table


def committed_seqs(table: TableTop) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for plan in table.commits:
        for piece in plan.pieces:
            found.setdefault(piece.source, []).append((piece.after, piece.last))
    return found


def check_once(table: TableTop, written: dict[str, int]) -> None:
    """The committed pieces cover every seq once, in order."""
    epochs = [plan.epoch for plan in table.commits]
    assert epochs == sorted(set(epochs))
    for source, ranges in committed_seqs(table).items():
        assert [after for after, _ in ranges] == [-1, *(last for _, last in ranges[:-1])]
        assert ranges[-1][1] == written[source] - 1
    assert set(committed_seqs(table)) == {source for source, count in written.items() if count}


@pytest.mark.parametrize("seed", range(20))
def test_every_change_is_committed_once(seed: int) -> None:
    table = pool(seed)
    written = {"a": 0, "b": 0}
    for _ in range(30):
        source = table.random.choice(["a", "b"])
        count = table.random.randrange(1, 4)
        table.write(source, count)
        written[source] += count
        table.run(table.random.randrange(60))
    table.run_until(lambda: not table.chunks)
    check_once(table, written)
    assert table.collected and max(h for h, _ in table.collected) <= table.commits[-1].epoch


@pytest.mark.parametrize("seed", range(60))
def test_members_come_and_go(seed: int) -> None:
    table = pool(seed, coordinators=2)
    written = {"a": 0, "b": 0, "c": 0}
    for _ in range(40):
        source = table.random.choice(["a", "b", "c"])
        table.write(source)
        written[source] += 1
        table.run(table.random.randrange(80))
        event = table.random.randrange(8)
        names = {role: [n for n, m in table.members.items() if m.role is role] for role in Role}
        if event == 0:
            table.start(table.random.choice([Role.VIEWSERVER, Role.DISTRIBUTOR]))
        elif event == 1 and len(names[Role.VIEWSERVER]) > 1:
            table.kill(table.random.choice(names[Role.VIEWSERVER]))
        elif event == 2 and len(names[Role.DISTRIBUTOR]) > 1:
            table.kill(table.random.choice(names[Role.DISTRIBUTOR]))
        elif event == 3 and len(names[Role.VIEWSERVER]) > 1:
            table.leave(table.random.choice(names[Role.VIEWSERVER]))
        elif event == 4:
            table.kill(table.random.choice(names[Role.COORDINATOR]))
            table.start(Role.COORDINATOR)
    if not any(m.role is Role.VIEWSERVER and not m.leaving for m in table.members.values()):
        table.start(Role.VIEWSERVER)
    table.run_until(lambda: not table.chunks)
    check_once(table, written)
    assert all(state.generation >= before.generation for before, state in pairwise(table.states))


def test_one_who_asks_to_leave_is_released_after_the_open_epochs() -> None:
    table = pool(7)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    leaving = next(n for n, m in table.members.items() if m.role is Role.VIEWSERVER)
    table.write("a", 5)
    table.leave(leaving)
    table.run_until(lambda: table.released == [leaving])
    generation = table.leader().epochs.generation
    assert leaving not in generation.servers and len(generation.servers) == 2
    table.write("a")
    table.run_until(lambda: not table.chunks)
    check_once(table, {"a": 7})


def test_the_last_server_may_leave_and_another_one_goes_on() -> None:
    table = pool(3, servers=1, distributors=1)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    table.leave(next(n for n, m in table.members.items() if m.role is Role.VIEWSERVER))
    table.run_until(lambda: len(table.released) == 1)
    table.write("a")
    table.run(2000)
    assert len(table.commits) == 1
    table.start(Role.VIEWSERVER)
    table.run_until(lambda: not table.chunks)
    check_once(table, {"a": 2})


def test_a_new_catalog_is_built_slice_by_slice_and_survives_a_new_leader() -> None:
    table = pool(11, coordinators=2)
    table.write("a", 3)
    table.run_until(lambda: len(table.commits) == 1)
    name = next(n for n, m in table.machines.items() if m is table.leader())
    table._tell(name, d.CatalogOffered(1, 1, b"catalog", 2, (1,)))
    table.run_until(lambda: bool(table.taken))
    assert table.taken[0].refused == ""
    table.kill(name)
    table.start(Role.COORDINATOR)
    table.run_until(lambda: bool(table.commits[-1].slices) and table.commits[-1].slices[0].stop == BUCKETS)
    slices = [part for plan in table.commits for part in plan.slices]
    assert [part.first for part in slices] == [0, *(part.stop for part in slices[:-1])]
    assert {plan.catalog for plan in table.commits if plan.slices} == {1}
    assert {plan.stages for plan in table.commits if plan.slices} == {2}
    assert table.documents[table.commits[-1].catalog_document] == b"catalog"


@pytest.mark.parametrize("known", [False, True])
def test_a_build_comes_to_an_end_where_every_epoch_is_slow(known: bool) -> None:
    """Slices that are made smaller and smaller would not make epochs quicker."""
    table = TableTop(3, Options(target_ms=1, quiet_ms=2000, collect_ms=500, retention_ms=2000, late_writer_ms=1000))
    for role in (Role.COORDINATOR, Role.DISTRIBUTOR, Role.VIEWSERVER):
        table.start(role)
    table.write("a", 3)
    table.run_until(lambda: len(table.commits) == 1)
    table.leader()._catalog._slice = 64
    if not known:
        table.leader()._catalog._plain_ms = 0  # as after a change of leader
    table._tell(table._coordinators()[0], d.CatalogOffered(1, 1, b"catalog", 1, (1,)))
    complete = lambda: bool(table.commits[-1].slices) and table.commits[-1].slices[0].stop == BUCKETS  # noqa: E731
    table.run_until(complete, 200_000)
    sizes = [part.stop - part.first for plan in table.commits for part in plan.slices]
    assert min(sizes[:-1]) >= SMALLEST_SLICE
    assert len(sizes) < 50 if known else len(sizes) <= BUCKETS // SMALLEST_SLICE


def test_epochs_grow_with_the_pool() -> None:
    """A backlog is taken in epochs that are as many times as large as there are servers."""
    first = {}
    for servers in (1, 4):
        options = Options(
            max_rows=5, epoch_ms=10, quiet_ms=2000, collect_ms=500, retention_ms=2000, late_writer_ms=1000
        )
        table = TableTop(3, options)
        for role in (Role.COORDINATOR, Role.DISTRIBUTOR, *[Role.VIEWSERVER] * servers):
            table.start(role)
        table.run_until(lambda table=table: table.leader() is not None)  # type: ignore[misc]
        table.run(1000)
        for _ in range(100):
            table.write("a")
        table.run_until(lambda table=table: not table.chunks)  # type: ignore[misc]
        check_once(table, {"a": 100})
        first[servers] = max(plan.rows for plan in table.commits)
    assert first[1] <= 5 < first[4] <= 20


def test_planning_waits_while_two_epochs_are_open_and_then_takes_all_that_came() -> None:
    """A plan that is made early takes less, and what comes meanwhile waits for the one after it."""
    table = pool(7, servers=1)
    table.write("a")
    table.run_until(lambda: not table.chunks)
    holding, held = True, list[tuple[Any, Any]]()
    carry_out = table._carry_out
    reads = 0

    def slow_disk(name: Any, instruction: Any) -> None:
        nonlocal reads
        reads += isinstance(instruction, d.ReadInput)
        if isinstance(instruction, d.Persist) and holding:
            held.append((name, instruction))
        else:
            carry_out(name, instruction)

    table._carry_out = slow_disk  # type: ignore[method-assign]
    for epochs in (1, 2):
        table.write("a")
        table.run_until(lambda epochs=epochs: len(table.leader().epochs.open) == epochs)  # type: ignore[misc]
    before = reads
    for _ in range(3):
        table.write("a")
        table.run(300)
    assert reads == before and len(table.leader().epochs.open) == 2
    holding = False
    for name, instruction in held:
        carry_out(name, instruction)
    table.run_until(lambda: not table.chunks)
    assert [plan.rows for plan in table.commits] == [1, 1, 1, 3]
    check_once(table, {"a": 6})


def test_catalogs_that_do_not_follow_are_refused() -> None:
    table = pool(5)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    name = next(n for n, m in table.machines.items() if m is table.leader())
    table._tell(name, d.CatalogOffered(1, 3, b"", 1))
    assert "version 0" in table.taken[0].refused
    table._tell(name, d.CatalogOffered(2, 1, b"", 1))
    table._tell(name, d.CatalogOffered(3, 1, b"", 1))
    assert "under way" in table.taken[1].refused


def test_an_epoch_that_always_fails_is_named_and_gets_through_when_mended() -> None:
    table = pool(13, servers=1, distributors=1)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    server = next(n for n, m in table.members.items() if m.role is Role.VIEWSERVER)
    machine = table.machines[server]

    class Failing:
        released = False

        def handle(self, event: object) -> list[object]:
            found = []
            for instruction in machine.handle(event):
                if isinstance(instruction, d.Compute):
                    found += machine.handle(
                        d.WorkFailed(instruction.epoch, instruction.attempt, "bucket 7: overflow", "spend")
                    )
                else:
                    found.append(instruction)
            return found

    table.machines[server] = Failing()
    table.write("a")
    table.run_until(lambda: bool(table.states[-1].stalled))
    assert table.states[-1].stalled == "view spend: bucket 7: overflow"
    table.machines[server] = machine
    table.run_until(lambda: not table.chunks)
    assert table.states[-1].stalled == ""
    check_once(table, {"a": 2})


def test_a_plan_that_is_missing_stops_the_leader_and_says_which() -> None:
    table = pool(17, coordinators=1)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    held = dict(table.documents)
    for name in [n for n in table.documents if n.startswith("plan/")]:
        del table.documents[name]
    table.kill(next(n for n, m in table.members.items() if m.role is Role.COORDINATOR))
    heir = table.start(Role.COORDINATOR)
    table.run(400)
    reason = table.machines[heir].leadership.reason
    assert reason.startswith("plan of epoch") and reason.endswith("is missing")
    assert table.leader() is None
    table.documents |= held
    table.write("a")
    table.run_until(lambda: not table.chunks)
    check_once(table, {"a": 2})


def test_rounds_of_collection_come_one_at_a_time_however_slow_the_store_is() -> None:
    table = pool(1)
    table.write("a")
    table.run_until(lambda: bool(table.collected) and not table.chunks)
    machine, now, asked = table.leader(), table.now, list[Any]()
    machine._rounds._running = False  # whatever the table still has to answer is nobody's

    def tell(event: object) -> list[Any]:
        said = machine.handle(event)
        asked.extend(i for i in said if isinstance(i, d.ListDocuments | d.WriteDocument))
        return [i for i in said if isinstance(i, d.Collect)]

    collected = []
    for step in range(1_200):
        now += 50
        collected += tell(d.Tick(now))
        assert len(asked) <= 1
        if asked and step % 60 == 0:  # an answer every three seconds
            one = asked.pop()
            answer = d.DocumentWritten(one.request)
            collected += tell(d.DocumentsListed(one.request, ()) if isinstance(one, d.ListDocuments) else answer)
    assert len(collected) >= 4


def test_a_store_that_is_away_is_not_asked_for_more_and_more() -> None:
    table = pool(2)
    table.write("a")
    table.run_until(lambda: bool(table.collected) and not table.chunks)
    machine, now, calls = table.leader(), table.now, list[int]()
    for _ in range(20):
        calls.append(0)
        for _ in range(200):
            now += 50
            todo: list[Any] = [d.Tick(now)]
            while todo:
                for said in machine.handle(todo.pop()):
                    if isinstance(said, d.ListDocuments | d.WriteDocument | d.ReadInput):
                        calls[-1] += 1
                        todo.append(d.StoreFailed(said.request, "nobody answers"))
    assert calls[-1] <= calls[1]


def test_a_leader_that_misses_something_in_input_stands_back() -> None:
    """It slept, and a successor has committed and removed what it knew of; or INPUT is damaged."""
    table = TableTop(5, Options(max_rows=1, epoch_ms=200))
    for role in (Role.COORDINATOR, Role.DISTRIBUTOR, Role.VIEWSERVER):
        table.start(role)
    for _ in range(5):
        table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    leader = table.leader()
    assert leader.sources.bounds(), "it knows that there is more"
    table.chunks.clear()
    table.run_until(lambda: table.leader() is None)
    assert "INPUT of source a" in leader.leadership.reason
    table.run_until(lambda: table.leader() is leader)  # and leads on from what there is


def test_one_that_cannot_be_reached_is_left_out_before_its_session_ends() -> None:
    table = pool(19)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    leader = next(n for n, m in table.machines.items() if m is table.leader())
    dead = next(n for n, m in table.members.items() if m.role is Role.VIEWSERVER)
    del table.machines[dead]  # its node stays
    table.write("a")
    table.run(300)
    assert len(table.commits) == 1
    table._tell(leader, d.Unreachable(dead, "nobody listens at its address"))
    table.run_until(lambda: not table.chunks)
    assert dead not in table.leader().epochs.generation.servers
    check_once(table, {"a": 2})


def test_the_only_server_is_kept_even_if_it_seems_unreachable() -> None:
    table = pool(23, servers=1, distributors=1)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    leader = next(n for n, m in table.machines.items() if m is table.leader())
    only = next(n for n, m in table.members.items() if m.role is Role.VIEWSERVER)
    table._tell(leader, d.Unreachable(only, "nobody listens at its address"))
    table.write("a")
    table.run_until(lambda: not table.chunks)
    assert table.leader().epochs.generation.servers == (only,)


def test_members_that_are_left_out_are_told_so() -> None:
    table = pool(3, servers=3)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    machine = table.leader()
    out = machine.epochs.generation.servers[0]
    table._tell(machine.me, d.Unreachable(out, "it does not answer"))
    table.run_until(lambda: out not in machine.epochs.generation.servers)
    table.run_until(lambda: table.machines[out].generation is None)
