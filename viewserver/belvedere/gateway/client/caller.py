"""Calls over HTTP: connections that are kept, tries until the time is up, and problems that become errors again.

A call that may be repeated is, when nobody answers, when the gateway says that a part of the pool does not, or that
there are too many requests. So the end of a gateway is a delay: the next connection goes to another one, or to the
one that took its place. Writes carry a name (`Idempotency-Key`) and may be repeated like reads. What may not be
repeated is only tried again if nothing of it was sent.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import urllib3
from urllib3 import exceptions as failures

from belvedere import errors
from belvedere.gateway.client.problems import error_of
from belvedere.retry import Backoff, Deadline, Retry

JSON = "application/json"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"

CONNECTIONS = 16
"""That are kept; more are opened where more threads call at once."""
CONNECT_SECONDS = 5.0
TRY_SECONDS = 8.0
"""How long one try may wait for a byte, beyond what the request itself asks the gateway to wait."""
GRACE_SECONDS = 2.0
"""A try that began in time may take a little longer: its answer says more than that nobody waited for it."""

_KEEPALIVE = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
if hasattr(socket, "TCP_KEEPIDLE"):  # Linux: a host that vanished is noticed after 15 + 3 * 5 seconds
    _KEEPALIVE += [
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `waits`: seconds that the gateway may wait before it answers. `patient`: it answers when it is
    done, however long that takes. `repeatable`: doing it twice is doing it once."""

    method: str
    path: str
    what: str
    """For errors: what gave up."""
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    waits: float = 0.0
    patient: bool = False
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered, and it was no problem."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Connections to one address. Thread-safe."""

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int,
        prefix: str,
        tls: ssl.SSLContext | None,
        bearer: Callable[[], str],
    ) -> None:
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
        self._host, self._port, self._prefix, self._tls, self._bearer = host, port, prefix, tls, bearer
        self._pool = self._connections(CONNECTIONS)

    def _connections(self, kept: int) -> urllib3.HTTPConnectionPool:
        options: dict[str, Any] = {"maxsize": kept, "retries": False, "socket_options": _KEEPALIVE}
        if self._tls is not None:
            return urllib3.HTTPSConnectionPool(self._host, self._port, ssl_context=self._tls, **options)
        return urllib3.HTTPConnectionPool(self._host, self._port, **options)

    # ------------------------------------------------------------------ calls

    def call(self, request: Request, deadline: Deadline) -> Reply:
        """The answer; problems are raised as the errors that they are."""
        asked_to_wait = 0.0

        def pause(seconds: float) -> None:
            time.sleep(deadline.left(max(seconds, asked_to_wait)))

        wanted = (errors.Unavailable, errors.TooManyRequests)
        retry = Retry(request.what, on=wanted, deadline=deadline, backoff=Backoff(0.02, 1.0), sleep=pause)
        while True:
            try:
                return self._try(request, deadline)
            except NotSent as error:
                retry.failed(errors.PeerUnavailable(str(error)))
            except wanted as error:
                if not request.repeatable and not isinstance(error, errors.TooManyRequests):
                    if "look before you repeat it" in str(error):
                        raise  # the gateway says so already
                    raise type(error)(
                        f"{request.what}: {error}; it may have happened all the same: look before you repeat it"
                    ) from error
                asked_to_wait = error.seconds if isinstance(error, errors.TooManyRequests) else 0.0
                retry.failed(error)

    def _try(self, request: Request, deadline: Deadline) -> Reply:
        read = None if request.patient else deadline.left(request.waits + TRY_SECONDS) + GRACE_SECONDS
        timeout = urllib3.Timeout(connect=deadline.left(CONNECT_SECONDS) + 0.1, read=read)
        # a connection that was kept may end just now, and nobody could tell whether the request was read: what must not
        # be repeated gets a new one
        pool = self._pool if request.repeatable else self._connections(1)
        try:
            found = pool.request(
                request.method,
                self._target(request),
                body=request.body,
                headers=self._headers(request),
                timeout=timeout,
                redirect=False,
            )
        except (failures.NewConnectionError, failures.ConnectTimeoutError, failures.NameResolutionError) as error:
            raise NotSent(f"{self.url} does not answer: {_reason(error)}") from error
        except failures.SSLError as error:
            raise errors.NotAuthenticated(f"{self.url}: no TLS connection: {_reason(error)}") from error
        except (failures.HTTPError, OSError, http.client.HTTPException) as error:
            raise errors.PeerUnavailable(f"{self.url} does not answer: {_reason(error)}") from error
        finally:
            if pool is not self._pool:
                pool.close()
        if not 200 <= found.status < 300:
            raise error_of(self.url, found.status, found.headers, found.data)
        return Reply(found.status, found.headers, found.data)

    # ------------------------------------------------------------------ streams

    def stream(self, request: Request, timeout: float) -> Stream:
        """An answer that comes line by line, on a connection of its own. One try."""
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        )
        try:
            connection.connect()
            for option in _KEEPALIVE:
                connection.sock.setsockopt(*option)
            sock = connection.sock
            connection.request(request.method, self._target(request), body=request.body, headers=self._headers(request))
            found = connection.getresponse()
            if not 200 <= found.status < 300:
                raise error_of(self.url, found.status, dict(found.headers.items()), found.read())
        except ssl.SSLError as error:
            connection.close()
            raise errors.NotAuthenticated(f"{self.url}: no TLS connection: {_reason(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise errors.PeerUnavailable(f"{self.url} does not answer: {_reason(error)}") from error
        except BaseException:
            connection.close()
            raise
        return Stream(self.url, connection, sock, found)

    # ------------------------------------------------------------------

    def _target(self, request: Request) -> str:
        query = urllib.parse.urlencode(request.query, quote_via=urllib.parse.quote, safe="")
        return f"{self._prefix}{request.path}{'?' if query else ''}{query}"

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"User-Agent": "belvedere-client", **request.headers}
        bearer = self._bearer()
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        return headers

    def close(self) -> None:
        self._pool.close()


class Stream:
    """Lines of an answer as they come."""

    def __init__(
        self, url: str, connection: http.client.HTTPConnection, sock: socket.socket, found: http.client.HTTPResponse
    ) -> None:
        self._url, self._connection, self._sock, self._found = url, connection, sock, found
        self._rest = b""
        self._lines: list[bytes] = []

    def line(self, timeout: float) -> bytes | None:
        """The next line, without its end. None: nothing came in time, and nothing more can be read here. Raises
        `PeerUnavailable` at the end."""
        while not self._lines:
            try:
                # reads of a socket that timed out leave the response in between: it is used no more
                self._sock.settimeout(max(timeout, 0.001))
                data = self._found.read1(1 << 16)
            except TimeoutError:
                self.close()
                return None
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                raise errors.PeerUnavailable(f"{self._url}: the connection broke: {_reason(error)}") from error
            if not data:
                self.close()
                raise errors.PeerUnavailable(f"{self._url}: the gateway ended the answer")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines = lines[::-1]
        return self._lines.pop().removesuffix(b"\r")

    def close(self) -> None:
        self._found.close()
        self._connection.close()


class NotSent(errors.PeerUnavailable):
    """Nobody took the request: it has not happened."""


def _reason(error: BaseException) -> str:
    """What the operating system says, without the names of classes and objects around it."""
    inner: BaseException = error
    while (below := _below(inner)) is not None:
        inner = below
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return str(inner.reason or inner)
    if isinstance(inner, (TimeoutError, failures.TimeoutError)):
        return "no answer in time"
    text = inner.strerror if isinstance(inner, OSError) and inner.strerror else str(inner)
    return text.rpartition(": ")[2].strip("() ") or type(inner).__name__


def _below(error: BaseException) -> BaseException | None:
    """What an error of urllib3 is about."""
    found = (error.__cause__, getattr(error, "reason", None), *error.args[:1])
    return next((one for one in found if isinstance(one, BaseException)), None)
