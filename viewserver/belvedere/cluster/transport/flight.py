"""The transport of real processes: messages, batches and calls over the one port that a process has (`belvedere.rpc`).

Messages travel by an exchange per pair of members, kept while there is something to say: the sender writes the chunks
of a frame, the receiver answers once it has received them all.

A peer that is frozen accepts and answers nothing. Every exchange has a deadline (it is replaced long before), each peer
has a thread of its own, and `forget` and `close` cancel what hangs. Calls and messages have connections of their own,
and a watch cuts those on which a delivery is overdue. Senders end exchanges that rest, for others wait for that when
they are shut down.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

from belvedere import errors
from belvedere.cluster.transport import frames
from belvedere.cluster.transport.inbox import SenderInbox
from belvedere.cluster.transport.outbox import OutboxEntry, OutboxLink
from belvedere.cluster.transport.seam import Handler, Receiver
from belvedere.cluster.transport.sending import Locate, Sending
from belvedere.protocol.ring import MemberId
from belvedere.rpc.addresses import Certificates
from belvedere.rpc.client import RpcClient
from belvedere.rpc.exchange import RpcExchange
from belvedere.rpc.failures import FLIGHT_ERRORS, describe, first_line, rebuild
from belvedere.rpc.server import RpcServer, Take
from belvedere.rpc.watch import SLOWEST_BYTES_PER_SECOND, Watch

FRAME_DEADLINE = 40.0
"""A frame that is not answered after so many seconds, and those that its size takes, is delivered again."""
STREAM_REPLACED_AFTER = 20.0
"""Seconds; after that there would not be enough time for another frame until the deadline of the exchange."""

_MESSAGES = "messages"
_RECEIVED = b"received"


class FlightTransport(Sending):
    """`Transport` between processes."""

    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        member: MemberId,
        advertise: str = "",
        tls: Certificates | None = None,
    ) -> None:
        """Listens at once, and refuses everything until `start`."""
        super().__init__(member)
        self._client, self._messages = RpcClient(tls=tls), RpcClient(tls=tls)
        self._watch = Watch()
        self._inbox: SenderInbox | None = None
        self._server = RpcServer(host, port, tls=tls, advertise=advertise)
        self._server.serve(exchanges={_MESSAGES: self._accept})

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def port(self) -> int:
        return self._server.port

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None:
        self._server.serve({name: _answering(handler) for name, handler in handlers.items()})
        self._inbox = SenderInbox(self._member, receiver)
        self._server.begin()

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        return self._client.call(address, name, request, timeout)

    def close(self) -> None:
        self._inbox = None
        self._stop_sending()
        self._watch.close()
        self._client.close()
        self._messages.close()
        self._server.close()

    def _link(self, peer: MemberId, locate: Locate) -> OutboxLink:
        hello = {"to": peer, "sender": self._member, "instance": self._instance}
        return _FlightLink(self._messages, self._watch, json.dumps(hello).encode("ascii"), locate)

    def _accept(self, hello: bytes) -> Take:
        """Somebody begins to send messages; each frame of them is answered."""
        greeting = json.loads(hello)
        refusal = b""

        def take(head: memoryview, body: memoryview | None) -> bytes | None:
            nonlocal refusal
            try:
                if not refusal:
                    self._receive(greeting, head, body)
            except Exception as error:
                refusal = describe(error)
            if not frames.is_last(head):
                return None
            answer, refusal = refusal or _RECEIVED, b""
            return answer

        return take

    def _receive(self, greeting: dict[str, str], head: memoryview, body: memoryview | None) -> None:
        inbox, to = self._inbox, MemberId(greeting["to"])
        if inbox is None:
            raise errors.PeerUnavailable(f"member {to} does not take messages now")
        inbox.accept(to, MemberId(greeting["sender"]), greeting["instance"], frames.unpack(head, body))


def _answering(handler: Handler) -> Callable[..., bytes]:
    return lambda request: handler(request.to_pybytes())


class _FlightLink:
    """An exchange with one peer, opened when needed.

    none ──deliver──▶ open ──rest, or it got old──▶ none
                        └──failed, abandoned──▶ none (and the connection is given up)
    """

    def __init__(self, client: RpcClient, watch: Watch, hello: bytes, locate: Locate) -> None:
        self._client = client
        self._watch = watch
        self._hello = hello
        self._locate = locate
        self._lock = threading.Lock()
        self._stream: RpcExchange | None = None
        self._abandoned = False

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        address = self._locate()
        allowed = FRAME_DEADLINE + sum(entry.size for entry in entries) / SLOWEST_BYTES_PER_SECOND
        self._watch.begin(self, address, allowed)
        try:
            stream = self._ready(address, allowed)
            for chunk, body in frames.pack(entries):
                stream.write(chunk, body)
            answer = stream.answer()
        except FLIGHT_ERRORS as error:
            self.rest()
            self._client.drop(address)
            raise errors.PeerUnavailable(f"{address}: {first_line(error)}") from None
        finally:
            self._watch.end(self)
        if answer != _RECEIVED:
            raise rebuild(answer, lambda reason: errors.PeerUnavailable(f"{address}: {reason}"))

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

    def _ready(self, address: str, allowed: float) -> RpcExchange:
        stream = self._stream
        if stream is not None and not stream.serves(address, allowed):
            self.rest()
            stream = None
        if stream is None:
            stream = self._client.exchange(address, _MESSAGES, self._hello, allowed + STREAM_REPLACED_AFTER)
            with self._lock:
                self._stream = stream
                if self._abandoned:
                    stream.cancel()
        return stream
