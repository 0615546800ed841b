"""`Coordination` by sessions at a ZooKeeper: the present `ZooKeeperLink`, and the threads that keep up with it.

*Whether the session lives* is decided by `Lease` from what was answered when. When it runs out the connection is broken
on purpose, so that another server is looked for while the session may still live.

*Threads.* The client's own threads only note what happened. `heart` keeps time: heartbeats, the lease. `worker` makes
what is there equal to what is wanted (session set up, members known, candidacy in place), again after every failure, so
no watch and no answer that gets lost loses more than time. The notifier calls the listeners.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from belvedere.cluster.coordination.clock import now
from belvedere.cluster.coordination.election import Election
from belvedere.cluster.coordination.lease import HEARTBEAT
from belvedere.cluster.coordination.listeners import Notifier
from belvedere.cluster.coordination.members import MembersView
from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import (
    GRACE,
    BadVersion,
    CreateNode,
    DeleteNode,
    Get,
    MakeLink,
    NodeExists,
    NoNode,
    Set,
    Sync,
    ZooKeeperLink,
)
from belvedere.cluster.coordination.seam import (
    SessionState,
    Versioned,
    check_name,
    check_size,
    encode_member,
    name_is_spent,
    name_is_taken,
)
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.protocol.messages import Member
from belvedere.protocol.ring import MemberId

log = logging.getLogger(__name__)

_Told = TypeVar("_Told")


class SessionCoordination:
    def __init__(self, nodes: PoolNodes, session_timeout: float, make_link: MakeLink) -> None:
        check_name("pool", nodes.pool)
        self._nodes = nodes
        self._timeout = session_timeout
        self._make_link = make_link

        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._closing = threading.Event()
        """Of this start: one that failed leaves threads that end when they notice."""
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._link: ZooKeeperLink | None = None
        self._refused: Incompatible | None = None
        self._state: SessionState | None = None
        self._notifier: Notifier | None = None
        self._session_listeners: list[Callable[[SessionState], None]] = []

        self._joined: MemberId | None = None
        self._spent: set[MemberId] = set()

        self._members = MembersView(self._nodes, self._lock, self._wake, self._tell)
        self._election = Election(self._nodes, self._lock, self._wake, self._tell)

    # --- session

    def start(self, timeout: float) -> None:
        with self._lock:
            if self._link is not None or self._closed:
                raise CoordinationUnavailable("start was called before on this connection to ZooKeeper: make another")
            self._refused = None
            self._closing = closing = threading.Event()
            self._notifier = Notifier("belvedere-zookeeper-listeners")
            link = self._link = self._make_link(self._lock, self._heed)
            link.open()
        for name, work in (("worker", self._work), ("heart", self._keep_time)):
            thread = threading.Thread(target=work, args=(closing,), name=f"belvedere-zookeeper-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        with self._progress:
            self._progress.wait_for(lambda: self._state is not None or self._refused is not None, timeout)
            if self._state is not None:
                return
            refused, problem = self._refused, link.problem
        self._shut_down()
        if refused is not None:
            raise refused
        raise CoordinationUnavailable(f"ZooKeeper {self._nodes.hosts} did not answer within {timeout:g} s: {problem}")

    @property
    def session(self) -> SessionState:
        return SessionState.SUSPENDED if self._state is None else self._state

    def lease_valid(self) -> bool:
        link = self._link
        return link is not None and self._state is SessionState.CONNECTED and link.lease.valid(now())

    def session_identity(self) -> tuple[int, bytes] | None:
        """Number and password of the present session, by which ZooKeeper's own tools know it."""
        link = self._link
        return None if link is None else link.identity

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        with self._lock:
            self._session_listeners.append(listener)
            if self._state is not None:
                self._tell(listener, self._state)

    def close(self) -> None:
        self._closed = True
        self._shut_down()

    def _shut_down(self) -> None:
        with self._lock:
            link, self._link = self._link, None
            notifier, self._notifier = self._notifier, None
            self._state = None
            self._closing.set()
            self._wake.set()
        if link is not None:
            link.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=GRACE)
        if notifier is not None:
            notifier.close()

    # --- members

    def join(self, member: Member) -> None:
        check_name("member", member.id)
        with self._lock:
            link = self._connected_link()
            if member.id in self._spent:
                raise name_is_spent(member.id)
            if self._joined not in (None, member.id):
                raise ValueError(f"this connection is member {self._joined!r} and cannot be {member.id!r} as well")
            # Before it is known to have happened: should the session end now, the name is spent.
            self._joined = member.id
        path, data = f"{self._nodes.members}/{member.id}", encode_member(member)
        try:
            self._nodes.create_ephemeral(link, path, data)
        except NodeExists:
            self._replace_member(link, member.id, path, data)

    def _replace_member(self, link: ZooKeeperLink, member: MemberId, path: str, data: bytes) -> None:
        try:
            _, found = link.ask(Get(path))
            identity = link.identity
            if identity is None:
                raise CoordinationUnavailable(f"the connection to ZooKeeper {self._nodes.hosts} broke")
            if found.owner != identity[0]:
                with self._lock:
                    self._joined = None
                raise name_is_taken(member, self._nodes.pool)
            link.ask(Set(path, data))
        except NoNode:
            raise CoordinationUnavailable(f"member {member!r} went away while it joined: join again") from None

    def leave(self) -> None:
        link = self._connected_link()
        with self._lock:
            member = self._joined
        if member is None:
            return
        with contextlib.suppress(NoNode):
            link.ask(DeleteNode(f"{self._nodes.members}/{member}"))
        with self._lock:
            self._spend_name()

    def members(self) -> list[Member]:
        return self._members.read(self._connected_link())

    def on_members(self, listener: Callable[[list[Member]], None]) -> None:
        self._members.listen(listener)

    # --- election

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        check_name("candidate", candidate)
        with self._lock:
            self._connected_link()
            self._election.campaign(candidate, elected)

    def resign(self) -> None:
        self._election.resign()

    # --- the record

    def read(self) -> Versioned | None:
        link, path = self._connected_link(), self._nodes.record
        # Another server of the ensemble may be behind; what was written before must be seen.
        _, answer = link.ask_all([Sync(path), Get(path)])
        if isinstance(answer, NoNode):
            return None
        data, found = answer
        return Versioned(data, found.version, found.mtime)

    def create(self, data: bytes) -> Versioned | None:
        check_size(self._nodes.pool, data)
        link, path = self._connected_link(), self._nodes.record
        try:
            made = link.ask(CreateNode(path, bytes(data)))
        except NodeExists:
            return None
        return Versioned(bytes(data), made.version, made.mtime)

    def swap(self, data: bytes, version: int) -> Versioned | None:
        check_size(self._nodes.pool, data)
        if version < 0:  # to ZooKeeper that is "any version"
            return None
        link, path = self._connected_link(), self._nodes.record
        try:
            written = link.ask(Set(path, bytes(data), version))
        except (NoNode, BadVersion):
            return None
        return Versioned(bytes(data), written.version, written.mtime)

    def clock(self) -> int:
        link = self._connected_link()
        try:
            return int(link.ask(Set(self._nodes.own(link), b"")).mtime)
        except NoNode:
            raise CoordinationUnavailable(f"the session at ZooKeeper {self._nodes.hosts} ended") from None

    # --- what happens (with the lock held)

    def _heed(self, link: ZooKeeperLink, state: SessionState | None) -> None:
        """What `ZooKeeperLink` announces. Without a state: there is a connection."""
        if link is not self._link:
            return
        if state is None:
            if not link.ready or link.lost:
                self._wake.set()
            return
        self._state = state
        for listener in self._session_listeners:
            self._tell(listener, state)
        if state is SessionState.CONNECTED:
            # Watches are forgotten when a connection breaks: look at everything again.
            self._members.forget()
            self._election.look_again()
        elif state is SessionState.LOST:
            self._election.session_ended()
            self._spend_name()
        self._wake.set()
        self._progress.notify_all()

    def _spend_name(self) -> None:
        if self._joined is not None:
            self._spent.add(self._joined)
            self._joined = None

    def _tell(self, listener: Callable[[_Told], None], value: _Told) -> None:
        if self._notifier is not None:
            self._notifier.post(lambda: listener(value))

    # --- heart

    def _keep_time(self, closing: threading.Event) -> None:
        last_beat = 0.0
        interval = 0.0
        while not closing.wait(interval):
            with self._lock:
                link = self._link
                if link is None or closing.is_set():
                    return
                # The server may have granted much less time than was asked for, and tells with the first connection.
                interval = min(link.lease.timeout / 16, 0.1)
                time = now()
                change = link.lease.tick(time)
                if change is not None:
                    self._heed(link, change)
            if change is SessionState.SUSPENDED:
                link.drop()
            if time - last_beat >= HEARTBEAT * link.lease.timeout or link.lease.state is SessionState.SUSPENDED:
                last_beat = time
                link.heartbeat(self._nodes.own(link))

    # --- worker

    def _work(self, closing: threading.Event) -> None:
        while not closing.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                if not closing.is_set():
                    self._reconcile()
                continue
            except Incompatible as problem:
                with self._progress:
                    self._refused = problem
                    self._progress.notify_all()
            except CoordinationUnavailable as problem:
                with self._lock:
                    if self._link is not None:
                        self._link.problem = str(problem)
            except Exception:
                log.exception("pool %r: what is in ZooKeeper could not be brought up to date", self._nodes.pool)
            closing.wait(self._timeout / 8)
            self._wake.set()

    def _reconcile(self) -> None:
        link = self._living_link()
        if link is None or link.identity is None:
            return
        if not link.ready:
            self._set_up(link)
        if self._state is SessionState.CONNECTED:
            self._members.bring_up_to_date(link)
            self._election.bring_up_to_date(link)

    def _set_up(self, link: ZooKeeperLink) -> None:
        if not self._nodes.set_up(link):
            return
        with self._lock:
            link.ready = True
            change = link.lease.opened(now())
            if change is not None:
                self._heed(link, change)

    def _living_link(self) -> ZooKeeperLink | None:
        """None: there is none yet, and its connection will wake the worker."""
        with self._lock:
            link = self._link
            if link is None or not link.lost:
                return link
            self._link = self._make_link(self._lock, self._heed)
            self._link.open()
        # In the background: its server may need to be waited for, and nothing of it is of interest any more.
        threading.Thread(target=link.stop, name="belvedere-zookeeper-lost", daemon=True).start()
        self._closing.wait(self._timeout / 16)  # sessions that end as soon as they begin must not keep a core busy
        return None

    def _connected_link(self) -> ZooKeeperLink:
        with self._lock:
            if self._closed:
                raise CoordinationUnavailable(f"the connection to ZooKeeper {self._nodes.hosts} was closed")
            if self._link is None or self._link.lost or self._state is not SessionState.CONNECTED:
                raise CoordinationUnavailable(
                    f"ZooKeeper {self._nodes.hosts} is not connected: the session is {self.session.value}"
                )
            return self._link
