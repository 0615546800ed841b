"""The view server: its machine in the loop, computing in one thread, writing to the store in another.

    loop ──Adopt, Open, Compute, Persist, Commit──▶ compute ──batches──▶ peers
      ▲                                               │ what an epoch changed
      └──Computed, Persisted, WorkFailed──────────────┴──▶ persist ──▶ store

Work of an attempt that was given up is skipped when its turn comes. The store is asked until it answers: an outage is a
pause here, and not a failure of the attempt.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from belvedere import errors
from belvedere.backend.seam import TableWrite
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.process.loop import Busy
from belvedere.cluster.process.next_engine import engines_of
from belvedere.cluster.process.process import NO_PART, Incarnation, Surroundings
from belvedere.cluster.process.retrying import Retrying
from belvedere.cluster.roles.overview import MEMBER
from belvedere.cluster.roles.work import Dispatch, ServerWork, failure, newest_catalog, ring_of
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.seam import Handler, Payload
from belvedere.protocol import wire
from belvedere.protocol.driving import (
    Adopt,
    Commit,
    Compute,
    GiveUp,
    Keep,
    Note,
    Open,
    Persist,
    Persisted,
    Received,
    Send,
    ServerEvent,
    WorkFailed,
)
from belvedere.protocol.messages import Attempt, Batch, Epoch, Generation, Message, PoolState, Role
from belvedere.protocol.ring import MemberId, Ring
from belvedere.protocol.viewserver import ViewServer, overtaken
from belvedere.retry import Retry, Superseded

VIEW_ROWS = "view_rows:"
SUSPENDED_SECONDS = 0.02
"""How often a writer looks whether the session is known to live again."""


class ViewServerMember(Incarnation):
    role = Role.VIEWSERVER

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        options = self.options
        self.machine = ViewServer(self.me)
        self.store = Retrying(around.store, self._goes_on, around.trouble.store)
        self.work = ServerWork(
            self.me,
            self.store,
            catalogs.compile,
            memory_limit=options.memory_limit,
            spill_directory=options.directory,
            engines=engines_of(*options.engines),
        )
        self.compute, self.persist = self.worker("compute"), self.worker("persist")
        self.busy = Busy(self.compute, self.persist)
        self._attempt = Attempt(-1)
        """The newest that the machine has adopted: workers drop what belongs to others."""
        self._working = Attempt(-1)
        """The one that is being computed."""
        self._figures: dict[str, float] = {}
        self._zones: set[str] = set()
        self._traffic: dict[tuple[int, str], tuple[int, int]] = {}
        self._ring: Ring | None = None
        around.metrics.send_backlog(around.transport.backlog, around.transport.troubles)

    @property
    def released(self) -> bool:
        return self.machine.released

    @property
    def not_ready(self) -> str:
        return NO_PART if self.machine.generation is None else ""

    def prepare(self, state: PoolState | None) -> None:
        self.work.prepare(newest_catalog(state, self.around.store))

    def handlers(self) -> dict[str, Handler]:
        return {MEMBER: lambda _: calls.status_json(self.status()), calls.READ: self._read}

    def closed(self) -> None:
        self._attempt = Attempt(-1)
        self.compute.join(1.0)
        self.work.close()

    # ------------------------------------------------------------------ the loop

    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        instructions = self.machine.handle(Received(sender, message))
        if isinstance(message, Batch) and not instructions and message.attempt == self.machine.attempt:
            self.metrics.duplicates("batches", 1)
        for instruction in instructions:
            match instruction:
                case Keep(batch):
                    # An early one comes again with its generation: then its payload is here already.
                    if batch is message and payload is not None:
                        self._keep(batch, payload)
                case _:
                    self._carry_out(instruction)

    def _keep(self, batch: Batch, payload: Payload) -> None:
        try:
            self.work.keep(batch, memoryview(payload))
        except (errors.DiskError, OSError) as error:
            self._tell(failure(batch.epoch, batch.attempt, error))

    def _tell(self, event: ServerEvent) -> None:
        for instruction in self.machine.handle(event):
            self._carry_out(instruction)

    def _report(self, event: ServerEvent) -> None:
        """From workers."""
        self.loop.post(functools.partial(self._tell, event))

    def _carry_out(self, instruction: object) -> None:
        match instruction:
            case Send(to, message):
                self.peers.send(to, message)
            case Note():
                self.note(instruction)
            case Adopt(generation):
                self._attempt = generation.number
                self._note_ring(generation)
                self.compute.do(functools.partial(self._adopt, instruction))
            case Open(plan, attempt):
                self.compute.do(functools.partial(self._try, plan.epoch, attempt, lambda: self.work.open(instruction)))
            case Compute(epoch, attempt):
                self.compute.do(functools.partial(self._try, epoch, attempt, lambda: self._compute(instruction)))
            case Persist(epoch, attempt):
                self.compute.do(functools.partial(self._try, epoch, attempt, lambda: self._finish(instruction)))
            case GiveUp(generation):
                self._attempt = Attempt(-1)
                self.compute.do(functools.partial(self.work.give_up, generation))
            case Commit(epoch):
                self.metrics.committed(epoch)
                self.compute.do(functools.partial(self.work.commit, epoch))

    # ------------------------------------------------------------------ computing

    def _goes_on(self) -> bool:
        return self._working == self._attempt and not self.loop.stopped

    def _adopt(self, adopt: Adopt) -> None:
        if adopt.generation.number == self._attempt:
            self._working = self._attempt
            try:
                self.work.adopt(adopt)
            except Exception as error:
                # The next `Open` finds no generation and fails, with a reason for the leader.
                self.log.failure("cannot adopt the generation", error, generation=adopt.generation.number)

    def _try(self, epoch: Epoch, attempt: Attempt, work: Callable[[], None]) -> None:
        if attempt != self._attempt:
            return
        self._working = attempt
        try:
            with self.metrics.busy():
                work()
        except Superseded:
            return
        except Exception as error:
            if attempt != self._attempt:  # a load that was given up comes out of the engine as a failure of a view
                return
            self.log.failure("attempt failed", error, epoch=epoch, attempt=attempt)
            self._report(failure(epoch, attempt, error))

    def _compute(self, compute: Compute) -> None:
        begin = time.monotonic()
        stepped = self.work.compute(compute)
        self.metrics.epoch_step("stage", time.monotonic() - begin, compute.stage)
        for dispatch in stepped.dispatches:
            self._dispatch(dispatch)
        self._report(stepped.computed)

    def _dispatch(self, dispatch: Dispatch) -> None:
        if dispatch.to == self.me:
            self.loop.post(functools.partial(self.received, self.me, dispatch.batch, dispatch.payload))
        else:
            self.peers.send(dispatch.to, dispatch.batch, dispatch.payload)

    # ------------------------------------------------------------------ writing

    def _finish(self, persist: Persist) -> None:
        writes = self.work.finish(persist)
        self.persist.do(functools.partial(self._write, persist, writes, self.work.cost()))

    def _write(self, persist: Persist, writes: Sequence[TableWrite], figures: dict[str, float]) -> None:
        """Until it is durable, or a higher attempt was adopted (in the thread that writes)."""
        begin = time.monotonic()

        def wanted() -> bool:
            return persist.attempt == self._attempt and not self.loop.stopped

        def may_write() -> bool:
            """Asked before each try: whoever slept in between may be a zombie by now."""
            while wanted() and not self.may_act():
                time.sleep(SUSPENDED_SECONDS)
            return wanted()

        if writes:
            try:
                if not self._is_current(persist, wanted):
                    return
                Retrying(self.around.store, may_write, self.around.trouble.store).write(persist.epoch, writes)
            except Superseded:
                return
        if not wanted():
            return
        figures["rows_written"] = float(sum(len(write.ids) for write in writes))
        self.metrics.epoch_step("persist", time.monotonic() - begin)
        self.compute.do(functools.partial(self._persisted, persist))
        self._report(Persisted(persist.epoch, persist.attempt, figures))

    def _is_current(self, persist: Persist, wanted: Callable[[], bool]) -> bool:
        """Ask the record, after the last load and before the first write: a server that hangs may have been left out,
        and what it loaded of an epoch that others have committed may have been incomplete."""
        found = Retry(wanted=wanted, outage=self.around.trouble.zookeeper).run(self.around.coordination.read)
        state = None if found is None else wire.decode(found.data)
        assert state is None or isinstance(state, PoolState)
        reason = overtaken(state, persist.epoch, persist.attempt)
        if reason:
            self.log.warning("writes nothing", reason=reason)
            self._report(WorkFailed(persist.epoch, persist.attempt, reason))
        return not reason

    def _persisted(self, persist: Persist) -> None:
        if persist.attempt == self._attempt:
            self.work.persisted(persist.epoch)

    # ------------------------------------------------------------------ figures

    def _note_ring(self, generation: Generation) -> None:
        ring, before = ring_of(generation), self._ring
        own = set(ring.owned(self.me).tolist())
        changed = own if before is None else own ^ set(before.owned(self.me).tolist())
        self._ring = ring
        self.metrics.ring(len(own), len(changed))
        self.log.info(
            "adopts",
            generation=generation.number,
            servers=len(generation.servers),
            buckets=len(own),
            moved=len(changed),
        )

    def figures(self) -> None:
        self.compute.do(self._tell_figures)

    def _tell_figures(self) -> None:
        """In the computing thread: the shard is nobody else's."""
        before, now = self._figures, self.work.figures()
        self._figures = now

        def grown(name: str) -> int:
            return max(0, int(now.get(name, 0) - before.get(name, 0)))

        metrics = self.metrics
        for stage, waiting in self.work.batch_buffer.waiting().items():
            metrics.queue(waiting.rows, waiting.batches, stage)
        self._tell_zones()
        metrics.cache(grown("keys_held"), grown("keys_loaded") + grown("keys_absent"))
        metrics.spilled(grown("spilled_bytes") + grown("kept_spilled_bytes"))
        for name in now:
            if name.startswith(VIEW_ROWS):
                metrics.view_rows(name.removeprefix(VIEW_ROWS), grown(name))
        for name in before:
            if name.startswith(VIEW_ROWS) and name not in now:
                metrics.forget_view(name.removeprefix(VIEW_ROWS))

    def _tell_zones(self) -> None:
        metrics = self.metrics
        held = self.work.zones()
        for zone in self._zones - set(held):
            metrics.forget_zone(zone)
        self._zones = set(held)
        for zone, state in held.items():
            metrics.state(zone, state.rows, state.bytes)
        before, self._traffic = self._traffic, self.work.traffic()
        for (stage, zone), (received, sent) in self._traffic.items():
            old = before.get((stage, zone), (0, 0))
            if received < old[0]:
                old = (0, 0)  # the shard was made anew
            metrics.stage_rows(stage, zone, received - old[0], sent - old[1])

    # ------------------------------------------------------------------ reads, status

    def _read(self, request: bytes) -> bytes:
        asked, ids = calls.decode_read(request)
        attempt = int(self._attempt)
        found = self.work.read(asked.table, ids, asked.epoch)
        if found is None:
            reason = f"{self.me} did not own all of these rows in epoch {asked.epoch}, or has not processed it"
            return calls.encode_rows(calls.RowsRead(attempt, reason))
        return calls.encode_rows(calls.RowsRead(attempt), *found)

    def status(self) -> dict[str, object]:
        machine = self.machine
        return {
            **self.about(),
            "epoch": machine.committed,
            "attempt": machine.attempt,
            "queue": self.compute.waiting() + self.persist.waiting(),
            "queue_bytes": self.work.batch_buffer.nbytes,
            "busy": round(self.busy.share(), 3),
            "figures": self._figures,
        }
