"""The engine: one atomic step of all views at a time.

`step(epoch, changes)` merges the changes of base tables into DELTA, runs every operator whose input changed, and
returns what happened to each view. It knows no files, no network and no clock; the embedded database, a view server,
the simulator and the tests all drive this same code.

A new view is built aside (`Build`): its operators first take over what running operators hold, then the base tables are
scanned in pieces between epochs, while changes of rows that the scan has passed are forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from belvedere.engine.arrangement import Arrangement
from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.build import Build, RowsOf
from belvedere.engine.delta import Changes
from belvedere.engine.exchange import is_of_computation
from belvedere.engine.graph import Arranged, Grouped, Layout, Task, apply_task, digest, feeds, is_empty, make, ordered
from belvedere.engine.operators.base import State
from belvedere.engine.operators.delta import DeltaOperator
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.residency import KeyStore
from belvedere.engine.state.cell_table import new_table
from belvedere.engine.state.delta_table import BaseChange, DeltaTable
from belvedere.engine.version import ENGINE_VERSION
from belvedere.plan import nodes
from belvedere.plan.explain import StateSize
from belvedere.spill import Budget
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema

PARALLEL_ROWS = 2048
"""Epochs below this many changed rows run on one thread: handing out tasks would cost more than it saves."""

DAY_MS = 24 * 3600 * 1000


class ViewsFailed(Exception):
    """An operator failed, and these views need it: what is held by any operator is worth nothing any more."""

    def __init__(self, views: tuple[nodes.ViewNode, ...], reason: str):
        super().__init__(f"view {', '.join(view.name for view in views)}: {reason}")
        self.views, self.reason = views, reason


class Engine:
    """All operators of a pool's plan and their state."""

    def __init__(
        self,
        *,
        memory_limit: int = 1 << 30,
        spill_directory: Path | None = None,
        threads: int = 2,
        tombstone_retention_ms: int = 10 * DAY_MS,
        store: KeyStore | None = None,
    ):
        self.tables: dict[str, DeltaTable] = {}
        self.budget = Budget(memory_limit, spill_directory)
        self.running: dict[Task, Any] = {}
        self._views: list[nodes.ViewNode] = []
        self._builds: list[Build] = []
        self._retention = tombstone_retention_ms
        self._store = store
        self._digests: dict[Task, str] = {}
        # With a store, joins load the keys that they probe: one thread, so that nobody else reads the index meanwhile.
        parallel = threads > 1 and store is None
        self._pool = ThreadPoolExecutor(threads, "belvedere-engine") if parallel else None
        self._layout = Layout()
        self._needed: dict[str, set[int]] = {}
        self._used: dict[Task, None] = {}

    # ------------------------------------------------------------------ shape

    @property
    def plan(self) -> nodes.Plan:
        """The views in service."""
        return nodes.Plan(tuple(self._views))

    def add_table(self, table: TableDef) -> None:
        self.tables[table.name] = new_table(table)

    def drop_table(self, name: str) -> None:
        del self.tables[name]

    def add_columns(self, table: str, columns: Schema) -> None:
        self.tables[table].add_columns(columns)

    def drop(self, views: Iterable[nodes.ViewNode]) -> None:
        """Take views out of service; state that nothing else uses goes with them."""
        gone = set(views)
        self._views = [v for v in self._views if v not in gone]
        self._reshape()

    def build(self, views: Sequence[nodes.ViewNode], rows_of: RowsOf) -> Build:
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
        before = self._layout.views
        if len(before) > len(views) or any(a is not b for a, b in zip(before, views, strict=False)):
            self._layout = Layout(views)
            tasks = list(self._layout.depth)
            for task in [t for t in self.running if t not in self._layout.depth]:
                operator = self.running.pop(task)
                self._digests.pop(task, None)
                if hasattr(operator, "detach"):
                    operator.detach()
            self._needed = {}
        else:
            tasks = self._layout.add(views[len(before) :])
        self._make(tasks)

    def _make(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task not in self.running:
                name = digest(task, self._digests)
                self.running[task] = made = make(task, name, self.running, self.tables, self.budget)
                if self._store is not None and isinstance(made, Arrangement):
                    made.attach(self._store, name)
            if isinstance(task, nodes.DeltaNode):
                self._needed.setdefault(task.table, set()).update(task.columns)

    # ------------------------------------------------------------------ an epoch

    def step(self, epoch: int, changes: Mapping[str, Changes]) -> dict[nodes.ViewNode, ViewDelta]:
        """One epoch: exactly these changes, for every view in service and every build."""
        base: dict[str, BaseChange] = {}
        rows = 0
        for name, change in changes.items():
            if len(change):
                self._load_rows(name, change, epoch)
                base[name] = self.tables[name].apply(change, self._needed.get(name, set()), epoch * 1000)
                rows += len(change)
        aside = {task: build for build in self._builds for task in build.new}
        outputs: dict[Task, Any] = {}

        def source(task: nodes.DeltaNode, below: int | None) -> DeltaBuffer | None:
            if task.table not in base:
                return None
            operator: DeltaOperator = self.running[task]
            return operator.apply(base[task.table]) if below is None else operator.apply_below(base[task.table], below)

        def run(task: Task) -> Any:
            build = aside.get(task)
            if build is not None and not build.started:
                return None  # it will take over what this epoch leaves
            if isinstance(task, nodes.DeltaNode):
                return None if build is not None else source(task, None)
            inputs = []
            for feed in feeds(task):
                if build is not None and isinstance(feed, nodes.DeltaNode):
                    inputs.append(source(feed, build.watermarks[feed.table]))
                else:
                    inputs.append(outputs.get(feed))
            return self.apply_task(task, inputs)

        self._run_levels(run, outputs, parallel=rows >= PARALLEL_ROWS)
        result = self.view_deltas(outputs)
        self.end_epoch()
        horizon = (epoch - self._retention) * 1000
        for name, merged in base.items():
            if self._store is not None:
                self._store.save(f"DELTA {name}", *self.tables[name].export(merged.mentioned))
            self.tables[name].collect(horizon)
        return result

    def _load_rows(self, name: str, changes: Changes, epoch: int) -> None:
        """Base rows that are about to change and are not resident."""
        if self._store is not None:
            missing = self.tables[name].missing(changes)
            if len(missing):
                found = self._store.load(f"DELTA {name}", missing)
                self.tables[name].import_(found.drop_null(), (epoch - self._retention) * 1000)

    def apply_task(self, task: Task, inputs: list[Any]) -> Any:
        if all(is_empty(given) for given in inputs):
            return None
        self.used(task)
        try:
            return apply_task(task, self.running[task], inputs, self.budget)
        except Exception as error:
            raise self._failure(task, error) from error

    def _failure(self, task: Task, error: Exception) -> Exception:
        if not is_of_computation(error):
            return error
        views = [*self._views, *(view for build in self._builds for view in build.views)]
        served = tuple(view for view in views if task in ordered([view]))
        return ViewsFailed(served, f"{type(error).__name__}: {error}") if served else error

    def restart(self) -> None:
        """Forget all operators, after a step that failed in one of them. Base tables have all of the step."""
        self._views, self._builds, self.running, self._digests = [], [], {}, {}
        self._layout, self._needed = Layout(), {}
        self._used.clear()
        self.budget = Budget(self.budget.limit, self.budget.directory)

    def beside(self) -> Engine:
        """An engine without views over the same base tables: to make views anew from them, between epochs."""
        made = Engine(
            memory_limit=self.budget.limit,
            spill_directory=self.budget.directory,
            threads=1,
            tombstone_retention_ms=self._retention,
        )
        made.tables = self.tables
        return made

    def adopt(self, other: Engine) -> None:
        """Go on with the operators of an engine that was made `beside` this one; own ones are forgotten."""
        other.budget.spills += self.budget.spills
        other.budget.spilled_bytes += self.budget.spilled_bytes
        self._views, self._builds, self.running = other._views, other._builds, other.running
        self._digests, self._layout, self._needed = other._digests, other._layout, other._needed
        self._used, self.budget = other._used, other.budget

    def used(self, task: Task) -> None:
        """The task, or what it reads, has something to do at the end of the epoch. With hundreds of views most have
        not."""
        self._used[task] = None
        for feed in feeds(task):
            if feed not in self._used:
                self.used(feed)

    def _run_levels(self, run: Callable[[Task], Any], outputs: dict[Task, Any], parallel: bool) -> None:
        for level in self._layout.levels:
            if parallel and self._pool is not None and len(level) > 1:
                running = [self._pool.submit(run, task) for task in level]
                wait(running)  # also if one of them fails: nobody is at work when that is heard of
                outputs.update((task, done.result()) for task, done in zip(level, running, strict=True))
            else:
                for task in level:
                    outputs[task] = run(task)

    def view_deltas(self, outputs: Mapping[Task, Any]) -> dict[nodes.ViewNode, ViewDelta]:
        deltas = {}
        for task, out in outputs.items():
            if isinstance(task, nodes.ViewNode) and out is not None and (out.rows or out.quarantine):
                deltas[task] = out
        return deltas

    def end_epoch(self) -> None:
        arrangements = []
        for task in self._used:
            operator = self.running.get(task)
            if operator is None:
                continue  # it went with a view whose computation had failed
            if isinstance(task, Arranged):
                arrangements.append((task, operator))
            else:
                self._end_epoch(task, operator)
        for task, arrangement in arrangements:
            self._end_epoch(task, arrangement)
        self._used.clear()

    def _end_epoch(self, task: Task, operator: Any) -> None:
        try:
            operator.end_epoch()
        except Exception as error:
            raise self._failure(task, error) from error

    # ------------------------------------------------------------------ state

    def sizes(self) -> dict[nodes.Node, StateSize]:
        """Rows and bytes of every state table but DELTA and the views (which the store holds)."""
        sizes: dict[nodes.Node, StateSize] = {}
        counted: set[Task] = set()
        for task, operator in self.running.items():
            node: nodes.Node
            if isinstance(task, (nodes.PreAggregationNode, nodes.ReverseJoinNode)):
                node = task
            elif isinstance(task, Grouped):
                node = task.node
            else:
                continue
            (groups,) = feeds(task)
            own: StateSize = operator.size()
            shared = 0 if groups in counted else self.running[groups].nbytes()
            counted.add(groups)
            sizes[node] = StateSize(own.rows, own.bytes + shared, own.plain)
        return sizes

    def evict(self, share: Callable[[int], np.ndarray]) -> None:
        """Forget resident keys between epochs: `share(n)` masks which of n go. The store has them all."""
        for table in self.tables.values():
            rows = table.slots()
            table.evict(rows[share(len(rows))])
        for operator in self.running.values():
            if isinstance(operator, Arrangement) and operator.on:
                slots = operator.index.slots()
                operator.evict(slots[share(len(slots))])

    def dump_state(self) -> dict[str, State]:
        """State of every operator, those of a build included, by the digest of its task; usable only by the same plan
        and engine version."""
        out = {}
        for task in ordered([*self._views, *(view for build in self._builds for view in build.views)]):
            dump = getattr(self.running[task], "dump", None)
            if dump is not None:
                out[digest(task, self._digests)] = dump()
        return out

    def digest(self, task: Task) -> str:
        """The name of a part of the plan."""
        return digest(task, self._digests)

    def signature(self, views: Sequence[nodes.ViewNode]) -> str:
        """Names the plan and the engine; state may be loaded only where it is equal."""
        memo: dict[Task, str] = {}
        return f"{ENGINE_VERSION}:" + ",".join(sorted(digest(v, memo) for v in views))

    def load_state(self, views: Sequence[nodes.ViewNode], state: Mapping[str, State]) -> None:
        """Put views into service with the state that `dump_state` gave for exactly this plan."""
        self._views = list(views)
        self._reshape()
        self._load(ordered(self._views), state)

    def load_build(
        self, views: Sequence[nodes.ViewNode], rows_of: RowsOf, state: Mapping[str, State], dump: Mapping[str, Any]
    ) -> Build | None:
        """Go on with a build that a snapshot found under way; None if its dump is of other views."""
        build = self.build(views, rows_of)
        if not build.load(dump):
            self.abandon(build)
            return None
        served = Layout(self._views).depth  # what those in service use as well is there already
        self._load([task for task in ordered(views) if task not in served], state)
        return build

    def _load(self, tasks: Sequence[Task], state: Mapping[str, State]) -> None:
        for task in tasks:
            operator = self.running[task]
            if hasattr(operator, "load"):
                # An operator without state of its own leaves no arrays, and so no entry in a snapshot.
                operator.load(state.get(digest(task, self._digests), {}))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
