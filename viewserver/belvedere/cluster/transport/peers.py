"""Whom a member talks to: addresses come from ZooKeeper, messages wait until they may go.

A message to a member waits here as long as

* this process has not heard of the member yet: whoever named it may hear of new members earlier;
* the session may have ended (SUSPENDED, or a pause of the whole process): others may believe this member dead, so
  nothing of it must be seen. What waits goes out, in order, when the session is known to live; after LOST nothing
  does.

A member that was listed and is not any more will never come back under its name: what is queued for it is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from belvedere.cluster.transport.seam import Payload
from belvedere.protocol.messages import Member, Message
from belvedere.protocol.ring import MemberId

STRANGER_SECONDS = 60.0
"""Whoever is not listed for so long was lost before anybody heard of it."""

_Letter = tuple[MemberId, Message, Payload | None]


class Posts(Protocol):
    """What is needed of a `Transport`."""

    def know(self, peer: MemberId, address: str) -> None: ...

    def send(self, peer: MemberId, message: Message, payload: Payload | None = None) -> None: ...

    def forget(self, peer: MemberId) -> None: ...


class Peers:
    def __init__(
        self, transport: Posts, may_act: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport, self._may_act, self._clock = transport, may_act, clock
        self._lock = threading.Lock()
        self._known: dict[MemberId, Member] = {}
        self._gone: set[MemberId] = set()
        self._strangers: dict[MemberId, tuple[float, list[_Letter]]] = {}
        self._held: deque[_Letter] = deque()

    def listed(self, members: Iterable[Member]) -> None:
        """All members that there are, as ZooKeeper tells it."""
        with self._lock:
            present = {member.id: member for member in members}
            for gone in [member for member in self._known if member not in present]:
                self._forget(gone)
            for member in present.values():
                self._known[member.id] = member
                self._transport.know(member.id, member.address)
                for letter in self._strangers.pop(member.id, (0.0, ()))[1]:
                    self._post(letter)
            overdue = self._clock() - STRANGER_SECONDS
            self._strangers = {to: one for to, one in self._strangers.items() if one[0] > overdue}

    def send(self, to: MemberId, message: Message, payload: Payload | None = None) -> None:
        """Never blocks; from any thread."""
        with self._lock:
            letter = (to, message, payload)
            if to in self._known:
                self._post(letter)
            elif to not in self._gone:
                self._strangers.setdefault(to, (self._clock(), []))[1].append(letter)

    def forget(self, member: MemberId) -> None:
        with self._lock:
            self._forget(member)

    def flush(self) -> None:
        """Called now and then: send what was held back, if that is allowed again."""
        with self._lock:
            while self._held and self._may_act():
                self._transport.send(*self._held.popleft())

    def member(self, member: MemberId) -> Member | None:
        return self._known.get(member)

    def members(self) -> list[Member]:
        with self._lock:
            return [member for _, member in sorted(self._known.items())]

    def held(self) -> int:
        return len(self._held) + sum(len(letters) for _, letters in self._strangers.values())

    def held_bytes(self) -> int:
        """Payloads that wait here, and are in no transport's backlog yet."""
        with self._lock:
            if not self._held and not self._strangers:
                return 0
            letters = [*self._held, *(letter for _, some in self._strangers.values() for letter in some)]
            return sum(memoryview(payload).nbytes for _, _, payload in letters if payload is not None)

    def _post(self, letter: _Letter) -> None:
        if self._held or not self._may_act():
            self._held.append(letter)
        else:
            self._transport.send(*letter)

    def _forget(self, member: MemberId) -> None:
        self._known.pop(member, None)
        self._gone.add(member)
        self._strangers.pop(member, None)
        self._held = deque(letter for letter in self._held if letter[0] != member)
        self._transport.forget(member)
