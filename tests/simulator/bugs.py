"""Known bugs, to show that the simulator would find them: each switches off one rule that keeps the cluster safe.

Nothing in the cluster knows of this: a bug replaces functions of the machines or of the engine while a history runs,
and of the simulated drivers only where the rule is theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.roles import work
from belvedere.engine import exchange, slices
from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Changes
from belvedere.engine.ledger import Ledger
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.replacements import Replacement
from belvedere.engine.shard import Shard, decode_view_rows, view_table
from belvedere.engine.state import delta_table
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.plan import nodes
from belvedere.protocol import (
    amending,
    barrier,
    coordinator,
    driving,
    gc_documents,
    leadership,
    pins,
    reads,
    store_requests,
    viewserver,
)
from belvedere.protocol import epoch as epochs
from belvedere.protocol import exactly_once as eo
from belvedere.protocol import sources as planning
from belvedere.protocol.messages import Batch, Epoch, Expect, PoolState, Released, Stage
from tests.simulator import distributors, viewservers, zookeeper

Patch = tuple[Any, str, Any]
"""Where, which function, and what takes its place."""

BUGS: dict[str, Callable[[], list[Patch]]] = {}


@contextlib.contextmanager
def switched_on(name: str | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]() if name is not None else ():
            stack.enter_context(mock.patch.object(target, attribute, replacement))
        yield


def _bug(name: str) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    def register(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        BUGS[name] = make
        return make

    return register


# ---------------------------------------------------------------------- INPUT and plans


@_bug("acknowledge before INPUT is durable")
def _acknowledge_early() -> list[Patch]:
    received = eo.DuplicateFilter._received

    def early(self: Any, event: eo.ReceivedEntries) -> list[Any]:
        return [eo.Acknowledge(event.request), *received(self, event)]

    return [(eo.DuplicateFilter, "_received", early)]


@_bug("no duplicate filter")
def _no_duplicate_filter() -> list[Patch]:
    """A plan takes whole chunks, whatever others repeat of them."""

    def choose(
        planned: Mapping[eo.SourceId, eo.Seq], bounds: Mapping[eo.SourceId, eo.Seq], index: Iterable[eo.Chunk]
    ) -> tuple[eo.InputPiece, ...]:
        chunks = [c for c in index if c.source in bounds and c.last > planned.get(c.source, eo.START)]
        chunks.sort(key=lambda c: (c.source, c.first, c.last, c.id))
        return tuple(eo.InputPiece(c.id, c.source, eo.Seq(c.first - 1), c.last) for c in chunks)

    return [(planning, "choose", choose)]


@_bug("plan from reports instead of INPUT")
def _plan_from_reports() -> list[Patch]:
    """What a distributor has received counts as durable at once."""
    write = distributors.DistributorProcess._write

    def reported(self: Any, chunk: eo.Chunk, entries: tuple[eo.SourceEntry, ...]) -> None:
        self.around.store.memory._index.setdefault(chunk.id, chunk)
        write(self, chunk, entries)

    return [(distributors.DistributorProcess, "_write", reported)]


@_bug("plan not durable before work")
def _plan_not_durable() -> list[Patch]:
    """What follows a durable plan is done when it was asked to be written."""
    ask = store_requests.Asking.ask

    def hasty(self: Any, make: store_requests.Make, then: store_requests.Then) -> list[Any]:
        found = ask(self, make, then)
        for instruction in list(found):
            if isinstance(instruction, driving.WriteDocument) and instruction.name.startswith(gc_documents.PLANS):
                found += self.answered(driving.DocumentWritten(instruction.request))
        return found

    return [(store_requests.Asking, "ask", hasty)]


# ---------------------------------------------------------------------- the barrier


@_bug("no wait for markers")
def _no_markers() -> list[Patch]:
    """A stage is computed when its end is announced, not when everything is there."""

    def ready(self: Any, stage: Stage) -> bool:
        return all(s in self._expected for s in range(stage + 1))

    return [(barrier.CountingInbox, "ready", ready)]


@_bug("markers of another attempt accepted")
def _any_attempt() -> list[Patch]:
    """Whatever ring they were sent by, which would tell most of them apart, too."""
    received = viewserver.ViewServer._received

    def is_mine(self: Any, epoch: Epoch, attempt: int) -> bool:
        return bool(epoch == self.epoch)

    def any_attempt(self: Any, message: Any) -> Any:
        if isinstance(message, Expect | Batch) and message.attempt < self.attempt:
            message = dataclasses.replace(message, attempt=self.attempt)
        return received(self, message)

    return [
        (barrier.Barrier, "_is_mine", is_mine),
        (barrier.Barrier, "_compare", lambda self, report: None),
        (viewserver.ViewServer, "_received", any_attempt),
    ]


@_bug("bounded queue inside an epoch")
def _bounded_queue() -> list[Patch]:
    """A server that holds a few batches takes nothing more before it has computed them."""
    received, run = viewservers.ViewServerProcess.received, viewservers.ViewServerProcess._run
    room = 2

    def hold_up(self: Any, event: driving.Received, payload: bytes | None) -> None:
        queue: deque[Any] = self.__dict__.setdefault("_queue", deque())
        queue.append((event, payload))
        drain(self)

    def drain(self: Any) -> None:
        queue: deque[Any] = self.__dict__.setdefault("_queue", deque())
        while queue and self.alive:
            event, payload = queue[0]
            held = sum(len(stage) for stage in self.work.batch_buffer._stages.values())
            if isinstance(event.message, Batch) and held >= room:
                return
            queue.popleft()
            received(self, event, payload)

    def ran(self: Any, task: Any) -> None:
        run(self, task)
        drain(self)

    return [(viewservers.ViewServerProcess, "received", hold_up), (viewservers.ViewServerProcess, "_run", ran)]


# ---------------------------------------------------------------------- the record


@_bug("commit without fencing")
def _no_fence() -> list[Patch]:
    write = zookeeper.ZooKeeper._write

    def always(self: Any, state: PoolState, version: int) -> bool:
        return write(self, state, self.record.version)

    return [(zookeeper.ZooKeeper, "_write", always)]


@_bug("unknown compare-and-set taken as failure")
def _unknown_is_failure() -> list[Patch]:
    """Whoever got no answer goes on as if nothing had been written."""
    checked, propose = leadership.Leadership._checked, coordinator.Coordinator._propose

    def failed(self: Any, record: driving.RecordRead) -> Any:
        if record.state is None or (record.state.term, record.state.leader) != (self.state.term, self._me):
            return checked(self, record)
        self._version = record.version
        self._failed = self._proposal is not None
        self._proposal = None
        self.phase = leadership.MemberPhase.LEADING
        return self._proceed()

    def again(self: Any) -> Any:
        if self.leadership.__dict__.pop("_failed", False):
            self._proposal = self._prepared = None
        return propose(self)

    return [(leadership.Leadership, "_checked", failed), (coordinator.Coordinator, "_propose", again)]


# ---------------------------------------------------------------------- views that fail


@_bug("full disk blamed on a view")
def _disk_blamed() -> list[Patch]:
    return [(exchange, "is_of_computation", lambda error: True)]


@_bug("view set aside at its first failure")
def _first_failure() -> list[Patch]:
    return [(amending, "BLAMED_AFTER", 1)]


@_bug("plan amended beside the record")
def _beside_the_record() -> list[Patch]:
    """Members are told the new plan, a successor finds the old one."""
    return [(epochs.Amendment, "pointer", lambda self, opened: opened.pointer)]


@_bug("epochs after an amended one left as they are")
def _later_left() -> list[Patch]:
    begin = amending.Amendments.begin

    def only_the_first(self: Any, book: epochs.EpochBook, version: int) -> Any:
        blamed = self._to_blame()
        first = [opened for opened in book.open if blamed is None or opened.plan.epoch <= blamed[0]]
        return begin(self, dataclasses.replace(book, open=first), version)

    return [(amending.Amendments, "begin", only_the_first)]


# ---------------------------------------------------------------------- members and their caches


@_bug("withdraw without drain")
def _no_drain() -> list[Patch]:
    """Whoever asks to leave is let go, and nobody waits for what it has not sent or written."""
    release = coordinator.Coordinator._release

    def at_once(self: Any) -> list[Any]:
        found = release(self)
        leaving = {member.id for member in self._members.values() if member.leaving}
        for epoch in self.epochs.open:
            for member in sorted(leaving & epoch.barrier._not_done if epoch.barrier is not None else ()):
                for waiting in (epoch.barrier._not_done, *epoch.barrier._missing.values()):
                    waiting.discard(member)
                found += [driving.Send(to, expect) for to, expect in epoch.barrier._tell()]
                found.append(driving.Send(member, Released(member)))
        return found

    return [(coordinator.Coordinator, "_release", at_once)]


@_bug("cache kept after losing a bucket")
def _cache_kept() -> list[Patch]:
    def own(self: Any, owner: np.ndarray, me: int) -> None:
        self._owner, self._me = np.array(owner, np.uint16), me

    return [(Shard, "own", own)]


@_bug("caches not undone after a failed attempt")
def _not_undone() -> list[Patch]:
    def forget(self: Any, touched: Mapping[str, np.ndarray]) -> None:
        """Keys of epochs that were finished and will be done again stay as they are."""

    return [(Shard, "_forget", forget)]


@_bug("reads served by a former owner")
def _former_owner() -> list[Patch]:
    def may_answer_all(self: Any, buckets: np.ndarray, epoch: Epoch) -> reads.Answers:
        return reads.Answers(np.zeros(len(buckets), np.uint8), np.full(len(buckets), -1, np.int32), ())

    return [(reads.Ownership, "may_answer_all", may_answer_all)]


@_bug("late computation written")
def _late_computation() -> list[Patch]:
    """A server that was left out goes on with its attempt: loads that come too late are answered, and nobody asks
    whether the epoch is committed before it is written."""
    return [
        (MemoryStore, "_check_horizon", lambda self, table, below: None),
        (viewserver, "overtaken", lambda state, epoch, attempt: ""),
        (viewserver.ViewServer, "_left_out", lambda self, generation: []),
    ]


# ---------------------------------------------------------------------- rows


@_bug("tombstones collected early")
def _tombstones_early() -> list[Patch]:
    """As soon as nobody reads below them, whether or not a late writer may still come; and the store, which would
    ignore it, takes what it brings."""
    collect = pins.Collection.collect

    def early(self: Any, *listed: Any) -> pins.Collected:
        found = collect(self, *listed)
        return dataclasses.replace(found, tombstones=found.horizon)

    return [(pins.Collection, "collect", early), (MemoryStore, "_is_late", lambda self, epoch: False)]


@_bug("wrong tie rule")
def _wrong_ties() -> list[Patch]:
    """Of a put and a delete with one timestamp the put wins."""
    merge = DeltaTable._merge

    def put_wins(self: Any, changes: Changes, *rest: np.ndarray) -> Any:
        puts = True if changes.delete is None else ~changes.delete
        return merge(self, dataclasses.replace(changes, ts=2 * changes.ts + puts), *rest)

    return [(DeltaTable, "_merge", put_wins)]


@_bug("ties by arrival")
def _ties_by_arrival() -> list[Patch]:
    """Of two puts with one timestamp the later one wins in tables of several masters too."""
    return [(delta_table, "settle", lambda changes, *_: changes)]


@_bug("state taken to be in the form of the pool's engine")
def _form_of_the_pool() -> list[Patch]:
    """Whatever the view group was made under: an engine that rebuilds finds what it cannot read."""
    return [(work, "state_engine", lambda made, pool, rebuilding: pool)]


# ---------------------------------------------------------------------- repair


@_bug("row that changed since it was looked at replaced all the same")
def _changed_since() -> list[Patch]:
    def whatever(self: Any, rows: Replacement, since: int, changed: np.ndarray) -> np.ndarray:
        return np.ones(len(rows), np.bool_)

    return [(Shard, "may_replace", whatever)]


@_bug("repair applied twice")
def _applied_twice() -> list[Patch]:
    """Before the changes of its epoch, and once more after them."""

    def over_all(self: Any, writes: dict[str, list[Any]]) -> None:
        for table, rows in self._replaced.items():
            kept = [written.filter(rows.find(written.ids) < 0) for written in writes.get(table, ())]
            writes[table] = [written for written in kept if len(written.ids)] + [rows]

    return [(Ledger, "_with_replaced", over_all)]


@_bug("cache of the owner survives a repair")
def _cache_survives() -> list[Patch]:
    return [(Shard, "_evict_buckets", lambda self, table, buckets: None)]


@_bug("repair sent through the DAG")
def _through_the_dag() -> list[Patch]:
    """Who reads a view is told that a row goes and another one comes; it has never had the one that goes."""
    step, put = Shard._step, Shard.put_in_place

    def remember(self: Any, rows: Replacement) -> None:
        self.__dict__.setdefault("_told", {})[rows.table] = (rows, self._ledger.load(rows.table, rows.ids))
        put(self, rows)

    def tell(self: Any, running: Any, one: Any, run: Any, outputs: Any) -> Any:
        found = step(self, running, one, run, outputs)
        known = (
            view_table(run.step)
            if isinstance(run.step, nodes.ViewNode) and run.step not in one.view_group.leaves
            else ""
        )
        told = self.__dict__.get("_told", {}).pop(known, None)
        if told is None:
            return found
        rows, before = told
        if found is None:
            found = ViewDelta(DeltaBuffer(run.step.schema, self._budget))
        for values, weight in ((before, -1), (rows.values, 1)):
            there = np.asarray(values.is_valid())
            if there.any():
                delta = decode_view_rows(run.step, rows.ids[there], values.drop_null())
                found.chunks.append(dataclasses.replace(delta, weight=np.full(int(there.sum()), weight, np.int8)))
        return found

    return [(Shard, "put_in_place", remember), (Shard, "_step", tell)]


# ---------------------------------------------------------------------- view groups computed aside


@_bug("view group computed aside taken as it is")
def _taken_as_it_is() -> list[Patch]:
    """Without what changed since the epoch that it is of."""
    init = slices.Slices.__init__

    def nothing(self: Any, ledger: Any, mine: np.ndarray, first: int, stop: int, since: int = 0) -> None:
        init(self, ledger, mine, stop if since else first, stop, since)

    return [(slices.Slices, "__init__", nothing)]


@_bug("view group computed aside taken in twice")
def _taken_twice() -> list[Patch]:
    """All rows come, though the state has them."""
    init = slices.Slices.__init__

    def everything(self: Any, ledger: Any, mine: np.ndarray, first: int, stop: int, since: int = 0) -> None:
        init(self, ledger, mine, first, stop, 0)

    return [(slices.Slices, "__init__", everything)]


@_bug("horizon passes what a build reads")
def _horizon_passes() -> list[Patch]:
    return [(coordinator.Coordinator, "_held", property(lambda self: None))]
