"""One kazoo client with one session, and what is known about whether that session lives.

kazoo opens a new session by itself when one has expired. A `Link` is over then: whoever holds it makes another.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
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
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState

from belvedere.cluster.coordination import Session
from belvedere.cluster.lease import Lease
from belvedere.errors import CoordinationUnavailable, Incompatible

log = logging.getLogger(__name__)

Request = Callable[[KazooClient], Any]
"""Begins something with kazoo and returns its result to come."""

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
GRACE = 1.0
"""Seconds that a server has to answer to the end of a session before the socket is shut."""


def now() -> float:
    """Seconds; the clock that also runs while the machine sleeps, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Link:
    """One kazoo client with one session. `lock` is the coordination's; `announce` is called with it held."""

    def __init__(
        self,
        hosts: str,
        timeout: float,
        digest: str | None,
        lock: threading.RLock,
        announce: Callable[[Link, Session | None], None],
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
            auth_data=[("digest", digest)] if digest else None,
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
            self.client.exists_async(path).rawlink(partial(self._heard, now()))

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
            sent = now()
            begun = [request(self.client) for request in waiting[first : first + _IN_FLIGHT]]
            answers.extend(self._await(result) for result in begun)
            with self._lock:
                self._announce(self, self.lease.answered(sent, now()))
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
            raise CoordinationUnavailable(f"ZooKeeper {self._hosts}: {describe(problem)}") from problem

    def drop(self) -> None:
        """Shut the socket: kazoo sees a broken connection and looks for a server, another one first, in the same
        session."""
        current, self._shunned = self._socket, self._address
        if current is not None:
            with contextlib.suppress(OSError):
                current.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End the session if the server can still be told; give up after a moment if not."""
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


def describe(problem: Exception) -> str:
    words = {
        ConnectionLoss: "the connection broke",
        OperationTimeoutError: "the operation timed out",
        SessionExpiredError: "the session ended",
        SessionMovedError: "the session moved to another server",
    }
    said = next((text for kind, text in words.items() if isinstance(problem, kind)), type(problem).__name__)
    return f"{said} ({problem})" if str(problem) else said
