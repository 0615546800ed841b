"""Building views beside those in service, without stopping them.

New operators first take over all that running operators hold. Then base tables are scanned by slot, a piece between two
epochs at a time. An epoch's changes of slots that the scan has passed are forwarded to the new operators; changes of
other slots are not, since the scan will meet what they left. So nothing is read twice, nothing is copied, and no epoch
waits for more than one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.graph import Arranged, Grouped, Task, feeds, ordered
from belvedere.engine.operators.base import collect
from belvedere.engine.operators.view import ViewDelta
from belvedere.plan import nodes

if TYPE_CHECKING:
    from belvedere.engine.engine import Engine

RowsOf = Callable[[nodes.ViewNode], Iterator[Delta]]


class Build:
    """Views that are being built beside those in service."""

    def __init__(self, engine: Engine, views: Sequence[nodes.ViewNode], rows_of: RowsOf):
        self._engine, self.views, self._rows_of = engine, tuple(views), rows_of
        self._tasks = ordered(views)
        self.new = {t for t in self._tasks if t not in engine.running}
        self._sources = [
            t for t in self._tasks if isinstance(t, nodes.DeltaNode) and any(t in feeds(u) for u in self.new)
        ]
        self.watermarks = {t.table: 0 for t in self._sources}
        self._pending = list(self.watermarks)
        self.started = False
        self.done = False

    def dump(self) -> dict[str, Any]:
        """How far it has come, for a snapshot: of each table the rows (tombstones too) in front of the scan, None when
        it is through; and which parts of the plan are its own."""
        tables = self._engine.tables
        return {
            "scanned": {
                t: None if t not in self._pending else tables[t].used_below(w) for t, w in self.watermarks.items()
            },
            "new": sorted(self._engine.digest(task) for task in self.new),
        }

    def load(self, dump: Mapping[str, Any]) -> bool:
        """Go on where `dump` was taken; the engine has loaded base tables and state from the same snapshot. False if
        that was a build of other views."""
        own = set(dump["new"])
        if self.watermarks.keys() != dump["scanned"].keys():
            return False
        self.new = {task for task in self._tasks if self._engine.digest(task) in own}
        if len(self.new) != len(own):
            return False
        for table, scanned in dump["scanned"].items():
            self.watermarks[table] = np.iinfo(np.int64).max if scanned is None else scanned
        self._pending = [table for table in self._pending if dump["scanned"][table] is not None]
        self.started = True
        return True

    @property
    def progress(self) -> tuple[int, int]:
        """Slots scanned, slots to scan."""
        tables = self._engine.tables
        total = sum(tables[name].limit for name in self.watermarks)
        return sum(min(w, tables[name].limit) for name, w in self.watermarks.items()), total

    def advance(self, max_rows: int) -> dict[nodes.ViewNode, ViewDelta] | None:
        """One piece of the build, between epochs: what it added to the new views, or None when there is nothing
        left."""
        if not self.started:
            self.started = True
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

    def _start(self) -> dict[nodes.ViewNode, ViewDelta]:
        """Feed the new operators with all that running ones hold now."""
        outputs: dict[Task, Any] = {}
        for task in self._tasks:
            if task not in self.new or isinstance(task, nodes.DeltaNode):
                continue
            self._engine.used(task)
            operator = self._engine.running[task]
            if isinstance(task, nodes.JoinNode):
                outputs[task] = collect(task.schema, self._engine.budget, operator.current())
            elif isinstance(task, (nodes.AggregateNode, nodes.DistinctNode)):
                outputs[task] = collect(task.schema, self._engine.budget, self._rows(task))
            else:
                outputs[task] = self._engine.apply_task(task, [self._first_input(f, outputs) for f in feeds(task)])
        result = self._engine.view_deltas({t: o for t, o in outputs.items() if t in self.new})
        self._engine.end_epoch()
        return result

    def _first_input(self, feed: Task, outputs: Mapping[Task, Any]) -> Any:
        """What a new operator gets of a feed at the start: all that it holds (base tables are scanned afterwards)."""
        if isinstance(feed, nodes.DeltaNode):
            return None
        if feed in self.new:
            return outputs[feed]
        budget = self._engine.budget
        if isinstance(feed, Arranged):
            return self._engine.running[feed].regroup(collect(feed.input.schema, budget, self._rows(feed.input)))
        assert not isinstance(feed, Grouped)
        return collect(feed.schema, budget, self._rows(feed))

    def _rows(self, task: nodes.Node) -> Iterator[Delta]:
        """All rows of a node, as +1."""
        operator = self._engine.running[task]
        if isinstance(task, nodes.ViewNode):
            return self._rows_of(task)
        rows: Iterator[Delta]
        if isinstance(task, (nodes.DeltaNode, nodes.JoinNode, nodes.ReverseJoinNode)):
            rows = operator.current()
        elif isinstance(task, (nodes.AggregateNode, nodes.DistinctNode)):
            (groups,) = feeds(task)
            rows = operator.current(self._engine.running[groups].current())
        else:
            rows = operator.current(*(self._rows(below) for below in nodes.inputs(task)))
        return rows

    def _run(self, inputs: Mapping[Task, DeltaBuffer]) -> dict[nodes.ViewNode, ViewDelta]:
        outputs: dict[Task, Any] = {}
        for task in self._tasks:
            if task in self.new and not isinstance(task, nodes.DeltaNode):
                given = [inputs.get(f) if isinstance(f, nodes.DeltaNode) else outputs.get(f) for f in feeds(task)]
                outputs[task] = self._engine.apply_task(task, given)
        result = self._engine.view_deltas(outputs)
        self._engine.end_epoch()
        return result
