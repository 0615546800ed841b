"""What view servers and distributors compute: between the instructions of their machines and the engine.

No threads, no clock and no network in here: a real process calls it from its computing thread, the simulator from its
loop. Only `ServerWork.keep`, `ServerWork.read` and `DistributorWork.written` may be called from other threads as well.

    ServerWork        Adopt -> adopt     Open -> open      Keep -> keep      Compute -> compute (batches to send)
                      GiveUp -> give_up
                      Persist -> finish (what to write), then persisted      Commit -> commit
    DistributorWork   Distribute -> distribute (batches to send, then `distributed()`)       Commit -> commit

What cannot be done raises: `WorkError` with a view and a reason when the engine failed, `BelvedereError` when the store
did. `failure` turns either into the event that the machine wants to hear.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.backend.seam import Store, TableWrite
from belvedere.cluster.roles.batch_buffer import BatchBuffer
from belvedere.cluster.roles.read_cache import ReadCache
from belvedere.engine.delta import Changes
from belvedere.engine.formats import THIS_VERSION, Engines, view_group_of
from belvedere.engine.replacements import Replacement, unpack
from belvedere.engine.shard import DAY_MS, Held, Outgoing, Shard, ShardCatalog, StageError, route_changes
from belvedere.engine.vec import Vec
from belvedere.model.keys import key_codec
from belvedere.protocol import wire
from belvedere.protocol.driving import Adopt, Compute, Computed, Distribute, Distributed, Open, Persist, WorkFailed
from belvedere.protocol.engines import state_engine
from belvedere.protocol.exactly_once import ChunkId, InputPiece
from belvedere.protocol.messages import (
    NEVER,
    Attempt,
    Batch,
    Counts,
    Epoch,
    EpochPlan,
    Generation,
    PoolState,
    Repair,
    Stage,
    ViewVersion,
)
from belvedere.protocol.reads import Ownership
from belvedere.protocol.ring import MemberId, Ring, RingVersion, buckets_of
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema

NO_CATALOG = ""
"""The catalog before the first DDL: nothing in it, and no document."""

CHUNKS_PER_READ = 64


class CompiledCatalog(Protocol):
    """What work needs of a compiled catalog document."""

    @property
    def shard(self) -> ShardCatalog: ...


CompileCatalog = Callable[[bytes], CompiledCatalog]

DecodePiece = Callable[[bytes, InputPiece, Mapping[str, TableDef]], Iterable[tuple[str, Changes]]]
"""(payload of the chunk, piece, tables by name) -> changes by table, in order; nothing of tables that are not there."""


class WorkError(Exception):
    """The engine could not do it. `view`: the view (or views) that it was for, if known; `views`: those to blame."""

    def __init__(self, reason: str, view: str = "", views: tuple[ViewVersion, ...] = ()) -> None:
        super().__init__(f"view {view}: {reason}" if view else reason)
        self.reason, self.view, self.views = reason, view, views

    @classmethod
    def of(cls, error: StageError) -> WorkError:
        guilty = tuple(ViewVersion(name, error.view_group) for name in error.views) if error.view_group else ()
        return cls(error.reason, ", ".join(error.views), guilty)


def failure(epoch: Epoch, attempt: Attempt, error: Exception) -> WorkFailed:
    """The event for an error of any call in here."""
    if isinstance(error, WorkError):
        return WorkFailed(epoch, attempt, error.reason, error.view, error.views)
    if isinstance(error, errors.BelvedereError):
        return WorkFailed(epoch, attempt, str(error))
    return WorkFailed(epoch, attempt, f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Dispatch:
    """A batch to hand to the transport (or to oneself)."""

    to: MemberId
    batch: Batch
    payload: bytes


@dataclass(frozen=True)
class Stepped:
    """A stage is computed: send `dispatches`, then report `computed`."""

    dispatches: Sequence[Dispatch]
    computed: Computed


class Catalogs:
    """Compiled catalogs by the name of their document, loaded from the store when a plan names them."""

    KEPT = 4
    """Versions that are kept compiled: open epochs name at most two."""

    def __init__(self, store: Store, compile_catalog: CompileCatalog) -> None:
        self._store, self._compile = store, compile_catalog
        self._known: OrderedDict[str, ShardCatalog] = OrderedDict()

    def of(self, name: str) -> ShardCatalog:
        if name == NO_CATALOG:
            return ShardCatalog((), ())
        found = self._known.get(name)
        if found is None:
            document = self._store.get_document(name)
            if document is None:
                raise errors.Damaged(f"document {name} is not in the store, a plan needs it")
            found = self._known[name] = self._compile(document).shard
            while len(self._known) > self.KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(name)
        return found


def newest_catalog(state: PoolState | None, store: Store) -> str:
    """The document that the newest plan in the record names."""
    pointer = None if state is None else (state.open[-1] if state.open else state.committed_plan)
    data = None if pointer is None else store.get_document(pointer.document)
    if data is None:
        return NO_CATALOG  # or a plan that was removed meanwhile: whoever asks will learn of a newer one
    plan = wire.decode(data)
    assert isinstance(plan, EpochPlan)
    return plan.catalog_document


class _Counts:
    """Numbers batches by receiver, and counts them by stage and receiver. Receivers are positions in the generation."""

    def __init__(self, servers: int) -> None:
        self._next = [0] * servers
        self._by_stage: dict[Stage, list[int]] = {}

    def number(self, target: int, stage: Stage) -> int:
        number = self._next[target]
        self._next[target] = number + 1
        if stage not in self._by_stage:
            self._by_stage[stage] = [0] * len(self._next)
        self._by_stage[stage][target] += 1
        return number

    def take(self) -> Counts:
        """What was counted since the last time; numbers go on."""
        found, self._by_stage = self._by_stage, {}
        return {stage: tuple(counts) for stage, counts in found.items()}


def encode_keys(schema: Schema, columns: Sequence[Vec], count: int) -> pa.BinaryArray:
    """Keys of rows, as the store keeps them in order and readers ask for them."""
    codec = key_codec(schema, range(len(schema)))
    return codec.encode([column.to_arrow() for column in columns], count)


class _State:
    """The versioned tables of a store, as a shard reads them."""

    def __init__(self, store: Store, engines: Engines) -> None:
        self._store, self._engines = store, engines
        self._forms: dict[int, int] = {}
        """By view group: the engine in whose form its state is."""

    def open(self, plan: EpochPlan, catalog: ShardCatalog) -> None:
        """What is read and written from now on is of this plan."""
        rebuilding = self._engines.rebuilding
        forms = {group.number: state_engine(group.made, plan.engine, rebuilding) for group in catalog.view_groups}
        for number, engine in forms.items():
            if engine not in self._engines:
                raise WorkError(
                    f"epoch {plan.epoch} is planned for engine {plan.engine}, and state of view group {number} is in "
                    f"the form of engine {engine}; this process has {self._engines}"
                )
        self._forms = forms

    def pack(self, write: TableWrite) -> TableWrite:
        number = view_group_of(write.table)
        return write if number is None else replace(write, values=self._engines.pack(self._forms[number], write.values))

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        values, number = self._store.read_some(table, ids, below), view_group_of(table)
        return values if number is None else self._engines.unpack(self._forms[number], values)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._store.scan(table, first, stop, below, only)

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        return self._store.written_at(table, ids, below)


@dataclass(frozen=True)
class Repaired:
    """Rows that were put in the place of damaged ones, and those that were left as they are: somebody has written them
    since they were looked at."""

    rows: int = 0
    changed_since: int = 0


class ServerWork:
    """The share of one view server in the computing of epochs."""

    def __init__(
        self,
        me: MemberId,
        store: Store,
        compile_catalog: CompileCatalog,
        *,
        memory_limit: int = 1 << 30,
        spill_directory: Path | None = None,
        tombstone_retention_ms: int = 10 * DAY_MS,
        recent_bytes: int = 64 << 20,
        engines: Engines = THIS_VERSION,
    ) -> None:
        self.me = me
        self._engines = engines
        self.batch_buffer = BatchBuffer(memory_limit // 4, spill_directory)
        self.recent = ReadCache(recent_bytes)
        self._ownership, self._owning = Ownership(me), threading.Lock()
        self._store = store
        self.repaired = Repaired()
        """What became of the repair of the epoch that was opened last."""
        self._catalogs = Catalogs(store, compile_catalog)
        self._state = _State(store, engines)
        self._make_shard: Callable[[], Shard] = functools.partial(
            Shard,
            self._state,
            memory_limit=memory_limit // 2,
            spill_directory=spill_directory,
            tombstone_retention_ms=tombstone_retention_ms,
            encode_keys=encode_keys,
            previous_images=store.previous_images,
        )
        self._shard = self._make_shard()
        self._generation: Generation | None = None
        self._catalog: str | None = None
        self._open: Open | None = None
        self._counts = _Counts(0)
        self._moved = 0
        self._spilled = 0

    def prepare(self, catalog: str) -> None:
        """Compile a catalog before the first epoch asks for it: everyone waits for that epoch."""
        self._catalogs.of(catalog)

    # ------------------------------------------------------------------ instructions

    def adopt(self, adopt: Adopt) -> None:
        """Undo what is not committed; own the buckets of the new ring."""
        generation, before = adopt.generation, self._generation
        self.batch_buffer.forget(lambda epoch, attempt: attempt < generation.number)
        self._open = self._generation = None  # until it is done: after a failure the next one begins with nothing
        if before is None or generation.number != before.number + 1 or generation.engine != before.engine:
            # Another engine may keep other things in memory. And in a generation between the two, others may have
            # committed epochs on buckets that this server has again by now: what it remembers of them would be old.
            self._shard = self._make_shard()
            self._catalog = None
            self.recent.clear()
        else:
            self._shard.persisted(adopt.committed)  # this server said so, though the word may not have come here yet
            self._shard.committed(adopt.committed)
            self._shard.undo(adopt.committed)
            self.recent.undo(adopt.committed)
            if generation.servers != before.servers:
                self.recent.clear()
        ring = ring_of(generation)
        self._shard.own(ring.table, generation.servers.index(self.me))
        with self._owning:
            self._ownership.adopt(generation.number, ring, adopt.committed)
        self._generation = generation

    def give_up(self, generation: Attempt) -> None:
        """Others go on without this server, in this generation: drop what came for lower ones, and the state, which is
        theirs now. What was read from here can be read: it is of epochs that this server has processed."""
        self.batch_buffer.forget(lambda epoch, attempt: attempt < generation)
        self._open = self._generation = self._catalog = None
        self._shard = self._make_shard()

    def open(self, open: Open) -> None:
        """Begin the epoch with the catalog and the slices of its plan."""
        plan = open.plan
        _check_engine(plan, self._engines)
        self._state.open(plan, self._catalogs.of(plan.catalog_document))
        if self._catalog != plan.catalog_document:
            # Set when it is done: one that failed halfway is configured again.
            self._catalog = None
            self._shard.configure(self._catalogs.of(plan.catalog_document))
            self._catalog = plan.catalog_document
        if self._shard.stages > plan.stages:
            raise WorkError(
                f"epoch {plan.epoch} is planned with {plan.stages} stages, "
                f"this server needs {self._shard.stages} for catalog {plan.catalog_document}"
            )
        slices = {part.view_group: (part.first, part.stop, part.since) for part in plan.slices}
        self._shard.begin(plan.epoch, slices, dormant=[part.view_group for part in plan.slices if part.awaits])
        self.repaired = Repaired()
        if plan.repair is not None:
            self.repaired = self._replace(plan.epoch, plan.repair)
        self._open = open
        self._counts = _Counts(0 if self._generation is None else len(self._generation.servers))
        self._moved, self._spilled = 0, self._spilled_so_far()

    def _replace(self, epoch: Epoch, repair: Repair) -> Repaired:
        """Before the changes of the epoch: put right rows in the place of those that nobody has written since they were
        found to be wrong. What the store and the ledger have below the epoch is the same in every attempt, and so is
        what is decided here."""
        document = self._store.get_document(repair.document)
        if document is None or wire.digest(document) != repair.digest:
            what = "is not in the store" if document is None else "has another digest than the plan says"
            raise errors.Damaged(f"epoch {epoch}: document {repair.document!r} of its repair {what}")
        decided: list[tuple[Replacement, np.ndarray]] = []
        for rows in unpack(document):
            mine = np.flatnonzero(self._shard.owns(rows.ids))
            if len(mine) and self._shard.keeps(rows.table):
                rows = rows.take(mine)
                changed = self._state.written_at(rows.table, rows.ids, epoch) > repair.at
                decided.append((rows, self._shard.may_replace(rows, repair.at, changed)))
        missed = {
            unit for rows, free in decided for unit, one in zip(rows.units(), free.tolist(), strict=True) if not one
        }
        replaced = 0
        for rows, _ in decided:
            at = np.flatnonzero(np.array([unit not in missed for unit in rows.units()], np.bool_))
            self._shard.put_in_place(rows.take(at))
            replaced += len(at)
        return Repaired(replaced, sum(len(rows) for rows, _ in decided) - replaced)

    def keep(self, batch: Batch, payload: bytes | memoryview) -> None:
        """Hold the payload until its stage is computed. May be called from any thread."""
        self.batch_buffer.put(batch, bytes(payload))

    def compute(self, compute: Compute) -> Stepped:
        """Run one stage on everything that was kept for it."""
        epoch, attempt, stage = compute.epoch, compute.attempt, compute.stage
        generation = self._require_open(epoch, attempt)
        position = {member: i for i, member in enumerate(generation.distributors + generation.servers)}
        rows = batches = 0
        for batch, payload in self.batch_buffer.take(epoch, attempt, stage):
            # Base batches are ordered by piece and, within it, by number; others by sender, so that replay is the same.
            first = batch.order if stage == 0 else position.get(batch.sender, -1)
            self._shard.receive(stage, (first, batch.number), payload)
            rows, batches = rows + batch.rows, batches + 1
        if batches != compute.batches:
            raise WorkError(f"stage {stage} of epoch {epoch}: {compute.batches} batches came, {batches} were kept")
        outgoing = self._run(stage)
        dispatches = []
        for out in outgoing:
            to = generation.servers[out.target]
            number = self._counts.number(out.target, out.stage)
            self._moved += len(out.payload)
            dispatches.append(Dispatch(to, Batch(epoch, attempt, out.stage, self.me, number, 0, out.rows), out.payload))
        return Stepped(dispatches, Computed(epoch, attempt, stage, self._counts.take(), rows, _digest(generation)))

    def _run(self, stage: Stage) -> Sequence[Outgoing]:
        if stage >= self._shard.stages:
            return []  # planned for a catalog with more stages than this one turned out to have
        try:
            return self._shard.run(stage)
        except StageError as error:
            raise WorkError.of(error) from error

    def finish(self, persist: Persist) -> list[TableWrite]:
        """End the epoch in the shard: what has to be written to the store with version = epoch."""
        self._require_open(persist.epoch, persist.attempt)
        try:
            writes = self._shard.finish()
        except StageError as error:
            raise WorkError.of(error) from error
        self._open = None
        if self._engines.formats:
            writes = [self._state.pack(write) for write in writes]
        self.recent.add(persist.epoch, writes)
        with self._owning:
            self._ownership.process(persist.epoch, persist.attempt)
        return writes

    def cost(self) -> dict[str, float]:
        """What the epoch cost that was finished last, for the leader."""
        repaired = {
            "rows_replaced": float(self.repaired.rows),
            "rows_changed_since": float(self.repaired.changed_since),
        }
        moved = {"moved_bytes": float(self._moved), "spilled_bytes": float(self._spilled_so_far() - self._spilled)}
        return moved | repaired if self.repaired != Repaired() else moved

    def _spilled_so_far(self) -> int:
        return self.batch_buffer.budget.spilled_bytes + self._shard.spilled_bytes

    def persisted(self, epoch: Epoch) -> None:
        """What `finish` gave for this epoch (and all before) is durable in the store."""
        self._shard.persisted(epoch)

    def commit(self, epoch: Epoch) -> None:
        """The epoch is committed."""
        self.batch_buffer.forget(lambda kept, attempt: kept <= epoch)
        self._shard.committed(epoch)
        with self._owning:
            self._ownership.commit(epoch)

    # ------------------------------------------------------------------ reads, status

    def read(self, table: str, ids: np.ndarray, epoch: Epoch) -> tuple[np.ndarray, pa.BinaryArray] | None:
        """Rows of a view, as far as this server remembers them: a mask of the ids that it knows, and their values (null
        where it knows nothing, or that there is no such row). None if it did not own them all in that epoch, or has not
        processed it: the store knows. From any thread."""
        with self._owning:
            mine = self._ownership.may_answer_all(buckets_of(ids), epoch).all
        return self.recent.read(table, ids, epoch) if mine else None

    def figures(self) -> dict[str, float]:
        return {
            **self._shard.figures(),
            "kept_bytes": float(self.batch_buffer.nbytes),
            "kept_spilled_bytes": float(self.batch_buffer.budget.spilled_bytes),
        }

    def zones(self) -> Mapping[str, Held]:
        """The state of each zone."""
        return self._shard.zones()

    def traffic(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Rows (received, sent on) by stage and zone, since the shard was made."""
        return {key: (passed.received, passed.sent) for key, passed in self._shard.traffic.items()}

    def evict(self, share: float) -> int:
        """Between epochs: give memory back."""
        return self._shard.evict(share)

    def close(self) -> None:
        self.batch_buffer.close()

    def _require_open(self, epoch: Epoch, attempt: Attempt) -> Generation:
        opened = self._open
        if opened is None or self._generation is None or (opened.plan.epoch, opened.attempt) != (epoch, attempt):
            raise WorkError(f"epoch {epoch}, attempt {attempt} is not open on {self.me}")
        return self._generation


def ring_of(generation: Generation) -> Ring:
    return _ring(RingVersion(generation.ring), generation.servers)


@functools.lru_cache(maxsize=8)
def _ring(version: RingVersion, servers: tuple[MemberId, ...]) -> Ring:
    return Ring.of(version, servers)


def _digest(generation: Generation) -> str:
    return ring_of(generation).digest.hex()


def _check_engine(plan: EpochPlan, engines: Engines) -> None:
    if plan.engine not in engines:
        raise WorkError(
            f"epoch {plan.epoch} is planned for engine {plan.engine}, this process has {engines}:"
            " finish it with the version that planned it, then upgrade"
        )


class Chunks:
    """Payloads of INPUT chunks in memory, the oldest given up first; others are read again."""

    def __init__(self, store: Store, memory_limit: int) -> None:
        self.hits = self.misses = 0
        self._store, self._limit = store, memory_limit
        self._lock = threading.Lock()
        self._held: OrderedDict[ChunkId, bytes] = OrderedDict()
        self._bytes = 0

    def remember(self, chunk: ChunkId, payload: bytes) -> None:
        """A chunk that this distributor has just written."""
        with self._lock:
            if chunk not in self._held and len(payload) <= self._limit:
                self._held[chunk] = payload
                self._bytes += len(payload)
                while self._bytes > self._limit:
                    self._bytes -= len(self._held.popitem(last=False)[1])

    def forget(self, chunks: Iterable[ChunkId]) -> None:
        with self._lock:
            for chunk in chunks:
                self._bytes -= len(self._held.pop(chunk, b""))

    def get(self, pieces: Sequence[InputPiece]) -> Iterator[tuple[InputPiece, bytes]]:
        """Payloads in order, with one read per so many pieces."""
        for at in range(0, len(pieces), CHUNKS_PER_READ):
            part = pieces[at : at + CHUNKS_PER_READ]
            with self._lock:
                held = {piece.chunk: self._held[piece.chunk] for piece in part if piece.chunk in self._held}
            missing = list(dict.fromkeys(piece.chunk for piece in part if piece.chunk not in held))
            self.hits += len(held)
            self.misses += len(missing)
            if missing:
                held.update(zip(missing, self._store.get_chunks(missing), strict=True))
            for piece in part:
                yield piece, held[piece.chunk]


class DistributorWork:
    """The share of one distributor in the flow of epochs."""

    def __init__(
        self,
        me: MemberId,
        store: Store,
        compile_catalog: CompileCatalog,
        decode: DecodePiece,
        *,
        memory_limit: int = 256 << 20,
        engines: Engines = THIS_VERSION,
    ) -> None:
        self.me = me
        self._engines = engines
        self.chunks = Chunks(store, memory_limit)
        self._catalogs = Catalogs(store, compile_catalog)
        self._decode = decode
        self._used: dict[Epoch, list[ChunkId]] = {}
        self._committed = NEVER

    def prepare(self, catalog: str) -> None:
        """Compile a catalog before the first epoch asks for it: everyone waits for that epoch."""
        self._catalogs.of(catalog)

    def distribute(self, distribute: Distribute) -> Distribution:
        """The batches of this distributor's pieces."""
        plan = distribute.plan
        _check_engine(plan, self._engines)
        tables = {table.name: table for table in self._catalogs.of(plan.catalog_document).tables}
        if plan.epoch > self._committed:
            self._used[plan.epoch] = [piece.chunk for _, piece in distribute.pieces]
        return Distribution(self.me, distribute, self._decoded(distribute, tables), tables)

    def _decoded(self, distribute: Distribute, tables: Mapping[str, TableDef]) -> Iterator[tuple[int, str, Changes]]:
        orders = [index for index, _ in distribute.pieces]
        pieces = [piece for _, piece in distribute.pieces]
        for order, (piece, payload) in zip(orders, self.chunks.get(pieces), strict=True):
            for name, changes in self._decode(payload, piece, tables):
                yield order, name, changes

    def written(self, chunk: ChunkId, payload: bytes) -> None:
        """This distributor has written a chunk to INPUT: it will most likely be asked to send it."""
        self.chunks.remember(chunk, payload)

    def commit(self, epoch: Epoch) -> None:
        """The epoch is committed: its chunks will not be sent again (one of which a later plan takes the rest is read
        again then)."""
        self._committed = max(self._committed, epoch)
        for done in [e for e in self._used if e <= epoch]:
            self.chunks.forget(self._used.pop(done))


class Distribution:
    """Batches that are made while they are asked for (once), so that a backlog of any length needs little memory; when
    all are handed over, `distributed` says how many went where."""

    def __init__(
        self,
        me: MemberId,
        distribute: Distribute,
        decoded: Iterator[tuple[int, str, Changes]],
        tables: Mapping[str, TableDef],
    ) -> None:
        self._me, self._distribute, self._decoded, self._tables = me, distribute, decoded, tables
        self._counts = _Counts(len(distribute.generation.servers))
        self._rows = 0

    def __iter__(self) -> Iterator[Dispatch]:
        epoch, generation = self._distribute.plan.epoch, self._distribute.generation
        owner = ring_of(generation).table
        for order, name, changes in self._decoded:
            for target, payload, rows in route_changes(self._tables[name], changes, owner):
                to = generation.servers[target]
                self._rows += rows
                number = self._counts.number(target, 0)
                yield Dispatch(to, Batch(epoch, generation.number, 0, self._me, number, order, rows), payload)

    def distributed(self) -> Distributed:
        attempt = self._distribute.generation.number
        ring = _digest(self._distribute.generation)
        return Distributed(self._distribute.plan.epoch, attempt, self._counts.take(), self._rows, ring)
