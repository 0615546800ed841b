"""A ZooKeeper in memory, shared by the members of a test, with the faults that a test wants at a certain moment.

    zookeeper = MemoryZooKeeper()
    one, other = zookeeper.connect("pool"), zookeeper.connect("pool")
    zookeeper.suspend(one) ... resume(one)        # the network between: SUSPENDED, CONNECTED
    zookeeper.expire(one)                         # the server ends the session: LOST, then CONNECTED in a new session
    zookeeper.suspend(one); expire(one); ...; resume(one)     # others see it gone at once, it hears LOST on resume
    zookeeper.next_swap_unknown(one, happened=True)
    zookeeper.skew_clock(6_000)
    zookeeper.settle()                            # every listener has heard everything

A member is named by its `MemoryCoordination` or by the id under which it joined or campaigns. Everything happens under
one lock, so the order of events is the order of calls; listeners run on a thread of their own for each member.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from belvedere.cluster.coordination.listeners import Notifier
from belvedere.cluster.coordination.seam import (
    SessionState,
    Versioned,
    check_name,
    check_size,
    name_is_spent,
    name_is_taken,
)
from belvedere.errors import CoordinationUnavailable
from belvedere.protocol.messages import Member
from belvedere.protocol.ring import MemberId

_Told = TypeVar("_Told")


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class _Pool:
    record: Versioned | None = None
    members: dict[MemberId, tuple[MemoryCoordination, Member]] = field(default_factory=dict)
    candidates: list[MemoryCoordination] = field(default_factory=list)
    """In the order of their candidacies; the first is elected."""
    connections: list[MemoryCoordination] = field(default_factory=list)

    def listing(self) -> list[Member]:
        return [member for _, (_, member) in sorted(self.members.items())]


class MemoryZooKeeper:
    def __init__(self, now: Callable[[], int] = _wall_clock) -> None:
        self.lock = threading.RLock()
        self._now = now
        self._skew = 0
        self._pools: dict[str, _Pool] = {}

    def connect(self, pool: str = "default") -> MemoryCoordination:
        """A member's `Coordination`; it has a session after `start`."""
        return MemoryCoordination(self, pool)

    # --- faults

    def suspend(self, who: MemoryCoordination | str) -> None:
        """Cut the connection: the session goes on until `expire`."""
        with self.lock:
            self._find(who).cut()

    def resume(self, who: MemoryCoordination | str) -> None:
        """Mend the connection: CONNECTED, or LOST and CONNECTED if the session was ended meanwhile."""
        with self.lock:
            self._find(who).mend()

    def expire(self, who: MemoryCoordination | str) -> None:
        """End the session. Others see it at once; the member when it is connected."""
        with self.lock:
            self._find(who).end_session()

    def next_swap_unknown(self, who: MemoryCoordination | str, *, happened: bool) -> None:
        """The member's next `swap` or `create` raises `CoordinationUnavailable`, having happened or not."""
        with self.lock:
            self._find(who).next_write_happens = happened

    def skew_clock(self, milliseconds: int, who: MemoryCoordination | str | None = None) -> None:
        """Put the server's clock so far ahead of the real one, or only what one member is told by `clock`."""
        with self.lock:
            if who is None:
                self._skew = milliseconds
            else:
                self._find(who).skew = milliseconds

    def settle(self, timeout: float = 10.0) -> None:
        """Wait until every listener has been told everything; what listeners cause in turn is waited for only if they
        do it in the call."""
        with self.lock:
            connections = [each for pool in self._pools.values() for each in pool.connections]
        for _ in range(2):  # what a listener does in a call (it may write the record, say) is told to the others
            for each in connections:
                if not each.notifier.settle(timeout):
                    raise TimeoutError(f"a listener of {each!r} has not returned within {timeout:g} s")

    # --- for the members

    def now(self) -> int:
        return self._now() + self._skew

    def pool(self, name: str) -> _Pool:
        return self._pools.setdefault(name, _Pool())

    def _find(self, who: MemoryCoordination | str) -> MemoryCoordination:
        if isinstance(who, MemoryCoordination):
            return who
        for pool in self._pools.values():
            for each in reversed(pool.connections):
                if who in each.names:
                    return each
        raise KeyError(f"no connection has joined or campaigned as {who!r}")


class MemoryCoordination:
    def __init__(self, server: MemoryZooKeeper, pool: str) -> None:
        check_name("pool", pool)
        self._server = server
        self._lock = server.lock
        self._pool_name = pool
        self._pool = server.pool(pool)
        self._started = False
        self._closed = False
        self._reachable = True
        self._session_lives = False
        self._state: SessionState | None = None
        self._session_listeners: list[Callable[[SessionState], None]] = []
        self._member_listeners: list[Callable[[list[Member]], None]] = []
        self._told: list[Member] | None = None
        self._joined: MemberId | None = None
        self._spent: set[MemberId] = set()
        self._elected: Callable[[bool], None] | None = None
        self._is_elected = False
        self.names: set[str] = set()
        """What `MemoryZooKeeper` knows this one by."""
        self.next_write_happens: bool | None = None
        self.skew = 0
        self.notifier = Notifier("belvedere-memory-zookeeper")

    def __repr__(self) -> str:
        return f"MemoryCoordination(pool={self._pool_name!r}, names={sorted(self.names)})"

    # --- session

    def start(self, timeout: float) -> None:
        with self._lock:
            if self._started or self._closed:
                raise CoordinationUnavailable("start was called before on this connection to ZooKeeper: make another")
            if not self._reachable:
                raise CoordinationUnavailable(f"ZooKeeper (in memory) did not answer within {timeout:g} s: suspended")
            self._started = True
            self._pool.connections.append(self)
            self._open_session()

    @property
    def session(self) -> SessionState:
        return SessionState.SUSPENDED if self._state is None else self._state

    def lease_valid(self) -> bool:
        return self._session_lives and self._reachable and self._state is SessionState.CONNECTED

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        with self._lock:
            self._session_listeners.append(listener)
            if self._state is not None:
                self._tell(listener, self._state)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._session_lives:
                self._session_lives = False
                self._remove_what_is_ephemeral()
            if self in self._pool.connections:
                self._pool.connections.remove(self)
            self._state = None
        self.notifier.close()

    # --- members

    def join(self, member: Member) -> None:
        check_name("member", member.id)
        with self._lock:
            self._require_session()
            if member.id in self._spent:
                raise name_is_spent(member.id)
            if self._joined not in (None, member.id):
                raise ValueError(f"this connection is member {self._joined!r} and cannot be {member.id!r} as well")
            holder = self._pool.members.get(member.id)
            if holder is not None and holder[0] is not self:
                raise name_is_taken(member.id, self._pool_name)
            self._joined = member.id
            self.names.add(member.id)
            self._pool.members[member.id] = (self, member)
            self._members_changed()

    def leave(self) -> None:
        with self._lock:
            self._require_session()
            if self._joined is not None:
                self._drop_member()
                self._members_changed()

    def members(self) -> list[Member]:
        with self._lock:
            self._require_session()
            return self._pool.listing()

    def on_members(self, listener: Callable[[list[Member]], None]) -> None:
        with self._lock:
            if not self._member_listeners and self._connected():
                self._told = self._pool.listing()
            self._member_listeners.append(listener)
            if self._told is not None:
                self._tell(listener, list(self._told))

    # --- election

    def campaign(self, candidate: str, elected: Callable[[bool], None]) -> None:
        check_name("candidate", candidate)
        with self._lock:
            self._require_session()
            if self._elected is not None:
                raise ValueError(f"{candidate!r} cannot campaign: this connection takes part in the election already")
            self.names.add(candidate)
            self._elected = elected
            self._pool.candidates.append(self)
            self._hold_election()

    def resign(self) -> None:
        with self._lock:
            if self._elected is not None:
                self._end_candidacy()
                self._hold_election()

    # --- the record

    def read(self) -> Versioned | None:
        with self._lock:
            self._require_session()
            return self._pool.record

    def create(self, data: bytes) -> Versioned | None:
        return self._write(data, None)

    def swap(self, data: bytes, version: int) -> Versioned | None:
        return self._write(data, version)

    def clock(self) -> int:
        with self._lock:
            self._require_session()
            return self._server.now() + self.skew

    def _write(self, data: bytes, version: int | None) -> Versioned | None:
        check_size(self._pool_name, data)
        with self._lock:
            self._require_session()
            happens, self.next_write_happens = self.next_write_happens, None
            if happens is False:
                raise CoordinationUnavailable("ZooKeeper (in memory) did not answer: the write did not happen")
            found = self._pool.record
            written = None
            if (None if found is None else found.version) == version:
                written = Versioned(bytes(data), 0 if version is None else version + 1, self._server.now())
                self._pool.record = written
            if happens is True:
                raise CoordinationUnavailable("ZooKeeper (in memory) did not answer: the write did happen")
            return written

    # --- what happens to it (called with the lock held)

    def cut(self) -> None:
        self._reachable = False
        if self._state is SessionState.CONNECTED:
            self._change_state(SessionState.SUSPENDED)

    def mend(self) -> None:
        self._reachable = True
        if not self._started or self._closed:
            return
        if not self._session_lives:
            self._lose_session()
        elif self._state is SessionState.SUSPENDED:
            self._change_state(SessionState.CONNECTED)
            self._catch_up()

    def end_session(self) -> None:
        if not self._session_lives:
            return
        self._session_lives = False
        self._remove_what_is_ephemeral()
        if self._reachable:
            self._lose_session()

    def _open_session(self) -> None:
        self._session_lives = True
        self._change_state(SessionState.CONNECTED)
        self._catch_up()

    def _lose_session(self) -> None:
        self._change_state(SessionState.LOST)
        self._end_candidacy()
        self._spend_name()
        self._open_session()

    def _remove_what_is_ephemeral(self) -> None:
        """At the server: others see it, this member does not yet."""
        if self._joined is not None:
            self._pool.members.pop(self._joined, None)
        if self in self._pool.candidates:
            self._pool.candidates.remove(self)
        self._members_changed()
        self._hold_election()

    def _drop_member(self) -> None:
        if self._joined is not None:
            self._pool.members.pop(self._joined, None)
            self._spend_name()

    def _spend_name(self) -> None:
        if self._joined is not None:
            self._spent.add(self._joined)
            self._joined = None

    def _end_candidacy(self) -> None:
        if self in self._pool.candidates:
            self._pool.candidates.remove(self)
        if self._elected is not None and self._is_elected:
            self._tell(self._elected, False)
        self._elected, self._is_elected = None, False

    def _catch_up(self) -> None:
        """Hear what was missed while there was no connection."""
        self.hear_members(self._pool.listing())
        self.hear_election()

    def _members_changed(self) -> None:
        listing = self._pool.listing()
        for each in self._pool.connections:
            each.hear_members(listing)

    def _hold_election(self) -> None:
        for each in self._pool.candidates[:1]:
            each.hear_election()

    def hear_members(self, listing: list[Member]) -> None:
        if self._member_listeners and self._connected() and listing != self._told:
            self._told = listing
            for listener in self._member_listeners:
                self._tell(listener, list(listing))

    def hear_election(self) -> None:
        its_turn = self._pool.candidates[:1] == [self]
        if self._connected() and self._elected is not None and its_turn and not self._is_elected:
            self._is_elected = True
            self._tell(self._elected, True)

    def _change_state(self, state: SessionState) -> None:
        self._state = state
        for listener in self._session_listeners:
            self._tell(listener, state)

    def _tell(self, listener: Callable[[_Told], None], value: _Told) -> None:
        self.notifier.post(lambda: listener(value))

    def _connected(self) -> bool:
        return self._state is SessionState.CONNECTED and self._session_lives and self._reachable

    def _require_session(self) -> None:
        if self._closed:
            raise CoordinationUnavailable("the connection to ZooKeeper (in memory) was closed")
        if not self._connected():
            raise CoordinationUnavailable(
                f"ZooKeeper (in memory) is not connected: the session is {self.session.value}"
            )
