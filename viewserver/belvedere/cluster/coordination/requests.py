"""What can be asked of a ZooKeeper, and the `ZooKeeperLink` that asks it: one session, kazoo's in `zookeeper.py`.

Everything that Belvedere does in ZooKeeper is made of these requests, so that one module knows the client library.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from belvedere.cluster.coordination.lease import Lease
from belvedere.cluster.coordination.seam import SessionState

GRACE = 1.0
"""Seconds that a server has to answer to the end of a session before the socket is shut."""

Watch: TypeAlias = Callable[[str], None]
"""Called once, with the path, when what was asked about has changed; not when the connection breaks."""


@dataclass(frozen=True)
class ZooKeeperCredentials:
    """Digest authentication. Everything in the pool belongs to who has them; `world_read` lets others look."""

    user: str
    password: str = field(repr=False)
    world_read: bool = False

    def __post_init__(self) -> None:
        if not self.user or ":" in self.user:
            raise ValueError(f"the ZooKeeper user {self.user!r} must not be empty or contain ':'")


class NodeAccess(enum.Enum):
    """Who may use a node that is made."""

    POOL = "who has the pool's credentials; without credentials everyone"
    POOLS = "everyone may make pools below it"
    EVERYONE = "everyone"


@dataclass(frozen=True)
class Stat:
    version: int
    mtime: int
    """Milliseconds, by the server's clock."""
    owner: int
    """Number of the session of an ephemeral node, otherwise 0."""


@dataclass(frozen=True)
class Exists:
    """Answer: `Stat | None`."""

    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Children:
    """Answer: `list[str]`, in no order."""

    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Get:
    """Answer: `tuple[bytes, Stat]`."""

    path: str
    watch: Watch | None = None


@dataclass(frozen=True)
class Set:
    """Answer: `Stat`. Version -1: whatever it is."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True)
class CreateNode:
    """Answer: `Stat`."""

    path: str
    data: bytes = b""
    access: NodeAccess = NodeAccess.POOL
    ephemeral: bool = False


@dataclass(frozen=True)
class CreateIf:
    """An ephemeral node, if there is a node at `guard`. Answer: None; `NoNode` without the guard, else `NodeExists`."""

    guard: str
    path: str
    data: bytes
    sequence: bool = False


@dataclass(frozen=True)
class DeleteNode:
    """Answer: None."""

    path: str


@dataclass(frozen=True)
class Sync:
    """The server of this link catches up with the ensemble. Answer: None."""

    path: str


@dataclass(frozen=True)
class ChangeableByAll:
    """Answer: `bool`, whether more than reading is allowed to everyone."""

    path: str


Request: TypeAlias = Exists | Children | Get | Set | CreateNode | CreateIf | DeleteNode | Sync | ChangeableByAll


class ZooKeeperRefusal(Exception):
    """An answer that says why not; internal to the parts of the ZooKeeper implementation."""


class NoNode(ZooKeeperRefusal):
    pass


class NodeExists(ZooKeeperRefusal):
    pass


class BadVersion(ZooKeeperRefusal):
    pass


class ZooKeeperLink(Protocol):
    """One session. It is over when it is `lost`; whoever holds it makes another."""

    lease: Lease
    key: str
    """Names what belongs to this session."""
    ready: bool
    """What a session needs is in place."""
    problem: str
    """Why there is no session, for people."""

    @property
    def lost(self) -> bool: ...

    @property
    def identity(self) -> tuple[int, bytes] | None:
        """Number and password of the session; None while there is no connection."""

    def open(self) -> None:
        """Begin to connect. Does not wait."""

    def heartbeat(self, path: str) -> None:
        """Ask something, for the lease. Does not wait."""

    def ask(self, request: Request) -> Any:
        """Raises a `ZooKeeperRefusal`; `Incompatible` for what is not allowed; `CoordinationUnavailable` for
        everything whose outcome is not known."""

    def ask_all(self, requests: Iterable[Request]) -> list[Any]:
        """Several at once, in order; a `ZooKeeperRefusal` is in the list."""

    def drop(self) -> None:
        """Break the connection, to find another server in the same session."""

    def stop(self) -> None:
        """End the session if the server can still be told; give up after a moment if not."""


Announce: TypeAlias = Callable[[ZooKeeperLink, SessionState | None], None]
"""Called with the lock held when the state of a link's session changes; without a state, when something was answered or
a connection was made."""

MakeLink: TypeAlias = Callable[[threading.RLock, Announce], ZooKeeperLink]
