"""The simulated view server process: its machine, and one computing thread that does what the machine says in order.

Writes of an epoch go to the store one after the other, again and again until they are durable or a higher attempt was
adopted; the next epoch is computed meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.cluster.roles.batch_buffer import BatchBuffer
from belvedere.cluster.roles.work import WorkError, failure
from belvedere.errors import BelowHorizon, BelvedereError
from belvedere.protocol import viewserver
from belvedere.protocol.driving import (
    Adopt,
    Commit,
    Compute,
    Computed,
    GiveUp,
    Keep,
    Open,
    Persist,
    Persisted,
    Received,
    WorkFailed,
)
from belvedere.protocol.messages import Attempt, Batch, Epoch, Role
from belvedere.protocol.viewserver import ViewServer
from tests.simulator.conduct import check_reports
from tests.simulator.fibers import Fiber
from tests.simulator.oracle import Wrong
from tests.simulator.process import Process, Surroundings
from tests.simulator.scheduler import MS, Action
from tests.simulator.zookeeper import Record

EXPECTED = ("epoch ",)
"""How failures begin that histories cause on purpose: an epoch is planned for another engine, or is not open here."""


class Stepped(Protocol):
    @property
    def dispatches(self) -> Sequence[Any]: ...

    @property
    def computed(self) -> Computed: ...


class Work(Protocol):
    """What a view server computes (`cluster.work.ServerWork`, or only what it costs)."""

    def adopt(self, adopt: Adopt) -> None: ...

    def give_up(self, generation: Attempt) -> None: ...

    def open(self, open: Open) -> None: ...

    def keep(self, batch: Batch, payload: bytes) -> None: ...

    def compute(self, compute: Compute) -> Stepped: ...

    def finish(self, persist: Persist) -> list[TableWrite]: ...

    def cost(self) -> Mapping[str, float]: ...

    def persisted(self, epoch: Epoch) -> None: ...

    def commit(self, epoch: Epoch) -> None: ...

    def evict(self, share: float) -> int: ...

    def read(self, table: str, ids: np.ndarray, epoch: Epoch) -> tuple[np.ndarray, pa.BinaryArray] | None: ...

    def close(self) -> None: ...

    @property
    def kept(self) -> BatchBuffer: ...


class Nemesis(Protocol):
    """Who waits for the moment of a write, and decides how long a stage hangs before it is computed, and how long the
    store takes to answer a load in the middle of it (microseconds)."""

    def writing(self, process: Process) -> bool: ...

    def computing(self, process: Process, last: bool) -> int: ...

    def forgets(self) -> bool: ...

    def loading(self) -> int: ...


@dataclass(frozen=True)
class _Writing:
    """What a finished epoch has to write, and what it cost."""

    persist: Persist
    writes: list[TableWrite]
    figures: Mapping[str, float]


class ViewServerProcess(Process):
    role = Role.VIEWSERVER

    def __init__(
        self,
        around: Surroundings,
        host: str,
        incarnation: int,
        work: Work,
        compute_time: int,
        nemesis: Nemesis | None = None,
    ) -> None:
        super().__init__(around, host, incarnation)
        self.machine = ViewServer(self.name)
        self.work = work
        self._compute_time, self._nemesis = compute_time, nemesis
        self._tasks: deque[Any] = deque()
        self.forgets_next = False
        self._in_epoch = False
        self._busy = False
        self._writes: deque[_Writing] = deque()
        self._attempt = Attempt(-1)
        self._given_up = Attempt(-1)
        self._hang: int | None = None
        self.hangs = False
        self.waits_until = 0
        """For the store, in the middle of a stage."""
        self._stages = 0
        """Of the epoch that was opened last."""
        self._checked: _Writing | None = None
        """That of which the record was asked."""
        self._payloads: dict[Batch, bytes] = {}
        self._hung_until = 0
        self._is_out = False
        self._hung: Compute | None = None
        self._fiber: Fiber | None = None

    # ------------------------------------------------------------------ events and instructions

    def received(self, event: Received, payload: bytes | None) -> None:
        message = event.message
        if isinstance(message, Batch):
            assert payload is not None
            self._payloads[message] = payload
        self.tell(self.machine, event)
        if isinstance(message, Batch) and self.may_act() and not self.paused:
            self._payloads.pop(message, None)  # kept by now, or not wanted
        if self.machine.released and self.alive:
            self.leave()

    def decided(self, machine: Any, instructions: Sequence[Any]) -> None:
        check_reports(self.name, self.machine.attempt, instructions)

    def carry_out(self, instruction: Any) -> None:
        match instruction:
            case Keep(batch):
                payload = self._payloads.pop(batch, None)
                if payload is not None:  # else it was kept when it came, before its generation was known
                    self._keep(batch, payload)
            case Adopt(generation):
                if not self.protocols[0] <= generation.protocol <= self.protocols[1]:
                    raise Wrong(f"{self.name} speaks protocols {self.protocols}, its generation {generation.protocol}")
                if self._is_out:
                    self._is_out = False
                    self._effect("came back after it was left out")
                self._attempt = generation.number
                self._writes.clear()
                self._do(instruction)
            case GiveUp():
                self._attempt = Attempt(-1)
                self._writes.clear()
                self._do(instruction)
                self._is_out = True
                self._effect("was told that it is left out")
            case Open() | Compute() | Persist() | Commit():
                self._do(instruction)
            case _Writing():
                self._send(instruction)
            case _:
                raise AssertionError(f"a view server cannot {instruction}")

    def _keep(self, batch: Batch, payload: bytes) -> None:
        try:
            self.work.keep(batch, payload)
        except BelvedereError as error:
            self._effect("had no room to keep a batch")
            self.tell(self.machine, failure(batch.epoch, batch.attempt, error))

    def go_on(self) -> None:
        """It does not hang any more."""
        self._hung_until, self._hang = 0, None

    def _stand_still(self, time: int) -> None:
        """Its computing thread does nothing for so long; everything else of it goes on, its session too."""
        self._effect("hangs")
        self._hung_until = max(self._hung_until, self.around.scheduler.now + time)

    def forget_some(self, share: float) -> None:
        """Between epochs: give memory back."""
        self.call(lambda: self._do(share))

    def hang(self, time: int) -> None:
        """The computing thread forgets what it holds, and stands still before the last stage of the next epoch, for
        which it has all that others can give it. Everything else goes on, so that the session lives."""
        self._hang = time

    def _is_last_stage(self, task: Any) -> bool:
        return isinstance(task, Compute) and task.attempt == self._attempt and task.stage == self._stages - 1

    # ------------------------------------------------------------------ the computing thread

    def _do(self, task: Any) -> None:
        self._tasks.append(task)
        if not self._busy:
            self._busy = True
            self._later(self._next)

    def _next(self) -> None:
        if not self.may_act():  # what it would send or write must wait
            self._look_again(self._next)
            return
        if not self._tasks:
            self._busy = False
            return
        if self._hang is not None and self._is_last_stage(self._tasks[0]):
            time, self._hang, self.hangs = self._hang, None, True
            self._stand_still(time)
        if self._is_hanging():
            self._look_again(self._next)
        else:
            self.hangs = False
            self._run(self._tasks.popleft())

    def _is_hanging(self) -> bool:
        now, task = self.around.scheduler.now, self._tasks[0]
        if now >= self._hung_until and isinstance(task, Compute) and task != self._hung and self._nemesis is not None:
            self._hung = task  # once for each stage
            time = self._nemesis.computing(self, self._is_last_stage(task))
            if time:
                self._stand_still(time)
        return now < self._hung_until

    def _later(self, action: Action) -> None:
        self.around.scheduler.after(self._compute_time, lambda: self.call(action))

    def _look_again(self, action: Action) -> None:
        self.around.scheduler.after(10 * MS, lambda: self.call(action))

    def _run(self, task: Any) -> None:
        if not isinstance(task, Compute | Persist) or self._nemesis is None or not self._nemesis.loading():
            self._try(task, None)
            self._later(self._next)
            return
        self._fiber = Fiber(lambda fiber: self._try(task, fiber))
        self._fiber.start()
        self._wait_for_fiber()

    def _wait_for_fiber(self) -> None:
        """The computing thread waits for the store."""
        if self._fiber is None or self._nemesis is None:
            return  # gone meanwhile
        if self._fiber.done:
            self._fiber = None
            self._later(self._next)
            return
        self._effect("waits for the store in the middle of a stage")

        def goes_on() -> None:
            if self._fiber is not None:
                self._fiber.resume()
                self._wait_for_fiber()

        time = max(1, self._nemesis.loading())
        self.waits_until = self.around.scheduler.now + time
        self.around.scheduler.after(time, lambda: self.call(goes_on))

    def _try(self, task: Any, fiber: Fiber | None) -> None:
        try:
            with self.around.store.reading(fiber):
                self._work(task)
        except (BelvedereError, WorkError, OSError) as error:
            # Damaged: to someone who slept, plans and catalogs of long ago seem to be missing.
            if isinstance(error, WorkError) and not error.reason.startswith(EXPECTED) and "simulated" not in str(error):
                raise
            if " is planned for engine " in str(error):
                self._effect("refused a plan of another engine")
            if isinstance(error, BelowHorizon):
                self._effect("was refused a load below the horizon")
            self._given_up = task.attempt
            epoch = task.plan.epoch if isinstance(task, Open) else task.epoch
            self.tell(self.machine, failure(epoch, task.attempt, error))

    def _work(self, task: Any) -> None:
        match task:
            case Adopt(generation) if generation.number == self._attempt:
                self.work.adopt(task)
                self._in_epoch = False
            case GiveUp(generation):
                self.work.give_up(generation)
                self._in_epoch = False
            case Open() | Compute() | Persist() if task.attempt != self._attempt or task.attempt == self._given_up:
                pass  # that attempt is over, or has failed here
            case Open():
                forgets, self.forgets_next = self.forgets_next, False
                forgets |= self._nemesis is not None and self._nemesis.forgets()
                if (forgets or (self._hang is not None and not self._in_epoch)) and self.work.evict(1.0):
                    self._effect("evicted")
                self._in_epoch, self._stages = True, task.plan.stages
                self.work.open(task)
                if self.work.repaired.changed_since:
                    self._effect("row changed since it was looked at")
            case Compute():
                stepped = self.work.compute(task)
                if task.attempt != self._attempt:
                    self._effect("computed for an attempt that was over")
                for dispatch in stepped.dispatches:
                    self.peers.send(dispatch.to, dispatch.batch, dispatch.payload)
                self.tell(self.machine, stepped.computed)
            case Persist():
                writing = _Writing(task, self.work.finish(task), self.work.cost())
                if writing.figures.get("spilled_bytes"):
                    self._effect("spilled")
                self._in_epoch = False
                if task.attempt != self._attempt:
                    return
                self._writes.append(writing)
                if len(self._writes) == 1:
                    self._write()
            case Commit(epoch):
                self.work.commit(epoch)
            case float() if not self._in_epoch:
                if self.work.evict(task):
                    self._effect("evicted")

    def _write(self) -> None:
        """The oldest of the epochs that are finished and not durable, until it is."""
        if not self._writes:
            return
        writing = self._writes[0]
        if not self.may_act():
            self._look_again(self._write)
        elif self._checked is not writing:
            self.around.zookeeper.read(
                self.name, lambda found: self.call(lambda: self._check(writing, found)), synced=True
            )
        elif self._nemesis is not None and self._nemesis.writing(self):
            self._todo.appendleft(self._writes[0])
        else:
            self._send(self._writes[0])

    def _check(self, writing: _Writing, record: Record | None) -> None:
        """The record is asked after the last load and before the first write."""
        if not self._writes or self._writes[0] is not writing:
            return  # given up meanwhile
        if record is None:
            self._look_again(self._write)
            return
        persist = writing.persist
        reason = viewserver.overtaken(record.state, persist.epoch, persist.attempt)
        if reason:
            self._effect("wrote nothing: overtaken")
            self._writes.clear()
            self._given_up = persist.attempt
            self.tell(self.machine, WorkFailed(persist.epoch, persist.attempt, reason))
            return
        self._checked = writing
        self._write()

    def _send(self, writing: _Writing) -> None:
        persist, store = writing.persist, self.around.store

        def written(_: None) -> None:
            if not self._writes or self._writes[0] is not writing:
                return  # given up meanwhile
            self._writes.popleft()
            self.work.persisted(persist.epoch)
            self.tell(self.machine, Persisted(persist.epoch, persist.attempt, writing.figures))
            self._write()

        def failed(_: str) -> None:
            if self._writes and self._writes[0] is writing:
                self._write()

        lives = self.around.zookeeper.lives(self.name)
        if not lives:
            self._effect("table write of a dead session")
        store.ask(
            lambda: store.write(persist.epoch, writing.writes),
            lambda done: self.call(lambda: written(done)),
            lambda reason: self.call(lambda: failed(reason)),
            # Who slept is late already: more would be beyond the bound on late writers.
            store.trouble.late_writes if lives else 0.0,
        )

    def ended(self) -> None:
        if self._fiber is not None:
            fiber, self._fiber = self._fiber, None
            fiber.abandon()
        self.work.close()
