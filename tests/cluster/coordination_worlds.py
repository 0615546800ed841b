"""The two implementations of `Coordination` behind one set of switches, so that one suite runs on both."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from kazoo.client import KazooClient

from belvedere.cluster.coordination.memory import MemoryCoordination, MemoryZooKeeper
from belvedere.cluster.coordination.seam import Coordination, SessionState, Versioned, encode_member
from belvedere.cluster.coordination.zookeeper import ZooKeeperCoordination, ZooKeeperCredentials
from belvedere.local.zookeeper import LocalZooKeeper
from belvedere.protocol.messages import Member, Role
from belvedere.protocol.ring import MemberId
from tests.cluster.zookeeper_server import Proxy

SESSION_TIMEOUT = 2.0


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, what: Any) -> None:
        with self._changed:
            self.heard.append(what)
            self._changed.notify_all()

    def wait(self, condition: Callable[[list[Any]], bool], timeout: float = 20.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.heard), timeout), f"heard only {self.heard}"

    def wait_last(self, what: Any, timeout: float = 20.0) -> None:
        self.wait(lambda heard: bool(heard) and heard[-1] == what, timeout)


def member(name: str, **fields: Any) -> Member:
    return Member(MemberId(name), fields.pop("role", Role.VIEWSERVER), **fields)


def ids(members: list[Member]) -> list[str]:
    return [each.id for each in members]


class World(Protocol):
    def make(self, pool: str = "pool") -> Coordination:
        """Not started."""

    def connect(self, pool: str = "pool") -> Coordination: ...

    def suspend(self, who: Coordination) -> None: ...

    def resume(self, who: Coordination) -> None: ...

    def expire(self, who: Coordination) -> None:
        """The server ends the session; the member learns of it at once."""

    def write_unknown(self, who: Coordination, *, happened: bool) -> None: ...

    def populate(self, count: int, pool: str = "pool") -> Callable[[str], None]:
        """That many members `m0000`... of other processes; the result removes one."""

    def close(self) -> None: ...


class MemoryWorld:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper()
        self._made: list[MemoryCoordination] = []

    def make(self, pool: str = "pool") -> MemoryCoordination:
        self._made.append(self.zookeeper.connect(pool))
        return self._made[-1]

    def connect(self, pool: str = "pool") -> MemoryCoordination:
        made = self.make(pool)
        made.start(5.0)
        return made

    def suspend(self, who: Coordination) -> None:
        assert isinstance(who, MemoryCoordination)
        self.zookeeper.suspend(who)

    def resume(self, who: Coordination) -> None:
        assert isinstance(who, MemoryCoordination)
        self.zookeeper.resume(who)

    def expire(self, who: Coordination) -> None:
        assert isinstance(who, MemoryCoordination)
        self.zookeeper.expire(who)

    def write_unknown(self, who: Coordination, *, happened: bool) -> None:
        assert isinstance(who, MemoryCoordination)
        self.zookeeper.next_swap_unknown(who, happened=happened)

    def populate(self, count: int, pool: str = "pool") -> Callable[[str], None]:
        others = {f"m{number:04}": self.connect(pool) for number in range(count)}
        for name, other in others.items():
            other.join(member(name))
        return lambda name: others[name].leave()

    def close(self) -> None:
        for each in self._made:
            each.close()


class ZooKeeperWorld:
    """Pools of the same name in different worlds are apart: each world has a path of its own."""

    def __init__(self, server: LocalZooKeeper) -> None:
        self.server = server
        self.prefix = f"/test-{uuid.uuid4().hex}"
        self._proxies: dict[Coordination, list[Proxy]] = {}
        self._raw: list[KazooClient] = []

    def make(
        self,
        pool: str = "pool",
        *,
        credentials: ZooKeeperCredentials | None = None,
        session_timeout: float = SESSION_TIMEOUT,
    ) -> ZooKeeperCoordination:
        return self.make_with_servers(1, pool, credentials=credentials, session_timeout=session_timeout)[0]

    def make_with_servers(
        self,
        count: int,
        pool: str = "pool",
        *,
        credentials: ZooKeeperCredentials | None = None,
        session_timeout: float = SESSION_TIMEOUT,
    ) -> tuple[ZooKeeperCoordination, list[Proxy]]:
        """With several addresses to choose from, each a proxy of its own."""
        proxies = [Proxy(self.server.port) for _ in range(count)]
        hosts = ",".join(proxy.hosts for proxy in proxies)
        made = ZooKeeperCoordination(
            hosts + self.prefix, pool, session_timeout=session_timeout, credentials=credentials
        )
        self._proxies[made] = proxies
        return made, proxies

    def connect(self, pool: str = "pool", **options: Any) -> ZooKeeperCoordination:
        made = self.make(pool, **options)
        made.start(15.0)
        return made

    def proxy(self, who: Coordination) -> Proxy:
        return self._proxies[who][0]

    def raw(self, credentials: ZooKeeperCredentials | None = None) -> KazooClient:
        """To look behind the scenes."""
        digest = [("digest", f"{credentials.user}:{credentials.password}")] if credentials else None
        client = KazooClient(self.server.hosts, timeout=10.0, auth_data=digest)
        self._raw.append(client)
        client.start(15)
        return client

    def path(self, *parts: str, pool: str = "pool") -> str:
        return "/".join([self.prefix, "belvedere", pool, *parts])

    def suspend(self, who: Coordination) -> None:
        self.proxy(who).cut()

    def resume(self, who: Coordination) -> None:
        self.proxy(who).mend()

    def expire(self, who: Coordination) -> None:
        """A second client takes the session over and ends it."""
        assert isinstance(who, ZooKeeperCoordination)
        identity = who.session_identity()
        assert identity is not None
        thief = KazooClient(self.server.hosts, timeout=10.0, client_id=identity)
        self._raw.append(thief)
        thief.start(15)
        thief.stop()

    def write_unknown(self, who: Coordination, *, happened: bool) -> None:
        self.proxy(who).lose_next(b"/record", happened=happened)

    def populate(self, count: int, pool: str = "pool") -> Callable[[str], None]:
        client = self.raw()
        path = self.path("members", pool=pool)
        client.ensure_path(path)
        for first in range(0, count, 100):
            names = [f"m{number:04}" for number in range(first, min(first + 100, count))]
            begun = [client.create_async(f"{path}/{n}", encode_member(member(n)), ephemeral=True) for n in names]
            for each in begun:
                each.get(timeout=10)
        return lambda name: client.delete(f"{path}/{name}")

    def close(self) -> None:
        """All of it, whatever fails: a client that stays open tries to connect for as long as the process lives."""
        with contextlib.ExitStack() as last_to_first:
            for proxy in itertools.chain.from_iterable(self._proxies.values()):
                last_to_first.callback(proxy.close)
            for client in self._raw:
                last_to_first.callback(client.close)
                last_to_first.callback(client.stop)
            for made in self._proxies:
                last_to_first.callback(made.close)

    def __enter__(self) -> ZooKeeperWorld:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_for_session(who: Coordination, state: SessionState, timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while who.session is not state:
        assert time.monotonic() < deadline, f"the session is {who.session}, not {state}"
        time.sleep(0.005)


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
