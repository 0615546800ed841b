"""What only a real ZooKeeper can show: access lists, frozen servers, paused processes, lost answers, watches."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from belvedere.cluster.coordination.seam import SessionState
from belvedere.cluster.coordination.zookeeper import KazooLink, ZooKeeperCoordination, ZooKeeperCredentials
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.local.zookeeper import LocalZooKeeper
from tests.cluster.coordination_worlds import Ear, ZooKeeperWorld, ids, member, wait_for_session
from tests.cluster.zookeeper_server import Proxy, eventually, require_zookeeper

OWNER = ZooKeeperCredentials("belvedere", "s3cret:with colon")


@pytest.fixture
def world(zookeeper_server: LocalZooKeeper) -> Iterator[ZooKeeperWorld]:
    made = ZooKeeperWorld(zookeeper_server)
    yield made
    made.close()


# --- access


def everything_in(world: ZooKeeperWorld, credentials: ZooKeeperCredentials) -> dict[str, set[tuple[str, int]]]:
    """All nodes of the pool, with who (scheme) may do what."""
    client = world.raw(credentials)
    found: dict[str, set[tuple[str, int]]] = {}
    todo = [world.path()]
    while todo:
        path = todo.pop()
        access, _ = client.get_acls(path)
        found[path.removeprefix(world.path())] = {(entry.id.scheme, entry.perms) for entry in access}
        todo += [f"{path}/{child}" for child in client.get_children(path)]
    return found


@pytest.mark.parametrize("world_read", [False, True])
def test_everything_belongs_to_who_has_the_credentials(world: ZooKeeperWorld, world_read: bool) -> None:
    owner = ZooKeeperCredentials(OWNER.user, OWNER.password, world_read=world_read)
    one = world.connect(credentials=owner)
    one.join(member("a"))
    one.create(b"record")
    elected = Ear()
    one.campaign("a", elected)
    elected.wait_last(True)
    found = everything_in(world, owner)
    assert {path.split("/")[1] for path in found if path} == {"members", "election", "clocks", "record"}
    assert len(found) == 8  # the pool, three folders with an entry each, the record
    expected = {("digest", 31)} | ({("world", 1)} if world_read else set())
    assert set(map(frozenset, found.values())) == {frozenset(expected)}
    other = world.connect(credentials=owner)
    assert ids(other.members()) == ["a"]


@pytest.mark.parametrize(
    "stranger", [None, ZooKeeperCredentials("belvedere", "guess"), ZooKeeperCredentials("other", "other")]
)
def test_a_pool_of_others_is_refused(world: ZooKeeperWorld, stranger: ZooKeeperCredentials | None) -> None:
    world.connect(credentials=OWNER)
    intruder = world.make(credentials=stranger)
    begin = time.monotonic()
    with pytest.raises(Incompatible, match=r"pool 'pool' in ZooKeeper .* belongs to others"):
        intruder.start(20.0)
    assert time.monotonic() - begin < 15.0
    world.connect("pool2", credentials=stranger).join(member("a"))


def test_a_pool_that_anyone_can_change_is_not_good_enough_for_credentials(world: ZooKeeperWorld) -> None:
    world.connect()
    with pytest.raises(Incompatible, match="belongs to others: it was made with other credentials, or none"):
        world.make(credentials=OWNER).start(20.0)


def test_credentials_do_not_show() -> None:
    assert "s3cret" not in repr(OWNER)
    with pytest.raises(ValueError, match="':'"):
        ZooKeeperCredentials("a:b", "c")


# --- sessions


def test_a_server_that_freezes_suspends_and_then_loses_by_our_own_clock(world: ZooKeeperWorld) -> None:
    one, watcher = world.connect(), world.connect()
    session, elected, seen = Ear(), Ear(), Ear()
    one.on_session(session)
    watcher.on_members(lambda members: seen(ids(members)))
    one.join(member("a"))
    one.campaign("a", elected)
    elected.wait_last(True)
    world.proxy(one).freeze()
    session.wait_last(SessionState.SUSPENDED)
    assert not one.lease_valid()
    session.wait_last(SessionState.LOST)
    elected.wait_last(False)
    seen.wait_last([])
    world.resume(one)
    wait_for_session(one, SessionState.CONNECTED)
    with pytest.raises(Incompatible, match="never used again"):
        one.join(member("a"))
    session.wait_last(SessionState.CONNECTED)
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    one.join(member("a.2"))
    seen.wait_last(["a.2"])


def test_a_short_freeze_keeps_the_session(world: ZooKeeperWorld) -> None:
    one, watcher = world.connect(session_timeout=4.0), world.connect()
    session, seen = Ear(), Ear()
    one.on_session(session)
    watcher.on_members(lambda members: seen(ids(members)))
    one.join(member("a"))
    seen.wait_last(["a"])
    identity = one.session_identity()
    world.proxy(one).freeze()
    session.wait_last(SessionState.SUSPENDED)
    world.resume(one)
    session.wait_last(SessionState.CONNECTED)
    assert one.session_identity() == identity
    assert seen.heard[-1] == ["a"]
    assert one.lease_valid()


def test_a_server_that_accepts_and_never_speaks_is_asked_again_before_the_session_ends(world: ZooKeeperWorld) -> None:
    one = world.connect(session_timeout=12.0)
    session = Ear()
    one.on_session(session)
    identity = one.session_identity()
    world.suspend(one)
    session.wait_last(SessionState.SUSPENDED)
    world.proxy(one).mute_next()
    world.resume(one)
    session.wait_last(SessionState.CONNECTED, timeout=60.0)
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert one.session_identity() == identity


def carrying(proxies: list[Proxy]) -> Proxy:
    """The one that has the client's connection, once the others have noticed that theirs are over."""
    deadline = time.monotonic() + 20.0
    while sum(counts := [proxy.connections for proxy in proxies]) != 1:
        assert time.monotonic() < deadline, f"connections: {counts}"
        time.sleep(0.005)
    return proxies[counts.index(1)]


def test_a_server_that_freezes_is_left_for_another_in_the_same_session(world: ZooKeeperWorld) -> None:
    one, proxies = world.make_with_servers(3, session_timeout=3.0)
    session = Ear()
    one.on_session(session)
    one.start(15.0)
    one.join(member("a"))
    identity = one.session_identity()
    for _ in range(2):
        heard = len(session.heard)
        carrying(proxies).freeze()
        session.wait(lambda all_heard, before=heard: len(all_heard) >= before + 2)  # type: ignore[misc]
        assert session.heard[heard:] == [SessionState.SUSPENDED, SessionState.CONNECTED]
        for proxy in proxies:
            proxy.mend()
    assert one.session_identity() == identity
    assert ids(one.members()) == ["a"]


def test_the_server_that_froze_is_not_the_first_to_be_tried_again(world: ZooKeeperWorld) -> None:
    link = KazooLink(world.server.hosts, 2.0, None, None, threading.RLock(), lambda link, state: None)
    tried: list[object] = []
    link._create_connection = lambda **options: tried.append(options["address"])
    link._connect(address=("127.0.0.1", 1))
    link.drop()
    with pytest.raises(OSError, match="did not answer a moment ago"):
        link._connect(address=("127.0.0.1", 1))
    link._connect(address=("127.0.0.1", 2))
    link._connect(address=("127.0.0.1", 1))
    assert tried == [("127.0.0.1", 1), ("127.0.0.1", 2), ("127.0.0.1", 1)]


def test_the_lease_holds_while_nothing_is_asked(world: ZooKeeperWorld) -> None:
    one = world.connect(session_timeout=3.0)
    time.sleep(4.0)
    assert one.lease_valid()


CHILD = """
import os, sys, time
from belvedere.cluster.coordination.zookeeper import ZooKeeperCoordination
from belvedere.protocol.messages import Member, Role
def say(line):  # at once: two threads speak, and `print` may put one's words into the other's line
    os.write(1, line.encode() + b"\\n")
one = ZooKeeperCoordination(sys.argv[1], "pool", session_timeout=3.0)
one.on_session(lambda state: say(state.value))
one.start(15.0)
one.join(Member("paused", Role.VIEWSERVER))
say("joined")
before = time.monotonic()
while True:
    valid, after = one.lease_valid(), time.monotonic()
    if after - before > 3.0:
        say(f"woke {valid}")
        break
    before = after
    time.sleep(0.001)
sys.stdin.readline()
one.close()
"""


def test_a_paused_process_knows_that_it_may_be_dead_before_it_acts(world: ZooKeeperWorld) -> None:
    watcher = world.connect()
    seen = Ear()
    watcher.on_members(lambda members: seen(ids(members)))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, world.server.hosts + world.prefix],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with child, contextlib.ExitStack() as undo:
        undo.callback(child.kill)  # also when something fails below: leaving `with child` waits for its end
        assert child.stdin is not None and child.stdout is not None
        # The session is heard of in a thread of its own, so either may be said first.
        assert {child.stdout.readline().strip() for _ in range(2)} == {"connected", "joined"}
        seen.wait_last(["paused"])
        child.send_signal(signal.SIGSTOP)
        # For all others it is gone: at the earliest after 2 s, since it may have spoken 1 s before.
        seen.wait_last([])
        time.sleep(2.0)  # so the pause is longer than the 3 s by which the child knows it
        child.send_signal(signal.SIGCONT)
        said = [child.stdout.readline().strip()]
        while not said[-1].startswith("woke"):
            said.append(child.stdout.readline().strip())
        assert said[-1] == "woke False"
        heard = [word for word in said if not word.startswith("woke")]
        while "lost" not in heard:
            heard.append(child.stdout.readline().strip())
        assert heard == ["suspended", "lost"] or heard == ["lost"]
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait(20) == 0


def test_a_session_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    require_zookeeper()
    with LocalZooKeeper(tmp_path, tick_ms=200, sync=False) as server, ZooKeeperWorld(server) as world:
        # Several times as long as a restart and a handshake without an answer take on a slow machine.
        one, watcher = world.connect(session_timeout=30.0), world.connect(session_timeout=30.0)
        session, seen = Ear(), Ear()
        one.on_session(session)
        watcher.on_members(lambda members: seen(ids(members)))
        one.join(member("a"))
        record = one.create(b"kept")
        seen.wait_last(["a"])
        server.restart()
        survived = [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
        session.wait(lambda heard: heard == survived, timeout=60.0)
        wait_for_session(watcher, SessionState.CONNECTED, 60.0)
        assert one.read() == record
        one.join(member("a", leaving=True))
        eventually(lambda: watcher.members() == [member("a", leaving=True)])
        assert seen.heard[0] == [] or seen.heard[0] == ["a"]
        assert [] not in seen.heard[1:]


def test_a_timeout_that_the_server_cuts_short_is_the_one_that_counts(tmp_path: Path) -> None:
    require_zookeeper()
    with (
        LocalZooKeeper(tmp_path, tick_ms=200, max_session_timeout=3_000, sync=False) as server,
        contextlib.closing(ZooKeeperCoordination(server.hosts, "pool", session_timeout=30.0)) as one,
    ):
        session = Ear()
        one.on_session(session)
        one.start(15.0)
        time.sleep(4.0)  # a heartbeat that went by 30 s would come too late
        assert one.lease_valid()
        assert session.heard == [SessionState.CONNECTED]
        assert one._link is not None
        assert one._link.lease.timeout == pytest.approx(3.0)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        begin = asked = last = time.monotonic()
        deadline = begin + 20.0
        while one.lease_valid():  # the moment before the last answer counts: whoever asks may be kept waiting itself
            assert asked < deadline
            last = asked
            time.sleep(0.01)
            asked = time.monotonic()
        assert last - begin < 3.0
        os.kill(server.pid, signal.SIGCONT)


def test_nothing_is_made_under_an_old_name_in_a_session_that_kazoo_opened_by_itself(world: ZooKeeperWorld) -> None:
    one, other = world.connect(), world.connect()
    one.join(member("a"))
    old = one._link
    assert old is not None
    world.raw().delete(one._nodes.own(old))  # as the end of the session would
    with pytest.raises(CoordinationUnavailable, match="ended"):
        one._nodes.create_ephemeral(old, f"{one._nodes.members}/b", b"{}")
    with pytest.raises(CoordinationUnavailable, match="ended"):
        one.clock()
    assert ids(other.members()) == ["a"]


def test_a_server_that_says_nothing_is_not_waited_for(world: ZooKeeperWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            contextlib.closing(ZooKeeperCoordination(hosts, "pool", session_timeout=10.0)) as one,
            pytest.raises(CoordinationUnavailable, match="accepted the connection and opened no session"),
        ):
            one.start(2.0)
    with (
        contextlib.closing(ZooKeeperCoordination("127.0.0.1:1", "pool")) as nobody,
        pytest.raises(CoordinationUnavailable, match=r"no server accepted a connection .*refused"),
    ):
        nobody.start(2.0)


def test_a_second_server_of_the_list_is_found(world: ZooKeeperWorld) -> None:
    hosts = f"127.0.0.1:1,{world.server.hosts}{world.prefix}/deeper"
    with contextlib.closing(ZooKeeperCoordination(hosts, "pool")) as one:
        one.start(15.0)
        one.join(member("a"))
        assert ids(one.members()) == ["a"]
        assert world.raw().exists(f"{world.prefix}/deeper/belvedere/pool/members/a")


# --- lost answers


@pytest.mark.parametrize("happened", [True, False])
def test_a_join_without_an_answer_may_be_repeated(world: ZooKeeperWorld, happened: bool) -> None:
    one, watcher = world.connect(), world.connect()
    world.proxy(one).lose_next(b"/members/a", happened=happened)
    with pytest.raises(CoordinationUnavailable):
        one.join(member("a"))
    wait_for_session(one, SessionState.CONNECTED)
    assert ids(watcher.members()) == (["a"] if happened else [])
    one.join(member("a", address="grpc://x"))
    assert watcher.members() == [member("a", address="grpc://x")]


@pytest.mark.parametrize("happened", [True, False])
def test_a_leave_without_an_answer_may_be_repeated(world: ZooKeeperWorld, happened: bool) -> None:
    one, watcher = world.connect(), world.connect()
    one.join(member("a"))
    world.proxy(one).lose_next(b"/members/a", happened=happened)
    with pytest.raises(CoordinationUnavailable):
        one.leave()
    wait_for_session(one, SessionState.CONNECTED)
    one.leave()
    assert watcher.members() == []


@pytest.mark.parametrize("happened", [True, False])
def test_a_candidacy_whose_creation_had_no_answer_stands_in_line_once(world: ZooKeeperWorld, happened: bool) -> None:
    one, other = world.connect(), world.connect()
    ears = Ear(), Ear()
    world.proxy(one).lose_next(b"/clocks/", happened=happened)  # the transaction that creates, or a heartbeat
    one.campaign("one", ears[0])
    ears[0].wait_last(True)
    path = world.path("election")
    client = world.raw()
    assert len(client.get_children(path)) == 1
    other.campaign("other", ears[1])
    eventually(lambda: len(client.get_children(path)) == 2)
    one.resign()
    ears[1].wait_last(True)
    eventually(lambda: len(client.get_children(path)) == 1)
    ears[0].wait_last(False)
    assert ears[0].heard == [True, False]


def test_a_candidacy_that_someone_removes_is_made_again_at_the_end_of_the_line(world: ZooKeeperWorld) -> None:
    one, other = world.connect(), world.connect()
    ears = Ear(), Ear()
    one.campaign("one", ears[0])
    ears[0].wait_last(True)
    path = world.path("election")
    client = world.raw()
    (node,) = client.get_children(path)
    assert client.get(f"{path}/{node}")[0] == b"one"
    other.campaign("other", ears[1])
    eventually(lambda: len(client.get_children(path)) == 2)
    client.delete(f"{path}/{node}")
    ears[1].wait_last(True)
    ears[0].wait_last(False)
    eventually(lambda: len(client.get_children(path)) == 2)


def test_each_candidate_is_watched_by_one_other_only(world: ZooKeeperWorld) -> None:
    candidates = [world.connect() for _ in range(5)]
    ears = [Ear() for _ in candidates]
    client = world.raw()
    path = world.path("election")
    for number, (candidate, ear) in enumerate(zip(candidates, ears, strict=True)):
        candidate.campaign(f"c{number}", ear)
        eventually(lambda expected=number + 1: len(client.get_children(path)) == expected)  # type: ignore[misc]

    def watchers() -> dict[str, int]:
        """How many sessions watch each candidate."""
        counts: dict[str, int] = {}
        current = ""
        for line in world.server.command("wchp").splitlines():
            if line.startswith("/"):
                current = line.strip()
            elif current.startswith(path) and line.strip():
                counts[current] = counts.get(current, 0) + 1
        return counts

    # The first watches itself and is watched by the second; nobody needs to watch the last.
    eventually(lambda: sorted(watchers().values()) == [1, 1, 1, 2])
    ears[0].wait_last(True)
    candidates[2].close()
    eventually(lambda: sorted(watchers().values()) == [1, 1, 2])
    candidates[0].close()
    ears[1].wait_last(True)
    assert not ears[3].heard and not ears[4].heard


def test_what_strangers_put_among_the_members_is_overlooked(world: ZooKeeperWorld) -> None:
    one = world.connect()
    client = world.raw()
    for name, data in {"future": b'{"id":"future","role":"archivist"}', "damaged": b"\xff", "empty": b""}.items():
        client.create(world.path("members", name), data)
    client.create(world.path("election", "unnumbered"), b"")
    client.create(world.path("members", "newer"), b'{"id":"newer","role":"viewserver","zone":"b"}')
    one.join(member("a"))
    assert one.members() == [member("a"), member("newer")]
    ear, elected = Ear(), Ear()
    one.on_members(ear)
    ear.wait_last([member("a"), member("newer")])
    one.campaign("a", elected)
    elected.wait_last(True)
