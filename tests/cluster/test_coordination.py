"""What every `Coordination` must do about members and sessions, on the one in memory and on a real ZooKeeper."""

from __future__ import annotations

import random
import threading
import time

import pytest

from belvedere.cluster.coordination.seam import Coordination, SessionState
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.protocol.messages import Member, Role
from tests.cluster.coordination_worlds import (
    Ear,
    MemoryWorld,
    World,
    ids,
    listen_members,
    listen_session,
    member,
    written,
)
from tests.cluster.zookeeper_server import eventually

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
    assert session.heard == [SessionState.CONNECTED]


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
    session.wait(lambda heard: SessionState.LOST in heard)
    session.wait_last(SessionState.CONNECTED)
    assert [state for state in session.heard if state is not SessionState.SUSPENDED] == [
        SessionState.CONNECTED,
        SessionState.LOST,
        SessionState.CONNECTED,
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
    session.wait_last(SessionState.SUSPENDED)
    assert one.session is SessionState.SUSPENDED
    assert not one.lease_valid()
    for call in (one.read, one.clock, one.members, one.leave, lambda: one.swap(b"", 0), lambda: one.create(b"")):
        with pytest.raises(CoordinationUnavailable):
            call()
    with pytest.raises(CoordinationUnavailable):
        one.join(member("a", leaving=True))
    watcher.join(member("b"))
    world.resume(one)
    session.wait_last(SessionState.CONNECTED)
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
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
        assert one.session is SessionState.SUSPENDED
    else:
        world.suspend(one)
        seen.wait_last([])
    assert not one.lease_valid()
    world.resume(one)
    session.wait(lambda heard: heard[-2:] == [SessionState.LOST, SessionState.CONNECTED])
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    with pytest.raises(Incompatible, match="never used again"):
        one.join(member("a"))


def test_who_listens_late_hears_the_present_state(world: World) -> None:
    one = world.connect()
    listen_session(one).wait_last(SessionState.CONNECTED)


def test_closing_removes_the_member_at_once_and_ends_everything(world: World) -> None:
    one, watcher = world.connect(), world.connect()
    seen = listen_members(watcher)
    one.join(member("a"))
    seen.wait_last(["a"])
    session = listen_session(one)
    session.wait_last(SessionState.CONNECTED)
    begin = time.monotonic()
    one.close()
    seen.wait_last([])
    assert time.monotonic() - begin < 5.0
    one.close()
    assert not one.lease_valid()
    assert one.session is SessionState.SUSPENDED
    with pytest.raises(CoordinationUnavailable, match="closed"):
        one.read()
    with pytest.raises(CoordinationUnavailable):
        one.start(1.0)
    assert session.heard == [SessionState.CONNECTED]


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
