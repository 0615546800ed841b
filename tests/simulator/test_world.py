"""The parts of the simulated world do what their real counterparts promise, and no more."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import TableWrite
from belvedere.cluster.roles import gc_tables
from belvedere.cluster.roles.work import ServerWork
from belvedere.cluster.transport import calls
from belvedere.errors import StoreUnavailable
from belvedere.protocol.catalog import CatalogBook
from belvedere.protocol.exactly_once import Seq, SourceEntry, SourceId
from belvedere.protocol.messages import Committed, Epoch, EpochPlan, Member, Message, PoolState, Role, Term
from belvedere.protocol.ring import MemberId
from tests.simulator import readers, runner
from tests.simulator.changes import Change, Table
from tests.simulator.history import History
from tests.simulator.network import Network, Weather
from tests.simulator.oracle import Oracle, Wrong
from tests.simulator.scheduler import MS, SECOND, Scheduler
from tests.simulator.sources import Habits, Sources
from tests.simulator.store import LATEST, PATIENCE, Different, SimulatedStore
from tests.simulator.store import Trouble as StoreTrouble
from tests.simulator.zookeeper import Record, Session, Trouble, ZooKeeper

ONE, OTHER, THIRD = MemberId("one"), MemberId("other"), MemberId("third")


# ---------------------------------------------------------------------- network


def _network(weather: Weather) -> tuple[Scheduler, Network, list[tuple[MemberId, int]]]:
    scheduler = Scheduler()
    network = Network(scheduler, random.Random(1), weather)
    heard: list[tuple[MemberId, int]] = []

    def deliver(sender: MemberId, message: Message, payload: bytes | None) -> None:
        assert isinstance(message, Committed)
        heard.append((sender, message.epoch))

    network.listen(THIRD, deliver)
    return scheduler, network, heard


def test_messages_of_a_pair_arrive_in_order_whatever_is_lost() -> None:
    scheduler, network, heard = _network(Weather(lost=0.3, slow=0.3))
    for number in range(200):
        for sender in (ONE, OTHER):
            network.send(sender, THIRD, Committed(Epoch(number)))
    scheduler.run_until(60 * SECOND)
    for sender in (ONE, OTHER):
        assert [number for who, number in heard if who == sender] == list(range(200))
    assert [who for who, _ in heard] != [ONE, OTHER] * 200, "pairs overtake each other"


def test_repeats_come_later_and_nothing_is_missing() -> None:
    scheduler, network, heard = _network(Weather(repeated=0.5))
    for number in range(100):
        network.send(ONE, THIRD, Committed(Epoch(number)))
    scheduler.run_until(60 * SECOND)
    numbers = [number for _, number in heard]
    assert len(numbers) > 120 and list(dict.fromkeys(numbers)) == list(range(100))


def test_a_partition_holds_messages_up_until_it_heals() -> None:
    scheduler, network, heard = _network(Weather())
    network.part(ONE, THIRD, until=2 * SECOND)
    network.send(ONE, THIRD, Committed(Epoch(1)))
    network.send(OTHER, THIRD, Committed(Epoch(2)))
    scheduler.run_until(SECOND)
    assert heard == [(OTHER, 2)]
    network.heal()
    scheduler.run_until(SECOND + 200 * MS)
    assert heard == [(OTHER, 2), (ONE, 1)]


def test_who_crashes_takes_what_it_had_not_sent() -> None:
    scheduler, network, heard = _network(Weather())
    for number in range(50):
        network.send(ONE, THIRD, Committed(Epoch(number)))
    network.crash(ONE)
    scheduler.run_until(SECOND)
    assert [number for _, number in heard] == list(range(len(heard))) and len(heard) < 50
    network.crash(THIRD)
    network.send(OTHER, THIRD, Committed(Epoch(99)))
    scheduler.run_until(2 * SECOND)
    assert (OTHER, 99) not in heard


# ---------------------------------------------------------------------- ZooKeeper


class _Client:
    def __init__(self, zookeeper: ZooKeeper, name: MemberId) -> None:
        self.told: list[Any] = []
        tell: Callable[[Any], None] = self.told.append
        zookeeper.connect(Session(name, tell, tell, tell, lambda: tell("lost")))
        zookeeper.join(Member(name, Role.COORDINATOR))
        zookeeper.campaign(name)


def _zookeeper(trouble: Trouble | None = None) -> tuple[Scheduler, ZooKeeper]:
    scheduler = Scheduler()
    return scheduler, ZooKeeper(scheduler, random.Random(1), trouble or Trouble(), timeout=SECOND)


def test_a_silent_client_is_gone_for_others_first_and_hears_of_it_when_it_returns() -> None:
    scheduler, zookeeper = _zookeeper()
    one, other = _Client(zookeeper, ONE), _Client(zookeeper, OTHER)
    scheduler.run_until(100 * MS)
    assert True in one.told and True not in other.told
    zookeeper.fall_silent(ONE)
    scheduler.run_until(2 * SECOND)
    assert ONE not in zookeeper.members and True in other.told and "lost" not in one.told
    zookeeper.return_(ONE)
    assert one.told[-1] == "lost"


def test_a_short_silence_costs_nothing() -> None:
    scheduler, zookeeper = _zookeeper()
    one = _Client(zookeeper, ONE)
    zookeeper.break_connection(ONE, until=500 * MS)
    assert one.told[-1] is False
    scheduler.run_until(3 * SECOND)
    assert zookeeper.lives(ONE) and "lost" not in one.told


def test_only_the_version_decides_who_writes_the_record() -> None:
    scheduler, zookeeper = _zookeeper()
    _Client(zookeeper, ONE), _Client(zookeeper, OTHER)
    outcomes: list[tuple[str, int]] = []

    def answer(outcome: str, record: Record) -> None:
        outcomes.append((outcome, record.version))

    zookeeper.swap(ONE, PoolState("c", Term(1)), -1, answer)
    scheduler.run_until(SECOND)
    zookeeper.swap(OTHER, PoolState("c", Term(2)), 0, answer)
    scheduler.run_until(2 * SECOND)
    zookeeper.swap(ONE, PoolState("c", Term(3)), 0, answer)
    scheduler.run_until(3 * SECOND)
    assert outcomes == [("done", 0), ("done", 1), ("conflict", 1)]
    assert zookeeper.record.state == PoolState("c", Term(2))


def test_an_unknown_result_has_happened_or_not_or_happens_yet() -> None:
    happened = set()
    for seed in range(30):
        scheduler = Scheduler()
        zookeeper = ZooKeeper(scheduler, random.Random(seed), Trouble(unknown=1.0), timeout=SECOND)
        _Client(zookeeper, ONE)
        outcomes: list[str] = []
        zookeeper.swap(ONE, PoolState("c"), -1, lambda outcome, record, told=outcomes: told.append(outcome))
        scheduler.run_until(200 * MS)
        assert outcomes == ["unknown"]
        then = zookeeper.record.version
        scheduler.run_until(2 * SECOND)
        happened.add((then, zookeeper.record.version))
    assert happened == {(-1, -1), (0, 0), (-1, 0)}


def test_a_compare_and_set_that_comes_late_changes_nothing_that_has_changed_since() -> None:
    for seed in range(30):
        scheduler = Scheduler()
        zookeeper = ZooKeeper(scheduler, random.Random(seed), Trouble(unknown=1.0), timeout=SECOND)
        _Client(zookeeper, ONE), _Client(zookeeper, OTHER)
        zookeeper.swap(ONE, PoolState("c", Term(1)), -1, lambda outcome, record: None)
        scheduler.run_until(200 * MS)
        if zookeeper.record.state is None:
            zookeeper.trouble.unknown = 0.0
            zookeeper.swap(OTHER, PoolState("c", Term(2)), -1, lambda outcome, record: None)
            scheduler.run_until(2 * SECOND)
            assert zookeeper.record.state == PoolState("c", Term(2))


# ---------------------------------------------------------------------- store and sources


def _write(value: bytes) -> list[TableWrite]:
    return [TableWrite("t", np.zeros((1, 2), np.uint64), pa.array([value], pa.binary()))]


def test_a_late_write_arrives_after_its_writer_has_given_up() -> None:
    scheduler = Scheduler()
    store = SimulatedStore(scheduler, random.Random(1), StoreTrouble(late=1.0))
    failed: list[str] = []
    store.ask(lambda: store.memory.put_document("d", b"x"), lambda _: pytest.fail("no answer comes"), failed.append)
    scheduler.run_until(PATIENCE)
    assert failed and store.memory.get_document("d") is None
    scheduler.run_until(LATEST)
    assert store.memory.get_document("d") == b"x"


def test_a_call_that_fails_has_happened_wholly_partly_or_not_at_all() -> None:
    seen = set()
    for seed in range(30):
        scheduler = Scheduler()
        store = SimulatedStore(scheduler, random.Random(seed), StoreTrouble(fails=1.0))
        failed: list[str] = []
        ids = np.array([[1, 1], [2, 2]], np.uint64)
        write = TableWrite("t", ids, pa.array([b"a", b"b"], pa.binary()))
        store.ask(lambda: store.write(1, [write]), lambda _: None, failed.append)  # noqa: B023 runs before the next
        scheduler.run_until(SECOND)
        assert failed
        seen.add(store.memory.read("t", ids, 2).null_count)
    assert seen == {0, 1, 2}


def test_during_an_outage_nothing_is_answered_and_some_of_it_happens() -> None:
    happened = set()
    for seed in range(30):
        scheduler = Scheduler()
        store = SimulatedStore(scheduler, random.Random(seed), StoreTrouble(down_until=SECOND))
        failed: list[str] = []
        calls: list[Callable[[], object]] = [
            lambda: store.memory.put_document("d", b"x"),  # noqa: B023 runs before the next
            lambda: store.memory.get_document("d"),  # noqa: B023
            lambda: store.write(1, []),  # noqa: B023
        ]
        for call in calls:
            store.ask(call, lambda _: pytest.fail("nothing is answered"), failed.append)
        with store.reading(), pytest.raises(StoreUnavailable):
            store.memory.read("t", np.zeros((1, 2), np.uint64), 1)
        scheduler.run_until(SECOND)
        assert len(failed) == 3
        happened.add(store.memory.get_document("d"))
        store.ask(lambda: None, failed.append, pytest.fail)  # it works again
        scheduler.run_until(2 * SECOND)
        assert len(failed) == 4
    assert happened == {None, b"x"}


def test_a_call_that_is_to_fail_fails_whatever_moments_it_has() -> None:
    for seed in range(20):
        scheduler = Scheduler()
        store = SimulatedStore(scheduler, random.Random(seed), StoreTrouble(fails=1.0))
        failed: list[str] = []
        store.ask(lambda: store.memory.put_document("d", b""), lambda _: None, failed.append)  # noqa: B023
        store.ask(lambda: store.memory.list_documents(""), lambda _: None, failed.append)  # noqa: B023
        store.ask(lambda: store.write(1, []), lambda _: None, failed.append)  # noqa: B023
        scheduler.run_until(SECOND)
        assert len(failed) == 3


def test_other_bytes_for_the_same_epoch_are_noticed() -> None:
    store = SimulatedStore(Scheduler(), random.Random(1), StoreTrouble())
    store.write(5, _write(b"a"))
    store.write(5, _write(b"a"))
    store.write(6, _write(b"b"))
    with pytest.raises(Different, match="epoch 5"):
        store.write(5, _write(b"b"))


def test_a_pusher_sends_on_only_what_follows_acknowledged_entries() -> None:
    """The promise on which `exactly_once` rests, through moves, splits, merges and lost answers."""
    rng = random.Random(3)
    scheduler, memory = Scheduler(), MemoryStore()
    acknowledged: dict[SourceId, int] = {}

    def push(source: SourceId, entries: tuple[SourceEntry, ...], answer: Callable[[bool], None]) -> None:
        log = sources.regions[source].log
        start = log.index(entries[0])
        assert list(entries) == log[start : start + len(entries)]
        assert start <= acknowledged.get(source, 0)
        if rng.random() < 0.7:
            acknowledged[source] = max(acknowledged.get(source, 0), start + len(entries))
            if rng.random() < 0.7:
                scheduler.after(rng.randint(1, 400) * MS, lambda: answer(True))

    sources = Sources(scheduler, rng, memory, Habits(repeats=0.3), push)
    sources.create("orders", 0, 10)
    for number in range(120):
        sources.write("orders", [Change("orders", rng.randrange(10), number, None)])
        scheduler.run_until(scheduler.now + 50 * MS)
        if number % 9 == 0:
            sources.move(rng.choice(list(sources.regions.values())))
        if number % 25 == 0:
            sources.split(rng.choice(sources.open()))
        if number % 40 == 0 and sources.neighbours():
            sources.merge(*sources.neighbours()[0])
    scheduler.run_until(scheduler.now + 60 * SECOND)
    assert not sources.unfinished()
    assert sum(len(region.log) for region in sources.regions.values()) == 120
    assert {info.id for info in memory.sources()} == set(sources.regions)


# ---------------------------------------------------------------------- the judge


def test_the_last_writer_wins_and_a_delete_beats_a_put_of_its_time() -> None:
    table = Table(("a", "b"))
    table.apply(Change("t", 1, 10, {"a": 1, "b": 1}))
    table.apply(Change("t", 1, 12, {"a": 2}))
    table.apply(Change("t", 1, 11, {"a": 3, "b": 3}))
    assert table.live() == {1: {"a": 2, "b": 3}}
    table.apply(Change("t", 1, 11, None))
    assert table.live() == {1: {"a": 2, "b": None}}
    table.apply(Change("t", 1, 12, None))
    table.apply(Change("t", 1, 12, {"a": 9}))
    assert table.live() == {}
    table.apply(Change("t", 1, 13, {"b": 5}))
    table.apply(Change("t", 1, 13, {"b": 6}))
    assert table.live() == {1: {"a": None, "b": 6}}


def test_a_column_that_is_added_is_null_as_of_the_row() -> None:
    table = Table(("a", "b"))
    table.add(("a",))
    table.apply(Change("t", 1, 10, {"a": 1}))
    table.apply(Change("t", 2, 10, {"a": 1}))
    table.add(("a", "b"))
    table.apply(Change("t", 1, 9, {"b": 1}))
    table.apply(Change("t", 2, 10, {"b": 1}))
    table.apply(Change("t", 3, 9, {"b": 1}))
    assert table.live() == {1: {"a": 1, "b": None}, 2: {"a": 1, "b": 1}, 3: {"a": None, "b": 1}}


@pytest.mark.parametrize("values", [(5, 6), (6, 5), (None, 6), (6, None)])
def test_of_puts_with_one_timestamp_the_greater_value_wins_where_ties_are_settled_so(values: tuple[Any, Any]) -> None:
    table = Table(("a", "b"), "value")
    for value in values:
        table.apply(Change("t", 1, 13, {"a": value}))
    assert table.live() == {1: {"a": 6, "b": None}}
    table.apply(Change("t", 1, 14, {"a": 1}))
    assert table.live() == {1: {"a": 1, "b": None}}


def test_a_record_must_not_go_back() -> None:
    scheduler, memory = Scheduler(), MemoryStore()
    oracle = Oracle(Sources(scheduler, random.Random(1), memory, Habits(), lambda *_: None), memory)
    state = PoolState("c", Term(2), ONE)
    oracle.recorded(None, state)
    with pytest.raises(Wrong, match="term"):
        oracle.recorded(state, replace(state, term=Term(1)))
    with pytest.raises(Wrong, match="committed"):
        oracle.recorded(state, replace(state, committed=Epoch(5)))


def test_a_change_of_the_catalog_that_is_accepted_must_not_get_lost() -> None:
    """Whatever production says that the catalog is: the user knows what was accepted."""
    planned = CatalogBook.planned

    def forgetful(self: Any, plan: EpochPlan) -> Any:
        """The next plan goes on with the catalog before."""
        before = self.current
        taken = planned(self, plan)
        if taken is not None and before.version:
            self.current = before
        return taken

    with mock.patch.object(CatalogBook, "planned", forgetful):
        assert any("accepted and is lost" in runner.run(seed).wrong for seed in range(80))


def test_views_must_be_those_that_the_statements_say() -> None:
    history = History(0, faulty=False)
    history.run()
    truth = history.oracle.last
    assert truth is not None and truth.served
    history.ddl.check(truth)
    with pytest.raises(Wrong, match="by the statements"):
        history.ddl.check(replace(truth, served={}))


def test_readers_notice_an_epoch_that_is_told_wrong() -> None:
    def ahead(plan: EpochPlan) -> calls.CommittedRow:
        told = committed_of(plan)
        return replace(told, positions={source: Seq(seq + 1) for source, seq in told.positions.items()})

    committed_of = calls.committed_of
    with mock.patch.object(calls, "committed_of", ahead), pytest.raises(Wrong, match="was told that epoch"):
        History(0, faulty=False).run()


@pytest.mark.parametrize(("answer", "wrong"), [(True, "and does not"), (False, "nobody can tell")])
def test_readers_notice_a_token_that_is_judged_wrong(answer: bool, wrong: str) -> None:
    with mock.patch.object(readers, "covers", return_value=answer), pytest.raises(Wrong, match=wrong):
        History(0, faulty=False).run()


def test_a_session_notices_that_it_goes_back_in_a_source() -> None:
    history = History(0, faulty=False)
    history.run()
    (reader, *_), truth = history.readers, history.oracle.last
    assert truth is not None
    known = calls.read_committed(history.around.store.memory, truth.epoch)
    assert known is not None
    reader._check_positions(known, truth)
    gone = dict(list(truth.positions.items())[1:])
    known = replace(known, positions=gone)
    with pytest.raises(Wrong, match="went back in"):
        reader._check_positions(known, replace(truth, positions=gone))


def test_tables_are_swept_and_one_that_is_needed_is_missed() -> None:
    def too_much(document: bytes, tables: Collection[str]) -> list[str]:
        return [name for name in tables if name.startswith("view ")]

    with mock.patch.object(gc_tables, "garbage", too_much), pytest.raises(Wrong, match="view"):
        History(0, faulty=False).run()


def test_a_change_that_the_store_does_not_tell_of_is_noticed() -> None:
    finish = ServerWork.finish

    def silent(self: Any, persist: Any) -> list[TableWrite]:
        return [replace(write, logged=False) for write in finish(self, persist)]

    with mock.patch.object(ServerWork, "finish", silent), pytest.raises(Wrong, match="does not tell so"):
        History(0, faulty=False).run()


def test_histories_without_faults_are_right_as_well() -> None:
    for seed in range(6):
        assert History(seed, faulty=False).run().epochs > 3
