"""A simulated process: what every driver of a role machine has in common.

    running ──pause──▶ paused ──resume──▶ first what it had decided on, then its session, then its mail
       │  └──fuse──▶ crash or pause between two instructions
       ├──crash──▶ gone; all memory lost. Another incarnation starts later, before or after the session has ended
       ├──session lost──▶ gone; another incarnation starts at once
       └──released──▶ gone for good

Instructions are carried out one after the other. While the session is suspended they are kept, as `driving` demands;
a process that was paused does not know yet that it should, and goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from belvedere.cluster.coordination.lease import HEARTBEAT, Lease
from belvedere.cluster.coordination.seam import SessionState as SessionState
from belvedere.cluster.transport.peers import Peers
from belvedere.cluster.transport.seam import Payload
from belvedere.protocol.driving import Note, Received, Send, Tick
from belvedere.protocol.messages import PROTOCOL, UNTOLD_ENGINE, Member, Message, Role
from belvedere.protocol.ring import MemberId
from tests.simulator.network import Network
from tests.simulator.scheduler import SECOND, Action, Scheduler
from tests.simulator.store import SimulatedStore
from tests.simulator.trace import Trace
from tests.simulator.zookeeper import Session, ZooKeeper

CLUSTER = "simulated"
ADDRESS = "simulated://"


@dataclass
class Surroundings:
    """The world, as a process sees it."""

    scheduler: Scheduler
    network: Network
    zookeeper: ZooKeeper
    store: SimulatedStore
    trace: Trace
    gone: Callable[[Process, bool], None]
    """(process, for good): a process has ended."""
    leases: bool = True
    """Whether processes ask their clocks whether their session may have ended (`cluster.lease`). If not, one that slept
    goes on before it notices: as if the clock had slept with it."""


class Machine(Protocol):
    def handle(self, event: Any) -> Sequence[Any]: ...


class Process:
    role: Role

    def __init__(self, around: Surroundings, host: str, incarnation: int) -> None:
        self.around = around
        self.host, self.incarnation = host, incarnation
        self.name = MemberId(f"{host}.{incarnation}")
        self.alive, self.paused, self.connected = True, False, True
        self.leaving = False
        self.skew = 0
        """Milliseconds that its clock is ahead of the true time."""
        self.protocols = (PROTOCOL, PROTOCOL)
        self.engines = (UNTOLD_ENGINE, UNTOLD_ENGINE)
        """Oldest and newest that it speaks."""
        seconds = lambda: around.scheduler.now / SECOND  # noqa: E731
        self.lease = Lease(around.zookeeper.timeout / SECOND)
        self.peers = Peers(_Wire(self), self.may_act, seconds)
        self._todo: deque[Any] = deque()
        self._mail: list[Action] = []
        self._fuse: tuple[int, Action] | None = None
        self._draining = False

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        around = self.around
        around.trace.record(around.scheduler.now, self.name, "starts")
        session = Session(
            self.name,
            on_members=lambda members: self.call(lambda: self._members_listed(members)),
            on_turn=lambda turn: self.call(lambda: self.turn_changed(turn)),
            on_connection=self._connection_changed,
            on_lost=self._lost,
        )
        around.zookeeper.connect(session)
        around.network.listen(self.name, self._deliver)
        address, (oldest, newest) = f"{ADDRESS}{self.name}", self.protocols
        around.zookeeper.join(Member(self.name, self.role, address, oldest, newest, CLUSTER, False, *self.engines))
        now = around.scheduler.now / SECOND
        self.lease.connected(now)
        self.lease.opened(now)
        self.lease.answered(now, now)
        self._beat()

    def crash(self) -> None:
        self._end("crashes")
        self.around.zookeeper.die(self.name)
        self.around.gone(self, False)

    def pause(self) -> None:
        if self.alive and not self.paused:
            self.paused = True
            self._effect("is paused")
            self.around.zookeeper.fall_silent(self.name)

    def resume(self, notices: int = 0) -> None:
        """`notices`: so long after it has woken it hears of its session; what has come meanwhile it may hear before."""
        if not self.alive or not self.paused:
            return
        self.paused = False
        self._record("goes on")
        self._drain()
        if notices:
            self._open_mail()
            self.around.scheduler.after(notices, lambda: self.around.zookeeper.return_(self.name))
            return
        self.around.zookeeper.return_(self.name)
        self._open_mail()

    def ask_to_leave(self) -> None:
        self.leaving = True
        self._record("asks to leave")
        self.around.zookeeper.ask_to_leave(self.name)

    def leave(self) -> None:
        """Released: goodbye."""
        self._end("leaves")
        self.around.zookeeper.leave(self.name)
        self.around.gone(self, True)

    def end_session(self) -> None:
        """Give up this incarnation; another one begins."""
        self._end("gives up")
        self.around.zookeeper.leave(self.name)
        self.around.gone(self, self.leaving)

    def set_fuse(self, instructions: int, then: Action) -> None:
        """Between two instructions, so many from now, this happens."""
        self._fuse = (instructions, then)

    def _end(self, how: str) -> None:
        self._effect(how)
        self.alive = False
        self._todo.clear()
        self._mail.clear()
        self.around.network.crash(self.name)
        self.ended()

    def _lost(self) -> None:
        if self.alive:
            self._end("has lost its session")
            self.around.gone(self, self.leaving)

    def _connection_changed(self, connected: bool) -> None:
        def change() -> None:
            now = self.around.scheduler.now / SECOND
            if connected:
                self.lease.connected(now)
                self._announce(self.lease.answered(now, now))
            else:
                self._announce(self.lease.disconnected(now))

        self.call(change)

    def _announce(self, state: SessionState | None) -> None:
        """The lease says whether the process may act."""
        connected = state is SessionState.CONNECTED
        if state is None or connected == self.connected:
            return
        self.connected = connected
        self._effect("is connected" if connected else "is suspended")
        self.connection_changed(connected)
        self.peers.flush()
        self._drain()

    def _beat(self) -> None:
        """Ask ZooKeeper something again and again, so that there are answers."""
        if not self.alive:
            return
        around, sent = self.around, self.around.scheduler.now

        def answered() -> None:
            if around.zookeeper.connected(self.name):
                self._announce(self.lease.answered(sent / SECOND, around.scheduler.now / SECOND))
                self.peers.flush()
                self._drain()

        def beat() -> None:
            if around.leases and self.connected and not self.lease.valid(sent / SECOND):
                self._effect("lease ended before its session was heard of")
                self._announce(self.lease.tick(sent / SECOND))
            if around.zookeeper.connected(self.name):
                around.scheduler.after(2 * around.zookeeper.delay(), lambda: self.call(answered))

        self.call(beat)
        around.scheduler.after(int(HEARTBEAT * around.zookeeper.timeout), self._beat)

    def may_act(self) -> bool:
        """Whether its session certainly lives, as far as it knows."""
        now = self.around.scheduler.now / SECOND
        return self.connected and (not self.around.leases or self.lease.valid(now))

    # ------------------------------------------------------------------ events and instructions

    def call(self, action: Action) -> None:
        """Something comes from outside: at once, or when the process goes on, or never."""
        if self.paused:
            self._mail.append(action)
        elif self.alive:
            action()

    def tell(self, machine: Machine, event: Any) -> None:
        """Give an event to a machine and carry out what it says."""
        instructions = machine.handle(event)
        self.decided(machine, instructions)
        if self.around.trace.enabled and (instructions or not isinstance(event, Tick)):
            self._record("◀", event)
        self._todo.extend(instructions)
        self._drain()

    def _drain(self) -> None:
        if self._draining:
            return  # what was added is carried out by who is at it
        self._draining = True
        try:
            while self._todo and self.alive and not self.paused and self.may_act():
                if self._fuse is not None and self._burn():
                    break
                self._carry_out(self._todo.popleft())
        finally:
            self._draining = False

    def _burn(self) -> bool:
        assert self._fuse is not None
        left, then = self._fuse
        if left > 0:
            self._fuse = (left - 1, then)
            return False
        self._fuse = None
        then()
        return self.paused or not self.alive

    def _open_mail(self) -> None:
        mail, self._mail = self._mail, []
        for action in mail:
            self.call(action)

    def _carry_out(self, instruction: Any) -> None:
        if self.around.trace.enabled:
            self._record("▶", instruction)
        if isinstance(instruction, Send):
            self.peers.send(instruction.to, instruction.message)
        elif isinstance(instruction, Note):
            self.noted(instruction)
        else:
            self.carry_out(instruction)

    def _members_listed(self, members: tuple[Member, ...]) -> None:
        self.peers.listed(members)
        self.members_changed(members)

    def _deliver(self, sender: MemberId, message: Message, payload: bytes | None) -> None:
        self.call(lambda: self.received(Received(sender, message), payload))

    def clock(self) -> int:
        return self.around.scheduler.clock() + self.skew

    def _effect(self, what: str) -> None:
        self.around.trace.effect(self.around.scheduler.now, self.name, what)

    def _record(self, *what: Any) -> None:
        self.around.trace.record(self.around.scheduler.now, self.name, *what)

    # ------------------------------------------------------------------ what roles do

    def received(self, event: Received, payload: bytes | None) -> None:
        raise NotImplementedError

    def carry_out(self, instruction: Any) -> None:
        raise NotImplementedError

    def decided(self, machine: Machine, instructions: Sequence[Any]) -> None:
        """Roles look whether their machines may say so (`conduct`)."""

    def noted(self, note: Note) -> None:
        """For people; the driver of a coordinator has something to do as well."""

    def members_changed(self, members: tuple[Member, ...]) -> None:
        """Only coordinators care."""

    def turn_changed(self, turn: bool) -> None:
        """Only coordinators care."""

    def connection_changed(self, connected: bool) -> None:
        """Only coordinators' machines want to hear it; others are held up by their driver."""

    def ended(self) -> None:
        """Give back what the process held."""


class _Wire:
    """The simulated network, as `Peers` knows a transport."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def know(self, peer: MemberId, address: str) -> None:
        """The network finds everyone by name."""

    def send(self, peer: MemberId, message: Message, payload: Payload | None = None) -> None:
        process = self._process
        process.around.network.send(process.name, peer, message, None if payload is None else bytes(payload))

    def forget(self, peer: MemberId) -> None:
        self._process.around.network.forget(self._process.name, peer)
