"""The engine: one atomic step of all views at a time.

`step(epoch, changes)` merges the changes of base tables into DELTA, runs every operator whose input changed, and
returns what happened to each view. It knows no files, no network and no clock; the embedded database, a view server,
the simulator and the tests all drive this same code.

A new view is built aside (`Build`): its operators first take over what running operators hold, then the base tables are
scanned in pieces between epochs, while changes of rows that the scan has passed are forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from belvedere.engine.state.delta_table import BaseChange, DeltaTable

from belvedere.engine.arrangement import Grouping
from belvedere.engine.buffer import Budget, DeltaBuffer
from belvedere.engine.delta import Changes, Delta
from belvedere.engine.graph import Arranged, Grouped, Task, digest, feeds, levels, make, ordered
from belvedere.engine.operators.base import State, StateSize, collect
from belvedere.engine.operators.delta import DeltaOperator
from belvedere.engine.operators.pre_aggregation import PreAggregation
from belvedere.engine.operators.reverse_join import Sided
from belvedere.engine.operators.view import ViewDelta
from belvedere.plan import nodes
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema

ENGINE_VERSION = 1
"""Grows when state of an older engine can no longer be used; snapshots then rebuild it from base rows."""

PARALLEL_ROWS = 2048
"""Epochs below this many changed rows run on one thread: handing out tasks would cost more than it saves."""

DAY_MS = 24 * 3600 * 1000

RowsOf = Callable[[nodes.View], Iterator[Delta]]


class Engine:
    """All operators of a pool's plan and their state."""

    def __init__(
        self,
        *,
        memory_limit: int = 1 << 30,
        spill_directory: Path | None = None,
        threads: int = 2,
        tombstone_retention_ms: int = 10 * DAY_MS,
    ):
        self.tables: dict[str, DeltaTable] = {}
        self.budget = Budget(memory_limit, spill_directory)
        self._running: dict[Task, Any] = {}
        self._views: list[nodes.View] = []
        self._builds: list[Build] = []
        self._retention = tombstone_retention_ms
        self._pool = ThreadPoolExecutor(threads, "belvedere-engine") if threads > 1 else None
        self._levels: list[list[Task]] = []
        self._needed: dict[str, set[int]] = {}

    # ------------------------------------------------------------------ shape

    @property
    def plan(self) -> nodes.Plan:
        """The views in service."""
        return nodes.Plan(tuple(self._views))

    def add_table(self, table: TableDef) -> None:
        self.tables[table.name] = DeltaTable(table)

    def drop_table(self, name: str) -> None:
        del self.tables[name]

    def add_columns(self, table: str, columns: Schema) -> None:
        self.tables[table].add_columns(columns)

    def drop(self, views: Iterable[nodes.View]) -> None:
        """Take views out of service; state that nothing else uses goes with them."""
        gone = set(views)
        self._views = [v for v in self._views if v not in gone]
        self._reshape()

    def build(self, views: Sequence[nodes.View], rows_of: RowsOf) -> Build:
        """Start to build views aside. `rows_of` gives the rows of views that are in service (or in the same build)."""
        if self._builds:
            raise AssertionError("one build at a time: a second one could take half-built operators for complete")
        build = Build(self, views, rows_of)
        self._builds.append(build)
        self._reshape()
        return build

    def activate(self, build: Build) -> None:
        """Views whose build is complete are ordinary from now on."""
        if not build.done:
            raise AssertionError("a build was activated before its scan was complete")
        self._builds.remove(build)
        self._views.extend(build.views)
        self._reshape()

    def abandon(self, build: Build) -> None:
        """Forget a build that is not wanted any more."""
        self._builds.remove(build)
        self._reshape()

    def _reshape(self) -> None:
        views = [*self._views, *(v for b in self._builds for v in b.views)]
        tasks = ordered(views)
        keep = set(tasks)
        for task in [t for t in self._running if t not in keep]:
            operator = self._running.pop(task)
            if isinstance(operator, PreAggregation):
                operator.detach()
        for task in tasks:
            if task not in self._running:
                self._running[task] = make(task, self._running, self.tables, self.budget)
        self._levels = levels(tasks)
        self._needed = {}
        for task in tasks:
            if isinstance(task, nodes.Delta):
                self._needed.setdefault(task.table, set()).update(task.columns)

    # ------------------------------------------------------------------ an epoch

    def step(self, epoch: int, changes: Mapping[str, Changes]) -> dict[nodes.View, ViewDelta]:
        """One epoch: exactly these changes, for every view in service and every build."""
        base: dict[str, BaseChange] = {}
        rows = 0
        for name, change in changes.items():
            if len(change):
                base[name] = self.tables[name].apply(change, self._needed.get(name, set()))
                rows += len(change)
        aside = {task: build for build in self._builds for task in build.new}
        outputs: dict[Task, Any] = {}

        def source(task: nodes.Delta, below: int | None) -> DeltaBuffer | None:
            if task.table not in base:
                return None
            operator: DeltaOperator = self._running[task]
            return operator.apply(base[task.table]) if below is None else operator.apply_below(base[task.table], below)

        def run(task: Task) -> Any:
            build = aside.get(task)
            if isinstance(task, nodes.Delta):
                return None if build is not None else source(task, None)
            inputs = []
            for feed in feeds(task):
                if build is not None and isinstance(feed, nodes.Delta):
                    inputs.append(source(feed, build.watermarks[feed.table]))
                else:
                    inputs.append(outputs.get(feed))
            return self._apply(task, inputs)

        self._run_levels(run, outputs, parallel=rows >= PARALLEL_ROWS)
        result = self._view_deltas(outputs)
        self._end_epoch()
        horizon = (epoch - self._retention) * 1000
        for name in base:
            self.tables[name].collect(horizon)
        return result

    def _apply(self, task: Task, inputs: list[Any]) -> Any:
        if all(_is_empty(i) for i in inputs):
            return None
        if isinstance(task, nodes.Join):
            left, right = inputs
            inputs = [
                self._nothing(task.left) if left is None else left,
                self._nothing(task.right) if right is None else right,
            ]
        elif isinstance(task, nodes.Union):
            inputs = [DeltaBuffer(task.schema, self.budget) if i is None else i for i in inputs]
        inputs = [i.chunks if isinstance(i, ViewDelta) else i for i in inputs]
        return self._running[task].apply(*inputs)

    def _nothing(self, task: nodes.ReverseJoin) -> Sided:
        """The output of a reverse-join in which nothing changed."""
        return Sided(Grouping(DeltaBuffer(task.schema, self.budget), []), [], np.empty(0, np.int32))

    def _run_levels(self, run: Callable[[Task], Any], outputs: dict[Task, Any], parallel: bool) -> None:
        for level in self._levels:
            if parallel and self._pool is not None and len(level) > 1:
                outputs.update(zip(level, self._pool.map(run, level), strict=True))
            else:
                for task in level:
                    outputs[task] = run(task)

    def _view_deltas(self, outputs: Mapping[Task, Any]) -> dict[nodes.View, ViewDelta]:
        deltas = {}
        for task, out in outputs.items():
            if isinstance(task, nodes.View) and out is not None and (out.rows or out.quarantine):
                deltas[task] = out
        return deltas

    def _end_epoch(self) -> None:
        arrangements = []
        for task, operator in self._running.items():
            if isinstance(task, Arranged):
                arrangements.append(operator)
            else:
                operator.end_epoch()
        for arrangement in arrangements:
            arrangement.end_epoch()

    # ------------------------------------------------------------------ state

    def sizes(self) -> dict[nodes.Node, StateSize]:
        """Rows and bytes of every state table but DELTA and the views (which the store holds)."""
        sizes: dict[nodes.Node, StateSize] = {}
        counted: set[Task] = set()
        for task, operator in self._running.items():
            node: nodes.Node
            if isinstance(task, (nodes.PreAggregation, nodes.ReverseJoin)):
                node = task
            elif isinstance(task, Grouped):
                node = task.node
            else:
                continue
            (groups,) = feeds(task)
            own: StateSize = operator.size()
            shared = 0 if groups in counted else self._running[groups].nbytes()
            counted.add(groups)
            sizes[node] = StateSize(own.rows, own.bytes + shared)
        return sizes

    def dump_state(self) -> dict[str, State]:
        """State of every operator by the digest of its task; usable only by the same plan and engine version."""
        memo: dict[Task, str] = {}
        out = {}
        for task in ordered(self._views):
            dump = getattr(self._running[task], "dump", None)
            if dump is not None:
                out[digest(task, memo)] = dump()
        return out

    def signature(self, views: Sequence[nodes.View]) -> str:
        """Names the plan and the engine; state may be loaded only where it is equal."""
        memo: dict[Task, str] = {}
        return f"{ENGINE_VERSION}:" + ",".join(sorted(digest(v, memo) for v in views))

    def load_state(self, views: Sequence[nodes.View], state: Mapping[str, State]) -> None:
        """Put views into service with the state that `dump_state` gave for exactly this plan."""
        self._views = list(views)
        self._reshape()
        memo: dict[Task, str] = {}
        for task in ordered(self._views):
            operator = self._running[task]
            if hasattr(operator, "load"):
                operator.load(state[digest(task, memo)])

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)


class Build:
    """Views that are being built beside those in service."""

    def __init__(self, engine: Engine, views: Sequence[nodes.View], rows_of: RowsOf):
        self._engine, self.views, self._rows_of = engine, tuple(views), rows_of
        self._tasks = ordered(views)
        self.new = {t for t in self._tasks if t not in engine._running}
        self._sources = [t for t in self._tasks if isinstance(t, nodes.Delta) and any(t in feeds(u) for u in self.new)]
        self.watermarks = {t.table: 0 for t in self._sources}
        self._pending = list(self.watermarks)
        self._started = False
        self.done = False

    @property
    def progress(self) -> tuple[int, int]:
        """Slots scanned, slots to scan."""
        tables = self._engine.tables
        total = sum(tables[name].limit for name in self.watermarks)
        return sum(min(w, tables[name].limit) for name, w in self.watermarks.items()), total

    def advance(self, max_rows: int) -> dict[nodes.View, ViewDelta] | None:
        """One piece of the build, between epochs: what it added to the new views, or None when there is nothing
        left."""
        if not self._started:
            self._started = True
            return self._start()
        while self._pending:
            table = self._pending[0]
            first = self.watermarks[table]
            inputs: dict[Task, DeltaBuffer] = {}
            following: int | None = None
            for source in self._sources:
                if source.table == table:
                    delta, following = self._engine.tables[table].scan(first, max_rows, source.columns)
                    inputs[source] = collect(source.schema, self._engine.budget, iter((delta,)))
            if following is None:
                # Rows that arrive from now on are forwarded, wherever they are put.
                self.watermarks[table] = np.iinfo(np.int64).max
                self._pending.pop(0)
            else:
                self.watermarks[table] = following
            if any(b.rows for b in inputs.values()):
                return self._run(inputs)
        self.done = True
        return None

    def _start(self) -> dict[nodes.View, ViewDelta]:
        """Feed the new operators with all that running ones hold now."""
        outputs: dict[Task, Any] = {}
        for task in self._tasks:
            if task not in self.new or isinstance(task, nodes.Delta):
                continue
            operator = self._engine._running[task]
            if isinstance(task, nodes.Join):
                outputs[task] = collect(task.schema, self._engine.budget, operator.current())
            elif isinstance(task, (nodes.Aggregate, nodes.Distinct)):
                outputs[task] = collect(task.schema, self._engine.budget, self._rows(task))
            else:
                outputs[task] = self._engine._apply(task, [self._first_input(f, outputs) for f in feeds(task)])
        result = self._engine._view_deltas({t: o for t, o in outputs.items() if t in self.new})
        self._engine._end_epoch()
        return result

    def _first_input(self, feed: Task, outputs: Mapping[Task, Any]) -> Any:
        """What a new operator gets of a feed at the start: all that it holds (base tables are scanned afterwards)."""
        if isinstance(feed, nodes.Delta):
            return None
        if feed in self.new:
            return outputs[feed]
        budget = self._engine.budget
        if isinstance(feed, Arranged):
            return self._engine._running[feed].regroup(collect(feed.input.schema, budget, self._rows(feed.input)))
        assert not isinstance(feed, Grouped)
        return collect(feed.schema, budget, self._rows(feed))

    def _rows(self, task: nodes.Node) -> Iterator[Delta]:
        """All rows of a node, as +1."""
        operator = self._engine._running[task]
        if isinstance(task, nodes.View):
            return self._rows_of(task)
        rows: Iterator[Delta]
        if isinstance(task, (nodes.Delta, nodes.Join, nodes.ReverseJoin)):
            rows = operator.current()
        elif isinstance(task, (nodes.Aggregate, nodes.Distinct)):
            (groups,) = feeds(task)
            rows = operator.current(self._engine._running[groups].current())
        else:
            rows = operator.current(*(self._rows(below) for below in nodes.inputs(task)))
        return rows

    def _run(self, inputs: Mapping[Task, DeltaBuffer]) -> dict[nodes.View, ViewDelta]:
        outputs: dict[Task, Any] = {}
        for task in self._tasks:
            if task in self.new and not isinstance(task, nodes.Delta):
                given = [inputs.get(f) if isinstance(f, nodes.Delta) else outputs.get(f) for f in feeds(task)]
                outputs[task] = self._engine._apply(task, given)
        result = self._engine._view_deltas(outputs)
        self._engine._end_epoch()
        return result


def _is_empty(output: Any) -> bool:
    if output is None:
        return True
    if isinstance(output, (DeltaBuffer, ViewDelta)):
        return output.rows == 0
    return isinstance(output, Sided) and not output.slots
