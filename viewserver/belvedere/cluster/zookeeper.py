"""`Coordination` on a real ZooKeeper, with kazoo. This is the only module that knows kazoo.

    /belvedere/<pool>/members/<id>       ephemeral: a member, as JSON
                      election/<guid>-N  ephemeral, sequential: a candidate
                      clocks/<guid>      ephemeral: one for each session, written to learn the server's time
                      record             the pool's record, changed by compare-and-set

*One kazoo client, one session.* kazoo opens a new session by itself when one has expired, and would go on with what it
was asked to do, under the old name. So a client is given up with its session (`_Link`), and whatever makes an ephemeral
node does it in a transaction that checks the node in `clocks`, which is gone when the session is.

*Whether the session lives* is decided by `Lease` from what was answered when. kazoo alone would not notice that a
server has stopped answering as long as it is asked often enough (it counts a request as a ping and waits for no
answer), so the socket is shut when the lease runs out, and kazoo looks for another server.

*Threads.* kazoo's own threads only note what happened. `heart` keeps time: heartbeats, the lease. `worker` makes what
is there equal to what is wanted (session set up, members known, candidacy in place), again after every failure, so no
watch and no answer that gets lost loses more than time. The notifier calls the listeners.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions, make_acl

from belvedere.cluster.coordination import (
    Session,
    Versioned,
    check_name,
    check_size,
    decode_member,
    encode_member,
    name_is_spent,
    name_is_taken,
)
from belvedere.cluster.lease import HEARTBEAT, Lease
from belvedere.cluster.listeners import Notifier
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.protocol.messages import Member
from belvedere.protocol.ring import MemberId

log = logging.getLogger(__name__)

_Told = TypeVar("_Told")
Request = Callable[[KazooClient], Any]
"""Begins something with kazoo and returns its result to come."""

ROOT = "belvedere"
_NO_ANSWER = (
    ConnectionLoss,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionExpiredError,  # ConnectionClosedError is one of them
    SessionMovedError,
    AuthFailedError,
)
_IN_FLIGHT = 100
"""Requests that are sent without waiting: kazoo's queue has a wake-up pipe that is not meant to be filled."""
_GRACE = 1.0
"""Seconds that a server has to answer to the end of a session before the socket is shut."""


def _now() -> float:
    """Seconds; the clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class Credentials:
    """Digest authentication. Everything in the pool belongs to who has them; `world_read` lets others look."""

    user: str
    password: str = field(repr=False)
    world_read: bool = False

    def __post_init__(self) -> None:
        if not self.user or ":" in self.user:
            raise ValueError(f"the ZooKeeper user {self.user!r} must not be empty or contain ':'")


class _Link:
    """One kazoo client with one session. `lock` is the coordination's; `announce` is called with it held."""

    def __init__(
        self,
        hosts: str,
        timeout: float,
        credentials: Credentials | None,
        lock: threading.RLock,
        announce: Callable[[_Link, Session | None], None],
    ) -> None:
        self.lease = Lease(timeout)
        self.key = uuid.uuid4().hex
        self.ready = False
        """The session's own node is there."""
        self.session_id = 0
        self.problem = "no server accepted a connection"
        self._hosts = hosts
        self._timeout = timeout
        self._lock = lock
        self._announce = announce
        self._socket: socket.socket | None = None
        handler = SequentialThreadingHandler()
        self._create_connection = handler.create_connection
        handler.create_connection = self._connect
        self.client = KazooClient(
            hosts=hosts,
            timeout=timeout,
            handler=handler,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": timeout / 8},
            auth_data=[("digest", f"{credentials.user}:{credentials.password}")] if credentials else None,
        )
        self.client.add_listener(self._changed)
        # kazoo keeps the timeout that the server granted to itself: two thirds of it is what this returns.
        connection = self.client._connection
        kazoo_connect = connection._connect

        def connect(*arguments: Any) -> Any:
            read_timeout, connect_timeout = kazoo_connect(*arguments)
            with self._lock:
                self.lease.negotiated(read_timeout * 1.5 / 1000)
            return read_timeout, connect_timeout

        connection._connect = connect

    @property
    def lost(self) -> bool:
        return self.lease.state is Session.LOST

    def open(self) -> None:
        self.client.start_async()

    def heartbeat(self, path: str) -> None:
        if self.client.connected:
            self.client.exists_async(path).rawlink(partial(self._heard, _now()))

    def ask(self, request: Request) -> Any:
        """Raises kazoo's `NoNodeError`, `NodeExistsError`, `BadVersionError`; `Incompatible` for what is not allowed;
        `CoordinationUnavailable` for everything whose outcome is not known."""
        (answer,) = self.ask_all([request])
        if isinstance(answer, ZookeeperError):
            raise answer
        return answer

    def ask_all(self, requests: Iterable[Request]) -> list[Any]:
        """Several at once; what a node answers with an error is in the list as that error."""
        answers: list[Any] = []
        waiting = list(requests)
        for first in range(0, len(waiting), _IN_FLIGHT):
            sent = _now()
            begun = [request(self.client) for request in waiting[first : first + _IN_FLIGHT]]
            answers.extend(self._await(result) for result in begun)
            with self._lock:
                self._announce(self, self.lease.answered(sent, _now()))
                if self.lost:
                    raise CoordinationUnavailable(f"the session at ZooKeeper {self._hosts} ended")
        return answers

    def _await(self, result: Any) -> Any:
        try:
            return result.get(timeout=self._timeout)
        except (NoNodeError, NodeExistsError, BadVersionError) as answer:
            return answer
        except NoAuthError:
            raise Incompatible(f"ZooKeeper {self._hosts} does not allow this with the given credentials") from None
        except KazooTimeoutError:
            raise CoordinationUnavailable(
                f"ZooKeeper {self._hosts} did not answer within {self._timeout:g} s"
            ) from None
        except KazooException as problem:
            raise CoordinationUnavailable(f"ZooKeeper {self._hosts}: {_describe(problem)}") from problem

    def drop(self) -> None:
        """Shut the socket: kazoo sees a broken connection and looks for a server, in the same session."""
        current = self._socket
        if current is not None:
            with contextlib.suppress(OSError):
                current.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End the session if the server can still be told; give up after a moment if not."""
        impatience = threading.Timer(_GRACE, self.drop)
        impatience.daemon = True
        impatience.start()
        try:
            self.client.stop()
            self.client.close()
        except (KazooException, OSError, AttributeError) as problem:  # kazoo, when it was never connected
            log.debug("closing a connection to ZooKeeper: %s", problem)
        finally:
            impatience.cancel()

    def _connect(self, *arguments: Any, **options: Any) -> Any:
        # A host that does not answer at all must leave time to try another before the session ends.
        options["timeout"] = min(options.get("timeout") or self._timeout, self._timeout / 3)
        try:
            self._socket = self._create_connection(*arguments, **options)
        except (OSError, KazooTimeoutError) as problem:
            self.problem = f"no server accepted a connection ({problem})"
            raise
        self.problem = "a server accepted the connection and opened no session"
        return self._socket

    def _changed(self, state: str) -> None:
        """kazoo's listener: on its connection thread."""
        with self._lock:
            if state == KazooState.CONNECTED:
                self.lease.connected(_now())
                self._announce(self, None)
            elif state == KazooState.SUSPENDED:
                self._announce(self, self.lease.disconnected(_now()))
            else:
                if self.client.client_state == "AUTH_FAILED":
                    self.problem = "the server refused the authentication"
                self._announce(self, self.lease.expired())

    def _heard(self, sent: float, result: Any) -> None:
        problem = result.exception
        if problem is None or (isinstance(problem, ZookeeperError) and not isinstance(problem, _NO_ANSWER)):
            with self._lock:
                self._announce(self, self.lease.answered(sent, _now()))


@dataclass
class _Candidacy:
    candidate: str
    listener: Callable[[bool], None]
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Begins the name of its node, so that it is found again when the answer to its creation was lost."""
    elected: bool = False


class ZooKeeperCoordination:
    """`hosts`: `host:port,host:port`, optionally followed by a path below which everything is kept."""

    def __init__(
        self,
        hosts: str,
        pool: str,
        *,
        session_timeout: float = 4.0,
        credentials: Credentials | None = None,
    ) -> None:
        check_name("pool", pool)
        self._pool = pool
        self._hosts, _, prefix = hosts.partition("/")
        self._above = [part for part in prefix.split("/") if part]
        self._path = "/" + "/".join([*self._above, ROOT, pool])
        self._timeout = session_timeout
        self._credentials = credentials

        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._wake = threading.Event()
        self._closing = threading.Event()
        """Of this start: one that failed leaves threads that end when they notice."""
        self._closed = False
        self._threads: list[threading.Thread] = []
        self._link: _Link | None = None
        self._refused: Incompatible | None = None
        self._state: Session | None = None
        self._notifier: Notifier | None = None
        self._session_listeners: list[Callable[[Session], None]] = []

        self._joined: MemberId | None = None
        self._spent: set[MemberId] = set()

        self._member_listeners: list[Callable[[list[Member]], None]] = []
        self._told: list[Member] | None = None
        self._entries: dict[str, bytes] = {}
        self._children_stale = True
        self._stale_entries: set[str] = set()

        self._candidacy: _Candidacy | None = None
        self._given_up: list[str] = []
        """Keys of candidacies whose nodes are still to be removed."""
        self._election_stale = False

    # --- session

    def start(self, timeout: float) -> None:
        with self._lock:
            if self._link is not None or self._closed:
                raise CoordinationUnavailable("start was called before on this connection to ZooKeeper: make another")
            self._refused = None
            self._closing = closing = threading.Event()
            self._notifier = Notifier("belvedere-zookeeper-listeners")
            self._link = self._new_link()
        self._link.open()
        for name, work in (("worker", self._work), ("heart", self._keep_time)):
            thread = threading.Thread(target=work, args=(closing,), name=f"belvedere-zookeeper-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()
        with self._progress:
            self._progress.wait_for(lambda: self._state is not None or self._refused is not None, timeout)
            if self._state is not None:
                return
            refused, problem = self._refused, self._link.problem
        self._shut_down()
        if refused is not None:
            raise refused
        raise CoordinationUnavailable(f"ZooKeeper {self._hosts} did not answer within {timeout:g} s: {problem}")

    @property
    def session(self) -> Session:
        return Session.SUSPENDED if self._state is None else self._state

    def lease_valid(self) -> bool:
        link = self._link
        return link is not None and self._state is Session.CONNECTED and link.lease.valid(_now())

    def session_identity(self) -> tuple[int, bytes] | None:
        """Number and password of the present session, by which ZooKeeper's own tools know it."""
        link = self._link
        return None if link is None else link.client.client_id

    def on_session(self, listener: Callable[[Session], None]) -> None:
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
                thread.join(timeout=_GRACE)
        if notifier is not None:
            notifier.close()

    # --- members

    def join(self, member: Member) -> None:
        check_name("member", member.id)
        link = self._connected_link()
        with self._lock:
            if member.id in self._spent:
                raise name_is_spent(member.id)
            if self._joined not in (None, member.id):
                raise ValueError(f"this connection is member {self._joined!r} and cannot be {member.id!r} as well")
            # Before it is known to have happened: should the session end now, the name is spent.
            self._joined = member.id
        path, data = f"{self._path}/members/{member.id}", encode_member(member)
        try:
            self._create_ephemeral(link, path, data)
        except NodeExistsError:
            self._replace_member(link, member.id, path, data)

    def _replace_member(self, link: _Link, member: MemberId, path: str, data: bytes) -> None:
        try:
            _, found = link.ask(lambda client: client.get_async(path))
            if found.ephemeralOwner != link.session_id:
                with self._lock:
                    self._joined = None
                raise name_is_taken(member, self._pool)
            link.ask(lambda client: client.set_async(path, data))
        except NoNodeError:
            raise CoordinationUnavailable(f"member {member!r} went away while it joined: join again") from None

    def leave(self) -> None:
        link = self._connected_link()
        with self._lock:
            member = self._joined
        if member is None:
            return
        with contextlib.suppress(NoNodeError):
            link.ask(lambda client: client.delete_async(f"{self._path}/members/{member}"))
        with self._lock:
            self._spend_name()

    def members(self) -> list[Member]:
        link = self._connected_link()
        path = f"{self._path}/members"
        link.ask(lambda client: client.sync_async(path))
        names = link.ask(lambda client: client.get_children_async(path))
        return _decode_all(self._read_entries(link, names, watch=None))

    def on_members(self, listener: Callable[[list[Member]], None]) -> None:
        with self._lock:
            self._member_listeners.append(listener)
            if self._told is not None:
                self._tell(listener, list(self._told))
            self._wake.set()

    # --- election

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        check_name("candidate", candidate)
        self._connected_link()
        with self._lock:
            if self._candidacy is not None:
                raise ValueError(f"{candidate!r} cannot campaign: this connection takes part in the election already")
            self._candidacy = _Candidacy(candidate, elected)
            self._election_stale = True
            self._wake.set()

    def resign(self) -> None:
        with self._lock:
            if self._candidacy is not None:
                self._given_up.append(self._candidacy.key)
                self._end_candidacy()
                self._election_stale = True
                self._wake.set()

    # --- the record

    def read(self) -> Versioned | None:
        link, path = self._connected_link(), f"{self._path}/record"
        # Another server of the ensemble may be behind; what was written before must be seen.
        _, answer = link.ask_all([lambda client: client.sync_async(path), lambda client: client.get_async(path)])
        if isinstance(answer, NoNodeError):
            return None
        data, found = answer
        return Versioned(data, found.version, found.mtime)

    def create(self, data: bytes) -> Versioned | None:
        check_size(self._pool, data)
        link, path = self._connected_link(), f"{self._path}/record"
        try:
            _, made = link.ask(
                lambda client: client.create_async(path, bytes(data), acl=self._access(), include_data=True)
            )
        except NodeExistsError:
            return None
        return Versioned(bytes(data), made.version, made.mtime)

    def swap(self, data: bytes, version: int) -> Versioned | None:
        check_size(self._pool, data)
        if version < 0:  # to ZooKeeper that is "any version"
            return None
        link, path = self._connected_link(), f"{self._path}/record"
        try:
            written = link.ask(lambda client: client.set_async(path, bytes(data), version=version))
        except (NoNodeError, BadVersionError):
            return None
        return Versioned(bytes(data), written.version, written.mtime)

    def clock(self) -> int:
        link = self._connected_link()
        try:
            return int(link.ask(lambda client: client.set_async(self._own_node(link), b"")).mtime)
        except NoNodeError:
            raise CoordinationUnavailable(f"the session at ZooKeeper {self._hosts} ended") from None

    # --- what happens (with the lock held)

    def _heed(self, link: _Link, state: Session | None) -> None:
        """What `_Link` announces. Without a state: there is a connection."""
        if link is not self._link:
            return
        if state is None:
            if not link.ready or link.lost:
                self._wake.set()
            return
        self._state = state
        for listener in self._session_listeners:
            self._tell(listener, state)
        if state is Session.CONNECTED:
            # kazoo forgets its watches when a connection breaks: look at everything again.
            self._forget_members()
            self._election_stale = True
        elif state is Session.LOST:
            self._end_candidacy()
            self._given_up.clear()
            self._spend_name()
        self._wake.set()
        self._progress.notify_all()

    def _spend_name(self) -> None:
        if self._joined is not None:
            self._spent.add(self._joined)
            self._joined = None

    def _end_candidacy(self) -> None:
        ended, self._candidacy = self._candidacy, None
        if ended is not None and ended.elected:
            self._tell(ended.listener, False)

    def _forget_members(self) -> None:
        self._entries = {}
        self._stale_entries = set()
        self._children_stale = True

    def _tell(self, listener: Callable[[_Told], None], value: _Told) -> None:
        if self._notifier is not None:
            self._notifier.post(lambda: listener(value))

    # --- heart

    def _keep_time(self, closing: threading.Event) -> None:
        last_beat = 0.0
        while not closing.wait(self._timeout / 16):
            with self._lock:
                link = self._link
                if link is None or closing.is_set():
                    return
                now = _now()
                change = link.lease.tick(now)
                if change is not None:
                    self._heed(link, change)
            if change is Session.SUSPENDED:
                link.drop()
            if now - last_beat >= HEARTBEAT * link.lease.timeout or link.lease.state is Session.SUSPENDED:
                last_beat = now
                link.heartbeat(self._own_node(link))

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
                log.exception("pool %r: what is in ZooKeeper could not be brought up to date", self._pool)
            closing.wait(self._timeout / 8)
            self._wake.set()

    def _reconcile(self) -> None:
        link = self._living_link()
        if link is None or not link.client.connected:
            return
        if not link.ready:
            self._set_up(link)
        if self._state is Session.CONNECTED:
            self._bring_members_up_to_date(link)
            self._bring_election_up_to_date(link)

    def _living_link(self) -> _Link | None:
        with self._lock:
            link = self._link
            if link is None or not link.lost:
                return link
            fresh = self._link = self._new_link()
        # In the background: its server may need to be waited for, and nothing of it is of interest any more.
        threading.Thread(target=link.stop, name="belvedere-zookeeper-lost", daemon=True).start()
        self._closing.wait(self._timeout / 16)
        fresh.open()
        return fresh

    def _new_link(self) -> _Link:
        return _Link(self._hosts, self._timeout, self._credentials, self._lock, self._heed)

    def _connected_link(self) -> _Link:
        with self._lock:
            if self._closed:
                raise CoordinationUnavailable(f"the connection to ZooKeeper {self._hosts} was closed")
            if self._link is None or self._link.lost or self._state is not Session.CONNECTED:
                raise CoordinationUnavailable(
                    f"ZooKeeper {self._hosts} is not connected: the session is {self.session.value}"
                )
            return self._link

    # --- worker: a new session

    def _set_up(self, link: _Link) -> None:
        identity = link.client.client_id
        if identity is None:
            return
        link.session_id = identity[0]
        try:
            self._make_paths(link)
            self._check_owner(link)
            with contextlib.suppress(NodeExistsError):  # the answer to the first try was lost
                link.ask(lambda client: client.create_async(self._own_node(link), acl=self._access(), ephemeral=True))
        except Incompatible:
            raise self._not_ours() from None
        with self._lock:
            link.ready = True
            change = link.lease.opened(_now())
            if change is not None:
                self._heed(link, change)

    def _make_paths(self, link: _Link) -> None:
        path = ""
        for part in self._above:
            path += f"/{part}"
            self._make(link, path, OPEN_ACL_UNSAFE)
        everyone_makes_pools = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]
        self._make(link, f"{path}/{ROOT}", everyone_makes_pools if self._credentials else OPEN_ACL_UNSAFE)
        self._make(link, self._path, self._access())
        for part in ("members", "election", "clocks"):
            self._make(link, f"{self._path}/{part}", self._access())

    def _make(self, link: _Link, path: str, access: list[ACL]) -> None:
        # Looked for first: one may be allowed to use what one is not allowed to make.
        if link.ask(lambda client: client.exists_async(path)) is None:
            with contextlib.suppress(NodeExistsError):
                link.ask(lambda client: client.create_async(path, acl=access))

    def _check_owner(self, link: _Link) -> None:
        """With credentials, a pool that anyone may change is not good enough."""
        if self._credentials is None:
            return
        access, _ = link.ask(lambda client: client.get_acls_async(self._path))
        if any(entry.id.scheme == "world" and entry.perms & ~Permissions.READ for entry in access):
            raise self._not_ours()

    def _not_ours(self) -> Incompatible:
        made = "other credentials, or none" if self._credentials else "credentials, and none are given here"
        return Incompatible(
            f"pool {self._pool!r} in ZooKeeper {self._hosts} ({self._path}) belongs to others: "
            f"it was made with {made}; use the credentials of the pool, or give this pool another name"
        )

    def _access(self) -> list[ACL]:
        if self._credentials is None:
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if self._credentials.world_read else [])]

    def _own_node(self, link: _Link) -> str:
        return f"{self._path}/clocks/{link.key}"

    def _create_ephemeral(self, link: _Link, path: str, data: bytes, *, sequence: bool = False) -> None:
        """In this link's session or not at all."""

        def create(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.check(self._own_node(link), -1)
            transaction.create(path, data, acl=self._access(), ephemeral=True, sequence=sequence)
            return transaction.commit_async()

        checked, created = link.ask(create)
        if isinstance(checked, NoNodeError):
            raise CoordinationUnavailable(f"the session at ZooKeeper {self._hosts} ended")
        if isinstance(created, NoAuthError):
            raise self._not_ours()
        if isinstance(created, NodeExistsError):
            raise created
        if isinstance(created, Exception):
            raise CoordinationUnavailable(f"ZooKeeper {self._hosts}: {_describe(created)}")

    # --- worker: members

    def _bring_members_up_to_date(self, link: _Link) -> None:
        with self._lock:
            if not self._member_listeners or not (self._children_stale or self._stale_entries):
                return
            list_again, self._children_stale = self._children_stale, False
            stale, self._stale_entries = self._stale_entries, set()
            known = self._entries
        path = f"{self._path}/members"
        try:
            names = list(known)
            if list_again:
                names = link.ask(lambda client: client.get_children_async(path, watch=self._children_changed))
            unknown = [name for name in names if name in stale or name not in known]
            found = self._read_entries(link, unknown, watch=self._entry_changed)
        except BaseException:
            with self._lock:
                self._forget_members()
            raise
        with self._lock:
            if link is not self._link or known is not self._entries:  # disconnected meanwhile: once more, from scratch
                return
            kept = {name: known[name] for name in names if name in known and name not in unknown}
            self._entries = kept | found
            listing = _decode_all(self._entries)
            if listing != self._told:
                self._told = listing
                for listener in self._member_listeners:
                    self._tell(listener, list(listing))

    def _read_entries(
        self, link: _Link, names: list[str], watch: Callable[[WatchedEvent], None] | None
    ) -> dict[str, bytes]:
        """Without those that went away meanwhile (of which a watch on their parent tells)."""

        def read(name: str) -> Request:
            return lambda client: client.get_async(f"{self._path}/members/{name}", watch=watch)

        answers = link.ask_all(map(read, names))
        return {
            name: answer[0]
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, ZookeeperError)
        }

    def _children_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            with self._lock:
                self._children_stale = True
                self._wake.set()

    def _entry_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            with self._lock:
                self._stale_entries.add(event.path.rpartition("/")[2])
                self._wake.set()

    # --- worker: election

    def _bring_election_up_to_date(self, link: _Link) -> None:
        with self._lock:
            if not self._election_stale:
                return
            self._election_stale = False
            candidacy, given_up = self._candidacy, tuple(self._given_up)
        try:
            self._clear_away(link, given_up)
            if candidacy is not None:
                self._hold_election(link, candidacy)
        except BaseException:
            with self._lock:
                self._election_stale = True
            raise

    def _candidates(self, link: _Link) -> list[str]:
        """The names of the nodes, in order. After a reconnection the server may not know yet what was made before."""
        path = f"{self._path}/election"
        link.ask(lambda client: client.sync_async(path))
        return sorted(link.ask(lambda client: client.get_children_async(path)), key=_sequence)

    def _clear_away(self, link: _Link, keys: tuple[str, ...]) -> None:
        if not keys:
            return
        for name in self._candidates(link):
            if name.startswith(keys):
                self._delete_candidate(link, name)
        with self._lock:
            self._given_up = [key for key in self._given_up if key not in keys]

    def _delete_candidate(self, link: _Link, name: str) -> None:
        with contextlib.suppress(NoNodeError):
            link.ask(lambda client: client.delete_async(f"{self._path}/election/{name}"))

    def _hold_election(self, link: _Link, candidacy: _Candidacy) -> None:
        """Watches one node only: the predecessor, or, when elected, the own one (an administrator may remove it)."""
        while True:
            names = self._candidates(link)
            own = [name for name in names if name.startswith(candidacy.key)]
            if not own:
                self._tell_elected(candidacy, False)
                path = f"{self._path}/election/{candidacy.key}-"
                self._create_ephemeral(link, path, candidacy.candidate.encode(), sequence=True)
                continue
            for duplicate in own[1:]:
                self._delete_candidate(link, duplicate)
            place = names.index(own[0])
            watched = f"{self._path}/election/{names[max(place - 1, 0)]}"
            if link.ask(partial(_watch, path=watched, watch=self._election_changed)) is not None:
                self._tell_elected(candidacy, place == 0)
                return

    def _tell_elected(self, candidacy: _Candidacy, elected: bool) -> None:
        with self._lock:
            if candidacy is self._candidacy and candidacy.elected != elected:
                candidacy.elected = elected
                self._tell(candidacy.listener, elected)

    def _election_changed(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            with self._lock:
                self._election_stale = True
                self._wake.set()


def _watch(client: KazooClient, path: str, watch: Callable[[WatchedEvent], None]) -> Any:
    return client.exists_async(path, watch=watch)


def _sequence(name: str) -> int:
    """What ZooKeeper appended; nodes that others put there come last."""
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 1 << 62


def _decode_all(entries: dict[str, bytes]) -> list[Member]:
    found = [decode_member(data) for data in entries.values()]
    return sorted((member for member in found if member is not None), key=lambda member: member.id)


def _describe(problem: Exception) -> str:
    words = {
        ConnectionLoss: "the connection broke",
        OperationTimeoutError: "the operation timed out",
        SessionExpiredError: "the session ended",
        SessionMovedError: "the session moved to another server",
    }
    said = next((text for kind, text in words.items() if isinstance(problem, kind)), type(problem).__name__)
    return f"{said} ({problem})" if str(problem) else said
