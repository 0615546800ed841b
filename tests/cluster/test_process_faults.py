"""Processes whose surroundings fail: what they say, and that they go on. All in memory, but the threads are real."""

from __future__ import annotations

import errno
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from belvedere import errors
from belvedere.backend.memory import MemoryStore, Moment
from belvedere.cluster.roles.coordinator import CoordinatorMember
from belvedere.cluster.roles.viewserver import ViewServerMember
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.seam import Payload
from belvedere.engine.shard import Shard, StageError
from belvedere.protocol.messages import PROTOCOL, Attempt, Batch, Begin, Message, Role
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.spill import Spill
from tests.cluster.memory_pool import Pool
from tests.cluster.real import until


@pytest.fixture
def pool() -> Iterator[Pool]:
    found = Pool()
    yield found
    found.stop()


def strike(call: str, error: Callable[[], Exception]) -> Callable[[str, Moment], None]:
    def fault(name: str, moment: Moment) -> None:
        if name == call:
            raise error()

    return fault


def test_a_pool_in_one_process_maintains_a_view(pool: Pool) -> None:
    pool.whole()
    pool.define()
    for customer in range(5):
        last = pool.write(customer)
    until(lambda: pool.covers(last), 20.0, "an epoch with all writes")
    assert pool.rows() == 5


def test_zookeeper_unreachable_at_start_is_a_visible_reason(pool: Pool) -> None:
    pool.reachable = False
    process = pool.start(Role.VIEWSERVER, "v", http_port=0)
    assert process.health is not None
    ready = f"http://127.0.0.1:{process.health.port}/readyz"

    def reasons() -> str:
        try:
            with urllib.request.urlopen(ready, timeout=5.0) as answer:
                return str(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    until(lambda: "ZooKeeper" in reasons(), 60.0, "the reason on /readyz")
    assert "ZooKeeper" in pool.heard("v", "waits")[0]["reason"]
    pool.reachable = True
    until(lambda: "no part in a generation" in reasons(), 60.0, "joined, and nobody leads")
    assert pool.heard("v", "joined")
    pool.start(Role.COORDINATOR, "c")
    pool.start(Role.DISTRIBUTOR, "d")
    until(lambda: "true" in reasons(), 60.0, "ready")
    pool.zookeeper.suspend(pool.connections["v"][-1])
    until(lambda: "ZooKeeper is gone" in reasons(), 60.0, "suspended")
    pool.zookeeper.resume(pool.connections["v"][-1])
    until(lambda: "true" in reasons(), 60.0, "ready again")


class SlowToAnswer(MemoryStore):
    """Does not answer the first few times."""

    def __init__(self, times: int) -> None:
        super().__init__("cluster-a")
        self.left = times

    def identity(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise errors.StoreUnavailable("the store at memory does not answer")
        return super().identity()


def test_a_store_that_does_not_answer_at_start_is_waited_for(pool: Pool) -> None:
    pool.start(Role.DISTRIBUTOR, "d", store=SlowToAnswer(3))
    until(lambda: pool.heard("d", "joined"), 60.0, "joined")
    assert pool.heard("d", "waits")[0]["reason"] == "the store at memory does not answer"


def test_two_clusters_of_one_name_are_told_apart(pool: Pool) -> None:
    pool.whole()
    pool.start(Role.VIEWSERVER, "stranger", store=MemoryStore("cluster-b"))
    assert pool.ended("stranger") == 1
    reason = pool.heard("stranger", "refused")[0]["reason"]
    assert "cluster-a" in reason
    assert "cluster-b" in reason


def test_the_store_of_another_pool_is_refused(pool: Pool) -> None:
    pool.whole()
    other = Pool()  # another ZooKeeper, the same store
    try:
        other.start(Role.COORDINATOR, "other", store=pool.store, pool="bank")
        assert other.ended("other") == 1
        assert "belongs to pool 'default', this is pool 'bank'" in other.heard("other", "refused")[0]["reason"]
    finally:
        other.stop()


def test_a_pool_without_its_record_does_not_begin_anew_on_its_store(pool: Pool) -> None:
    pool.whole()
    pool.define()
    other = Pool()
    try:
        other.start(Role.COORDINATOR, "c", store=pool.store)
        assert other.ended("c") == 1
        assert "ZooKeeper has no record of that pool" in other.heard("c", "refused")[0]["reason"]
    finally:
        other.stop()


def test_a_leader_that_may_have_lost_its_session_tells_no_reader_what_is_newest(pool: Pool) -> None:
    pool.whole()
    pool.define()
    assert pool.committed().epoch > 0
    pool.zookeeper.suspend(pool.connections["c"][-1])
    with pytest.raises(errors.PeerUnavailable, match="ask another one"):
        pool.committed()
    pool.zookeeper.resume(pool.connections["c"][-1])
    until(lambda: pool.status().get("epoch"), 60.0, "it leads again")


def test_a_change_is_never_made_to_the_catalog_of_one_who_has_lost_the_lead(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is empty: the tables that a view needs would be unknown."""
    pool.whole()
    pool.define()
    leader = pool.processes["c"].current
    assert isinstance(leader, CoordinatorMember)
    ask = leader.in_loop

    def lose() -> None:
        for instruction in leader.machine._led(leader.machine.leadership.stand_back("it sleeps")):
            leader._carry_out(instruction)

    def too_late(call: Callable[[], Any], timeout: float = 10.0) -> Any:
        ask(lose)
        return ask(call, timeout)

    monkeypatch.setattr(leader, "in_loop", too_late)
    with pytest.raises(errors.PeerUnavailable, match="does not lead"):
        leader.ddl.change(calls.DdlCall("ticket", "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders"))
    with pytest.raises(errors.PeerUnavailable, match="does not lead"):
        leader.overview.status()


def without_room_to_spill(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> ViewServerMember:
    """The view server of a whole pool; it fails to spill whatever exceeds its limit."""
    pool.whole()
    pool.define()

    def full(self: Spill[bytes], payload: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Spill, "_append", full)
    server = pool.processes["v"].current
    assert isinstance(server, ViewServerMember)
    return server


def test_no_room_to_spill_is_a_failed_attempt_with_the_reason(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    server = without_room_to_spill(pool, monkeypatch)
    limit, server.work.batch_buffer.budget.limit = server.work.batch_buffer.budget.limit, -1
    last = pool.write(1)
    until(lambda: "no room to spill" in pool.status()["stalled"], 20.0, "the reason in the status")
    assert pool.processes["v"].current is server, "the same incarnation"
    server.work.batch_buffer.budget.limit = limit
    until(lambda: pool.covers(last), 20.0, "goes on")


def test_no_room_for_a_batch_that_came_before_its_generation_is_not_forgotten(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is of an attempt that the server has not heard of, so nobody is told of it: yet the batch counts."""
    server = without_room_to_spill(pool, monkeypatch)
    received = server.received
    held: list[tuple[MemberId, Message, Payload | None]] = []
    came: set[Attempt] = set()
    early = 0

    def leader_is_slow(sender: MemberId, message: Message, payload: Payload | None) -> None:
        nonlocal early
        new = message.generation.number if isinstance(message, Begin) else server.machine.attempt
        if (new > server.machine.attempt and new not in came) or (held and held[0][0] == sender):
            held.append((sender, message, payload))
            return
        if isinstance(message, Batch):
            came.add(message.attempt)
            early += message.attempt > server.machine.attempt
        received(sender, message, payload)
        if isinstance(message, Batch):
            letters = [*held]
            held.clear()
            for letter in letters:
                received(*letter)

    monkeypatch.setattr(server, "received", leader_is_slow)
    limit, server.work.batch_buffer.budget.limit = server.work.batch_buffer.budget.limit, -1
    last = pool.write(1)
    until(lambda: "no room to spill" in pool.status()["stalled"], 20.0, "the reason in the status")
    assert early and not pool.covers(last)
    server.work.batch_buffer.budget.limit = limit
    until(lambda: pool.covers(last), 20.0, "goes on")
    assert pool.rows() == 1


def test_a_member_of_a_protocol_that_the_pool_does_not_speak_is_refused(pool: Pool) -> None:
    pool.whole()
    pool.start(Role.VIEWSERVER, "newer", protocols=(PROTOCOL + 1, PROTOCOL + 2))
    assert pool.ended("newer") == 1
    told = f"speaks protocol {PROTOCOL}, this viewserver speaks {PROTOCOL + 1} to {PROTOCOL + 2}"
    assert told in pool.heard("newer", "refused")[0]["reason"]


def test_a_session_that_was_lost_costs_a_new_name(pool: Pool) -> None:
    pool.whole()
    pool.define()
    (before,) = pool.shares()
    pool.zookeeper.expire(pool.connections["v"][-1])
    until(lambda: pool.shares() and pool.shares() != [before], 20.0, "another incarnation")
    last = pool.write(1)
    until(lambda: pool.covers(last), 20.0, "an epoch in the new generation")
    assert pool.rows() == 1


def test_nothing_is_sent_while_the_session_may_have_ended(pool: Pool) -> None:
    pool.whole()
    pool.define()
    pool.zookeeper.suspend(pool.connections["v"][-1])
    until(lambda: pool.heard("v", "suspended"), 60.0, "suspended")
    last = pool.write(1)
    server = pool.processes["v"].current
    assert server is not None
    until(lambda: server.peers.held() > 0, 60.0, "messages that are held back")
    assert not pool.covers(last)
    pool.zookeeper.resume(pool.connections["v"][-1])
    until(lambda: pool.covers(last), 20.0, "the epoch goes on")
    assert pool.processes["v"].current is server, "the same incarnation"


def test_who_asks_to_leave_without_a_leader_gives_up_with_the_reason(pool: Pool) -> None:
    pool.start(Role.VIEWSERVER, "v")
    until(lambda: pool.heard("v", "joined"), 60.0, "joined")
    pool.processes["v"].stop()
    assert pool.ended("v") == 1
    assert "no coordinator released it" in pool.heard("v", "left without being released")[0]["reason"]


@pytest.mark.parametrize(
    "error",
    [errors.StoreUnavailable("the store does not answer"), errors.DiskError("no space left on device: store/data.mdb")],
    ids=["away", "full"],
)
def test_a_store_that_takes_no_writes_holds_commits_up_and_they_go_on(pool: Pool, error: Exception) -> None:
    pool.whole()
    pool.define()
    pool.store.faults = strike("write", lambda: error)
    last = pool.write(1)

    def troubles() -> list[str]:
        return [member.get("trouble", "") for member in pool.status()["members"]]

    until(lambda: str(error) in troubles(), 60.0, "the reason in the status")
    assert not pool.covers(last)
    pool.store.faults = None
    until(lambda: pool.covers(last), 20.0, "commits go on")
    until(lambda: not any(troubles()), 60.0, "no trouble any more")
    assert pool.rows() == 1


def test_a_view_that_always_fails_is_named_and_tried_again(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.whole()
    pool.define()
    run = Shard.run
    failing = threading.Event()
    failing.set()

    def sometimes(self: Shard, stage: int) -> Any:
        if failing.is_set():
            raise StageError(("spend",), "bucket 7 cannot be computed")
        return run(self, stage)

    monkeypatch.setattr(Shard, "run", sometimes)
    last = pool.write(1)
    until(lambda: "bucket 7" in pool.status().get("stalled", ""), 30.0, "the pool says why it is stalled")
    assert "view spend" in pool.status()["stalled"]
    failing.clear()
    until(lambda: pool.covers(last), 30.0, "it goes on")
    until(lambda: pool.status()["stalled"] == "", 60.0, "not stalled any more")
    assert pool.rows() == 1


def test_a_view_that_cannot_be_computed_does_not_hold_its_pool(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool.whole()
    pool.define()
    other = "CREATE MATERIALIZED VIEW large AS SELECT id, total FROM orders WHERE total > 0"
    pool.call(calls.DDL, calls.encode(calls.DdlCall("large", other)))
    until(lambda: pool.status().get("building") == [], 20.0, "a second view")
    last = pool.write(1)
    until(lambda: pool.covers(last), 20.0, "both have a row")
    good = pool.committed().epoch
    step, failing = Shard._step, threading.Event()
    failing.set()

    def fails(self: Shard, running: Any, one: Any, run: Any, outputs: Any) -> Any:
        if failing.is_set() and "spend" in run.views and one.view_group.number == 1:
            raise ZeroDivisionError("bucket 7 cannot be computed")
        return step(self, running, one, run, outputs)

    monkeypatch.setattr(Shard, "_step", fails)
    last = pool.write(2)
    until(lambda: pool.covers(last), 30.0, "the pool goes on without the view")
    assert pool.status()["stalled"] == ""
    found = pool.failed()
    assert found["spend"].failure.reason == "ZeroDivisionError: bucket 7 cannot be computed"
    assert found["spend"].failure.epoch > good and found["spend"].failure.served
    assert pool.rows("large") == 2
    again = "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n FROM orders GROUP BY customer"
    pool.call(calls.DDL, calls.encode(calls.DdlCall("again", again)))
    until(lambda: not pool.failed(), 20.0, "the view is built again")
    assert pool.rows("spend") == 2
    last = pool.write(3)
    until(lambda: pool.covers(last), 20.0, "an epoch with both")
    assert pool.rows("spend") == 3 and pool.rows("large") == 3


def test_other_pools_live_on_while_one_fails(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Pool()
    run = Shard.run

    def fails_in_one(self: Shard, stage: int) -> Any:
        if threading.current_thread().name.startswith("v-"):
            raise StageError(("spend",), "bucket 7 cannot be computed")
        return run(self, stage)

    try:
        pool.whole()
        pool.define()
        other.whole(prefix="other-")
        other.define()
        monkeypatch.setattr(Shard, "run", fails_in_one)
        stuck = pool.write(1)
        until(lambda: "bucket 7" in pool.status().get("stalled", ""), 30.0, "the pool says why it is stalled")
        for customer in range(1, 4):
            last = other.write(customer)
            until(lambda last=last: other.covers(last), 20.0, "the other pool commits")  # type: ignore[misc]
        assert other.rows() == 3 and other.status()["stalled"] == "" and not pool.covers(stuck)
    finally:
        monkeypatch.undo()
        other.stop()
    until(lambda: pool.covers(stuck), 30.0, "it goes on")


def test_metrics_tell_what_a_pool_does(pool: Pool) -> None:
    pool.whole()
    pool.define()
    last = pool.write(1)
    until(lambda: pool.covers(last), 20.0, "an epoch")
    server, leader = pool.processes["v"].metrics, pool.processes["c"].metrics
    until(lambda: server.value("belvedere_state_rows", zone="orders"), 60.0, "rows of state")
    assert (server.value("belvedere_stage_rows_in_total", stage="0", zone="orders") or 0) > 0
    until(lambda: leader.value("belvedere_quarantined_rows", view="spend") == 0.0, 20.0, "the quarantine is counted")
    assert server.value("belvedere_buckets_owned") == BUCKETS
    assert (server.value("belvedere_epoch_seconds_count", step="persist", stage="") or 0) > 0
    assert (leader.value("belvedere_epochs_committed_total") or 0) >= 3
    assert leader.value("belvedere_lag_seconds") == 0.0
