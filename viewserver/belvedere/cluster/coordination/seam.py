"""`Coordination`: what a member needs of ZooKeeper. Implementations: `memory.py` (tests), `zookeeper.py` (kazoo).

    start -> CONNECTED <-> SUSPENDED
                 |             |
                 +--> LOST <---+        LOST -> CONNECTED: another session, which knows nothing of the first

CONNECTED; SUSPENDED (the connection is gone, the session may or may not live: the member stops all work that others
could see); LOST (the session ended: the member's node and its candidacy are gone, and its name is never used again).
After LOST the object connects anew by itself; the process may then join under a name that it has not used before.

Between a pause of the process and the moment when its threads notice, only `lease_valid` tells the truth: ask it right
before doing what must not be done by a member that others believe dead.

Listeners are called from one thread of the implementation, one call at a time, in the order of what happened, and must
not block. An exception of a listener is logged and changes nothing.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from belvedere.errors import Incompatible
from belvedere.protocol.messages import PROTOCOL, UNTOLD_ENGINE, Member, Role
from belvedere.protocol.ring import MemberId


class SessionState(enum.Enum):
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
    """One pool as seen by one process. Every call may raise `CoordinationUnavailable`: at once while the session is
    not CONNECTED, otherwise when no answer came in time."""

    def start(self, timeout: float) -> None:
        """Connect. Raises `CoordinationUnavailable`, with the reason, when nobody answered in time, and `Incompatible`
        when the pool belongs to others."""

    @property
    def session(self) -> SessionState:
        """What the listeners were, or are about to be, told last; SUSPENDED before `start` and after `close`."""

    def lease_valid(self) -> bool:
        """Whether the session certainly lives at this moment: the server answered something that was asked less than
        the session timeout (minus a margin) ago. Asks nobody, never raises, and is true only while CONNECTED."""

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Called with every change from now on, and first with the present state if there is a session already."""

    def join(self, member: Member) -> None:
        """Be a member as long as the session lives. A new `Member` with the same id replaces the entry. `Incompatible`:
        the name was used in a session of this process that ended, or is in use by another process."""

    def leave(self) -> None:
        """Be no member any more. The name may not be used again. No effect on who is not a member."""

    def members(self) -> list[Member]:
        """All members, by id. Those of a role that this version does not know are left out."""

    def on_members(self, listener: Callable[[list[Member]], None]) -> None:
        """Called with all members at once, now (when there is a session) and after every change; changes that follow
        each other quickly may be told as one, and a list equal to the one before is not told again."""

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        """Take part in the election. `elected(True)` when it is this one's turn, `elected(False)` when it is not any
        more. It is a hint that keeps candidates out of each other's way; what fences them is the record. SUSPENDED
        alone changes nothing; LOST ends the candidacy, and whoever wants to go on campaigns again."""

    def resign(self) -> None:
        """Give up the candidacy, after `elected(False)` if this one was elected. Does not wait for ZooKeeper."""

    def read(self) -> Versioned | None:
        """The record, not older than any write that was finished before the call; None if the pool has none yet."""

    def create(self, data: bytes) -> Versioned | None:
        """Write the first record; None if there is one already. `CoordinationUnavailable`: unknown; read."""

    def swap(self, data: bytes, version: int) -> Versioned | None:
        """Compare-and-set: None if the version is another one by now. `CoordinationUnavailable`: unknown; read. (If it
        has not happened by then it may still happen, as long as nobody else changes the record.)"""

    def clock(self) -> int:
        """The server's time in milliseconds, by writing to a node of this member's own."""

    def close(self) -> None:
        """End the session: no member, no candidate any more. Listeners hear nothing afterwards. Never raises."""


def encode_member(member: Member) -> bytes:
    fields = {
        "id": member.id,
        "role": member.role.value,
        "address": member.address,
        "oldest_protocol": member.oldest_protocol,
        "newest_protocol": member.newest_protocol,
        "cluster": member.cluster,
        "leaving": member.leaving,
        "oldest_engine": member.oldest_engine,
        "newest_engine": member.newest_engine,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode_member(data: bytes) -> Member | None:
    """The member in `data`; fields that this version does not know are ignored and missing ones have their default.
    None for what is no member of any role that this version knows: a newer one may bring roles that old ones can only
    overlook, and one damaged entry must not hide the others."""
    try:
        fields: Any = json.loads(data)
        return Member(
            id=MemberId(str(fields["id"])),
            role=Role(fields["role"]),
            address=str(fields.get("address", "")),
            oldest_protocol=int(fields.get("oldest_protocol", PROTOCOL)),
            newest_protocol=int(fields.get("newest_protocol", PROTOCOL)),
            cluster=str(fields.get("cluster", "")),
            leaving=bool(fields.get("leaving", False)),
            oldest_engine=int(fields.get("oldest_engine", UNTOLD_ENGINE)),
            newest_engine=int(fields.get("newest_engine", UNTOLD_ENGINE)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


NODE_LIMIT = 1_000_000
"""Bytes. A ZooKeeper server ends the connection of who sends much more (jute.maxbuffer), without saying why."""


def check_size(pool: str, data: bytes) -> None:
    if len(data) > NODE_LIMIT:
        raise ValueError(f"the record of pool {pool!r} has {len(data):,} bytes; ZooKeeper takes {NODE_LIMIT:,} at most")


def check_name(kind: str, name: str) -> None:
    """Names become parts of paths."""
    if not name or "/" in name or name in (".", "..") or any(ord(character) < 32 for character in name):
        raise ValueError(f"the {kind} {name!r} cannot be a part of a path in ZooKeeper: use letters, digits, '-', '.'")


def check_cluster(pool: str, expected: str, found: str) -> None:
    """Refuse to work on a pool of the same name in the same ZooKeeper that another cluster has made."""
    if expected != found:
        raise Incompatible(
            f"pool {pool!r} in ZooKeeper belongs to cluster {found!r}, this process to cluster {expected!r}: "
            "give one of the two pools another name, or another path in ZooKeeper"
        )


def name_is_spent(member: MemberId) -> Incompatible:
    return Incompatible(
        f"member {member!r} cannot join again: its session ended or it left, and a name is never used again; "
        "join as a new incarnation"
    )


def name_is_taken(member: MemberId, pool: str) -> Incompatible:
    return Incompatible(
        f"member {member!r} is in pool {pool!r} already, from another session: every process needs a name of its own"
    )
