"""Members that are behind the times, with real drivers: a server that was left out, a leader whose record went back.

All in memory, but the threads are real.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere import errors
from belvedere.backend.memory import Moment
from belvedere.cluster.roles.coordinator import CoordinatorMember
from belvedere.cluster.roles.viewserver import ViewServerMember
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.seam import Payload
from belvedere.engine.shard import Shard
from belvedere.protocol import wire
from belvedere.protocol.driving import Unreachable
from belvedere.protocol.exactly_once import Seq
from belvedere.protocol.messages import Idle, Message, PoolState, Role
from belvedere.protocol.ring import MemberId
from tests.cluster.memory_pool import Pool
from tests.cluster.real import until

CUSTOMERS = 20


@pytest.fixture
def pool() -> Iterator[Pool]:
    found = Pool()
    yield found
    found.stop()


class Writers:
    """What `v` writes to tables of the store; that fails while `broken` is set."""

    def __init__(self, pool: Pool) -> None:
        self.tried, self.wrote, self.broken = 0, 0, False
        self._pool, self._hidden = pool, False
        pool.store.faults = self._strike

    def give_work(self) -> Seq:
        """An epoch in which every server has something to write: nobody sees INPUT before all of it is there."""
        self._hidden = True
        for customer in range(CUSTOMERS):
            last = self._pool.write(customer)
        self._hidden = False
        return last

    def _strike(self, call: str, moment: Moment) -> None:
        if call == "chunks" and self._hidden:
            raise errors.StoreUnavailable("the store does not answer")
        if call != "write" or not _is_v():
            return
        self.tried += moment is Moment.BEFORE
        if self.broken:
            raise errors.StoreUnavailable("the store does not answer")
        self.wrote += moment is Moment.AFTER


def _is_v() -> bool:
    return threading.current_thread().name.startswith("v-")


def _published(pool: Pool) -> int:
    found = calls.read_committed(pool.store, calls.NEWEST)
    return 0 if found is None else found.epoch


def _two_servers(pool: Pool) -> ViewServerMember:
    """A pool of the view servers `v` and `w`, with a view; returns `v`."""
    pool.start(Role.COORDINATOR, "c")
    pool.start(Role.VIEWSERVER, "v")
    pool.start(Role.VIEWSERVER, "w")
    pool.start(Role.DISTRIBUTOR, "d")
    until(lambda: len(pool.shares()) == 2, 20.0, "a generation of both")
    pool.define()
    server = pool.processes["v"].current
    assert isinstance(server, ViewServerMember)
    return server


def _leave_out(pool: Pool, server: ViewServerMember) -> None:
    """The leader takes it for dead, wrongly."""
    leader = pool.processes["c"].current
    assert isinstance(leader, CoordinatorMember)
    leader._report(Unreachable(server.me, "nobody listens at its address"))


def _deaf_to_the_leader(server: ViewServerMember, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message that it is left out comes too late."""
    received = server.received

    def deaf(sender: MemberId, message: Message, payload: Payload | None) -> None:
        if not (isinstance(message, Idle) and server.me not in message.generation.servers):
            received(sender, message, payload)

    monkeypatch.setattr(server, "received", deaf)


def test_a_server_asks_the_record_before_it_writes(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs in the last stage; others have committed the epoch when it goes on, and it has not heard of that."""
    server = _two_servers(pool)
    _deaf_to_the_leader(server, monkeypatch)
    hangs, goes_on = threading.Event(), threading.Event()
    run = Shard.run

    def slow(self: Shard, stage: int) -> Any:
        if _is_v() and stage == self.stages - 1 and self._now().base:  # not an epoch that only builds the view
            hangs.set()
            assert goes_on.wait(60.0)
        return run(self, stage)

    monkeypatch.setattr(Shard, "run", slow)
    writers = Writers(pool)
    last = writers.give_work()
    try:
        until(hangs.is_set, 20.0, "work in progress")
        _leave_out(pool, server)
        until(lambda: pool.covers(last), 20.0, "the others go on")
    finally:
        goes_on.set()
    until(lambda: pool.heard("v", "writes nothing"), 20.0, "it has asked")
    assert re.search(
        "is committed, others have done it|is in generation", pool.heard("v", "writes nothing")[0]["reason"]
    )
    assert writers.tried == 0 and pool.rows() == CUSTOMERS
    assert pool.processes["v"].current is server, "the same incarnation"


def test_a_server_that_is_told_that_it_is_left_out_gives_up_its_writes(pool: Pool) -> None:
    """It asked the record in time, and the store has not taken the write yet."""
    server = _two_servers(pool)
    writers = Writers(pool)
    writers.broken = True
    last = writers.give_work()
    until(lambda: writers.tried, 20.0, "a write that fails")
    _leave_out(pool, server)
    until(lambda: pool.covers(last), 20.0, "the others go on")
    until(lambda: pool.heard("v", "left out"), 20.0, "it is told")
    writers.broken = False
    idle = threading.Event()
    server.persist.do(idle.set)
    until(idle.is_set, 20.0, "it has nothing to write any more")
    assert writers.wrote == 0 and pool.rows() == CUSTOMERS


def test_a_leader_refuses_a_record_that_is_behind_what_the_store_has_published(pool: Pool) -> None:
    pool.whole()
    pool.define()
    recorded = pool.zookeeper.pool("default")
    behind = recorded.record
    assert behind is not None
    last = pool.write(1)
    until(lambda: pool.covers(last), 20.0, "a commit")
    committed = pool.committed().epoch
    until(lambda: _published(pool) == committed, 20.0, "readers of the store know of it")
    pool.processes["c"].stop()
    pool.ended("c")
    with pool.zookeeper.lock:
        recorded.record = behind  # ZooKeeper has lost what it acknowledged
    state = wire.decode(behind.data)
    assert isinstance(state, PoolState)
    pool.start(Role.COORDINATOR, "successor")
    assert pool.ended("successor") == 1
    told = pool.heard("successor", "refused")[0]["reason"]
    assert f"has published epoch {committed} of pool 'default'" in told
    assert f"says that {state.committed} is the last one committed: ZooKeeper has lost what it acknowledged" in told
    assert recorded.record is behind, "nothing was written"


def test_names_of_incarnations_have_128_random_bits(pool: Pool) -> None:
    """A name that comes again would be taken for the member that had it: its chunks for repeats, and left out."""
    pool.whole()
    (name,) = pool.shares()
    assert re.fullmatch("v-[0-9a-f]{32}", name)
    pool.zookeeper.expire(pool.connections["v"][-1])
    (again,) = until(lambda: [share for share in pool.shares() if share != name], 20.0, "another incarnation")
    same = sum(one == other for one, other in zip(name, again, strict=True))
    assert re.fullmatch("v-[0-9a-f]{32}", again) and same < 16, "not a counter"
