"""Repair: what is held is compared with what the base rows make, and the right rows take the place of the wrong ones.

    look (nothing changes) -> `repair` in the log, which names views and ranges of keys -> at its epoch: operators and
    rows are made anew from the base rows, and what differs is that epoch's change of the views

The operation in the log says *where* to mend, never *what* was wrong: the right rows follow from the base rows, and
these from the log. So it is done exactly once in effect wherever it is met, live or in a replay, whatever the damage
was, and nothing of it is done if a crash came before it was durable. Operators are always replaced as a whole: they
share state, and replacing what is right changes nothing.

Reading processes follow the changelog, which can hold damage of its own. They take the epoch's change like any other,
and load the snapshot that is taken after it (`reread`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow.compute as pc

from belvedere.embedded.fresh import compute
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.views import ViewTable, quarantine_difference, table_difference
from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.engine import Engine, ViewsFailed
from belvedere.engine.graph import digest, ordered
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state_check import TableCheck, check_state
from belvedere.errors import CatalogError
from belvedere.model import ddl
from belvedere.model.ranges import KeyRange
from belvedere.model.repair import DIFFERENT, EXTRA, MISSING, DamagedRow, RepairReport
from belvedere.plan.nodes import ViewNode

if TYPE_CHECKING:
    from belvedere.embedded.reader import Reader
    from belvedere.embedded.runtime import Runtime

SHOWN = 100
_PIECE = 1 << 16
Ranges: TypeAlias = tuple[KeyRange, ...] | None
"""Parts of a view by its keys; None: all of it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong. `views`: where rows have to be mended; `bases`: base tables whose rows in memory are not those of
    the log."""

    epoch: int
    rows: tuple[DamagedRow, ...]
    views: Mapping[str, Ranges]
    bases: tuple[str, ...] = ()

    def report(self, view: str, *, dry_run: bool = False) -> RepairReport:
        tables: dict[str, int] = {}
        for row in self.rows:
            tables[row.table] = tables.get(row.table, 0) + 1
        shown = self.rows if dry_run else self.rows[:SHOWN]
        return RepairReport(view, self.epoch, dry_run, tables=tables, rows=shown)

    def operation(self) -> ddl.Operation:
        views = {name: None if ranges is None else _ranges_json(ranges) for name, ranges in self.views.items()}
        return {"op": "repair", "id": uuid.uuid4().hex, "views": views, "bases": list(self.bases)}


def _ranges_json(ranges: Sequence[KeyRange]) -> list[list[str | None]]:
    return [[r.low.hex(), None if r.high is None else r.high.hex()] for r in ranges]


def _ranges_of(value: Sequence[Sequence[Any]] | None) -> Ranges:
    if value is None:
        return None
    return tuple(KeyRange(bytes.fromhex(a), None if b is None else bytes.fromhex(b)) for a, b in value)


class Repairs:
    """Belongs to the engine's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.files: Files | None = None
        """Where the log and the snapshots are; None in memory."""
        self.results: dict[str, RepairReport | Exception] = {}
        """Of repairs that are done, until whoever asked takes them."""

    # ------------------------------------------------------------------ looking

    def check_state(self, view: str) -> tuple[int, list[TableCheck]]:
        """The state behind one view, and its epoch."""
        runtime = self._runtime
        engine = runtime.engine.beside()
        compute(runtime, engine, [runtime.builds.nodes[view]])
        return runtime.committed, list(check_state(runtime.engine, engine))

    def check_base(self, table: str) -> tuple[int, TableCheck | None]:
        """The rows of a base table in memory against those of snapshot and log, if there are any, and their epoch."""
        reader = self._reader()
        if reader is None:
            return self._runtime.committed, None
        try:
            return self._runtime.committed, self._check_base(table, reader)
        finally:
            reader.close()

    def look(self, name: str, ranges: Ranges) -> Damage:
        """What is wrong with a relation, the state behind it, and what is made of it. Of the view itself only rows in
        the ranges count."""
        runtime = self._runtime
        reader = self._reader()
        rows: list[DamagedRow] = []
        bases: list[str] = []
        try:
            if reader is not None:
                for table in sorted(self._tables_below(name)):
                    check = self._check_base(table, reader)
                    rows += _damaged(check)
                    bases += [table] if check.wrong else []
            names = {name, *(view.name for base in (name, *bases) for view in ddl.dependants(runtime.catalog, base))}
            engine = runtime.engine.beside()
            if reader is not None:
                engine.tables = {**engine.tables, **{base: reader.base_tables()[base] for base in bases}}
            made = compute(runtime, engine, list(runtime.builds.nodes.values()))
            wrong = [check for check in check_state(runtime.engine, engine) if check.wrong]
            for check in wrong:
                rows += _damaged(check)
            names |= self._made_with({check.part for check in wrong})
            names &= runtime.tables.keys()
            wanted = {view: ranges if view == name else None for view in sorted(names)}
            for node, fresh in made.items():
                if node.name in wanted:
                    rows += self._rows_damaged(node, fresh, wanted[node.name], reader)
        finally:
            if reader is not None:
                reader.close()
        return Damage(runtime.committed, tuple(rows), wanted, tuple(bases))

    def everything(self, name: str) -> Damage:
        """A relation and all that is made of it, whether or not something is wrong."""
        runtime = self._runtime
        names = {name, *(view.name for view in ddl.dependants(runtime.catalog, name))} & runtime.tables.keys()
        return Damage(runtime.committed, (), dict.fromkeys(sorted(names)))

    def _reader(self) -> Reader | None:
        """What a process that reads the files sees at the committed epoch."""
        from belvedere.embedded.reader import Reader

        if self.files is None:
            return None
        reader = Reader(self.files, self._runtime.options)
        if reader.epoch != self._runtime.committed:
            reader.close()
            return None
        return reader

    def _tables_below(self, name: str) -> set[str]:
        from belvedere.model.verify import below

        catalog = self._runtime.catalog
        if name in catalog.tables:
            return {name}
        return below(catalog, [catalog.views[name]]) & catalog.tables.keys()

    def _made_with(self, parts: set[str]) -> set[str]:
        """Views that need one of these parts of the plan."""
        names: dict[Any, str] = {}
        nodes = self._runtime.builds.nodes.values()
        return {node.name for node in nodes if parts and parts & {digest(task, names) for task in ordered([node])}}

    def _rows_damaged(
        self, node: ViewNode, fresh: ViewTable, ranges: Ranges, reader: Reader | None
    ) -> Iterator[DamagedRow]:
        name, held = node.name, self._runtime.tables[node.name]
        yield from _rows(f"view {name}", _within(held, table_difference(node.schema, held.table, fresh.table), ranges))
        yield from _rows(f"quarantine {name}", (part.delta for part in quarantine_difference(held, fresh)))
        seen = None if reader is None else reader.view_table(name)
        if seen is not None and seen.shape == held.shape:
            deltas = _within(held, table_difference(node.schema, seen.table, fresh.table), ranges)
            yield from _rows(f"changelog {name}", deltas)

    def _check_base(self, name: str, reader: Reader) -> TableCheck:
        live, right = self._runtime.engine.tables[name], reader.base_tables()[name]
        known, ids = _live_ids(live), _live_ids(right)
        there = live.has(ids)
        wrong = []
        for start in range(0, len(ids), _PIECE):
            piece = ids[start : start + _PIECE][there[start : start + _PIECE]]
            if len(piece):
                (_, mine), (_, theirs) = live.export(piece), right.export(piece)
                wrong.append(piece[pc.not_equal(mine, theirs).to_numpy(zero_copy_only=False)])
        different = np.concatenate(wrong) if wrong else ids[:0]
        return TableCheck(f"DELTA {name}", len(ids), ids[~there], known[~right.has(known)], different)

    # ------------------------------------------------------------------ mending

    def apply(self, epoch: int, operation: ddl.Operation) -> None:
        """The operation of the log, at its epoch."""
        runtime, builds = self._runtime, self._runtime.builds
        live = builds.announce is not None
        building = builds.current
        if building is not None:
            # it is made of operators that go
            runtime.engine.abandon(building.build)
            builds.current = None
        held = dict(runtime.engine.tables)
        if live:
            # a replay has them from snapshot and log anyway
            runtime.engine.tables.update(self._bases(operation["bases"]))

        def tell(result: RepairReport | Exception) -> None:
            """Before the epoch is published, since those who wait for it go on then."""
            if building is not None:
                builds.begin_again(epoch, building.operation, building.announced)
            if live:
                self.results[operation["id"]] = result

        try:
            self._mend(epoch, operation, tell)
        except ViewsFailed as failure:
            runtime.engine.tables.update(held)
            tell(CatalogError(f"nothing was repaired: the views cannot be computed: {failure}"))
            runtime.publish(epoch)

    def _bases(self, names: Sequence[str]) -> dict[str, DeltaTable]:
        """Base tables as snapshot and log have them."""
        reader = self._reader() if names else None
        if reader is None:
            return {}
        try:
            return {name: reader.base_tables()[name] for name in names}
        finally:
            reader.close()

    def _mend(self, epoch: int, operation: ddl.Operation, tell: Callable[[RepairReport], None]) -> None:
        runtime = self._runtime
        engine: Engine = runtime.engine.beside()
        made = compute(runtime, engine, list(runtime.builds.nodes.values()))
        deltas: dict[ViewNode, ViewDelta] = {}
        rows: list[DamagedRow] = []
        for node, fresh in made.items():
            if node.name not in operation["views"]:
                continue
            held, ranges = runtime.tables[node.name], _ranges_of(operation["views"][node.name])
            change = ViewDelta(DeltaBuffer(node.schema, engine.budget))
            for delta in _within(held, table_difference(node.schema, held.table, fresh.table), ranges):
                change.chunks.append(delta)
                rows += _rows(f"view {node.name}", (delta,))
            for part in quarantine_difference(held, fresh):
                change.quarantine.append(part)
                rows += _rows(f"quarantine {node.name}", (part.delta,))
            if change.rows or change.quarantine:
                deltas[node] = change
        runtime.engine.adopt(engine)

        def before_publishing() -> None:
            for node in deltas:
                # a wrong row may have lain in the wrong place
                table = runtime.tables[node.name]
                with table.lock:
                    table.table.order = None
            tell(Damage(epoch, tuple(rows), {}).report(""))

        runtime.commit(epoch, deltas, before_publishing=before_publishing)


def _live_ids(table: DeltaTable) -> np.ndarray:
    return table.ids_at(table.live_slots())


def _within(table: ViewTable, deltas: Iterator[Delta], ranges: Ranges) -> Iterator[Delta]:
    """The ids of which a row, as it is or as it should be, has a key in the ranges."""
    for delta in deltas:
        if ranges is None:
            yield delta
            continue
        keys = table.encode(delta).to_pylist()
        chosen = np.array([any(key in part for part in ranges) for key in keys], np.bool_)
        inside = {id.tobytes() for id in delta.id[chosen]}
        part = delta.filter(np.array([id.tobytes() in inside for id in delta.id], np.bool_))
        if len(part):
            yield part


def _rows(table: str, deltas: Iterable[Delta]) -> Iterator[DamagedRow]:
    for delta in deltas:
        signs: dict[str, int] = {}
        for id, weight in zip(delta.id, delta.weight.tolist(), strict=True):
            text = id.tobytes().hex()
            signs[text] = signs.get(text, 0) | (1 if weight > 0 else 2)
        for text, sign in signs.items():
            yield DamagedRow(table, text, (MISSING, EXTRA, DIFFERENT)[sign - 1])


def _damaged(check: TableCheck) -> list[DamagedRow]:
    found = ((MISSING, check.missing), (EXTRA, check.extra), (DIFFERENT, check.different))
    return [DamagedRow(check.table, id.tobytes().hex(), problem) for problem, ids in found for id in ids]
