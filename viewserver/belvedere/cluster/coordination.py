"""`Coordination`: what a member needs of ZooKeeper. Implementations: `memory.py` (tests), `zookeeper.py` (kazoo).

Sessions: CONNECTED; SUSPENDED (the connection is gone, the session may or may not live: the member stops all work that
others could see); LOST (the session ended: the member's node is gone and its name is never used again).

Listeners are called from threads of the implementation, one call at a time, and must not block.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from belvedere.protocol.messages import Member


class Session(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True)
class Versioned:
    """The pool's record. `version` is what a compare-and-set must name; `clock` is the server's time (milliseconds) at
    which this version was written."""

    data: bytes
    version: int
    clock: int


class Coordination(Protocol):
    """One pool as seen by one process. Every call may raise `CoordinationUnavailable`."""

    def start(self, timeout: float) -> None:
        """Connect. Raises `CoordinationUnavailable`, with the reason, when nobody answered in time."""

    def on_session(self, listener: Callable[[Session], None]) -> None: ...

    def join(self, member: Member) -> None:
        """Be a member as long as the session lives. A new `Member` with the same id replaces the entry."""

    def leave(self) -> None: ...

    def members(self) -> list[Member]: ...

    def on_members(self, listener: Callable[[list[Member]], None]) -> None:
        """Called with all members at once, now and after every change."""

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        """Take part in the election. `elected(True)` when it is this one's turn, `elected(False)` when it is not any
        more. It is a hint that keeps candidates out of each other's way; what fences them is the record."""

    def resign(self) -> None: ...

    def read(self) -> Versioned | None:
        """The record; None if the pool has none yet."""

    def create(self, data: bytes) -> Versioned | None:
        """Write the first record; None if there is one already."""

    def swap(self, data: bytes, version: int) -> Versioned | None:
        """Compare-and-set: None if the version is another one by now. `CoordinationUnavailable`: unknown; read."""

    def clock(self) -> int:
        """The server's time in milliseconds, by writing to a node of this member's own."""

    def close(self) -> None: ...
