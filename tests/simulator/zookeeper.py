"""The simulated ZooKeeper: sessions, members, the election, and the record with its compare-and-set.

A session lives as long as its client is heard of within the timeout; who is paused, crashed or cut off is not. The
server ends a session, and everybody else sees it; the client hears of it when it is there again. Requests take time
both ways; one that is under way when the connection breaks may have happened or not, or may happen yet, and its
client is told that nobody knows.

The record is changed by whoever names its version: also by a client whose session has ended meanwhile (a client
library that connects again sends what it had queued). Only versions fence.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from belvedere.protocol.messages import Member, PoolState
from belvedere.protocol.ring import MemberId
from tests.simulator.scheduler import MS, Scheduler
from tests.simulator.trace import Trace

Answer = Callable[[], None]

LATE = (0, 300 * MS, 900 * MS)
"""So long after its client was told that nobody knows, a compare-and-set may arrive."""


@dataclass
class Session:
    """One client's. `heard`: events for it, delivered when it is connected."""

    name: MemberId
    on_members: Callable[[tuple[Member, ...]], None]
    on_turn: Callable[[bool], None]
    on_connection: Callable[[bool], None]
    on_lost: Callable[[], None]
    connected: bool = True
    alive: bool = True
    """As the server sees it."""
    dead: bool = False
    """The client is gone and will not come back."""
    silent_since: int = 0
    broken_until: int = 0
    told_members: tuple[Member, ...] | None = None
    told_turn: bool = False
    told_at: int = 0
    """When the last of what it is told arrives: ZooKeeper keeps the order within a session."""


@dataclass
class Trouble:
    """Of requests. `unknown`: share of compare-and-sets whose answer is lost, having happened or not."""

    delay: int = 1 * MS
    unknown: float = 0.0
    stale: float = 0.0
    """Share of reads that are answered by a server which is behind."""
    slow: float = 0.0


@dataclass
class Record:
    state: PoolState | None = None
    version: int = -1
    clock: int = 0


class ZooKeeper:
    def __init__(
        self, scheduler: Scheduler, rng: random.Random, trouble: Trouble, timeout: int, trace: Trace | None = None
    ) -> None:
        self.trouble = trouble
        self.timeout = timeout
        """Of sessions, microseconds."""
        self.record = Record()
        self.on_record: Callable[[PoolState | None, PoolState], None] = lambda before, after: None
        self.members: dict[MemberId, Member] = {}
        self._trace = trace or Trace()
        self._scheduler = scheduler
        self._random = rng
        self._sessions: dict[MemberId, Session] = {}
        self._candidates: list[MemberId] = []
        self._spent: set[MemberId] = set()
        self._older: list[Record] = []
        self._seen: dict[MemberId, int] = {}
        """The newest version of the record that each client has seen."""

    # --- sessions

    def connect(self, session: Session) -> None:
        if session.name in self._spent:
            raise AssertionError(f"the name {session.name} was used before")
        self._spent.add(session.name)
        self._sessions[session.name] = session

    def die(self, name: MemberId) -> None:
        """The client was killed: the server notices by and by."""
        self.fall_silent(name)
        session = self._sessions.get(name)
        if session is not None:
            session.dead = True

    def fall_silent(self, name: MemberId) -> None:
        """The client cannot say anything: nothing tells it, and the server notices by and by."""
        session = self._sessions.get(name)
        if session is not None and session.connected:
            session.connected = False
            session.silent_since = self._scheduler.now
            self._expire_later(session)

    def break_connection(self, name: MemberId, until: int) -> None:
        """The client is there and cannot reach the server: SUSPENDED."""
        session = self._sessions.get(name)
        if session is None or not session.connected:
            return
        session.broken_until = until
        self.fall_silent(name)
        session.on_connection(False)
        self._scheduler.at(until, lambda: self.return_(name))

    def return_(self, name: MemberId) -> None:
        """The client is heard of again."""
        session = self._sessions.get(name)
        if session is None or session.connected or session.dead or session.broken_until > self._scheduler.now:
            return
        if not session.alive:
            del self._sessions[name]
            session.on_lost()
            return
        session.connected = True
        session.on_connection(True)
        self._tell_members(session)
        self._hold_election()

    def expire(self, name: MemberId) -> None:
        """The server ends the session, for reasons of its own."""
        session = self._sessions.get(name)
        if session is not None and session.alive:
            self._end(session)
            if session.connected:
                del self._sessions[name]
                session.on_lost()

    def leave(self, name: MemberId) -> None:
        """The client says goodbye."""
        session = self._sessions.pop(name, None)
        if session is not None and session.alive:
            self._end(session)

    def lives(self, name: MemberId) -> bool:
        session = self._sessions.get(name)
        return session is not None and session.alive

    def connected(self, name: MemberId) -> bool:
        session = self._sessions.get(name)
        return session is not None and session.connected

    def _expire_later(self, session: Session) -> None:
        since = session.silent_since

        def expire() -> None:
            if session.alive and not session.connected and session.silent_since == since:
                self._end(session)

        self._scheduler.after(int(self.timeout * (0.7 + 0.3 * self._random.random())), expire)

    def _end(self, session: Session) -> None:
        session.alive = False
        if session.name in self._candidates:
            self._candidates.remove(session.name)
        self.members.pop(session.name, None)
        self._members_changed()
        self._hold_election()

    # --- members and election

    def join(self, member: Member) -> None:
        session = self._sessions.get(member.id)
        if session is not None and session.alive:
            self.members[member.id] = member
            self._members_changed()

    def ask_to_leave(self, name: MemberId) -> None:
        if name in self.members:
            self.members[name] = replace(self.members[name], leaving=True)
            self._members_changed()

    def campaign(self, name: MemberId) -> None:
        if self.lives(name) and name not in self._candidates:
            self._candidates.append(name)
            self._hold_election()

    def resign(self, name: MemberId) -> None:
        """To the end of the queue."""
        if name in self._candidates:
            self._candidates.remove(name)
            session = self._sessions[name]
            if session.told_turn:
                session.told_turn = False
                self._tell(session, lambda: session.on_turn(False))
            self._hold_election()

    def _members_changed(self) -> None:
        for session in self._sessions.values():
            self._tell_members(session)

    def _tell_members(self, session: Session) -> None:
        """Listings may be late, but not older than one that was told; several changes may be told as one."""

        def tell() -> None:
            listing = tuple(member for _, member in sorted(self.members.items()))
            if listing != session.told_members:
                session.told_members = listing
                session.on_members(listing)

        self._tell(session, tell)

    def _hold_election(self) -> None:
        if not self._candidates:
            return
        session = self._sessions.get(self._candidates[0])
        if session is None or session.told_turn or not session.connected:
            return
        session.told_turn = True

        def missed() -> None:
            session.told_turn = False  # clients look again when they are connected

        self._tell(session, lambda: session.on_turn(True), missed)

    def _tell(self, session: Session, tell: Answer, missed: Answer = lambda: None) -> None:
        def arrive() -> None:
            if session.connected and session.alive:
                tell()
            else:
                missed()

        session.told_at = max(session.told_at + 1, self._scheduler.now + self._delay())
        self._scheduler.at(session.told_at, arrive)

    # --- the record

    def read(self, name: MemberId, answer: Callable[[Record | None], None], synced: bool = False) -> None:
        """`answer(None)`: nobody answered. `synced`: never an old record."""

        def arrive() -> None:
            if not self.connected(name):
                self._scheduler.after(self._delay(), lambda: answer(None))
                return
            found = replace(self.record if synced else self._as_seen_by(name), clock=self._scheduler.clock())
            self._seen[name] = max(found.version, self._seen.get(name, -1))
            self._scheduler.after(self._delay(), lambda: answer(found))

        self._scheduler.after(self._delay(), arrive)

    def _as_seen_by(self, name: MemberId) -> Record:
        """The record, or an older one that a server which is behind still has: not older than what it told this client
        before."""
        behind = [record for record in self._older if record.version >= self._seen.get(name, -1)]
        if not behind or self._random.random() >= self.trouble.stale:
            return self.record
        self._trace.effect(self._scheduler.now, "ZooKeeper", "answered with an old record")
        return self._random.choice(behind)

    def lose(self) -> bool:
        """The last writes are gone, although they were acknowledged. True if a commit was among them."""
        for record in reversed(self._older):
            assert record.state is not None and self.record.state is not None
            if record.state.committed < self.record.state.committed:
                self.record = replace(record)
                return True
        return False

    def swap(self, name: MemberId, state: PoolState, version: int, answer: Callable[[str, Record], None]) -> None:
        """`answer(outcome, record)`: done, conflict, unknown. A version of -1 creates."""
        reached = self.connected(name)
        lost = not reached or self._random.random() < self.trouble.unknown
        happens_yet = lost and self._random.random() < 0.5

        def arrive() -> None:
            done = not lost and self._write(state, version)
            if not lost and self.connected(name):
                outcome, found = "done" if done else "conflict", replace(self.record)
                self._seen[name] = found.version
                self._scheduler.after(self._delay(), lambda: answer(outcome, found))
                return
            told = self._delay() * 20
            self._scheduler.after(told, lambda: answer("unknown", Record()))
            late = self._random.choice(LATE)
            if happens_yet:
                self._scheduler.after(told + late if late else 0, lambda: self._write_late(state, version, late))
            fate = f"happens {late // MS} ms later" if happens_yet else "is lost" if lost else "has happened"
            self._trace.record(self._scheduler.now, "ZooKeeper", f"{name} does not hear that this {fate}:", state)

        self._scheduler.after(self._delay() * (1 if reached else 10), arrive)

    def _write_late(self, state: PoolState, version: int, late: int) -> None:
        if self._write(state, version) and late:
            self._trace.effect(self._scheduler.now, "ZooKeeper", "compare-and-set after its answer")

    def _write(self, state: PoolState, version: int) -> bool:
        if version != self.record.version:
            return False
        before = self.record.state
        self._older = [*self._older[-2:], self.record] if before is not None else []
        self.record = Record(state, self.record.version + 1, self._scheduler.clock())
        self.on_record(before, state)
        return True

    def delay(self) -> int:
        """Of a request or an answer."""
        return self._delay()

    def _delay(self) -> int:
        delay = int(self.trouble.delay * (0.2 + 1.6 * self._random.random()))
        if self.trouble.slow and self._random.random() < self.trouble.slow:
            delay *= 50
        return delay


__all__ = ["Record", "Session", "Trouble", "ZooKeeper"]
