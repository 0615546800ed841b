"""The port of a process: calls, streams and exchanges by name (see `client.py`).

It listens from the constructor on and answers from `begin` on: others may know the address before there is an answer,
and take that for nobody, not for a member of another version.

A Flight server waits, when it is shut down, until every stream has ended, and its handlers cannot be interrupted. So
handlers of exchanges end theirs with the next chunk, and `close` cuts what is left.

A Flight server has its certificate from the beginning to the end. When the files change, another one takes the port:
the one before stops to listen as its shutdown begins, and goes on with what was begun there until that ends by itself.
For a moment nobody listens. Who connects then is refused and asks again, as with a process that was replaced.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from belvedere import errors
from belvedere.rpc import sockets
from belvedere.rpc.addresses import Certificates, location, scheme
from belvedere.rpc.client import Payload, quieten
from belvedere.rpc.exchange import body_of, parted
from belvedere.rpc.failures import FLIGHT_ERRORS, LONGEST_TRAILER, describe, first_line
from belvedere.rpc.tls_files import LOOK_SECONDS, TlsFiles

log = logging.getLogger(__name__)

Call: TypeAlias = Callable[[pa.Buffer], Payload]
Stream: TypeAlias = Callable[[pa.Buffer], Iterator[Payload]]
Take: TypeAlias = Callable[[memoryview, memoryview | None], bytes | None]
"""Takes a chunk of an exchange and its body; answers, or waits for more."""
Accept: TypeAlias = Callable[[bytes], Take]
"""Begins an exchange with what its beginner says."""

CLOSE_TIMEOUT = 1.0
"""Seconds that `close` gives others to end their streams before it cuts them, and once more for what follows."""
REBIND_SECONDS = 0.005


class RpcServer:
    def __init__(self, host: str, port: int = 0, *, tls: Certificates | None = None, advertise: str = "") -> None:
        """`advertise`: the host by which others reach this one, if it listens on all of its addresses."""
        quieten()
        if tls is not None and (tls.certificate is None or tls.key is None):
            raise errors.DataError("a server with TLS needs a certificate and a key")
        self._scheme, self._host, self._handlers = scheme(tls), host, _Handlers()
        self._files = None if tls is None else TlsFiles(tls)
        try:
            self._server = self._listening(port)
        except (pa.ArrowException, OSError) as error:
            raise errors.Unavailable(f"cannot listen on {host}, port {port}: {first_line(error)}") from None
        self.port = int(self._server.port)
        self.address = location(self._scheme, advertise or host, self.port)
        self._closed = threading.Event()
        self._ending: list[tuple[_FlightServer, threading.Thread]] = []
        """Those that listen no more, and finish what was begun with them."""
        self._renewing = threading.Thread(target=self._renew, name=f"certificates {self.address}", daemon=True)
        if self._files is not None:
            self._renewing.start()

    def serve(
        self,
        calls: Mapping[str, Call] | None = None,
        streams: Mapping[str, Stream] | None = None,
        exchanges: Mapping[str, Accept] | None = None,
    ) -> None:
        """Answer these as well; also after `begin`."""
        self._handlers.calls.update(calls or {})
        self._handlers.streams.update(streams or {})
        self._handlers.exchanges.update(exchanges or {})

    def begin(self) -> None:
        self._handlers.begun = True

    def close(self) -> None:
        """No handler begins any more. Those that are running are waited for, for a while."""
        self._closed.set()
        if self._renewing.ident is not None:
            self._renewing.join()
        if all(server is not self._server for server, _ in self._ending):
            self._end(self._server)
        for server, _ in self._ending:
            server.closing = True
        if self._wait(CLOSE_TIMEOUT):
            sockets.cut_served(self.port)
            self._wait(CLOSE_TIMEOUT)

    def _listening(self, port: int) -> _FlightServer:
        options = {} if self._files is None else self._files.texts.server_options()
        return _FlightServer(location(self._scheme, self._host, port), self._handlers, **options)

    def _end(self, server: _FlightServer) -> None:
        ending = threading.Thread(target=server.shutdown, name=f"close {self.address}", daemon=True)
        ending.start()
        self._ending = [(other, thread) for other, thread in self._ending if thread.is_alive()] + [(server, ending)]

    def _wait(self, timeout: float) -> bool:
        """Whether somebody is not done yet."""
        deadline = time.monotonic() + timeout
        for _, thread in self._ending:
            thread.join(max(0.0, deadline - time.monotonic()))
        return any(thread.is_alive() for _, thread in self._ending)

    def _renew(self) -> None:
        assert self._files is not None
        while not self._closed.wait(LOOK_SECONDS):
            if self._files.changed():
                self._end(self._server)
                self._listen_again()

    def _listen_again(self) -> None:
        told = time.monotonic()
        while not self._closed.is_set():
            try:
                self._server = self._listening(self.port)
            except (pa.ArrowException, OSError) as error:  # the one before listens still, for a moment
                if time.monotonic() - told > LOOK_SECONDS:
                    log.warning("port %d cannot be listened to with the new certificate: %s", self.port, error)
                    told = time.monotonic()
                self._closed.wait(REBIND_SECONDS)
            else:
                log.info("the certificate was replaced: new connections to port %d see the new one", self.port)
                return


@dataclass
class _Handlers:
    """By name; all servers of a port share them."""

    begun: bool = False
    calls: dict[str, Call] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    exchanges: dict[str, Accept] = field(default_factory=dict)


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no type information
    """Finds the handler by name and turns errors into what the other side can rebuild."""

    def __init__(self, location: str, handlers: _Handlers, **options: Any) -> None:
        self.handlers, self.closing = handlers, False
        super().__init__(location, **options)

    def do_action(self, context: Any, action: Any) -> Any:
        """Of a call, one result is the answer; two are a failure, which the second one describes: the trailers, where
        errors of streams travel, have no room for long texts."""
        name = action.type
        if name in self.handlers.streams:
            return self._answers(self.handlers.streams[name], action.body)
        if name not in self.handlers.calls:
            raise _by_trailer(self._unknown("call", name, [*self.handlers.calls, *self.handlers.streams]))
        try:
            return [self.handlers.calls[name](action.body)]
        except Exception as error:
            return [b"", describe(error)]

    def _answers(self, handler: Stream, request: pa.Buffer) -> Iterator[Any]:
        try:
            for part in handler(request):
                yield flight.Result(part)
        except Exception as error:
            raise _by_trailer(error) from None

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        try:
            name, hello = parted(descriptor.command)
            if name not in self.handlers.exchanges:
                raise self._unknown("exchange", name, list(self.handlers.exchanges))
            self._exchange(self.handlers.exchanges[name](hello), reader, writer)
        except Exception as error:
            raise _by_trailer(error) from None

    def _exchange(self, take: Take, reader: Any, writer: Any) -> None:
        while not self.closing:
            try:
                chunk = reader.read_chunk()
            except FLIGHT_ERRORS:  # the end, or the sender is gone; then it comes again by another stream
                return
            answer = take(memoryview(chunk.app_metadata), body_of(chunk))
            if answer is not None:
                writer.write_metadata(answer)

    def _unknown(self, kind: str, name: str, known: list[str]) -> errors.BelvedereError:
        if not self.handlers.begun:
            return errors.PeerUnavailable(f"{kind} {name}: nobody answers here yet")
        return errors.Incompatible(f"{kind} {name} is unknown here, there is {', '.join(sorted(known)) or 'none'}")


def _by_trailer(error: Exception) -> flight.FlightServerError:
    return flight.FlightServerError("failed", extra_info=describe(error, LONGEST_TRAILER))
