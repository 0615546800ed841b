"""One process of a pool, from its start to its end, and what all roles have in common.

    start ──ZooKeeper, store, compatible──▶ incarnation ──LOST──▶ another incarnation, with a new name
             │ no answer: again, for ever       │ SIGTERM: leaving ──released──▶ end (0)
             │ incompatible: end (1)            └──────────── after 7 s ───────▶ end (1), with the reason

An `Incarnation` is a member: a session with ZooKeeper, a transport, a machine. All of it goes when the session is lost,
and nothing of it is used again. What lasts as long as the process: its options, the HTTP port, the store's client.

Why it is safe: the machine is touched by the loop's thread only. What others could see (messages, writes) passes a look
at the lease first (`Peers`, `may_act`), which is also true of a process that was paused and has noticed nothing yet.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import faulthandler
import functools
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from belvedere import __version__, allocator, errors
from belvedere.backend.opening import leaves_state
from belvedere.backend.seam import Backend, BaseTables, Follower, Sources, Store
from belvedere.cluster.coordination.clock import Clock
from belvedere.cluster.coordination.seam import Coordination, SessionState, check_cluster
from belvedere.cluster.process.health import Health
from belvedere.cluster.process.logs import Log
from belvedere.cluster.process.loop import Loop, Worker
from belvedere.cluster.process.metrics import CONTENT_TYPE, Metrics
from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.process.retrying import Troubles
from belvedere.cluster.process.signals import bound_the_end
from belvedere.cluster.transport.peers import Peers
from belvedere.cluster.transport.seam import Handler, Payload, Transport
from belvedere.protocol import wire
from belvedere.protocol.driving import Note
from belvedere.protocol.engines import engine_objection
from belvedere.protocol.messages import Member, Message, PoolState, Role
from belvedere.protocol.ring import MemberId
from belvedere.retry import Backoff, Retry, Superseded
from belvedere.rpc.addresses import location

TICK_SECONDS = 0.1
"""Of roles whose machines know no time: an idle process should cost next to nothing."""
FIGURES_SECONDS = 1.0
SWITCH_SECONDS = 0.0005
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 2.7
"""From when it leaves, released or not, to the end of the process, whatever it waits for."""
WARNINGS = frozenset(("failed", "attempt failed", "contradiction", "member refused", "store does not answer"))
WHISPERS = frozenset(("committed", "planned"))
"""Notes of machines that are warnings, and those that come with every epoch."""


NO_PART = "it has no part in a generation yet: is there a coordinator that leads?"


class ProcessEnd(enum.Enum):
    """How an incarnation ended."""

    LOST = "its session ended"
    MOVED = "the store has another address"
    LEFT = "it left"
    GAVE_UP = "it could not leave in time"


@dataclass
class Surroundings:
    """What the process gives to each of its incarnations."""

    options: ProcessOptions
    me: MemberId
    cluster: str
    coordination: Coordination
    store: Store
    sources: Sources
    store_address: str
    base: BaseTables | None
    """The store's base tables, where it has any."""
    follower: Follower | None
    """Where base tables are another system's."""
    transport: Transport
    trouble: Troubles
    log: Log
    metrics: Metrics
    http: str
    """Where /metrics, /healthz and /readyz are; empty if nowhere."""
    tick: Callable[[], None]
    """To be called in every round of the loop."""


class Incarnation(abc.ABC):
    """A member, from joining to its end. Roles add their machine and carry out what it says."""

    role: Role
    tick_seconds = TICK_SECONDS

    def __init__(self, around: Surroundings) -> None:
        self.around, self.options, self.me = around, around.options, around.me
        self.log, self.metrics = around.log, around.metrics
        self.loop = Loop()
        self._workers: list[Worker] = []
        self.peers = Peers(around.transport, self.may_act)
        self.zookeeper = self.worker("zookeeper")
        self.clock = Clock()
        self.joined = False
        self.ended: ProcessEnd | None = None
        self.leave_by: float | None = None
        self._figures_at = 0.0
        oldest, newest = self.options.protocols
        address, engines = around.transport.address, self.options.engines
        self.member = Member(self.me, self.role, address, oldest, newest, around.cluster, False, *engines)

    # ------------------------------------------------------------------ for roles

    @abc.abstractmethod
    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        """A message has come (in the loop)."""

    @property
    @abc.abstractmethod
    def released(self) -> bool:
        """Whether nothing of this member is needed any more, once it asked to leave."""

    @property
    def not_ready(self) -> str:
        """Why this member, although it has joined, does not do its part yet; empty if it does."""
        return ""

    def handlers(self) -> dict[str, Handler]:
        """Calls that this role answers."""
        return {}

    def prepare(self, state: PoolState | None) -> None:  # noqa: B027 nothing to do in most roles
        """Before it joins: what everyone would wait for in its first epoch (in a worker; the record as it is now)."""

    def began(self) -> None:  # noqa: B027 nothing to do in most roles
        """It is a member now (in the loop)."""

    def members_changed(self, members: list[Member]) -> None:  # noqa: B027 nothing to do in most roles
        """All members, whenever they changed (in the loop)."""

    def session_changed(self, session: SessionState) -> None:  # noqa: B027 nothing to do in most roles
        """Connected or suspended (in the loop)."""

    def ticked(self) -> None:  # noqa: B027 nothing to do in most roles
        """Time passes (in the loop)."""

    def figures(self) -> None:  # noqa: B027 nothing to do in most roles
        """Once in a second: set gauges (in the loop)."""

    def closed(self) -> None:  # noqa: B027 nothing to do in most roles
        """The end: nothing of this member will be seen by others any more."""

    # ------------------------------------------------------------------ what they share

    def about(self) -> dict[str, object]:
        """What every member tells of itself, for `status`."""
        around = self.around
        return {"id": self.me, "role": self.role.value, "trouble": around.trouble.reason, "http": around.http}

    def may_act(self) -> bool:
        """Whether others certainly still believe this member alive."""
        return self.around.coordination.lease_valid()

    def worker(self, name: str) -> Worker:
        worker = Worker(f"{self.me} {name}", self.loop.fail)
        self._workers.append(worker)
        return worker

    def note(self, note: Note) -> None:
        write = self.log.warning if note.event in WARNINGS else self.log.info
        if note.event in WHISPERS:
            write = self.log.debug
        write(note.event, **note.fields)

    def run(self) -> ProcessEnd:
        """Until the end, in this thread."""
        around = self.around
        try:
            around.transport.start(self._from_transport, self.handlers())
            around.coordination.on_session(lambda session: self.loop.post(lambda: self._session(session)))
            around.coordination.on_members(lambda members: self.loop.post(lambda: self._members(members)))
            self.zookeeper.do(self._prepare)
            self.zookeeper.do(functools.partial(self._announce, self.member, lambda: self.loop.post(self._began)))
            self.loop.run(self._tick, self.tick_seconds)
        finally:
            self._close()
        assert self.ended is not None
        return self.ended

    def end(self, ended: ProcessEnd) -> None:
        """From the loop."""
        if self.ended is None:
            self.ended = ended
        self.loop.stop()

    def leave(self) -> None:
        """Ask to be withdrawn; ends when it is released, or when time is up. From any thread."""
        self.loop.post(self._leave)

    def _leave(self) -> None:
        if self.leave_by is not None:
            return
        self.leave_by = time.monotonic() + self.options.leave_within
        self.log.info("asks to leave")
        if not self.released:
            self.zookeeper.do(functools.partial(self._announce, replace(self.member, leaving=True), lambda: None))

    def _prepare(self) -> None:
        try:
            found = self.around.coordination.read()
            state = None if found is None else wire.decode(found.data)
            assert state is None or isinstance(state, PoolState)
            self.prepare(state)
        except (errors.BelvedereError, Superseded) as error:
            self.log.info("joins unprepared", reason=str(error))

    def _announce(self, member: Member, then: Callable[[], None]) -> None:
        """Write the member's entry, again and again (in the worker)."""
        retry = Retry(wanted=lambda: not self.loop.stopped, outage=self.around.trouble.zookeeper)
        try:
            retry.run(lambda: self.around.coordination.join(member))
        except Superseded:
            return
        then()

    def _began(self) -> None:
        self.joined = True
        self.log.info("joined", id=self.me, address=self.member.address)
        self.began()

    def _from_transport(self, sender: MemberId, message: Message, payload: memoryview | None) -> None:
        self.loop.post(functools.partial(self.received, sender, message, payload))

    def _session(self, session: SessionState) -> None:
        if session is SessionState.LOST:
            self.metrics.session_lost()
            self.end(ProcessEnd.LOST)
        else:
            if session is SessionState.SUSPENDED:
                self.metrics.session_suspended()
                self.log.warning("suspended")
                self.around.trouble.zookeeper.set("the connection to ZooKeeper is gone: nothing is written meanwhile")
            else:
                self.around.trouble.zookeeper.clear()
            self.peers.flush()
            self.session_changed(session)

    def _members(self, members: list[Member]) -> None:
        self.peers.listed(members)
        found = _store_address(members, self.around.cluster)
        moved = found and found != self.around.store_address
        if moved and self.role is not Role.STORE and _needs_member(self.options):
            self.end(ProcessEnd.MOVED)
        self.members_changed(members)

    def _tick(self) -> None:
        self.around.tick()
        self.peers.flush()
        self.ticked()
        if self.leave_by is not None:
            if self.released:
                self.end(ProcessEnd.LEFT)
            elif time.monotonic() > self.leave_by:
                self.end(ProcessEnd.GAVE_UP)
        if time.monotonic() >= self._figures_at:
            self._figures_at = time.monotonic() + FIGURES_SECONDS
            self.figures()

    def _close(self) -> None:
        self.loop.stop()
        for worker in self._workers:
            worker.close()
        self.around.coordination.close()
        self.around.transport.close()
        self.closed()


class Process:
    """Keeps one role in the pool until it is told to stop."""

    def __init__(
        self,
        options: ProcessOptions,
        make: Callable[[Surroundings], Incarnation],
        connect: Callable[[ProcessOptions], Coordination],
        transport: Callable[[ProcessOptions, MemberId, Store], Transport],
        open_store: Callable[[ProcessOptions, str], Backend],
        log: Log,
    ) -> None:
        self.options, self.log = options, log
        self.trouble = Troubles(log)
        self.metrics = Metrics(
            options.pool, options.role.value, options.name, version=__version__, protocol=options.protocols[1]
        )
        self.health = self._serve_health()
        self.current: Incarnation | None = None
        self._failure = ""
        """Why the last incarnation ended, if it failed."""
        self._make, self._connect, self._transport, self._open_store = make, connect, transport, open_store
        self._stopping = threading.Event()
        self._store: tuple[str, Backend] | None = None

    def _serve_health(self) -> Health | None:
        if self.options.http_port is None:
            return None
        return Health(
            self.options.host,
            self.options.http_port,
            metrics=self.metrics.render,
            reasons=self._reasons,
            metrics_type=CONTENT_TYPE,
        )

    def _http_address(self) -> str:
        if self.health is None:
            return ""
        return location("http", self.options.advertise or self.options.host, self.health.port)

    def _reasons(self) -> list[str]:
        """Why this process is not ready."""
        if self._stopping.is_set():
            return ["it is leaving"]
        if self.trouble.reason:
            return [self.trouble.reason]
        current = self.current
        if current is None or not current.joined:
            return [self._failure or "it has not joined the pool yet"]
        return [current.not_ready] if current.not_ready else []

    def _tick(self) -> None:
        if self.health is not None:
            self.health.tick()

    # ------------------------------------------------------------------ signals

    def stop(self) -> None:
        """Leave the pool and end."""
        self._stopping.set()
        if self.current is not None:
            self.current.leave()

    def _on_signal(self, *_: Any) -> None:
        self.stop()

    @property
    def _end_within(self) -> float:
        """From SIGTERM to the end of the process, in seconds."""
        return self.options.leave_within + CLOSE_SECONDS

    def _out_of_time(self, asked_twice: bool) -> None:
        """Whoever asks twice does not want to wait, and nothing here needs an orderly end."""
        cause = "asked twice" if asked_twice else f"asked {self._end_within:g} s ago"
        self.log.warning("ends without having left in order", cause=cause, reason=self._why_stuck())
        self.log.flush()
        os._exit(1)

    # ------------------------------------------------------------------ life

    def main(self) -> int:
        """In the main thread of an operating system process: returns its exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        bound_the_end(self._end_within, self._out_of_time)
        faulthandler.register(signal.SIGUSR1)  # all threads on stderr: where does it hang?
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        allocator.keep_freed_memory()
        return self.run()

    def run(self) -> int:
        pauses = Backoff(0.1, 5.0)
        while not self._stopping.is_set():
            begun = time.monotonic()
            self.current = None
            try:
                ended = self._incarnate()
            except errors.Incompatible as error:
                self.log.error("refused", reason=error)
                return 1
            except Exception as error:
                if self._stopping.is_set():
                    break
                self._failure = f"it failed and begins again: {error}"
                self.log.failure("begins again as a new incarnation", error)
            else:
                self._failure = ""
                if ended is ProcessEnd.GAVE_UP:
                    self.log.warning("left without being released", reason=self._why_stuck())
                    return 1
                if ended is ProcessEnd.LEFT:
                    self.log.info("left the pool")
                    return 0
                self.log.warning("begins again as a new incarnation", reason=ended.value)
            if time.monotonic() - begun > 10.0:
                pauses.reset()
            self._stopping.wait(pauses.next())
        return 0

    def _why_stuck(self) -> str:
        if self.trouble.reason:
            return self.trouble.reason
        return "no coordinator released it; is there one that leads?"

    def _incarnate(self) -> ProcessEnd:
        coordination = self._start_coordination()
        with contextlib.ExitStack() as undo:
            undo.callback(coordination.close)
            me = MemberId(f"{self.options.name}-{secrets.token_hex(16)}")
            opened = self._find_store(coordination)
            store, cluster = opened.store, opened.store.identity()
            self._check_record(coordination, cluster)
            transport = self._transport(self.options, me, store)
            undo.callback(transport.close)
            self.current = self._make(
                Surroundings(
                    self.options,
                    me,
                    cluster,
                    coordination,
                    store,
                    opened.sources,
                    self._store[0] if self._store is not None else "",
                    opened.base,
                    opened.follower,
                    transport,
                    self.trouble,
                    self.log,
                    self.metrics,
                    self._http_address(),
                    self._tick,
                )
            )
            if self._stopping.is_set():
                return ProcessEnd.LEFT
            return self.current.run()

    def close(self) -> None:
        """Give up what lasts longer than an incarnation."""
        if self.health is not None:
            self.health.close()
        if self._store is not None:
            self._store[1].close()
            self._store = None

    def _start_coordination(self) -> Coordination:
        def start() -> Coordination:
            coordination = self._connect(self.options)
            try:
                coordination.start(CONNECT_SECONDS)
            except errors.Unavailable:
                coordination.close()
                raise
            return coordination

        return Retry(outage=self.trouble.zookeeper, sleep=self._pause).run(start)

    def _find_store(self, coordination: Coordination) -> Backend:
        """The store's client: where the options say, or where the member with role store is."""
        own = str(self.options.directory) if self.options.role is Role.STORE else ""

        def find() -> Backend:
            elsewhere = "" if _needs_member(self.options) else self.options.store
            address = own or elsewhere or self._listed_store(coordination)
            if not address:
                raise errors.StoreUnavailable(f"pool {self.options.pool!r} has no member with role store yet")
            found = self._client(address)
            found.store.identity()
            return found

        return Retry(outage=self.trouble.store, sleep=self._pause).run(find)

    def _pause(self, seconds: float) -> bool:
        """Between two tries; whether the process is to end."""
        self._tick()
        return self._stopping.wait(seconds)

    def _listed_store(self, coordination: Coordination) -> str:
        """The store of the pool: once there is a record, of no other cluster with the same name."""
        found = coordination.read()
        state = None if found is None else wire.decode(found.data)
        return _store_address(coordination.members(), state.cluster if isinstance(state, PoolState) else "")

    def _client(self, address: str) -> Backend:
        if self._store is None or self._store[0] != address:
            if self._store is not None:
                self._store[1].close()
            self._store = (address, self._open_store(self.options, address))
        return self._store[1]

    def _check_record(self, coordination: Coordination, cluster: str) -> None:
        """Refuse to work with a pool of another cluster or of a protocol that this process does not speak."""
        found = coordination.read()
        if found is None:
            return
        state = wire.decode(found.data)
        assert isinstance(state, PoolState)
        check_cluster(self.options.pool, cluster, state.cluster)
        oldest, newest = self.options.protocols
        if not oldest <= state.protocol <= newest:
            raise errors.Incompatible(
                f"pool {self.options.pool!r} speaks protocol {state.protocol}, "
                f"this {self.options.role.value} speaks {oldest} to {newest}: upgrade one version at a time"
            )
        objection = engine_objection(state.engine, *self.options.engines) if state.engine else ""
        if objection and self.options.role in (Role.VIEWSERVER, Role.DISTRIBUTOR):
            name = f"{self.options.role.value} {self.options.name}"
            raise errors.Incompatible(f"{name} cannot take part in pool {self.options.pool!r}: {objection}")


def _needs_member(options: ProcessOptions) -> bool:
    """Whether the pool's member of role store has the state, or all of it."""
    return not options.store or leaves_state(options.store)


def _store_address(members: Iterable[Member], cluster: str) -> str:
    """Of that cluster, or of whichever there is if none is known yet; empty if there is none."""
    stores = (member for member in members if member.role is Role.STORE)
    return next((member.address for member in stores if cluster in ("", member.cluster)), "")
