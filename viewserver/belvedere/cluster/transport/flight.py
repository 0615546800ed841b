"""The transport of real processes: one Arrow Flight (gRPC) server per process, one port for everything.

    messages, batches   DoExchange   a stream per pair of members, kept while there is something to say: the sender
                                     writes the chunks of a frame, the receiver answers once it has received them all
    calls               DoAction     one request, one answer
    tables              DoGet/DoPut  by the name of the service that was registered for them (`serve_get`, `serve_put`)

Measured against a DoAction or a DoPut per frame, a stream that stays open costs half of the CPU on both sides, and the
body of a chunk is not copied on its way into gRPC.

What goes wrong with gRPC, and what is done about it here:

* A peer that is frozen accepts and answers nothing. Every stream and call has a deadline (streams are replaced long
  before theirs), each peer has a thread of its own, and `forget` and `close` cancel what hangs. Neither deadline nor
  cancellation ends a call while the socket of its channel is full. So calls and messages have channels of their own,
  and a watch cuts connections on which a delivery is overdue.
* A server waits, when it is shut down, until every stream has ended, and its handlers cannot be interrupted. So senders
  end streams that rest, handlers of a closed server end theirs with the next chunk, and `close` cuts what is left.
* A channel that failed waits up to two minutes before it tries again: the pauses are set, and after a failure there is
  a new channel.
* It repeats requests on its own and writes to stderr. Both are switched off.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from belvedere import errors
from belvedere.backend.addresses import location
from belvedere.cluster.transport import failures, frames, sockets
from belvedere.cluster.transport.inbox import SenderInbox
from belvedere.cluster.transport.outbox import OutboxEntry, OutboxLink
from belvedere.cluster.transport.seam import Handler, Payload, Receiver
from belvedere.cluster.transport.sending import Locate, Sending
from belvedere.protocol.ring import MemberId

Tables: TypeAlias = pa.Table | pa.RecordBatchReader
GetHandler: TypeAlias = Callable[[bytes], Tables]
"""Answers a `get`: the ticket is what the caller passed."""
PutHandler: TypeAlias = Callable[[bytes, pa.RecordBatchReader], bytes]
"""Answers a `put`: (what the caller passed beside the rows, the rows). It must read all of them."""

FRAME_DEADLINE = 40.0
SLOWEST_BYTES_PER_SECOND = 1 << 20
"""A frame that is not answered after `FRAME_DEADLINE`, and a second for each so many bytes, is delivered again."""
STREAM_REPLACED_AFTER = 20.0
"""Seconds; after that there would not be enough time for another frame until the deadline of the stream."""
CLOSE_TIMEOUT = 1.0
"""Seconds that `close` gives peers to end their streams before it cuts them, and once more for what follows."""
WATCH_INTERVAL = 1.0
LONGEST_TRAILER = 1_500
"""Characters of an error that travels in HTTP/2 trailers, which are limited to 8 KB."""

_MESSAGES = "messages"
_RECEIVED = b"received"
_BODY = pa.schema([("payload", pa.uint8())])
_CHANNEL = [
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel would inherit the pause of the one that failed
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A host that vanished closes no connection. Not more often: servers refuse many pings while nothing is said.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # a minute otherwise, whatever the line above says
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]
_TRANSPORT_ERRORS = (pa.ArrowException, OSError, StopIteration)
"""What pyarrow raises when a stream or call fails; `FlightError`s are `ArrowException`s, some are `OSError`s."""


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files. All members of a cluster have certificates of one authority, and show them to each other."""

    certificate: Path
    key: Path
    authority: Path
    require_client: bool = True
    server_name: str | None = None
    """The name that certificates of servers have to carry, where it is not the host in their address."""


class FlightClient:
    """Calls, gets and puts; thread-safe. A process without a server (a command, a client library) needs only this."""

    def __init__(self, *, tls: Tls | None = None) -> None:
        _quieten()
        self._tls = tls
        self._lock = threading.Lock()
        self._channels: dict[str, flight.FlightClient] = {}
        self._closed = False

    def call(self, address: str, name: str, request: Payload, timeout: float) -> bytes:
        """Ask once. A `BelvedereError` of the handler is raised here; `PeerUnavailable` if there is no answer."""
        where = f"{name} at {address}"
        with self._raising(address, where, timeout):
            action = flight.Action(name, pa.py_buffer(request))
            channel = self.channel(address)
            results = [result.body for result in channel.do_action(action, _until(timeout))]
        if len(results) == 2:
            raise failures.rebuild(results[1].to_pybytes(), where)
        return bytes(results[0].to_pybytes())

    def get(self, address: str, name: str, ticket: bytes, timeout: float) -> pa.RecordBatchReader:
        """Tables from the service `name`. `timeout` covers reading them; errors come while reading, too."""
        where = f"{name} at {address}"
        with self._raising(address, where, timeout):
            channel = self.channel(address)
            reader = channel.do_get(flight.Ticket(_named(name, ticket)), _until(timeout))
            schema = reader.schema

        def batches(channel: flight.FlightClient = channel) -> Iterator[pa.RecordBatch]:  # it must outlive the reader
            with self._raising(address, where, timeout):
                for chunk in reader:
                    yield chunk.data

        return pa.RecordBatchReader.from_batches(schema, batches())

    def put(self, address: str, name: str, descriptor: bytes, rows: Tables, timeout: float) -> bytes:
        """Send tables to the service `name`; what it answers. Like `call`, it is tried once."""
        where = f"{name} at {address}"
        command = flight.FlightDescriptor.for_command(_named(name, descriptor))
        reader = rows.to_reader() if isinstance(rows, pa.Table) else rows
        with self._raising(address, where, timeout):
            channel = self.channel(address)
            writer, answers = channel.do_put(command, reader.schema, _until(timeout))
            try:
                for batch in reader:
                    writer.write_batch(batch)
                writer.done_writing()
                answer = answers.read()
            finally:
                writer.close()
        return b"" if answer is None else bytes(answer.to_pybytes())

    def channel(self, address: str) -> flight.FlightClient:
        with self._lock:
            if self._closed:
                raise errors.Closed(f"the client is closed, {address} cannot be asked any more")
            if address not in self._channels:
                self._channels[address] = self._connect(address)
            return self._channels[address]

    def drop(self, address: str) -> None:
        """Make a new channel the next time: this one failed, and would wait before it tries again."""
        with self._lock:
            self._channels.pop(address, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._channels.clear()

    def _connect(self, address: str) -> flight.FlightClient:
        if self._tls is None:
            return flight.FlightClient(address, generic_options=_CHANNEL)
        more: dict[str, Any] = {"override_hostname": self._tls.server_name} if self._tls.server_name else {}
        return flight.FlightClient(
            address,
            tls_root_certs=self._tls.authority.read_bytes(),
            cert_chain=self._tls.certificate.read_bytes(),
            private_key=self._tls.key.read_bytes(),
            generic_options=_CHANNEL,
            **more,
        )

    @contextlib.contextmanager
    def _raising(self, address: str, where: str, timeout: float) -> Iterator[None]:
        """Errors of Flight become those of Belvedere."""
        try:
            yield
        except flight.FlightTimedOutError:
            self.drop(address)  # perhaps the connection is dead; those who use it still hold it
            raise errors.PeerUnavailable(f"{where}: no answer within {timeout:g} s") from None
        except flight.FlightUnavailableError:
            self.drop(address)
            raise errors.PeerUnavailable(f"{where}: nobody answers there") from None
        except flight.FlightError as error:
            if error.extra_info:
                raise failures.rebuild(error.extra_info, where) from None
            raise errors.PeerUnavailable(f"{where}: {_first_line(error)}") from None
        except (pa.ArrowException, OSError) as error:
            raise errors.PeerUnavailable(f"{where}: {_first_line(error)}") from None


class FlightTransport(Sending):
    """`Transport` over Flight, and the process's one server: services add their own calls, gets and puts to it."""

    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        member: MemberId,
        advertise: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Listens at once, and refuses messages until `start`. `advertise`: the host by which others reach this one, if
        it listens on all of its addresses."""
        super().__init__(member)
        self.client = FlightClient(tls=tls)
        self._messages = FlightClient(tls=tls)
        self._watch = Watch()
        scheme = "grpc" if tls is None else "grpc+tls"
        try:
            self._server = _Server(location(scheme, host, port), tls)
        except (pa.ArrowException, OSError) as error:
            raise errors.Unavailable(f"cannot listen on {host}, port {port}: {_first_line(error)}") from None
        self._address = location(scheme, advertise or host, self._server.port)

    @property
    def address(self) -> str:
        return self._address

    @property
    def port(self) -> int:
        return int(self._server.port)

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None:
        for name, handler in handlers.items():
            self.serve_call(name, handler)
        self._server.inbox = SenderInbox(self._member, receiver)

    def serve_call(self, name: str, handler: Handler) -> None:
        """Answer calls of this name; also after `start`."""
        self._server.calls[name] = handler

    def serve_get(self, name: str, handler: GetHandler) -> None:
        """Answer `FlightClient.get` of this name with tables."""
        self._server.gets[name] = handler

    def serve_put(self, name: str, handler: PutHandler) -> None:
        """Take the tables of `FlightClient.put` of this name."""
        self._server.puts[name] = handler

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        return self.client.call(address, name, request, timeout)

    def close(self) -> None:
        self._server.inbox = None
        self._server.closing = True
        self._stop_sending()
        self._watch.close()
        self.client.close()
        self._messages.close()
        closing = threading.Thread(target=self._server.shutdown, name=f"close {self._address}", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT)
        if closing.is_alive():
            sockets.cut_served(self.port)
            closing.join(CLOSE_TIMEOUT)

    def _link(self, peer: MemberId, locate: Locate) -> OutboxLink:
        hello = {"to": peer, "sender": self._member, "instance": self._instance}
        return _FlightLink(self._messages, self._watch, json.dumps(hello).encode("ascii"), locate)


class Watch:
    """Cuts connections on which a delivery takes longer than it may, since gRPC does not give it up in every case."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[object, tuple[str, float]] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="watch deliveries", daemon=True).start()

    def begin(self, delivery: object, address: str, seconds: float) -> None:
        with self._lock:
            self._due[delivery] = (address, time.monotonic() + seconds)

    def end(self, delivery: object) -> None:
        with self._lock:
            self._due.pop(delivery, None)

    def hurry(self, delivery: object) -> None:
        """It was cancelled, so it should end now."""
        with self._lock:
            if delivery in self._due:
                self._due[delivery] = (self._due[delivery][0], time.monotonic())

    def close(self) -> None:
        """Cut everything that is still under way."""
        self._closed.set()
        self._cut(math.inf)

    def _run(self) -> None:
        while not self._closed.wait(WATCH_INTERVAL):
            self._cut(time.monotonic() - WATCH_INTERVAL)

    def _cut(self, before: float) -> None:
        with self._lock:
            late = {address for address, due in self._due.values() if due < before}
        if late:
            cut(late)


def cut(addresses: Iterable[str]) -> None:
    """End the connections that this process made to these addresses; calls on them fail."""
    sockets.cut_made(_host_and_port(address) for address in addresses)


class _FlightLink:
    """A stream to one peer, opened when needed.

    none ──deliver──▶ open ──rest, or it got old──▶ none
                        └──failed, abandoned──▶ none (and the channel is given up)
    """

    def __init__(self, client: FlightClient, watch: Watch, hello: bytes, locate: Locate) -> None:
        self._client = client
        self._watch = watch
        self._hello = hello
        self._locate = locate
        self._lock = threading.Lock()
        self._stream: _Stream | None = None
        self._abandoned = False

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        address = self._locate()
        allowed = FRAME_DEADLINE + sum(entry.size for entry in entries) / SLOWEST_BYTES_PER_SECOND
        self._watch.begin(self, address, allowed)
        try:
            stream = self._ready(address, allowed)
            for chunk, body in frames.pack(entries):
                stream.write(chunk, body)
            refusal = stream.answer()
        except _TRANSPORT_ERRORS as error:
            self.rest()
            self._client.drop(address)
            raise errors.PeerUnavailable(f"{address}: {_first_line(error)}") from None
        finally:
            self._watch.end(self)
        if refusal:
            raise failures.rebuild(refusal, address)

    def rest(self) -> None:
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            if self._stream is not None:
                self._stream.cancel()
        self._watch.hurry(self)

    def _ready(self, address: str, allowed: float) -> _Stream:
        stream = self._stream
        if stream is not None and not stream.serves(address, allowed):
            self.rest()
            stream = None
        if stream is None:
            timeout = allowed + STREAM_REPLACED_AFTER
            stream = _Stream(self._client.channel(address), address, self._hello, timeout)
            with self._lock:
                self._stream = stream
                if self._abandoned:
                    stream.cancel()
        return stream


class _Stream:
    def __init__(self, channel: flight.FlightClient, address: str, hello: bytes, timeout: float) -> None:
        self._address = address
        self._opened = time.monotonic()
        self._timeout = timeout
        descriptor = flight.FlightDescriptor.for_command(_named(_MESSAGES, hello))
        self._channel = channel  # it must live as long as the stream
        self._writer, self._reader = channel.do_exchange(descriptor, _until(timeout))
        self._begun = False

    def serves(self, address: str, allowed: float) -> bool:
        return address == self._address and time.monotonic() - self._opened + allowed < self._timeout

    def write(self, chunk: bytes, body: memoryview | None) -> None:
        if not self._begun:
            self._writer.begin(_BODY)
            self._begun = True
        if body is None:
            self._writer.write_metadata(chunk)
        else:
            column = pa.Array.from_buffers(pa.uint8(), body.nbytes, [None, pa.py_buffer(body)])
            self._writer.write_with_metadata(pa.RecordBatch.from_arrays([column], schema=_BODY), chunk)

    def answer(self) -> bytes:
        """Why the receiver did not take the frame; empty: it did."""
        answer = bytes(self._reader.read_chunk().app_metadata.to_pybytes())
        return b"" if answer == _RECEIVED else answer

    def cancel(self) -> None:
        self._reader.cancel()

    def close(self) -> None:
        with contextlib.suppress(
            *_TRANSPORT_ERRORS
        ):  # it may have failed already; whoever needs it to work has noticed
            self._writer.close()


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no type information
    """Finds the handler by name and turns errors into what the other side can rebuild."""

    def __init__(self, location: str, tls: Tls | None) -> None:
        _quieten()
        self.inbox: SenderInbox | None = None
        self.closing = False
        self.calls: dict[str, Handler] = {}
        self.gets: dict[str, GetHandler] = {}
        self.puts: dict[str, PutHandler] = {}
        if tls is None:
            super().__init__(location)
        else:
            super().__init__(
                location,
                tls_certificates=[(tls.certificate.read_bytes(), tls.key.read_bytes())],
                verify_client=tls.require_client,
                root_certificates=tls.authority.read_bytes() if tls.require_client else None,
            )

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with _failing_by_trailer():
            name, hello = _parted(descriptor.command)
            if name != _MESSAGES:
                raise errors.Incompatible(f"exchange {name} is unknown, there is {_MESSAGES}")
            greeting = json.loads(hello)
            self._receive(reader, writer, greeting["to"], greeting["sender"], greeting["instance"])

    def _receive(self, reader: Any, writer: Any, to: MemberId, sender: MemberId, instance: str) -> None:
        refusal = b""
        while not self.closing:
            try:
                chunk = reader.read_chunk()
            except _TRANSPORT_ERRORS:  # the end, or the sender is gone; then it comes again by another stream
                return
            head = memoryview(chunk.app_metadata)
            if not refusal:
                refusal = self._accept(to, sender, instance, head, _body_of(chunk))
            if frames.is_last(head):
                writer.write_metadata(refusal or _RECEIVED)
                refusal = b""

    def _accept(
        self, to: MemberId, sender: MemberId, instance: str, head: memoryview, body: memoryview | None
    ) -> bytes:
        inbox = self.inbox
        try:
            if inbox is None:
                raise errors.PeerUnavailable(f"member {to} does not take messages now")
            inbox.accept(to, sender, instance, frames.unpack(head, body))
        except Exception as error:
            return failures.describe(error)
        return b""

    def do_action(self, context: Any, action: Any) -> list[Any]:
        """One result is the answer; two are a failure, which the second one describes."""
        try:
            if self.inbox is None and action.type not in self.calls:  # a port that listens, of a member that begins
                raise errors.PeerUnavailable(f"call {action.type}: nobody answers here yet")
            return [_pick(self.calls, "call", action.type)(action.body.to_pybytes())]
        except Exception as error:
            return [b"", failures.describe(error)]

    def do_get(self, context: Any, ticket: Any) -> Any:
        with _failing_by_trailer():
            name, request = _parted(ticket.ticket)
            found = _pick(self.gets, "get", name)(request)
            if isinstance(found, pa.Table):
                return flight.RecordBatchStream(found)
            return flight.GeneratorStream(found.schema, _guarded(found))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with _failing_by_trailer():
            name, request = _parted(descriptor.command)
            writer.write(pa.py_buffer(_pick(self.puts, "put", name)(request, reader.to_reader())))


def _pick(handlers: dict[str, Any], kind: str, name: str) -> Any:
    if name not in handlers:
        raise errors.Incompatible(f"{kind} {name} is unknown here, there is {', '.join(sorted(handlers)) or 'none'}")
    return handlers[name]


@contextlib.contextmanager
def _failing_by_trailer() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        details = failures.describe(error, LONGEST_TRAILER)
        raise flight.FlightServerError("failed", extra_info=details) from None


def _guarded(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _failing_by_trailer():
        yield from batches


def _body_of(chunk: Any) -> memoryview | None:
    return None if chunk.data is None else memoryview(chunk.data.column(0).buffers()[1]).cast("B")


def _named(name: str, data: bytes) -> bytes:
    return name.encode() + b"\0" + data


def _parted(command: bytes) -> tuple[str, bytes]:
    name, _, data = command.partition(b"\0")
    return name.decode(errors="replace"), data


def _until(timeout: float) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(timeout=timeout)


def _host_and_port(address: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(address)
    return parts.hostname or "", parts.port or 0


def _first_line(error: BaseException) -> str:
    """Without the account that Flight and gRPC give of their own insides."""
    if isinstance(error, flight.FlightError) and error.extra_info:
        return str(failures.rebuild(error.extra_info, "the peer"))
    text = str(error).strip().split("\n", 1)[0].rpartition("error, with message: ")[2]
    return text.split(". gRPC client debug context", 1)[0] or type(error).__name__


def _quieten() -> None:
    """Before the first use of gRPC in a process: its log goes to stderr, and what matters of it is raised anyway."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
