"""What every `Coordination` must do, on the one in memory and on a real ZooKeeper."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from belvedere.cluster.coordination import (
    NODE_LIMIT,
    Coordination,
    Session,
    Versioned,
    check_cluster,
    decode_member,
    encode_member,
)
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.protocol.messages import Member, Role
from tests.cluster.coordination_worlds import (
    Ear,
    MemoryWorld,
    World,
    ZooKeeperWorld,
    ids,
    member,
    wait_for_session,
)
from tests.cluster.zookeeper_server import eventually


@pytest.fixture(params=["memory", "zookeeper"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World
    if request.param == "memory":
        made = MemoryWorld()
    else:
        made = ZooKeeperWorld(request.getfixturevalue("zookeeper_server"))
    yield made
    made.close()


def listen_members(who: Coordination) -> Ear:
    ear = Ear()
    who.on_members(lambda members: ear(ids(members)))
    return ear


def listen_session(who: Coordination) -> Ear:
    ear = Ear()
    who.on_session(ear)
    return ear


def written(outcome: Versioned | None) -> Versioned:
    assert outcome is not None
    return outcome


# --- members


def test_a_member_is_seen_with_all_that_it_says_about_itself(world: World) -> None:
    one, other = world.connect(), world.connect()
    said = Member(
        member("x-1").id, Role.DISTRIBUTOR, "grpc://127.0.0.1:4", 3, 5, cluster="größte 'pool' \u2603", leaving=True
    )
    one.join(said)
    assert other.members() == [said]
    assert one.members() == [said]


def test_members_are_told_in_full_now_and_after_every_change(world: World) -> None:
    one, two, watcher = world.connect(), world.connect(), world.connect()
    two.join(member("b"))
    ear = listen_members(watcher)
    ear.wait_last(["b"])
    one.join(member("a"))
    ear.wait_last(["a", "b"])
    two.leave()
    ear.wait_last(["a"])
    late = listen_members(watcher)
    late.wait_last(["a"])
    one.close()
    ear.wait_last([])
    assert ear.heard == [["b"], ["a", "b"], ["a"], []]


def test_an_empty_pool_is_told_as_such(world: World) -> None:
    listen_members(world.connect()).wait_last([])


def test_who_listens_before_the_start_hears_with_it(world: World) -> None:
    world.connect().join(member("a"))
    made = world.make()
    session, members = listen_session(made), listen_members(made)
    made.start(15.0)
    members.wait_last(["a"])
    assert session.heard == [Session.CONNECTED]


def test_a_member_that_joins_again_replaces_its_entry(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    ear = Ear()
    watcher.on_members(ear)
    one.join(member("a"))
    ear.wait_last([member("a")])
    one.join(member("a", leaving=True, address="grpc://other"))
    ear.wait_last([member("a", leaving=True, address="grpc://other")])


def test_one_connection_is_one_member(world: World) -> None:
    one = world.connect()
    one.join(member("a"))
    with pytest.raises(ValueError, match="cannot be 'b' as well"):
        one.join(member("b"))


def test_a_name_that_is_in_use_is_refused(world: World) -> None:
    one, other = world.connect(), world.connect()
    one.join(member("a"))
    with pytest.raises(Incompatible, match="'a' is in pool 'pool' already"):
        other.join(member("a", address="grpc://thief"))
    assert one.members() == [member("a")]
    other.join(member("b"))
    assert ids(one.members()) == ["a", "b"]


def test_who_left_is_gone_and_does_not_come_back_under_that_name(world: World) -> None:
    one, other = world.connect(), world.connect()
    one.leave()
    one.join(member("a"))
    one.leave()
    one.leave()
    assert other.members() == []
    with pytest.raises(Incompatible, match="never used again"):
        one.join(member("a"))
    one.join(member("a2"))
    assert ids(other.members()) == ["a2"]


def test_pools_know_nothing_of_each_other(world: World) -> None:
    one, other = world.connect("one"), world.connect("other")
    one.join(member("a"))
    other.join(member("a"))
    elected = Ear(), Ear()
    one.campaign("a", elected[0])
    other.campaign("a", elected[1])
    elected[0].wait_last(True)
    elected[1].wait_last(True)
    assert written(one.create(b"1")).version == written(other.create(b"2")).version == 0
    assert written(one.read()).data == b"1"


def test_a_thousand_members_are_listed_and_one_that_goes_is_noticed(world: World) -> None:
    watcher = world.connect()
    remove = world.populate(1_000)
    expected = [f"m{number:04}" for number in range(1_000)]

    def all_listed() -> bool:
        try:
            return ids(watcher.members()) == expected
        except CoordinationUnavailable:  # on a busy machine the session may be suspended for a moment
            return False

    eventually(all_listed)
    ear = listen_members(watcher)
    ear.wait_last(expected)
    remove("m0500")
    ear.wait_last([name for name in expected if name != "m0500"])


def test_no_change_of_members_is_missed(world: World) -> None:
    random_ = random.Random(20)
    watchers = [world.connect() for _ in range(2)]
    ears = [Ear() for _ in watchers]
    for watcher, ear in zip(watchers, ears, strict=True):
        watcher.on_members(ear)
    expected: dict[str, Member] = {}
    connections: dict[str, Coordination] = {}
    for number in range(60):
        if connections and random_.random() < 0.4:
            name = random_.choice(sorted(connections))
            connections.pop(name).close()
            del expected[name]
        elif connections and random_.random() < 0.5:
            name = random_.choice(sorted(connections))
            expected[name] = member(name, address=f"grpc://{number}")
            connections[name].join(expected[name])
        else:
            name = f"m{number}"
            expected[name] = member(name)
            connections[name] = world.connect()
            connections[name].join(expected[name])
        if number % 20 == 10:
            world.suspend(watchers[0])
        if number % 20 == 13:
            world.resume(watchers[0])
    for ear in ears:
        ear.wait_last(sorted(expected.values(), key=lambda each: each.id))
    for ear in ears:
        assert all(first != second for first, second in zip(ear.heard, ear.heard[1:], strict=False))


# --- sessions


def test_a_session_that_ends_takes_the_member_and_its_name_along(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    session = listen_session(one)
    seen_by_itself, seen = listen_members(one), listen_members(watcher)
    one.join(member("a"))
    seen.wait_last(["a"])
    seen_by_itself.wait_last(["a"])
    world.expire(one)
    seen.wait_last([])
    session.wait(lambda heard: Session.LOST in heard)
    session.wait_last(Session.CONNECTED)
    assert [state for state in session.heard if state is not Session.SUSPENDED] == [
        Session.CONNECTED,
        Session.LOST,
        Session.CONNECTED,
    ]
    with pytest.raises(Incompatible, match="never used again"):
        one.join(member("a"))
    one.join(member("a.2"))
    seen.wait_last(["a.2"])
    seen_by_itself.wait_last(["a.2"])
    assert one.lease_valid()


def test_a_connection_that_breaks_suspends_and_comes_back(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    session, seen_by_itself, seen = listen_session(one), listen_members(one), listen_members(watcher)
    one.join(member("a"))
    seen_by_itself.wait_last(["a"])
    seen.wait_last(["a"])
    assert one.lease_valid()
    world.suspend(one)
    session.wait_last(Session.SUSPENDED)
    assert one.session is Session.SUSPENDED
    assert not one.lease_valid()
    for call in (one.read, one.clock, one.members, one.leave, lambda: one.swap(b"", 0), lambda: one.create(b"")):
        with pytest.raises(CoordinationUnavailable):
            call()
    with pytest.raises(CoordinationUnavailable):
        one.join(member("a", leaving=True))
    watcher.join(member("b"))
    world.resume(one)
    session.wait_last(Session.CONNECTED)
    assert session.heard == [Session.CONNECTED, Session.SUSPENDED, Session.CONNECTED]
    assert one.lease_valid()
    seen_by_itself.wait_last(["a", "b"])
    seen.wait_last(["a", "b"])
    assert ["b"] not in seen.heard  # "a" never went away
    one.join(member("a", leaving=True))


def test_a_session_that_ends_while_suspended_is_lost(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    session, seen = listen_session(one), listen_members(watcher)
    one.join(member("a"))
    seen.wait_last(["a"])
    if isinstance(world, MemoryWorld):
        world.suspend(one)
        world.expire(one)
        seen.wait_last([])
        assert one.session is Session.SUSPENDED
    else:
        world.suspend(one)
        seen.wait_last([])
    assert not one.lease_valid()
    world.resume(one)
    session.wait(lambda heard: heard[-2:] == [Session.LOST, Session.CONNECTED])
    assert session.heard == [Session.CONNECTED, Session.SUSPENDED, Session.LOST, Session.CONNECTED]
    with pytest.raises(Incompatible, match="never used again"):
        one.join(member("a"))


def test_who_listens_late_hears_the_present_state(world: World) -> None:
    one = world.connect()
    listen_session(one).wait_last(Session.CONNECTED)


def test_closing_removes_the_member_at_once_and_ends_everything(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    seen = listen_members(watcher)
    one.join(member("a"))
    seen.wait_last(["a"])
    session = listen_session(one)
    session.wait_last(Session.CONNECTED)
    begin = time.monotonic()
    one.close()
    seen.wait_last([])
    assert time.monotonic() - begin < 5.0
    one.close()
    assert not one.lease_valid()
    assert one.session is Session.SUSPENDED
    with pytest.raises(CoordinationUnavailable, match="closed"):
        one.read()
    with pytest.raises(CoordinationUnavailable):
        one.start(1.0)
    assert session.heard == [Session.CONNECTED]


def test_a_start_that_nobody_answers_says_so_and_can_be_repeated(world: World) -> None:
    one = world.make()
    world.suspend(one)
    with pytest.raises(CoordinationUnavailable, match=r"did not answer within 0\.3 s"):
        one.start(0.3)
    world.resume(one)
    one.start(15.0)
    assert one.lease_valid()
    with pytest.raises(CoordinationUnavailable, match="called before"):
        one.start(1.0)


def test_a_listener_that_fails_harms_nobody(world: World) -> None:
    one = world.connect()

    def fail(_: object) -> None:
        raise RuntimeError("a listener of the test fails")

    one.on_members(fail)
    ear = listen_members(one)
    one.join(member("a"))
    ear.wait_last(["a"])


def test_listeners_are_called_one_at_a_time_and_may_call_back(world: World) -> None:
    one = world.connect()
    busy = threading.Lock()
    ear = Ear()

    def listener(members: list[Member]) -> None:
        assert busy.acquire(blocking=False)
        ear((ids(members), ids(one.members())))
        busy.release()

    one.on_members(listener)
    one.on_session(lambda _: ear(busy.locked()))
    ear.wait(lambda heard: ([], []) in heard and False in heard)
    one.join(member("a"))
    ear.wait_last((["a"], ["a"]))


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
    both.wait_last(Session.CONNECTED)
    assert both.heard.index(Session.LOST) < both.heard.index(False)
    again = Ear()
    eventually(lambda: one.session is Session.CONNECTED)
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
    session.wait_last(Session.SUSPENDED)
    world.resume(one)
    session.wait_last(Session.CONNECTED)
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
    session.wait_last(Session.SUSPENDED)
    if when == "while":
        one.resign()
    world.resume(other)
    session.wait_last(Session.CONNECTED)
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
    session.wait_last(Session.SUSPENDED)
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
    wait_for_session(one, Session.CONNECTED)
    found = written(one.read())
    assert (found.data, found.version) == ((b"second", 1) if happened else (b"first", 0))
    assert written(one.swap(b"third", found.version)).version == found.version + 1


@pytest.mark.parametrize("happened", [True, False])
def test_a_create_without_an_answer_is_unknown_until_it_is_read(world: World, happened: bool) -> None:
    one = world.connect()
    world.write_unknown(one, happened=happened)
    with pytest.raises(CoordinationUnavailable):
        one.create(b"first")
    wait_for_session(one, Session.CONNECTED)
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
    assert one.session is Session.SUSPENDED
    assert other.session is Session.CONNECTED
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
