"""The engine on some of the buckets: what a view server computes of an epoch, stage by stage.

    configure, own -> begin -> receive* -> run(0) -> receive* -> run(1) ... -> finish -> begin of the next epoch
                         \\________________________ undo (any time) _____________________/

Rows lie where the bucket of a hash says (`buckets_of`): base rows by primary key, groups by their key, rows of a view
by their id. A stage runs the operators whose rows are there; rows that the next operators want elsewhere leave as
`Outgoing`. State is a cache of the store: keys are loaded when an epoch needs them, and what it changed is returned by
`finish`. It is safe to give up at any moment, since nothing but the store is needed to go on: `undo` forgets every key
that an epoch touched which is not committed.

What an epoch writes depends on the epoch alone, not on who owns what, on the order in which batches arrive, or on what
was resident: groups are exported in one canonical form, and every value is written whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from belvedere.engine.arrangement import SAVE_ROWS, Arrangement
from belvedere.engine.buffer import CHUNK_ROWS, DeltaBuffer
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.engine.exchange import Held, Outgoing, RowShape, StageError, TableWrite, Traffic, blaming
from belvedere.engine.graph import Arranged, apply_task, make, weight
from belvedere.engine.inbox import StageInbox
from belvedere.engine.ledger import Ledger, LedgerWrite
from belvedere.engine.operators.base import collect
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.parts import Part
from belvedere.engine.replacements import Replacement, digests, unit_of
from belvedere.engine.residency import StateStore
from belvedere.engine.routing import (
    BUCKETS,
    MAX_ROWS,
    address_of,
    buckets_of,
    concat_changes,
    decode_changes,
    decode_rows,
    encode_rows,
    route_changes,
    route_rows,
)
from belvedere.engine.running import Running
from belvedere.engine.slices import Slices
from belvedere.engine.stages import (
    GroupLayout,
    Moved,
    Run,
    ShardCatalog,
    StagedGroup,
    StageKind,
    StageLayout,
    Step,
    layout,
)
from belvedere.engine.state.cell_table import new_table
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.viewrows import (
    KeyEncoder,
    decode_quarantine_rows,
    decode_view_rows,
    delta_table,
    export_quarantine,
    export_table,
    export_view,
    quarantine_table,
    view_table,
)
from belvedere.engine.zoning import held_by_zone, table_bytes, zone_names
from belvedere.errors import Damaged
from belvedere.plan import nodes
from belvedere.spill import Budget

__all__ = [
    "BUCKETS",
    "StagedGroup",
    "Held",
    "Outgoing",
    "Shard",
    "ShardCatalog",
    "StageError",
    "TableWrite",
    "buckets_of",
    "decode_quarantine_rows",
    "decode_view_rows",
    "delta_table",
    "layout",
    "quarantine_table",
    "route_changes",
    "view_table",
]

DAY_MS = 24 * 3600 * 1000
WEIGH_ROWS = 1 << 14
"""State is weighed again after this many rows went into it, or bytes that are a good part of its limit: one row may
bring a group of a million values with it."""
WEIGH_SHARE = 16
# looking a member up costs more than many a step
_TASK, _GROUPS, _MOVED = StageKind.TASK, StageKind.GROUPS, StageKind.MOVED
_GLOBAL = hash_rows([], 1)
"""The id of the one group of no columns."""


class Shard:
    """The operators of all view groups on the buckets of one server."""

    def __init__(
        self,
        store: StateStore,
        *,
        memory_limit: int = 1 << 30,
        spill_directory: Path | None = None,
        tombstone_retention_ms: int = 10 * DAY_MS,
        encode_keys: KeyEncoder | None = None,
        previous_images: bool = False,
        model: StateStore | None = None,
    ):
        """`memory_limit`: half of it is for rows on their way, half for state (see `evict`). `encode_keys`: for stores
        that keep the rows of views and of base tables in the order of their keys. `previous_images`: see `TableWrite`.
        `model`: a store whose groups tell how many pages a big group has, which depends on its history (`state.pages`).
        """
        self._encode_keys, self._previous_images = encode_keys, previous_images
        self._model = None if model is None else Ledger(model)
        self._ledger = Ledger(store)
        self._budget = Budget(memory_limit // 2, spill_directory)
        self._inbox = StageInbox(self._budget)
        self._state_limit = memory_limit // 2
        self._retention = tombstone_retention_ms
        self._catalog = ShardCatalog((), ())
        self._layout: StageLayout = layout(self._catalog)
        self._tables: dict[str, DeltaTable] = {}
        self._operators: dict[int, dict[Step, Any]] = {}
        self._by_number: dict[int, list[Any]] = {}
        self._groups: dict[str, Arrangement] = {}
        self._owner = np.zeros(BUCKETS, np.uint16)
        self._me = 0
        self._running: Running | None = None
        self._broken = False
        """Something failed in the middle: what is held is worth nothing, and is made anew before the next epoch."""
        self._random = np.random.default_rng(0)
        self._view_rows: dict[str, int] = {}
        self._zones: dict[int, dict[int, str]] = {}  # of each view group the zone of every step
        self._traffic: dict[tuple[int, str], Traffic] = {}
        self._unweighed = self._received_bytes = self._weighed_bytes = 0

    # ------------------------------------------------------------------ between epochs

    @property
    def stages(self) -> int:
        """Number of stages of an epoch."""
        return self._layout.stages

    def configure(self, catalog: ShardCatalog) -> None:
        """Between epochs: view groups and tables are those of the catalog from now on."""
        self._between("configure")
        if catalog == self._catalog and not self._broken:
            return
        self._catalog, self._layout = catalog, layout(catalog)
        if self._broken:
            self._clear()
        self._shape()

    def _shape(self) -> None:
        self._broken = True  # until it is done: one that stopped halfway must not be taken for a whole one
        old = self._tables
        self._tables = {}
        for table in self._catalog.tables:
            known = old.get(table.name)
            grows = known is not None and known.table.columns == table.columns[: len(known.table.columns)]
            if known is None or not grows or known.table.rules != table.rules:
                known = new_table(table)
            elif len(known.table.columns) < len(table.columns):
                known.add_columns(table.columns[len(known.table.columns) :])
            self._tables[table.name] = known
        wanted = {one.view_group.number: one for one in self._layout.view_groups}
        self._operators = {number: self._operators.get(number, {}) for number in wanted}
        self._zones = {number: zone_names(one) for number, one in wanted.items()}
        views = {view.name for one in wanted.values() for view in one.view_group.views}
        self._view_rows = {view: self._view_rows.get(view, 0) for view in views}
        self._groups, self._by_number = {}, {}
        for number, one in wanted.items():
            self._shape_view_group(one, self._operators[number])
        self._broken = False

    def _shape_view_group(self, one: GroupLayout, running: dict[Step, Any]) -> None:
        for step in [s for s in running if s not in one.stage]:
            operator = running.pop(step)
            if hasattr(operator, "detach"):
                operator.detach()
        leaves = set(one.view_group.leaves)
        wanted = [s for s in one.stage if s not in leaves and not isinstance(s, (Moved, nodes.DeltaNode))]
        if any(step not in running for step in wanted):
            # A view group only ever loses steps, unless an epoch is done again with the catalog before a drop. What it
            # lost then comes back empty, beside groups that are resident and so would never be loaded for it.
            running.clear()
            for step in wanted:
                running[step] = made = make(step, one.names[step], running, self._tables, self._budget)
                if isinstance(made, Arrangement):
                    made.attach(self._ledger, one.names[step], shared=True)
                    made.model = self._model
        self._by_number[one.view_group.number] = [running.get(step) for step in one.at]
        for operator in running.values():
            if isinstance(operator, Arrangement):
                self._groups[operator.name] = operator

    def _clear(self) -> None:
        """Have no operators either, until they are made anew."""
        self._tables, self._operators, self._groups, self._by_number = {}, {}, {}, {}

    def own(self, owner: np.ndarray, me: int) -> None:
        """Between epochs: `owner` (uint16[BUCKETS]) tells the position of the owner of each bucket, `me` is mine."""
        self._between("own")
        lost = (self._owner == self._me) & (owner != me)
        self._owner, self._me = np.array(owner, np.uint16), me
        for groups in self._groups.values():
            groups.born = False
        if not lost.any():
            return
        for table in self._tables.values():
            slots = table.slots()
            table.evict(slots[lost[buckets_of(table.ids_at(slots))]])
        for groups in self._groups.values():
            slots = groups.index.slots()
            groups.evict(slots[lost[buckets_of(groups.index.ids(slots))]])

    def evict(self, share: float = 1.0) -> int:
        """Between epochs: forget that share of the keys, chosen at random; returns how many went. Whatever is not in
        the store yet is still known to the ledger."""
        self._between("evict")
        held = self._held()
        if share >= 1.0:
            self._clear()
            self._shape()
            return held
        for table in self._tables.values():
            slots = table.slots()
            table.evict(slots[self._random.random(len(slots)) < share])
        for groups in self._groups.values():
            slots = groups.index.slots()
            groups.evict(slots[self._random.random(len(slots)) < share])
        return held - self._held()

    def _held(self) -> int:
        return sum(t.size for t in self._tables.values()) + sum(len(g.index) for g in self._groups.values())

    def _weigh(self) -> int:
        """Bytes of state, roughly: memory of evicted keys is used again, but not given back."""
        total = sum(table_bytes(table) for table in self._tables.values())
        return int(total + sum(weight(operator) for one in self._operators.values() for operator in one.values()))

    def _keep_within_limit(self) -> None:
        came = self._received_bytes + self._ledger.loaded_bytes
        if self._unweighed < WEIGH_ROWS and came - self._weighed_bytes < self._state_limit // WEIGH_SHARE:
            return
        self._unweighed, self._weighed_bytes = 0, came
        size = self._weigh()
        if size > self._state_limit:
            self.evict(min(1.0, 1.25 - 0.75 * self._state_limit / size))

    def _between(self, what: str) -> None:
        if self._running is not None:
            raise AssertionError(f"{what} in the middle of epoch {self._running.epoch}; finish or undo it first")

    # ------------------------------------------------------------------ an epoch

    def begin(
        self,
        epoch: int,
        slices: Mapping[int, tuple[int, int] | tuple[int, int, int]],
        part: Part | None = None,
        dormant: Collection[int] = (),
    ) -> None:
        """Start an epoch. `slices`: for view groups under construction, which buckets of their leaves they take now
        (and since when, see `Slices`). `dormant`: view groups of which nothing is computed or kept, since somebody else
        writes their state.
        `part`: compute only this, and send everything away, also what is for this server."""
        self._between("begin")
        if self._broken:
            self._clear()
            self._shape()
        self._keep_within_limit()
        self._ledger.epoch = epoch
        if self._model is not None:
            self._model.epoch = epoch
        outputs = {one.view_group.number: [None] * len(one.at) for one in self._layout.view_groups}
        self._running = Running(epoch, dict(slices), outputs, part, frozenset(dormant))

    def owns(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._owner[buckets_of(ids)] == self._me)

    def may_replace(self, rows: Replacement, since: int, changed: np.ndarray) -> np.ndarray:
        """Whether each of these rows can be replaced in the running epoch, before anything else of it: nobody has
        written it after the epoch `since` (`changed`: what the store knows of that), and it is what was seen then.
        See `put_in_place`."""
        assert self._now().stage == 0
        free = ~(changed | self._ledger.changed_since(rows.table, rows.ids, since))
        here = digests(self._ledger.load(rows.table, rows.ids)).to_pylist()
        same = [now == then for now, then in zip(here, rows.seen.to_pylist(), strict=True)]
        return np.asarray(free & np.array(same, np.bool_))

    def put_in_place(self, rows: Replacement) -> None:
        """These rows are what was there before the running epoch. What was remembered of them is forgotten; what the
        epoch itself does to them comes on top."""
        assert self._now().stage == 0
        self._evict_buckets(rows.table, np.unique(buckets_of(rows.ids)))
        view = self._views_by_table().get(rows.table)
        images = view is not None and self._previous_images
        before = self._ledger.load(rows.table, rows.ids) if images else None
        keys = None if self._encode_keys is None else rows.keys
        self._ledger.replace(rows.table, LedgerWrite(rows.ids, rows.values, keys, rows.hidden, before))

    def keeps(self, table: str) -> bool:
        """Whether this is a table of the store that the present catalog has."""
        name = unit_of(table)
        return name in self._groups or table in self._views_by_table() or name in map(delta_table, self._tables)

    def _views_by_table(self) -> dict[str, nodes.ViewNode | None]:
        """Views by the table of their rows; tables of quarantine, too, with none."""
        found: dict[str, nodes.ViewNode | None] = {}
        for one in self._layout.view_groups:
            for _, view in one.views:
                found |= {view_table(view): view, quarantine_table(view): None}
        return found

    def _evict_buckets(self, table: str, buckets: np.ndarray) -> None:
        """Whole buckets: which group a page belongs to is not in its id."""
        name = unit_of(table)
        groups = self._groups.get(name)
        if groups is not None:
            slots = groups.index.slots()
            groups.evict(slots[np.isin(buckets_of(groups.index.ids(slots)), buckets)])
            groups.born = False
        for base, rows in self._tables.items():
            if delta_table(base) == name:
                slots = rows.slots()
                rows.evict(slots[np.isin(buckets_of(rows.ids_at(slots)), buckets)])

    def receive(self, stage: int, order: tuple[int, int], payload: bytes) -> None:
        """Rows for a stage that has not run. Base batches are taken in `order`; for others it does not matter."""
        running = self._now()
        if stage < running.stage:
            raise AssertionError(f"epoch {running.epoch}: rows for stage {stage} came after it had run")
        self._inbox.put(stage, order, payload)

    def _now(self) -> Running:
        if self._running is None:
            raise AssertionError("no epoch is running; begin one first")
        return self._running

    def run(self, stage: int) -> list[Outgoing]:
        """Compute a stage (all from 0 on, one after the other)."""
        running = self._now()
        if stage != running.stage:
            raise AssertionError(f"epoch {running.epoch}: stage {running.stage} is next, not {stage}")
        try:
            out = self._run(running, stage)
        except BaseException:
            self._broken = True
            raise
        running.stage = stage + 1
        return out

    def _run(self, running: Running, stage: int) -> list[Outgoing]:
        base: dict[str, list[bytes]] = {}
        running.arrived = {}
        for _, payload in self._inbox.take(stage):
            target = address_of(payload)
            if isinstance(target, str):
                base.setdefault(target, []).append(payload)
            else:
                running.arrived.setdefault(target, []).append(payload)
        for name, payloads in base.items():
            with blaming((), f"table {name}: "):
                self._change_table(running, name, payloads)
        out: list[Outgoing] = []
        part = running.part
        for one in self._layout.view_groups:
            if one.view_group.number in running.dormant:
                continue
            outputs = running.outputs[one.view_group.number]
            for run in one.stages[stage]:
                if part is not None and (one.view_group.number, run.at) not in part.steps:
                    continue
                with blaming(run.views, view_group=one.view_group.number):
                    outputs[run.at] = self._step(running, one, run, outputs)
            for source, run in one.sends[stage]:
                rows = _chunks(outputs[source])
                if rows is not None and (part is None or (one.view_group.number, run.edge) in part.sends):
                    with blaming(run.views, view_group=one.view_group.number):
                        self._send(running, one, run, rows, out)
                    self._pass(stage, self._zones[one.view_group.number][source]).sent += rows.rows
        return out

    def _pass(self, stage: int, zone: str) -> Traffic:
        return self._traffic.setdefault((stage, zone), Traffic())

    def _change_table(self, running: Running, name: str, payloads: list[bytes]) -> None:
        table = self._tables.get(name)
        if table is None:
            raise Damaged(f"table {name}: rows arrived, but the catalog has {', '.join(self._tables) or 'no table'}")
        changes = concat_changes([decode_changes(table.table, p) for p in payloads])
        self._unweighed += len(changes)
        self._received_bytes += sum(map(len, payloads))
        horizon = (running.epoch - self._retention) * 1000
        table.collect(horizon)
        missing = table.missing(changes)
        self._ledger.held += len(changes) - len(missing)
        self._pass(0, name).received += len(changes)
        while len(missing):
            values = self._ledger.load_some(delta_table(name), missing)
            table.import_(values.drop_null(), horizon)
            missing = missing[len(values) :]
        running.base[name] = table.apply(changes, self._layout.columns.get(name, ()), running.epoch * 1000)

    def _step(self, running: Running, one: GroupLayout, run: Run, outputs: list[Any]) -> Any:
        kind = run.kind
        if kind is _TASK:
            inputs = [outputs[f] for f in run.feeds]
            if all(i is None for i in inputs):
                return None
            operator = self._by_number[one.view_group.number][run.at]
            return apply_task(run.step, operator, inputs, self._budget)  # type: ignore[arg-type]  # not a Moved
        if kind is _GROUPS:
            return self._arrange(running, one, run, outputs)
        if kind is _MOVED:
            return self._gather(running, one, run)
        return self._source(running, one, run.step)

    # ------------------------------------------------------------------ inputs

    def _source(self, running: Running, one: GroupLayout, step: Step) -> DeltaBuffer | None:
        """A leaf: a base table, or a view of an older view group."""
        rows: Iterator[Delta]
        span = running.slices.get(one.view_group.number)
        if isinstance(step, nodes.DeltaNode):
            if span is None and step.table not in running.base:
                return None
            rows = iter([running.emit(step)] if step.table in running.base else [])
            if span is not None:
                slices = Slices(self._ledger, self._owner == self._me, *span)
                rows = slices.of_table(step, self._tables[step.table], running.base.get(step.table), rows)
        else:
            assert isinstance(step, nodes.ViewNode)
            number, at = self._layout.owners[step]
            changed: ViewDelta | None = running.outputs[number][at]
            rows = iter(()) if changed is None else iter(changed.chunks)
            if span is not None:
                rows = Slices(self._ledger, self._owner == self._me, *span).of_view(step, list(rows))
        found = collect(step.schema, self._budget, rows)
        return found if found.rows else None

    def _gather(self, running: Running, one: GroupLayout, run: Run) -> DeltaBuffer | None:
        """What others sent and what stayed: in one piece if it is small, else all that goes before all that comes."""
        edge = (one.view_group.number, run.edge)
        payloads, kept = running.arrived.pop(edge, ()), running.kept.pop(edge, None)
        if not payloads and kept is None:
            return None
        schema = one.edges[run.edge].input.schema
        parts = [decode_rows(schema, p) for p in payloads]
        rows = sum(len(delta) for delta, _ in parts) + (0 if kept is None else kept.rows)
        if not rows:
            return None
        self._pass(one.stage[run.step], self._zones[one.view_group.number][run.at]).received += rows
        if not parts and kept is not None and not kept.spilled:
            chunks = list(kept)
            if len(chunks) == 1:
                return kept
        out = DeltaBuffer(schema, self._budget)
        if rows <= CHUNK_ROWS:
            out.append(concat_deltas([*(delta for delta, _ in parts), *(kept or ())]))
            return out
        for gone in (True, False):
            for delta, negatives in parts:
                out.append(delta.slice(0, negatives) if gone else delta.slice(negatives, len(delta)))
            for delta in kept or ():
                out.append(delta.filter((delta.weight < 0) == gone))
        return out

    def _send(self, running: Running, one: GroupLayout, run: Run, rows: DeltaBuffer, out: list[Outgoing]) -> None:
        number, edge, moved = one.view_group.number, run.edge, one.edges[run.edge]
        stage = one.stage[moved]
        kept = running.kept.setdefault((number, edge), DeltaBuffer(moved.input.schema, self._budget))
        keeps = running.part is None
        alone = keeps and bool((self._owner == self._me).all())
        for delta in rows:
            if alone:
                kept.append(Delta(delta.columns, delta.weight, delta.id, delta.error))
                continue
            ids = delta.id if moved.by is None else hash_rows([delta.columns[i] for i in moved.by], len(delta))
            for target, part, negatives in route_rows(delta, ids, self._owner):
                if keeps and target == self._me:
                    kept.append(part)
                    continue
                for start in range(0, len(part), MAX_ROWS):
                    piece = part.slice(start, min(start + MAX_ROWS, len(part)))
                    gone = min(max(negatives - start, 0), len(piece))
                    out.append(Outgoing(target, stage, encode_rows(number, edge, piece, gone), len(piece)))

    def _arrange(self, running: Running, one: GroupLayout, run: Run, outputs: list[Any]) -> Any:
        """Groups: first load all that they and the joins over them will look for, then take the rows in."""
        operators = self._by_number[one.view_group.number]
        groups: Arrangement = operators[run.at]
        rows = _chunks(outputs[run.feeds[0]])
        birth = not groups.on and not groups.born and self._makes_global(groups)
        if rows is None:
            if not birth:
                return None
            assert isinstance(run.step, Arranged)
            rows = DeltaBuffer(run.step.input.schema, self._budget)
        self._unweighed += rows.rows
        number = one.view_group.number
        hashes = running.hashes_of(number, run.at, groups, rows)
        wanted = [*hashes, *([_GLOBAL] if birth else [])]
        for partner, feed in run.partners:
            other = _chunks(outputs[feed])
            if other is not None:
                wanted += running.hashes_of(number, partner, operators[partner], other)
        ledger = self._ledger
        missed = ledger.loaded + ledger.absent
        groups.ensure(wanted)
        ledger.held += sum(map(len, wanted)) - (ledger.loaded + ledger.absent - missed)
        grouping = groups.apply(rows, hashes)
        if birth:
            groups.give_birth(grouping)
        return grouping

    def _makes_global(self, groups: Arrangement) -> bool:
        """Whether the one group of no columns is mine, and must exist even without rows."""
        mine = int(self._owner[buckets_of(_GLOBAL)[0]]) == self._me
        return mine and any(isinstance(facet, PreAggregationOperator) for facet in groups.facets.values())

    # ------------------------------------------------------------------ the end of an epoch

    def finish(self) -> list[TableWrite]:
        """End the epoch: everything that it changed."""
        running = self._now()
        if running.stage != self.stages:
            raise AssertionError(f"epoch {running.epoch}: {running.stage} of {self.stages} stages have run")
        try:
            logged = self._save(running)
        except BaseException:
            self._broken = True
            raise
        self._running = None
        self._inbox.clear()
        views = self._views_by_table()
        for table in self._ledger.replaced():
            if table in views and table not in logged:
                view = views[table]
                shaped = view is not None and self._encode_keys is not None
                logged[table] = RowShape(view.schema, tuple(view.key)) if shaped and view is not None else None
        writes = self._ledger.close_epoch()
        pieces = [(table, write) for table, parts in writes.items() for write in parts]
        return [
            TableWrite(t, w.ids, w.values, t in logged, w.keys, w.hidden, logged.get(t), w.before) for t, w in pieces
        ]

    def _save(self, running: Running) -> dict[str, RowShape | None]:
        """Hand everything that changed to the ledger; returns which tables are logged, and what rows of views are."""
        logged: dict[str, RowShape | None] = {}
        for one in self._layout.view_groups:
            number = one.view_group.number
            outputs, operators = running.outputs[number], self._by_number[number]
            for run in one.sides:
                if outputs[run.at] is not None:
                    with blaming(run.views, view_group=number):
                        operators[run.at].end_epoch()
            for at, view in one.views:
                if outputs[at] is not None:
                    with blaming((view.name,), view_group=number):
                        self._save_view(view, outputs[at], logged)
            for run in one.groups:
                if operators[run.at].dirty:
                    with blaming(run.views, view_group=number):
                        operators[run.at].end_epoch()
        for name, change in running.base.items():
            with blaming((), f"table {name}: "):
                self._save_table(name, change.mentioned_keys(self._tables[name].table.key_positions))
        return logged

    def _save_table(self, name: str, rows: Delta) -> None:
        for start in range(0, len(rows), SAVE_ROWS):
            self._save_rows(name, rows.slice(start, min(start + SAVE_ROWS, len(rows))))

    def _save_rows(self, name: str, rows: Delta) -> None:
        try:
            exported = export_table(self._tables[name], rows, self._encode_keys)
        except OverflowError:  # more bytes than one column can hold
            if len(rows) == 1:
                raise
            self._save_rows(name, rows.slice(0, len(rows) // 2))
            self._save_rows(name, rows.slice(len(rows) // 2, len(rows)))
            return
        self._ledger.save(delta_table(name), *exported)

    def _save_view(self, view: nodes.ViewNode, changed: ViewDelta, logged: dict[str, RowShape | None]) -> None:
        if changed.rows:
            self._view_rows[view.name] = self._view_rows.get(view.name, 0) + changed.rows
            for rows in export_view(view, changed.chunks, self._encode_keys, self._previous_images):
                self._ledger.save(view_table(view), *rows)
            logged[view_table(view)] = None if self._encode_keys is None else RowShape(view.schema, tuple(view.key))
        if changed.quarantine:
            self._ledger.save(quarantine_table(view), *export_quarantine(view, changed.quarantine))
            logged[quarantine_table(view)] = None

    def persisted(self, epoch: int) -> None:
        """The changes of this epoch (and of all before) are in the store."""
        self._ledger.persisted(epoch)

    def committed(self, epoch: int) -> None:
        """Epochs up to this one will never be undone."""
        self._ledger.committed(epoch)

    def undo(self, committed: int) -> None:
        """Give up the running epoch, and forget every key that epochs after `committed` touched."""
        running, self._running = self._running, None
        self._inbox.clear()
        replaced = self._ledger.replaced()
        undone = self._ledger.undo(committed)
        if self._broken:
            self._clear()  # made anew when the next epoch begins: what fails there must not stop this
            return
        for groups in self._groups.values():
            groups.undo() if groups.dirty else None
            groups.born = False
        if running is not None:
            for name, change in running.base.items():
                self._tables[name].evict(self._tables[name].slots_of(change.mentioned))
        for table, ids in replaced.items():
            self._evict_buckets(table, np.unique(buckets_of(ids)))
        for one in undone:
            self._forget(one.touched)

    def _forget(self, touched: Mapping[str, list[np.ndarray]]) -> None:
        tables = {delta_table(name): table for name, table in self._tables.items()}
        for name, pieces in touched.items():
            for ids in pieces:
                if name in tables:
                    tables[name].evict(tables[name].slots_of(ids))
                elif name in self._groups:
                    self._groups[name].evict_ids(ids)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to disk so far, for want of memory."""
        return self._budget.spilled_bytes

    def zones(self) -> dict[str, Held]:
        """The state that each zone holds."""
        return held_by_zone(self._tables, self._by_number, self._zones)

    @property
    def traffic(self) -> Mapping[tuple[int, str], Traffic]:
        """Rows that zones received and sent on so far, by stage and zone."""
        return self._traffic

    def figures(self) -> dict[str, float]:
        """What it holds, and how often it had to ask the store."""
        ledger = self._ledger
        rows = {f"view_rows:{name}": float(rows) for name, rows in self._view_rows.items()}
        return rows | {
            "state_rows": float(self._held()),
            "state_bytes": float(self._weigh()),
            "loads": float(ledger.loads),
            "keys_held": float(ledger.held),
            "keys_loaded": float(ledger.loaded),
            "keys_absent": float(ledger.absent),
            "spilled_bytes": float(self._budget.spilled_bytes),
            "buffered_bytes": float(self._budget.used),
        }


def _chunks(output: DeltaBuffer | ViewDelta | None) -> DeltaBuffer | None:
    """The rows of an output, None if there are none."""
    rows = output.chunks if isinstance(output, ViewDelta) else output
    return rows if rows is not None and rows.rows else None
