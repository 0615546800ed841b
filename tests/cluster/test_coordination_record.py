"""What every `Coordination` must do about the election and the record, on the one in memory and on a real ZooKeeper."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from belvedere.cluster.coordination.seam import (
    NODE_LIMIT,
    Coordination,
    SessionState,
    Versioned,
    check_cluster,
    decode_member,
    encode_member,
)
from belvedere.errors import CoordinationUnavailable, Incompatible
from tests.cluster.coordination_worlds import (
    Ear,
    MemoryWorld,
    World,
    ids,
    listen_session,
    member,
    wait_for_session,
    written,
)
from tests.cluster.zookeeper_server import eventually

# --- election


def test_one_is_elected_and_the_next_when_it_resigns(world: World) -> None:
    candidates = [world.connect() for _ in range(3)]
    ears = [Ear() for _ in candidates]
    candidates[0].campaign("c0", ears[0])
    ears[0].wait_last(True)
    candidates[1].campaign("c1", ears[1])
    time.sleep(0.1)  # nothing tells that a candidate has got in line
    candidates[2].campaign("c2", ears[2])
    candidates[0].resign()
    ears[0].wait_last(False)
    eventually(lambda: sum(ear.heard == [True] for ear in ears) == 1)
    first = next(number for number, ear in enumerate(ears) if ear.heard == [True])
    candidates[first].resign()
    other = 3 - first
    ears[other].wait_last(True)
    ears[first].wait_last(False)
    assert ears[0].heard == [True, False]
    assert ears[first].heard == [True, False]
    assert ears[other].heard == [True]


@pytest.mark.parametrize("how", ["close", "expire"])
def test_the_next_is_elected_when_the_first_is_gone(world: World, how: str) -> None:
    first, second = world.connect(), world.connect()
    ears = Ear(), Ear()
    first.campaign("first", ears[0])
    ears[0].wait_last(True)
    second.campaign("second", ears[1])
    if how == "close":
        first.close()
    else:
        world.expire(first)
        ears[0].wait_last(False)
    ears[1].wait_last(True)
    assert ears[1].heard == [True]


def test_a_candidacy_ends_with_the_session_and_may_begin_again(world: World) -> None:
    one = world.connect()
    both, elected = Ear(), Ear()
    one.on_session(both)
    one.campaign("a", lambda turn: (both(turn), elected(turn))[0])
    elected.wait_last(True)
    world.expire(one)
    elected.wait_last(False)
    both.wait_last(SessionState.CONNECTED)
    assert both.heard.index(SessionState.LOST) < both.heard.index(False)
    again = Ear()
    eventually(lambda: one.session is SessionState.CONNECTED)
    one.campaign("a.2", again)
    again.wait_last(True)
    assert elected.heard == [True, False]


def test_suspended_alone_changes_nothing_about_the_election(world: World) -> None:
    one, other = world.connect(), world.connect()
    ears = Ear(), Ear()
    session = listen_session(one)
    one.campaign("one", ears[0])
    ears[0].wait_last(True)
    other.campaign("other", ears[1])
    world.suspend(one)
    session.wait_last(SessionState.SUSPENDED)
    world.resume(one)
    session.wait_last(SessionState.CONNECTED)
    one.resign()
    ears[1].wait_last(True)
    ears[0].wait_last(False)
    assert ears[0].heard == [True, False]


@pytest.mark.parametrize("when", ["before", "while"])
def test_who_waits_in_line_is_elected_after_a_broken_connection(world: World, when: str) -> None:
    one, other = world.connect(), world.connect()
    ears = Ear(), Ear()
    one.campaign("one", ears[0])
    ears[0].wait_last(True)
    other.campaign("other", ears[1])
    time.sleep(0.1)  # nothing tells that a candidate has got in line
    session = listen_session(other)
    world.suspend(other)
    session.wait_last(SessionState.SUSPENDED)
    if when == "while":
        one.resign()
    world.resume(other)
    session.wait_last(SessionState.CONNECTED)
    if when == "before":
        one.resign()
    ears[1].wait_last(True)
    assert ears[1].heard == [True]


def test_who_resigns_while_suspended_is_out_when_connected(world: World) -> None:
    one, other = world.connect(), world.connect()
    ears = Ear(), Ear()
    session = listen_session(one)
    one.campaign("one", ears[0])
    ears[0].wait_last(True)
    other.campaign("other", ears[1])
    world.suspend(one)
    session.wait_last(SessionState.SUSPENDED)
    one.resign()
    ears[0].wait_last(False)
    world.resume(one)
    ears[1].wait_last(True)


def test_a_candidate_in_line_that_gives_up_moves_nobody(world: World) -> None:
    connections = [world.connect() for _ in range(3)]
    ears = [Ear() for _ in connections]
    connections[0].campaign("c0", ears[0])
    ears[0].wait_last(True)
    connections[1].campaign("c1", ears[1])
    connections[2].campaign("c2", ears[2])
    connections[1].resign()
    connections[1].campaign("c1", ears[1])
    with pytest.raises(ValueError, match="already"):
        connections[1].campaign("c1", ears[1])
    connections[1].resign()
    connections[0].resign()
    ears[2].wait_last(True)
    ears[0].wait_last(False)
    assert ears[1].heard == []
    assert ears[0].heard == [True, False]


# --- the record


def test_the_record_is_created_once(world: World) -> None:
    one, other = world.connect(), world.connect()
    assert one.read() is None
    assert one.swap(b"too early", 0) is None
    first = written(one.create(b"first"))
    assert (first.data, first.version) == (b"first", 0)
    assert other.create(b"second") is None
    assert other.read() == first


def test_swap_needs_the_version(world: World) -> None:
    one, other = world.connect(), world.connect()
    first = written(one.create(b"0"))
    second = written(other.swap(b"1", first.version))
    assert second.version == 1
    assert one.swap(b"stale", first.version) is None
    assert one.swap(b"from the future", 7) is None
    assert one.swap(b"any", -1) is None
    assert one.read() == second
    assert written(one.swap(b"", second.version)).data == b""
    assert written(other.read()).data == b""


def test_a_predecessor_is_fenced_off_by_the_record(world: World) -> None:
    old, new = world.connect(), world.connect()
    seen_by_old = written(old.create(b"term 1"))
    taken_over = written(new.swap(b"term 2", written(new.read()).version))
    assert old.swap(b"term 1, epoch 5", seen_by_old.version) is None
    assert new.read() == taken_over


def test_of_many_that_create_one_wins(world: World) -> None:
    connections = [world.connect() for _ in range(8)]
    gate = threading.Barrier(len(connections))

    def create(number: int) -> Versioned | None:
        gate.wait()
        return connections[number].create(b"%d" % number)

    with ThreadPoolExecutor(len(connections)) as pool:
        outcomes = list(pool.map(create, range(len(connections))))
    winners = [outcome for outcome in outcomes if outcome is not None]
    assert len(winners) == 1
    assert connections[0].read() == winners[0]


def test_concurrent_swaps_lose_no_update(world: World) -> None:
    connections = [world.connect() for _ in range(4)]
    connections[0].create(b"0")

    def count(connection: Coordination) -> None:
        done = 0
        while done < 25:
            found = written(connection.read())
            if connection.swap(b"%d" % (int(found.data) + 1), found.version) is not None:
                done += 1

    with ThreadPoolExecutor(len(connections)) as pool:
        list(pool.map(count, connections))
    final = written(connections[0].read())
    assert (final.data, final.version) == (b"100", 100)


@pytest.mark.parametrize("happened", [True, False])
def test_a_swap_without_an_answer_is_unknown_until_it_is_read(world: World, happened: bool) -> None:
    one = world.connect()
    first = written(one.create(b"first"))
    world.write_unknown(one, happened=happened)
    with pytest.raises(CoordinationUnavailable):
        one.swap(b"second", first.version)
    wait_for_session(one, SessionState.CONNECTED)
    found = written(one.read())
    assert (found.data, found.version) == ((b"second", 1) if happened else (b"first", 0))
    assert written(one.swap(b"third", found.version)).version == found.version + 1


@pytest.mark.parametrize("happened", [True, False])
def test_a_create_without_an_answer_is_unknown_until_it_is_read(world: World, happened: bool) -> None:
    one = world.connect()
    world.write_unknown(one, happened=happened)
    with pytest.raises(CoordinationUnavailable):
        one.create(b"first")
    wait_for_session(one, SessionState.CONNECTED)
    assert (one.read() is not None) is happened
    assert (one.create(b"again") is None) is happened


def test_the_clock_is_the_servers(world: World) -> None:
    one, other = world.connect(), world.connect()
    before = one.clock()
    record = written(other.create(b""))
    after = one.clock()
    assert before <= record.clock <= after
    assert abs(after - time.time() * 1000) < 60_000


def test_what_zookeeper_cannot_hold_is_refused_before_it_is_sent(world: World) -> None:
    one = world.connect()
    with pytest.raises(ValueError, match="at most"):
        one.create(bytes(NODE_LIMIT + 1))
    assert written(one.create(bytes(NODE_LIMIT))).version == 0
    for name in ("", "a/b", "..", "a\n"):
        with pytest.raises(ValueError, match="part of a path"):
            one.join(member(name))
        with pytest.raises(ValueError, match="part of a path"):
            one.campaign(name, Ear())
    assert one.lease_valid()


# --- faults of the one in memory


def test_faults_are_addressed_by_name() -> None:
    world = MemoryWorld()
    one, other = world.connect(), world.connect()
    one.join(member("a"))
    other.campaign("candidate", Ear())
    world.zookeeper.suspend("a")
    assert one.session is SessionState.SUSPENDED
    assert other.session is SessionState.CONNECTED
    world.zookeeper.expire("candidate")
    with pytest.raises(KeyError, match="nobody"):
        world.zookeeper.expire("nobody")
    world.close()


def test_clocks_are_skewed_for_all_or_for_one() -> None:
    world = MemoryWorld()
    world.zookeeper = type(world.zookeeper)(now=lambda: 1_000)
    one, other = world.connect(), world.connect()
    world.zookeeper.skew_clock(500)
    world.zookeeper.skew_clock(-200, one)
    assert (one.clock(), other.clock()) == (1_300, 1_500)
    assert written(one.create(b"")).clock == 1_500
    world.close()


def test_settle_waits_for_the_listeners() -> None:
    world = MemoryWorld()
    one, other = world.connect(), world.connect()
    heard: list[object] = []
    other.on_members(lambda members: (time.sleep(0.05), heard.append(ids(members)))[0])
    one.join(member("a"))
    world.zookeeper.settle()
    assert heard[-1] == ["a"]
    world.close()


# --- what is written


def test_a_member_is_read_by_older_and_newer_versions() -> None:
    said = member("a", address="grpc://x", leaving=True, cluster="c")
    assert decode_member(encode_member(said)) == said
    newer = encode_member(said)[:-1] + b',"zone":"b","tags":[1]}'
    assert decode_member(newer) == said
    assert decode_member(b'{"id":"a","role":"viewserver"}') == member("a")
    for nothing in (b"", b"\xff", b"[]", b"{}", b'{"id":"a","role":"archivist"}', b'"text"', b'{"role":"store"}'):
        assert decode_member(nothing) is None


def test_another_cluster_of_the_same_name_is_refused() -> None:
    check_cluster("pool", "one", "one")
    with pytest.raises(Incompatible, match="belongs to cluster 'other'"):
        check_cluster("pool", "one", "other")
