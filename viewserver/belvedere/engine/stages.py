"""Where rows lie, and so in which stage every task runs.

A task's rows lie under the buckets of a hash: of some of their columns, or of their id. Where a task wants its input
under another key (groups under their key, rows of a view under their id), a `Moved` step stands between: it sends rows
to the owner of their bucket, and what it feeds runs one stage later. Everything else runs in the stage of the last of
its inputs. Views of older view groups are inputs like base tables.

Rows that failed make placement delicate: a join passes a row whose key failed with NULLs for the other side, so the
row does not lie where the other side's key columns say. Where that can happen, the claim is given up.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from belvedere.engine.graph import Arranged, Grouped, Task, columns_may_fail, digest, feeds, may_fail
from belvedere.plan import nodes
from belvedere.sql.catalog import TableDef
from belvedere.sql.expr import ColumnRef
from belvedere.sql.query import JoinKind


@dataclass(frozen=True)
class StagedGroup:
    """Views that were applied together. `leaves`: views of older view groups that they read. `made`: the engine that
    the pool had then; 0: not known."""

    number: int
    views: tuple[nodes.ViewNode, ...]
    leaves: tuple[nodes.ViewNode, ...] = ()
    made: int = 0


@dataclass(frozen=True)
class ShardCatalog:
    """What is in service or under construction."""

    tables: tuple[TableDef, ...]
    view_groups: tuple[StagedGroup, ...]


@dataclass(frozen=True)
class Moved:
    """The rows of a node at the owners of the buckets of the columns `by` (None: of their ids)."""

    input: nodes.Node
    by: tuple[int, ...] | None


Step = Task | Moved


@dataclass(frozen=True)
class Place:
    """How rows are spread: column lists whose hash says where (several if they are always equal), and whether the id
    does."""

    by: frozenset[tuple[int, ...]]
    by_id: bool


class StageKind(enum.Enum):
    """What running a step means: read a leaf, take what was moved here, find groups, or run an operator."""

    SOURCE = enum.auto()
    MOVED = enum.auto()
    GROUPS = enum.auto()
    TASK = enum.auto()


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """A step as it is run: its number, and those of what feeds it. `edge`: the number of a way between servers.
    `partners`: groups that a join reads together with these, and what feeds them. `views`: who depends on it."""

    kind: StageKind
    at: int
    step: Step
    feeds: tuple[int, ...]
    edge: int
    partners: tuple[tuple[int, int], ...]
    views: tuple[str, ...]


@dataclass
class GroupLayout:
    """The steps of a view group. `stages[s]`: those of stage s, in an order in which inputs come first and groups as
    late as possible, so that what they miss can be loaded at once. `sends[s]`: what leaves after stage s, and the
    number of the step that made it."""

    view_group: StagedGroup
    feeds: dict[Step, tuple[Step, ...]] = field(default_factory=dict)
    stage: dict[Step, int] = field(default_factory=dict)
    at: dict[Step, int] = field(default_factory=dict)
    stages: list[list[Run]] = field(default_factory=list)
    sends: list[list[tuple[int, Run]]] = field(default_factory=list)
    edges: list[Moved] = field(default_factory=list)
    names: dict[Step, str] = field(default_factory=dict)
    views: list[tuple[int, nodes.ViewNode]] = field(default_factory=list)
    groups: list[Run] = field(default_factory=list)
    sides: list[Run] = field(default_factory=list)
    """Reverse-joins."""


@dataclass
class StageLayout:
    """All view groups of a catalog, older ones first, and how many stages they need together. `owners`: the view group
    and the step that make a view."""

    view_groups: list[GroupLayout]
    stages: int
    owners: dict[nodes.ViewNode, tuple[int, int]]
    columns: dict[str, set[int]]
    """Of each base table the columns that some view group reads."""


@lru_cache(maxsize=256)
def layout(catalog: ShardCatalog) -> StageLayout:
    """The stages of a catalog; the same in every process that knows it."""
    depth: dict[nodes.ViewNode, int] = {}
    made = []
    owners: dict[nodes.ViewNode, tuple[int, int]] = {}
    for view_group in sorted(catalog.view_groups, key=lambda c: c.number):
        one = _Builder(view_group, depth).result()
        made.append(one)
        for view in view_group.views:
            depth[view] = one.stage[view]
            owners[view] = view_group.number, one.at[view]
    count = max([1, *(len(one.stages) for one in made)])
    columns: dict[str, set[int]] = {}
    for one in made:
        one.stages += [[] for _ in range(count - len(one.stages))]
        one.sends += [[] for _ in range(count - len(one.sends))]
        for step in one.stage:
            if isinstance(step, nodes.DeltaNode):
                columns.setdefault(step.table, set()).update(step.columns)
    return StageLayout(made, count, owners, columns)


class _Builder:
    def __init__(self, view_group: StagedGroup, depth: Mapping[nodes.ViewNode, int]):
        self._out = GroupLayout(view_group)
        self._leaves = set(view_group.leaves)
        self._depth = depth
        self._place: dict[Step, Place] = {}
        for view in view_group.views:
            self._visit(view)

    def result(self) -> GroupLayout:
        out = self._out
        memo: dict[Task, str] = {}
        for step in out.stage:
            if not isinstance(step, Moved):
                out.names[step] = f"{out.view_group.number} {digest(step, memo)}"
        out.edges = [step for step in out.stage if isinstance(step, Moved)]
        out.at = {step: i for i, step in enumerate(out.stage)}
        out.views = [(out.at[v], v) for v in out.view_group.views]
        count = 1 + max(out.stage.values(), default=0)
        runs = self._runs()
        out.groups = [run for run in runs.values() if run.kind is StageKind.GROUPS]
        out.sides = [run for run in runs.values() if isinstance(run.step, nodes.ReverseJoinNode)]
        for stage in range(count):
            steps = self._ordered([s for s, at in out.stage.items() if at == stage])
            out.stages.append([runs[s] for s in steps])
            leaving = [m for m in out.edges if out.stage[m] == stage + 1]
            out.sends.append([(out.at[m.input], runs[m]) for m in leaving])
        return out

    def _runs(self) -> dict[Step, Run]:
        out = self._out
        serves: dict[Step, dict[str, None]] = {step: {} for step in out.stage}
        partners: dict[Step, list[tuple[int, int]]] = {}
        for step in reversed(list(out.stage)):
            if isinstance(step, nodes.ViewNode):
                serves[step][step.name] = None
            for below in out.feeds[step]:
                serves[below].update(serves[step])
            if isinstance(step, nodes.JoinNode):
                left, right = Arranged(step.left.input, step.left.on), Arranged(step.right.input, step.right.on)
                for one, other in ((left, right), (right, left)):
                    if one != other:
                        partners.setdefault(one, []).append((out.at[other], out.at[out.feeds[other][0]]))
        return {
            step: Run(
                _kind(step, below),
                out.at[step],
                step,
                tuple(out.at[b] for b in below),
                out.edges.index(step) if isinstance(step, Moved) else -1,
                tuple(partners.get(step, ())),
                tuple(serves[step]),
            )
            for step, below in out.feeds.items()
        }

    def _ordered(self, steps: list[Step]) -> list[Step]:
        """Groups (`Arranged`) after everything that does not need them."""
        waiting = dict.fromkeys(steps)
        done: list[Step] = []
        while waiting:
            ready = [s for s in waiting if not any(f in waiting for f in self._out.feeds[s])]
            chosen = [s for s in ready if not isinstance(s, Arranged)] or ready
            for step in chosen:
                del waiting[step]
            done += chosen
        return done

    # ------------------------------------------------------------------ placement

    def _visit(self, step: Task) -> None:
        """Everything below, then the step itself. Not recursive: views over views make deep plans."""
        stack: list[tuple[Task, bool]] = [(step, False)]
        while stack:
            task, ready = stack.pop()
            if task in self._out.stage:
                continue
            if task in self._leaves or isinstance(task, nodes.DeltaNode):
                self._source(task)
            elif ready:
                self._add(task)
            else:
                stack.append((task, True))
                stack.extend((below, False) for below in feeds(task))

    def _source(self, task: Task) -> None:
        assert isinstance(task, (nodes.DeltaNode, nodes.ViewNode))
        if isinstance(task, nodes.ViewNode) and task not in self._depth:
            raise AssertionError(
                f"view {task.name} is a leaf of view group {self._out.view_group.number}, but no older one"
            )
        stage = self._depth[task] if isinstance(task, nodes.ViewNode) else 0
        self._settle(task, (), stage, Place(frozenset([task.key]), True))

    def _settle(self, step: Step, below: tuple[Step, ...], stage: int, place: Place) -> None:
        self._out.feeds[step], self._out.stage[step], self._place[step] = below, stage, place

    def _add(self, task: Task) -> None:
        below: tuple[Step, ...] = feeds(task)
        if isinstance(task, Arranged):
            below = (self._moved(task.input, task.on),)
        elif isinstance(task, nodes.IndexNode):
            below = (self._moved(task.input, task.key),)
        elif isinstance(task, nodes.ViewNode) and not self._place[task.input].by_id:
            below = (self._moved(task.input, None),)
        stage = max(self._out.stage[b] for b in below)
        self._settle(task, below, stage, self._placed(task, [self._place[b] for b in below]))

    def _moved(self, node: nodes.Node, by: tuple[int, ...] | None) -> Step:
        """The node's rows under these columns: itself if they lie so already."""
        if by in self._place[node].by:
            return node
        moved = Moved(node, by)
        if moved not in self._out.stage:
            place = Place(frozenset(), True) if by is None else Place(frozenset([by]), False)
            self._settle(moved, (node,), self._out.stage[node] + 1, place)
        return moved

    def _placed(self, task: Task, below: list[Place]) -> Place:
        """How the rows that leave a task are spread."""
        match task:
            case nodes.ProjectionNode():
                return Place(_passed(task, below[0].by), below[0].by_id)
            case nodes.PreAggregationNode() | nodes.AggregateNode() | nodes.DistinctNode() | Grouped():
                width = len(task.node.key) if isinstance(task, Grouped) else len(task.key)
                return Place(frozenset([tuple(range(width))]), True)
            case nodes.IndexNode():
                return Place(below[0].by | {task.key}, True)
            case nodes.JoinNode():
                return self._joined(task)
            case nodes.UnionNode():
                return Place(frozenset.intersection(*(b.by for b in below)), False)
            case nodes.ViewNode():  # only rows that did not fail leave it, and their ids are hashes of the key
                return Place(below[0].by | {task.key}, True)
            case _:
                return below[0]

    def _joined(self, join: nodes.JoinNode) -> Place:
        left, right = self._place[join.left], self._place[join.right]
        offset = len(join.left.schema)
        half = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
        # Rows of one side that come out alone, with NULLs for the other.
        lone_left = join.kind in (JoinKind.LEFT, JoinKind.FULL) or _fails(join.left)
        lone_right = join.kind in (JoinKind.RIGHT, JoinKind.FULL) or _fails(join.right)
        by: set[tuple[int, ...]] = set()
        if not lone_right:
            by |= left.by
        if not lone_left and not half:
            by |= {tuple(c + offset for c in one) for one in right.by}
        by_id = False
        if join.identity is nodes.Identity.LEFT or half:
            by_id = left.by_id and not _fails(join.left) and not lone_right
        elif join.identity is nodes.Identity.RIGHT:
            by_id = right.by_id and not _fails(join.right) and not lone_left
        return Place(frozenset(by), by_id)


def _kind(step: Step, below: tuple[Step, ...]) -> StageKind:
    if isinstance(step, Moved):
        return StageKind.MOVED
    if isinstance(step, Arranged):
        return StageKind.GROUPS
    return StageKind.TASK if below else StageKind.SOURCE


def _fails(side: nodes.ReverseJoinNode) -> bool:
    """Whether a row of this side can come out of a join alone because it failed."""
    return may_fail(side.input) or columns_may_fail(side.input)


def _passed(node: nodes.ProjectionNode, by: frozenset[tuple[int, ...]]) -> frozenset[tuple[int, ...]]:
    """Where the columns of a placement stand in the output."""
    places = {e.index: i for i, e in reversed(list(enumerate(node.exprs))) if isinstance(e, ColumnRef)}
    return frozenset(tuple(places[c] for c in one) for one in by if all(c in places for c in one))
