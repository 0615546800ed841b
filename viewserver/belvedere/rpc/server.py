"""The port of a process: calls, streams and exchanges by name (see `client.py`).

It listens from the constructor on and answers from `begin` on: others may know the address before there is an answer,
and take that for nobody, not for a member of another version.

A Flight server waits, when it is shut down, until every stream has ended, and its handlers cannot be interrupted. So
handlers of exchanges end theirs with the next chunk, and `close` cuts what is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from belvedere import errors
from belvedere.rpc import sockets
from belvedere.rpc.addresses import Certificates, location, scheme, server_options
from belvedere.rpc.client import Payload, quieten
from belvedere.rpc.exchange import body_of, parted
from belvedere.rpc.failures import FLIGHT_ERRORS, LONGEST_TRAILER, describe, first_line

Call: TypeAlias = Callable[[pa.Buffer], Payload]
Stream: TypeAlias = Callable[[pa.Buffer], Iterator[Payload]]
Take: TypeAlias = Callable[[memoryview, memoryview | None], bytes | None]
"""Takes a chunk of an exchange and its body; answers, or waits for more."""
Accept: TypeAlias = Callable[[bytes], Take]
"""Begins an exchange with what its beginner says."""

CLOSE_TIMEOUT = 1.0
"""Seconds that `close` gives others to end their streams before it cuts them, and once more for what follows."""


class RpcServer:
    def __init__(self, host: str, port: int = 0, *, tls: Certificates | None = None, advertise: str = "") -> None:
        """`advertise`: the host by which others reach this one, if it listens on all of its addresses."""
        quieten()
        options = server_options(tls)
        try:
            self._server = _FlightServer(location(scheme(tls), host, port), **options)
        except (pa.ArrowException, OSError) as error:
            raise errors.Unavailable(f"cannot listen on {host}, port {port}: {first_line(error)}") from None
        self.port = int(self._server.port)
        self.address = location(scheme(tls), advertise or host, self.port)

    def serve(
        self,
        calls: Mapping[str, Call] | None = None,
        streams: Mapping[str, Stream] | None = None,
        exchanges: Mapping[str, Accept] | None = None,
    ) -> None:
        """Answer these as well; also after `begin`."""
        self._server.calls.update(calls or {})
        self._server.streams.update(streams or {})
        self._server.exchanges.update(exchanges or {})

    def begin(self) -> None:
        self._server.begun = True

    def close(self) -> None:
        """No handler begins any more. Those that are running are waited for, for a while."""
        self._server.closing = True
        closing = threading.Thread(target=self._server.shutdown, name=f"close {self.address}", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT)
        if closing.is_alive():
            sockets.cut_served(self.port)
            closing.join(CLOSE_TIMEOUT)


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no type information
    """Finds the handler by name and turns errors into what the other side can rebuild."""

    def __init__(self, location: str, **options: Any) -> None:
        self.begun = self.closing = False
        self.calls: dict[str, Call] = {}
        self.streams: dict[str, Stream] = {}
        self.exchanges: dict[str, Accept] = {}
        super().__init__(location, **options)

    def do_action(self, context: Any, action: Any) -> Any:
        """Of a call, one result is the answer; two are a failure, which the second one describes: the trailers, where
        errors of streams travel, have no room for long texts."""
        name = action.type
        if name in self.streams:
            return self._answers(self.streams[name], action.body)
        if name not in self.calls:
            raise _by_trailer(self._unknown("call", name, [*self.calls, *self.streams]))
        try:
            return [self.calls[name](action.body)]
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
            if name not in self.exchanges:
                raise self._unknown("exchange", name, list(self.exchanges))
            self._exchange(self.exchanges[name](hello), reader, writer)
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
        if not self.begun:
            return errors.PeerUnavailable(f"{kind} {name}: nobody answers here yet")
        return errors.Incompatible(f"{kind} {name} is unknown here, there is {', '.join(sorted(known)) or 'none'}")


def _by_trailer(error: Exception) -> flight.FlightServerError:
    return flight.FlightServerError("failed", extra_info=describe(error, LONGEST_TRAILER))
