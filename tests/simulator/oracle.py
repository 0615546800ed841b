"""The judge: what the record may say, which entries an epoch holds, and what every view then is.

It knows the true logs of the sources and looks at plans, never at INPUT. Everything is checked at the moment at
which the record changes, in the simulated ZooKeeper, so no member's opinion matters:

* terms, generations and committed epochs only grow; a plan that the record points to is durable, and is never given
  up;
* the pieces of a plan take every source on from where the last plan ended, entry by entry of its log; a daughter
  begins after an epoch that has exhausted its parents;
* all views in the store, at the version of a committed epoch, are what the evaluations in `schema` make of exactly
  those entries, and the store can tell which rows the epoch changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog.catalogs import ServedView
from belvedere.engine.shard import decode_view_rows, view_table
from belvedere.protocol import wire
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.protocol.leadership import CLOCK_OFF_MS
from belvedere.protocol.messages import Epoch, EpochPlan, Pointer, PoolState
from belvedere.protocol.ring import BUCKETS
from tests.simulator import documents
from tests.simulator.changes import Table
from tests.simulator.damage import DamagedMemory
from tests.simulator.schema import BY_QUERY, TABLES, TIES, Facts, Row
from tests.simulator.sources import Sources

Rows: TypeAlias = Counter[Row]


FARTHEST_MS = 2 * CLOCK_OFF_MS
"""Ahead of the true time that an epoch may be named: what a leader's clock may be off, and once as much again. A clock
that is set by less while its owner leads is noticed with the next answer of ZooKeeper, when one epoch is named."""


class Damage(Protocol):
    """What of the store is known to be wrong, since somebody made it so."""

    def excused(self, truth: Truth) -> bool:
        """Nothing can be said of the views of this epoch."""

    def wrong_ids(self, table: str, epoch: int) -> set[bytes]:
        """Rows that may be wrong as they are seen at an epoch."""


class Wrong(AssertionError):
    """The cluster did what it must never do."""


@dataclass
class Truth:
    """A committed epoch."""

    epoch: Epoch
    positions: dict[SourceId, Seq]
    views: dict[str, Rows]
    served: dict[str, ServedView]
    building: frozenset[int]
    document: bytes
    at: int = 0
    """When it was committed, milliseconds."""


@dataclass
class Oracle:
    sources: Sources
    memory: DamagedMemory
    committed: list[Truth] = field(default_factory=list)
    amended: Callable[[EpochPlan, EpochPlan], None] = lambda before, after: None
    damage: Damage | None = None
    """A plan that takes the place of another is in the record."""
    _plans: dict[str, EpochPlan] = field(default_factory=dict)
    _catalogs: dict[str, bytes] = field(default_factory=dict)
    _positions: dict[SourceId, Seq] = field(default_factory=dict)
    _tables: dict[str, Table] = field(
        default_factory=lambda: {name: Table(cs, TIES[name]) for name, cs in TABLES.items()}
    )

    @property
    def last(self) -> Truth | None:
        return self.committed[-1] if self.committed else None

    def at(self, epoch: Epoch) -> Truth | None:
        return next((truth for truth in reversed(self.committed) if truth.epoch == epoch), None)

    def covers(self, source: SourceId, seq: Seq) -> bool:
        return self._positions.get(source, START) >= seq

    def plan_of(self, pointer: Pointer | None) -> EpochPlan | None:
        """A plan that is or was in the record."""
        return None if pointer is None else self._plans.get(pointer.document)

    # ------------------------------------------------------------------ the record

    def recorded(self, before: PoolState | None, after: PoolState, now: int = 0) -> None:
        """The record has changed. `now`: the true time, milliseconds; 0: it does not matter."""
        now = now or FARTHEST_MS << 40
        old = before or PoolState(after.cluster)
        for what, was, found in (
            ("term", old.term, after.term),
            ("generation", old.generation, after.generation),
            ("committed epoch", old.committed, after.committed),
            ("protocol", 0 if before is None else old.protocol, after.protocol),
            ("engine", old.engine, after.engine),
        ):
            if found < was:
                raise Wrong(f"the {what} of the record went back from {was} to {found} (written by {after.leader})")
        if before is not None and after.leader != before.leader and after.term == before.term:
            raise Wrong(f"{before.leader} and {after.leader} both lead in term {after.term}")
        for pointer in after.open:
            self._know(pointer)
            if self._plans[pointer.document].engine != after.engine:
                told = self._plans[pointer.document].engine
                raise Wrong(f"epoch {pointer.epoch} is planned for engine {told}, the pool has engine {after.engine}")
        if len(after.open) > 2:
            raise Wrong(f"{len(after.open)} epochs are open")
        for pointer in after.open:
            self._know(pointer)
            if pointer.epoch > max(now + FARTHEST_MS, old.committed + 2):
                raise Wrong(f"epoch {pointer.epoch} is named after a time that is {pointer.epoch - now} ms ahead")
        known = {*after.open, after.committed_plan}
        for pointer in old.open:
            if pointer not in known and not pointer.epoch < after.committed:
                self._check_amended(pointer, old, after)
        if after.committed > old.committed:
            self._committed(old, after, now)

    def _check_amended(self, pointer: Pointer, old: PoolState, after: PoolState) -> None:
        """The plan is not in the record any more: another one is, of the same input, for a new generation."""
        found = next((new for new in after.open if new.epoch == pointer.epoch), None)
        if found is None:
            raise Wrong(f"the plan of epoch {pointer.epoch} was in the record and is given up")
        before, plan = self._plans[pointer.document], self._plans[found.document]
        if replace(plan, catalog=0, catalog_document="", stages=0, slices=(), amends="") != replace(
            before, catalog=0, catalog_document="", stages=0, slices=(), amends=""
        ):
            raise Wrong(f"the plan of epoch {pointer.epoch} is amended and has other input")
        if after.generation == old.generation:
            raise Wrong(
                f"the plan of epoch {pointer.epoch} is amended in generation {after.generation}, which has begun"
            )
        if plan.catalog <= before.catalog or found.amendment != pointer.amendment + 1:
            raise Wrong(f"the plan of epoch {pointer.epoch} is amended {found.amendment} times, and has no new catalog")
        later = [new for new in after.open if new.epoch > found.epoch and new in old.open]
        if later:
            raise Wrong(f"the plan of epoch {pointer.epoch} is amended, that of epoch {later[0].epoch} after it is not")
        for new in after.open:
            if new.epoch > found.epoch and self._plans[new.document].catalog < plan.catalog:
                raise Wrong(f"the catalog of epoch {new.epoch} is older than that of epoch {found.epoch} before it")
        self.amended(before, plan)

    def _know(self, pointer: Pointer) -> None:
        """A plan that the record points to must be in the store, and so must its catalog."""
        if pointer.document in self._plans:
            return
        data = self.memory.get_document(pointer.document)
        if data is None:
            raise Wrong(f"the record points to the plan of epoch {pointer.epoch}, {pointer.document}, not in the store")
        if wire.digest(data) != pointer.digest:
            raise Wrong(f"the plan of epoch {pointer.epoch} is not the one that the record's digest names")
        plan: EpochPlan = wire.decode(data)
        if plan.catalog and plan.catalog_document not in self._catalogs:
            catalog = self.memory.get_document(plan.catalog_document)
            if catalog is None:
                raise Wrong(f"the plan of epoch {plan.epoch} names catalog {plan.catalog_document}, not in the store")
            self._catalogs[plan.catalog_document] = catalog
        self._plans[pointer.document] = plan

    def _committed(self, old: PoolState, after: PoolState, now: int) -> None:
        done = [pointer for pointer in old.open if pointer.epoch <= after.committed]
        if not done or done[-1].epoch != after.committed or after.committed_plan != done[-1]:
            raise Wrong(f"epoch {after.committed} is committed, open were {[p.epoch for p in old.open]}")
        for pointer in done:
            self._advance(self._plans[pointer.document], now)

    # ------------------------------------------------------------------ an epoch

    def _advance(self, plan: EpochPlan, now: int) -> None:
        before = dict(self._positions)
        for name, columns in documents.columns(self._catalogs.get(plan.catalog_document, b"")).items():
            if name in self._tables:
                self._tables[name].add(columns)
        for piece in plan.pieces:
            self._take(plan, before, piece.source, piece.after, piece.last)
        for source, seq in plan.positions.items():
            if seq != self._positions.get(source, START) and source in self.sources.regions:
                found = self._positions.get(source, START)
                raise Wrong(f"epoch {plan.epoch}: source {source} stands at {seq}, its pieces lead to {found}")
        truth, previous = self._evaluate(plan), self.last
        truth.at = now
        self.committed.append(truth)
        self.check(truth)
        if previous is not None:
            self._check_changes(previous, truth)

    def _take(self, plan: EpochPlan, before: dict[SourceId, Seq], source: SourceId, after: Seq, last: Seq) -> None:
        region = self.sources.regions.get(source)
        if region is None:
            raise Wrong(f"epoch {plan.epoch}: source {source} does not exist")
        position = self._positions.get(source, START)
        taken = [entry for entry in region.log if after < entry.seq <= last]
        expected = [entry for entry in region.log if position < entry.seq <= last]
        if taken != expected:
            raise Wrong(
                f"epoch {plan.epoch}: source {source} stands at {position}, a piece takes ({after}, {last}]: entries "
                f"{[entry.seq for entry in taken]}, not {[entry.seq for entry in expected]}"
            )
        for parent in region.parents:
            if not parent.ended or before.get(parent.id, START) < parent.last:
                found = before.get(parent.id, START)
                raise Wrong(f"epoch {plan.epoch}: {source} begins, its parent {parent.id} is at {found}, not its end")
        table = self._tables[region.table]
        for entry in taken:
            rows: Any = entry.rows
            for change in rows:
                table.apply(change)
        self._positions[source] = last

    def _evaluate(self, plan: EpochPlan) -> Truth:
        document = self._catalogs.get(plan.catalog_document, b"")
        building = frozenset(part.view_group for part in plan.slices if part.stop < BUCKETS)
        served = {view.definition.name: view for view in documents.served(document, building)} if document else {}
        rows: dict[str, list[Row]] = {}
        facts = Facts(self._tables["orders"].live(), self._tables["customers"].live(), rows)
        specs = [BY_QUERY[_query(view)] for view in served.values()]
        for spec in sorted(specs, key=lambda spec: len(spec.reads)):
            rows[spec.name] = spec.evaluate(facts)
        views = {name: Counter(found) for name, found in rows.items()}
        return Truth(plan.epoch, dict(self._positions), views, served, building, document)

    # ------------------------------------------------------------------ the store

    def check(self, truth: Truth) -> None:
        """All views at this epoch, as they are in the store now."""
        for name, view in truth.served.items():
            if self.excused(truth, view):
                continue
            found = rows_in_store(self.memory, view, truth.epoch)
            if found != truth.views[name]:
                raise Wrong(
                    f"epoch {truth.epoch}: view {name} is wrong in the store\n{difference(truth.views[name], found)}"
                )

    def excused(self, truth: Truth, view: ServedView) -> bool:
        """Whether the view may be wrong at this epoch: nothing is known of it, or it is as wrong as it was made."""
        if self.damage is None:
            return False
        if self.damage.excused(truth):
            return True
        wrong = self.damage.wrong_ids(view_table(view.node), truth.epoch)
        if not wrong:
            return False
        expected, sound = truth.views[view.definition.name], rows_in_store(self.memory, view, truth.epoch, wrong)
        if sound - expected or (expected - sound).total() > len(wrong):
            told = difference(expected, sound)
            raise Wrong(
                f"epoch {truth.epoch}: view {view.definition.name} is wrong in the store, beside {len(wrong)} "
                f"damaged rows\n{told}"
            )
        return True

    def _check_changes(self, previous: Truth, truth: Truth) -> None:
        """Subscribers hear of every row that is not what it was."""
        before = {view_table(view.node) for view in previous.served.values()}
        for name, view in truth.served.items():
            table = view_table(view.node)
            if table not in before:
                continue
            told = {
                ids.tobytes() for _, found in self.memory.changed(table, previous.epoch, truth.epoch) for ids in found
            }
            for key, versions in self.memory._tables.get(table, {}).items():
                was, now = versions.at(previous.epoch + 1), versions.at(truth.epoch + 1)
                if (table, key) in self.memory.planted and versions.epoch(truth.epoch + 1) <= previous.epoch:
                    continue  # it was damaged in its place: nobody can tell of that
                if was != now and key not in told:
                    raise Wrong(f"epoch {truth.epoch}: a row of view {name} changed, and the store does not tell so")

    def check_horizon(self, horizon: int, now: int, retention: int) -> None:
        """The store is told that nobody reads below the horizon any more: what was the newest epoch until then must
        have been superseded for the retention. All in milliseconds."""
        truth = self.at(Epoch(horizon))
        if truth is not None and now - truth.at < retention:
            kept = now - truth.at
            raise Wrong(f"the horizon is {horizon}, committed {kept} ms ago: the retention is {retention} ms")

    def check_retained(self, horizon: int) -> None:
        """Every epoch that may still be read is as it was, whatever came late."""
        for truth in self.committed:
            if truth.epoch >= horizon:
                self.check(truth)


def _query(view: ServedView) -> str:
    sql: str = view.definition.sql
    return sql


def rows_in_store(memory: MemoryStore, view: ServedView, epoch: int, without: AbstractSet[bytes] = frozenset()) -> Rows:
    found: Rows = Counter()
    for ids, values in memory.scan(view_table(view.node), 0, BUCKETS, epoch + 1):
        if without:
            at = [n for n, id in enumerate(ids) if id.tobytes() not in without]
            ids, values = ids[at], values.take(pa.array(at, pa.int64()))
        found.update(rows_of(view, ids, values))
    return found


def rows_of(view: ServedView, ids: Any, values: Any) -> Iterable[Row]:
    """The visible columns of stored rows."""
    delta = decode_view_rows(view.node, ids, values)
    columns = [column.to_arrow().to_pylist() for column in delta.columns[: view.node.visible]]
    return zip(*columns, strict=True)


def difference(expected: Rows, found: Rows) -> str:
    lines = [f"  missing    {row}" + (f" x {n}" if n > 1 else "") for row, n in sorted_rows(expected - found)]
    lines += [f"  unexpected {row}" + (f" x {n}" if n > 1 else "") for row, n in sorted_rows(found - expected)]
    return "\n".join(lines)


def sorted_rows(rows: Rows) -> list[tuple[Row, int]]:
    return sorted(rows.items(), key=lambda item: tuple((value is not None, str(value)) for value in item[0]))


__all__ = ["Oracle", "Rows", "Truth", "Wrong", "difference", "rows_in_store", "rows_of"]
