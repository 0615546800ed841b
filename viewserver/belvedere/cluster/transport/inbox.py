"""What a transport does with messages that arrive: in order, repeats dropped, one at a time for each sender.

A sender that got no answer delivers the same entries again, perhaps while a thread here still works on the first
delivery, and perhaps so late that newer ones came in between. Its numbers only grow, so whatever is not above the last
one received is a repeat. Nothing else is ever dropped: the number moves on only when the receiver has returned.

Numbers belong to an instance of a transport, not to a member; a process that starts again counts afresh. A filter that
was thrown away (see `REMEMBERED`) lets a repeat through, which the roles know how to drop.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from belvedere import errors
from belvedere.cluster.transport.seam import Receiver
from belvedere.protocol import wire
from belvedere.protocol.ring import MemberId

REMEMBERED = 10_000
"""Senders; the one that was heard longest ago is forgotten first."""


@dataclass
class _Heard:
    lock: threading.Lock = field(default_factory=threading.Lock)
    last: int = -1


class SenderInbox:
    def __init__(self, member: MemberId, receiver: Receiver) -> None:
        self._member = member
        self._receiver = receiver
        self._lock = threading.Lock()
        self._senders: OrderedDict[str, _Heard] = OrderedDict()

    def accept(
        self,
        to: MemberId,
        sender: MemberId,
        instance: str,
        entries: Iterable[tuple[int, bytes | memoryview, memoryview | None]],
    ) -> None:
        """Hand over (number, message, payload) of one delivery. When this returns, all of them are received."""
        if to != self._member:  # its address is ours now; the sender keeps the messages until it forgets the member
            raise errors.PeerUnavailable(f"member {to} is gone; member {self._member} has its address")
        heard = self._heard(instance)
        with heard.lock:
            for number, head, payload in entries:
                if number > heard.last:
                    self._receiver(sender, wire.decode(head), payload)
                    heard.last = number

    def _heard(self, instance: str) -> _Heard:
        with self._lock:
            heard = self._senders.setdefault(instance, _Heard())
            self._senders.move_to_end(instance)
            if len(self._senders) > REMEMBERED:
                self._senders.popitem(last=False)
            return heard
