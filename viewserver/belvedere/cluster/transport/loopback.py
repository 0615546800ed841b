"""A transport without a network, for tests: transports that were made by one `Hub` reach each other.

Messages are encoded and decoded as on a real wire, queued per peer and delivered by a thread per peer, so that what
works here does not work by sharing objects. Faults are set on the hub: an address that nobody reaches (`cut`), answers
that get lost after the messages were received (`lose_answers`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from belvedere import errors
from belvedere.cluster.transport.inbox import SenderInbox
from belvedere.cluster.transport.outbox import OutboxEntry, OutboxLink
from belvedere.cluster.transport.seam import Handler, Receiver
from belvedere.cluster.transport.sending import Locate, Sending
from belvedere.protocol.ring import MemberId


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[str, LoopbackTransport] = {}
        self._cut: set[str] = set()
        self._lost_answers: dict[str, int] = {}

    def transport(self, member: MemberId) -> LoopbackTransport:
        return LoopbackTransport(self, member)

    def cut(self, address: str) -> None:
        """From now on nothing gets there."""
        with self._lock:
            self._cut.add(address)

    def mend(self, address: str) -> None:
        with self._lock:
            self._cut.discard(address)

    def lose_answers(self, address: str, count: int) -> None:
        """The next `count` deliveries arrive there, and their sender does not get to know it."""
        with self._lock:
            self._lost_answers[address] = count

    def _enter(self, address: str, transport: LoopbackTransport) -> None:
        with self._lock:
            self._there[address] = transport

    def _leave(self, address: str) -> None:
        with self._lock:
            self._there.pop(address, None)

    def _reach(self, address: str) -> LoopbackTransport:
        with self._lock:
            if address in self._cut or address not in self._there:
                raise errors.PeerUnavailable(f"{address} does not answer")
            return self._there[address]

    def _answer_is_lost(self, address: str) -> bool:
        with self._lock:
            left = self._lost_answers.get(address, 0)
            self._lost_answers[address] = max(left - 1, 0)
            return left > 0


class LoopbackTransport(Sending):
    def __init__(self, hub: Hub, member: MemberId) -> None:
        super().__init__(member)
        self._hub = hub
        self._address = f"loopback://{member}/{uuid.uuid4().hex[:8]}"
        self._inbox: SenderInbox | None = None
        self._handlers: dict[str, Handler] = {}

    @property
    def address(self) -> str:
        return self._address

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None:
        self._inbox = SenderInbox(self._member, receiver)
        self._handlers = dict(handlers)
        self._hub._enter(self._address, self)

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        """The handler runs in a thread of its own, so that `timeout` holds; it is not interrupted."""
        handler = self._hub._reach(address)._handlers.get(name)
        if handler is None:
            raise errors.Incompatible(f"{address} does not know the call {name}")
        answer: list[bytes] = []
        failure: list[Exception] = []

        def run() -> None:
            try:
                answer.append(handler(request))
            except Exception as error:
                failure.append(error)

        thread = threading.Thread(target=run, name=f"call {name}", daemon=True)
        thread.start()
        thread.join(timeout)
        if answer:
            return answer[0]
        if not failure:
            raise errors.PeerUnavailable(f"{address} did not answer {name} within {timeout:g} s")
        if isinstance(failure[0], errors.BelvedereError):
            raise failure[0]
        raise errors.PeerUnavailable(f"{address} failed in {name}: {failure[0]}") from failure[0]

    def close(self) -> None:
        self._hub._leave(self._address)
        self._stop_sending()

    def _link(self, peer: MemberId, locate: Locate) -> OutboxLink:
        return _LoopbackLink(self, peer, locate)


@dataclass(frozen=True)
class _LoopbackLink:
    transport: LoopbackTransport
    peer: MemberId
    locate: Locate

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        hub, address = self.transport._hub, self.locate()
        inbox = hub._reach(address)._inbox
        assert inbox is not None
        parts = [(entry.number, entry.head, entry.payload) for entry in entries]
        inbox.accept(self.peer, self.transport.member, self.transport._instance, parts)
        if hub._answer_is_lost(address):
            raise errors.PeerUnavailable(f"{address} did not answer")

    def rest(self) -> None:
        """There is no connection to give back."""

    def abandon(self) -> None:
        """A receiver that is running cannot be interrupted."""
