"""`Coordination` on a real ZooKeeper, with kazoo. This is the only module that knows kazoo.

    zookeeper.py   kazoo: one client for one session
    requests.py    what is asked of it
    nodes.py       the nodes of a pool
    members.py     the members, by watches
    election.py    the candidacy
    session.py     the whole, with its threads

kazoo opens a new session by itself when one has expired, and goes on with what it was asked to do. So a client is given
up with its session. And kazoo does not notice that a server has stopped answering as long as it is asked often enough
(a request counts as a ping, and no answer is waited for). So the lease decides, and shuts the socket.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

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
    RolledBackError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions, make_acl

from belvedere.cluster.coordination.clock import now
from belvedere.cluster.coordination.lease import Lease
from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import (
    GRACE,
    Announce,
    BadVersion,
    ChangeableByAll,
    Children,
    CreateIf,
    CreateNode,
    DeleteNode,
    Exists,
    Get,
    NodeAccess,
    NodeExists,
    NoNode,
    Request,
    Set,
    Stat,
    Sync,
    Watch,
    ZooKeeperCredentials,
    ZooKeeperRefusal,
)
from belvedere.cluster.coordination.seam import SessionState
from belvedere.cluster.coordination.session import SessionCoordination
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.rpc.addresses import Certificates

__all__ = ["ZooKeeperCredentials", "ZooKeeperCoordination"]

log = logging.getLogger(__name__)

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
_REFUSALS: dict[type[ZookeeperError], type[ZooKeeperRefusal]] = {
    NoNodeError: NoNode,
    NodeExistsError: NodeExists,
    BadVersionError: BadVersion,
}


class ZooKeeperCoordination(SessionCoordination):
    """`hosts`: `host:port,host:port`, optionally followed by a path below which everything is kept."""

    def __init__(
        self,
        hosts: str,
        pool: str,
        *,
        session_timeout: float = 4.0,
        credentials: ZooKeeperCredentials | None = None,
        tls: Certificates | None = None,
    ) -> None:
        """`tls`: speak TLS; `authority` must have signed the servers, whose certificates carry the names in `hosts`. A
        certificate with its key is shown to servers that ask for one."""
        nodes = PoolNodes(hosts, pool, protected=credentials is not None)
        super().__init__(nodes, session_timeout, partial(KazooLink, nodes.hosts, session_timeout, credentials, tls))


class KazooLink:
    """One kazoo client with one session. `lock` is the coordination's; `announce` is called with it held."""

    def __init__(
        self,
        hosts: str,
        timeout: float,
        credentials: ZooKeeperCredentials | None,
        tls: Certificates | None,
        lock: threading.RLock,
        announce: Announce,
    ) -> None:
        self.lease = Lease(timeout)
        self.key = uuid.uuid4().hex
        self.ready = False
        self.problem = "no server accepted a connection"
        self._hosts = hosts
        self._timeout = timeout
        self._access = _access_lists(credentials)
        self._watches: dict[Watch, Callable[[WatchedEvent], None]] = {}
        self._lock = lock
        self._announce = announce
        self._socket: socket.socket | None = None
        self._address: Any = None
        self._shunned: Any = None
        handler = SequentialThreadingHandler()
        self._create_connection = handler.create_connection
        handler.create_connection = self._connect
        self.client = KazooClient(
            hosts=hosts,
            timeout=timeout,
            handler=handler,
            connection_retry={"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": timeout / 8},
            auth_data=[("digest", f"{credentials.user}:{credentials.password}")] if credentials else None,
            **_encryption(tls),
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
        kazoo_invoke = connection._invoke

        def invoke(timeout: float, *arguments: Any, **options: Any) -> Any:
            # With one server in its list kazoo waits for the answer to a handshake as long as the session lasts. But a
            # server that has just begun to listen may accept a connection and never speak on it (seen at one of twelve
            # restarts). There must be time to ask again. A session that is new has nothing to lose.
            if self.client._session_id is not None:
                timeout = min(timeout, self.lease.timeout / 3)
            return kazoo_invoke(timeout, *arguments, **options)

        connection._invoke = invoke

    @property
    def lost(self) -> bool:
        return self.lease.state is SessionState.LOST

    @property
    def identity(self) -> tuple[int, bytes] | None:
        found: tuple[int, bytes] | None = self.client.client_id
        return found

    def open(self) -> None:
        self.client.start_async()

    def heartbeat(self, path: str) -> None:
        if self.client.connected:
            self.client.exists_async(path).rawlink(partial(self._heard, now()))

    def ask(self, request: Request) -> Any:
        (answer,) = self.ask_all([request])
        if isinstance(answer, ZooKeeperRefusal):
            raise answer
        return answer

    def ask_all(self, requests: Iterable[Request]) -> list[Any]:
        answers: list[Any] = []
        waiting = iter(requests)
        while some := list(islice(waiting, _IN_FLIGHT)):
            sent = now()
            begun = [(request, self._begin(request)) for request in some]
            answers.extend(self._await(request, result) for request, result in begun)
            with self._lock:
                self._announce(self, self.lease.answered(sent, now()))
                if self.lost:
                    raise CoordinationUnavailable(f"the session at ZooKeeper {self._hosts} ended")
        return answers

    def _begin(self, request: Request) -> Any:
        client = self.client
        match request:
            case Exists(path, watch):
                return client.exists_async(path, watch=self._watcher(watch))
            case Children(path, watch):
                return client.get_children_async(path, watch=self._watcher(watch))
            case Get(path, watch):
                return client.get_async(path, watch=self._watcher(watch))
            case Set(path, data, version):
                return client.set_async(path, data, version=version)
            case CreateNode(path, data, access, ephemeral):
                acl = self._access[access]
                return client.create_async(path, data, acl=acl, ephemeral=ephemeral, include_data=True)
            case CreateIf(guard, path, data, sequence):
                transaction = client.transaction()
                transaction.check(guard, -1)
                acl = self._access[NodeAccess.POOL]
                transaction.create(path, data, acl=acl, ephemeral=True, sequence=sequence)
                return transaction.commit_async()
            case DeleteNode(path):
                return client.delete_async(path)
            case Sync(path):
                return client.sync_async(path)
            case ChangeableByAll(path):
                return client.get_acls_async(path)

    def _watcher(self, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        """The same one for the same watch: kazoo keeps a set of them for each path."""
        if watch is None:
            return None

        def heard(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                watch(event.path)

        return self._watches.setdefault(watch, heard)

    def _await(self, request: Request, result: Any) -> Any:
        try:
            return _plain(request, result.get(timeout=self._timeout))
        except (NoNodeError, NodeExistsError, BadVersionError) as answer:
            return _REFUSALS[type(answer)](str(answer))
        except NoAuthError:
            raise Incompatible(f"ZooKeeper {self._hosts} does not allow this with the given credentials") from None
        except KazooTimeoutError:
            raise CoordinationUnavailable(
                f"ZooKeeper {self._hosts} did not answer within {self._timeout:g} s"
            ) from None
        except KazooException as problem:
            raise CoordinationUnavailable(f"ZooKeeper {self._hosts}: {_describe(problem)}") from problem

    def drop(self) -> None:
        # kazoo sees a broken connection and looks for a server, in the same session: another one first.
        current, self._shunned = self._socket, self._address
        if current is not None:
            with contextlib.suppress(OSError):
                current.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        impatience = threading.Timer(GRACE, self.drop)
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
        self._address = options.get("address") or arguments[0]
        try:
            if self._address == self._shunned:
                self._shunned = None
                raise OSError("the server did not answer a moment ago")
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
                self.lease.connected(now())
                self._announce(self, None)
            elif state == KazooState.SUSPENDED:
                self._announce(self, self.lease.disconnected(now()))
            else:
                if self.client.client_state == KeeperState.AUTH_FAILED:
                    self.problem = "the server refused the authentication"
                self._announce(self, self.lease.expired())

    def _heard(self, sent: float, result: Any) -> None:
        problem = result.exception
        if problem is None or (isinstance(problem, ZookeeperError) and not isinstance(problem, _NO_ANSWER)):
            with self._lock:
                self._announce(self, self.lease.answered(sent, now()))


def _plain(request: Request, answer: Any) -> Any:
    match request:
        case CreateIf():
            # A transaction that fails says why at the operation that failed, and at the others that it was undone.
            for outcome in answer:
                if isinstance(outcome, ZookeeperError) and not isinstance(outcome, RolledBackError):
                    raise outcome
            return None
        case Get():
            return answer[0], _stat(answer[1])
        case CreateNode():
            return _stat(answer[1])
        case Set():
            return _stat(answer)
        case Exists():
            return None if answer is None else _stat(answer)
        case ChangeableByAll():
            return any(entry.id.scheme == "world" and entry.perms & ~Permissions.READ for entry in answer[0])
        case Children():
            return answer
        case DeleteNode() | Sync():
            return None


def _stat(found: ZnodeStat) -> Stat:
    return Stat(found.version, found.mtime, found.ephemeralOwner)


def _encryption(tls: Certificates | None) -> dict[str, Any]:
    """kazoo reads the files for every connection. It trusts public authorities as well, so names are checked."""
    if tls is None:
        return {}
    files = {"ca": tls.authority, "certfile": tls.certificate, "keyfile": tls.key}
    given = {name: str(path) for name, path in files.items() if path is not None}
    return {"use_ssl": True, "verify_certs": True, "check_hostname": True} | given


def _access_lists(credentials: ZooKeeperCredentials | None) -> dict[NodeAccess, list[ACL]]:
    if credentials is None:
        return dict.fromkeys(NodeAccess, OPEN_ACL_UNSAFE)
    # "Creator" and not a digest of our own making: which one it is, the server decides.
    return {
        NodeAccess.POOL: [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if credentials.world_read else [])],
        NodeAccess.POOLS: [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)],
        NodeAccess.EVERYONE: OPEN_ACL_UNSAFE,
    }


def _describe(problem: Exception) -> str:
    words = {
        ConnectionLoss: "the connection broke",
        OperationTimeoutError: "the operation timed out",
        SessionExpiredError: "the session ended",
        SessionMovedError: "the session moved to another server",
    }
    said = next((text for kind, text in words.items() if isinstance(problem, kind)), type(problem).__name__)
    return f"{said} ({problem})" if str(problem) else said
