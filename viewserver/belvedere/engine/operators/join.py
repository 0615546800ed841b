"""Join: pairs of rows of two reverse-joins, padded rows of outer joins, and the rows of semi- and anti-joins.

With L and R the two inputs and unchanged / fresh / gone the parts of each that an epoch knows, the pairs that disappear
are

    gone(L) x (unchanged(R) + gone(R))   and   unchanged(L) x gone(R)

and the pairs that appear are the same with fresh for gone. Nothing cancels, so the output is consolidated, and both
inputs' states are already those after the epoch: several joins share them.

Whether a row has a partner is a matter of its whole group if there is no residual condition (`_flips`); with one, or
where rows with errors must not count as partners, it is counted per row (`Counts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from belvedere.engine.arrangement import key_states, tag_of
from belvedere.engine.buffer import CHUNK_ROWS, DeltaBuffer
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.engine.expr.evaluate import evaluate
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.operators.reverse_join import FRESH, GONE, UNCHANGED, ReverseJoinOperator, Sided
from belvedere.engine.state.hashing import NIL, combine
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.plan import nodes
from belvedere.plan.nodes import Identity
from belvedere.spill import Budget
from belvedere.sql.query import JoinKind

Chunk = tuple[Delta, np.ndarray, np.ndarray]  # rows, key ids, row slots


@dataclass(slots=True)
class Counts:
    """Partners of each stored row of one side, and what the epoch's first touch found."""

    tag: int = 0
    values: np.ndarray = field(default_factory=lambda: np.zeros(64, np.int64))
    touched: Touched = field(default_factory=Touched)
    before: list[np.ndarray] = field(default_factory=list)

    def reset(self, slots: np.ndarray, limit: int) -> None:
        self.values = grown(self.values, limit)
        self.values[slots] = 0

    def add(self, slots: np.ndarray, weight: np.ndarray) -> None:
        add_at(self.values, slots, weight)

    def add_unchanged(self, slots: np.ndarray, weight: np.ndarray) -> None:
        """Rows that stay: remember what they had, so that 0 <-> more can be told at the end."""
        first = self.touched.add(slots, len(self.values))
        if len(first):
            self.before.append(self.values[first])
        add_at(self.values, slots, weight)

    def turned(self) -> tuple[np.ndarray, np.ndarray]:
        """Slots of unchanged rows that got their first partner, and of those that lost their last."""
        slots = self.touched.all()
        before = np.concatenate(self.before) if self.before else np.empty(0, np.int64)
        after = self.values[slots]
        self.touched.clear()
        self.before = []
        return slots[(before == 0) & (after > 0)], slots[(before > 0) & (after == 0)]


class JoinOperator:
    def __init__(
        self,
        node: nodes.JoinNode,
        left: ReverseJoinOperator,
        right: ReverseJoinOperator,
        budget: Budget,
        count_rows: bool,
        name: str,
    ):
        self._node, self._left, self._right, self._budget = node, left, right, budget
        kind = node.kind
        self._half = kind in (JoinKind.SEMI, JoinKind.ANTI)
        self._pad_left = kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI)
        self._pad_right = kind in (JoinKind.RIGHT, JoinKind.FULL)
        counted = count_rows or node.residual is not None
        tag = tag_of(name)
        self._left_counts = Counts(tag & ~1) if counted and self._pad_left else None
        self._right_counts = Counts(tag | 1) if counted and self._pad_right else None
        self._needs_pairs = not self._half or counted
        # An update of a row whose identity contains the join key stays in its group: so do its pairs.
        plain = node.residual is None
        self._left_stays = plain and set(left.node.on) <= set(left.node.key)
        self._right_stays = plain and set(right.node.on) <= set(right.node.key)
        if self._left_counts is not None:
            left.riders.append(self._left_counts)
        if self._right_counts is not None:
            right.riders.append(self._right_counts)

    def detach(self) -> None:
        """The operator goes, its inputs may stay for others."""
        for side, counts in ((self._left, self._left_counts), (self._right, self._right_counts)):
            if counts is not None:
                side.riders = [rider for rider in side.riders if rider is not counts]

    # ------------------------------------------------------------------ an epoch

    def apply(self, left: Sided, right: Sided) -> DeltaBuffer:
        """Where one side is the identity, -1 and +1 of an id may come from different probes, in any order: small
        outputs become one chunk, big ones all removals first."""
        out = DeltaBuffer(self._node.schema, self._budget)
        later = DeltaBuffer(self._node.schema, self._budget)
        waiting: list[Delta] = []
        rows = 0
        for delta in self._changes(left, right):
            if not len(delta):
                continue
            waiting.append(delta)
            rows += len(delta)
            if rows > CHUNK_ROWS:
                for part in waiting:
                    gone = part.weight < 0
                    removed = part.filter(gone)
                    removed.paired = None if part.paired is None else part.paired[gone]
                    out.append(removed)
                    later.append(part.filter(~gone))
                waiting = []
        if waiting:
            out.append(concat_deltas(waiting))
        out.extend(later)
        return out

    def _changes(self, left: Sided, right: Sided) -> Iterator[Delta]:
        for side, counts, state in (
            (left, self._left_counts, self._left),
            (right, self._right_counts, self._right),
        ):
            if counts is not None:
                for delta, _, slots in side:
                    counts.reset(slots[delta.weight > 0], state.index.limit)
        if self._needs_pairs:
            for chunk in left:
                yield from self._left_pairs(chunk)
            for chunk in right:
                yield from self._right_pairs(chunk)
        if self._pad_left:
            yield from self._lonely(left, right, self._left, self._right, self._left_counts, is_left=True)
        if self._pad_right:
            yield from self._lonely(right, left, self._right, self._left, self._right_counts, is_left=False)
        yield from self._failures(left, right)

    def _left_pairs(self, chunk: Chunk) -> Iterator[Delta]:
        """Changed left rows with unchanged right rows, and with right rows that come or go at the same time."""
        delta, ids, slots = chunk
        for rows, partners in self._right.probe(_groups(self._right, delta, ids, self._left.node.on)):
            mark = self._right.mark[partners]
            if mark.any():
                keep = np.where(delta.weight[rows] < 0, mark != FRESH, mark != GONE)
                rows, partners, mark = rows[keep], partners[keep], mark[keep]
            weight = delta.weight[rows]
            wanted = self._node.identity is not Identity.LEFT
            pairs = self._pair(delta.take(rows), self._right.read(partners, weight, wanted), weight)
            if self._left_stays and delta.paired is not None:
                pairs.paired = delta.paired[rows] & (mark == UNCHANGED)
            pairs, kept = self._residual(pairs)
            if kept is not None:
                rows, partners, mark = rows[kept], partners[kept], mark[kept]
            weight = delta.weight[rows]
            if self._left_counts is not None:
                come = weight > 0
                self._left_counts.add(slots[rows[come]], weight[come])
            if self._right_counts is not None:
                stay, fresh = mark == UNCHANGED, (mark == FRESH) & (weight > 0)
                self._right_counts.add_unchanged(partners[stay], weight[stay])
                self._right.changed(partners[stay])
                self._right_counts.add(partners[fresh], weight[fresh])
            if not self._half:
                yield pairs

    def _right_pairs(self, chunk: Chunk) -> Iterator[Delta]:
        """Changed right rows with unchanged left rows."""
        delta, ids, slots = chunk
        for rows, partners in self._left.probe(_groups(self._left, delta, ids, self._right.node.on)):
            keep = self._left.mark[partners] == UNCHANGED
            rows, partners = rows[keep], partners[keep]
            weight = delta.weight[rows]
            wanted = self._node.identity is not Identity.RIGHT
            pairs = self._pair(self._left.read(partners, weight, wanted), delta.take(rows), weight)
            if self._right_stays and delta.paired is not None:
                pairs.paired = delta.paired[rows]
            pairs, kept = self._residual(pairs)
            if kept is not None:
                rows, partners = rows[kept], partners[kept]
            weight = delta.weight[rows]
            if self._left_counts is not None:
                self._left_counts.add_unchanged(partners, weight)
                self._left.changed(partners)
            if self._right_counts is not None:
                come = weight > 0
                self._right_counts.add(slots[rows[come]], weight[come])
            if not self._half:
                yield pairs

    def _lonely(
        self,
        own: Sided,
        other: Sided,
        mine: ReverseJoinOperator,
        theirs: ReverseJoinOperator,
        counts: Counts | None,
        is_left: bool,
    ) -> Iterator[Delta]:
        """Rows of one side by whether they have a partner: padded rows, or the output of a semi- or anti-join."""
        for delta, ids, slots in own:
            if counts is not None:
                alone = counts.values[slots] == 0
            else:
                groups = _groups(theirs, delta, ids, mine.node.on)
                alone = np.where(delta.weight < 0, theirs.old_sizes(groups), theirs.new_sizes(groups)) == 0
            wanted = ~alone if self._node.kind is JoinKind.SEMI else alone
            if wanted.any():
                yield self._pad(delta.filter(wanted), is_left)
        if counts is not None:
            met, left_alone = counts.turned()
            yield from self._turn(mine, met, left_alone, is_left)
            return
        yield from self._flips(other, mine, theirs, is_left)

    def _flips(
        self, other: Sided, mine: ReverseJoinOperator, theirs: ReverseJoinOperator, is_left: bool
    ) -> Iterator[Delta]:
        """Groups of the other side that became empty or stopped being so turn all my unchanged rows."""
        groups = other.groups
        if not len(groups):
            return
        before, after = theirs.old_sizes(groups) > 0, theirs.new_sizes(groups) > 0
        turned = groups[before != after]
        if not len(turned):
            return
        if theirs.arrangement.on and self._null_keys(theirs, turned).any():
            turned = turned[~self._null_keys(theirs, turned)]
        became_full = theirs.new_sizes(turned) > 0
        for rows, slots in mine.probe(mine.arrangement.find(theirs.arrangement.index.ids(turned))):
            keep = mine.mark[slots] == UNCHANGED
            rows, slots = rows[keep], slots[keep]
            full = became_full[rows]
            yield from self._turn(mine, slots[full], slots[~full], is_left)

    @staticmethod
    def _null_keys(side: ReverseJoinOperator, groups: np.ndarray) -> np.ndarray:
        keys = side.arrangement.keys.gather(groups)
        return np.asarray(np.logical_or.reduce([~k.valid for k in keys]))

    def _turn(self, mine: ReverseJoinOperator, met: np.ndarray, alone: np.ndarray, is_left: bool) -> Iterator[Delta]:
        sign = 1 if self._node.kind is JoinKind.SEMI else -1
        for slots, weight in ((met, sign), (alone, -sign)):
            if len(slots):
                yield self._pad(mine.read(slots, np.full(len(slots), weight, np.int8)), is_left)

    def _failures(self, left: Sided, right: Sided) -> Iterator[Delta]:
        """Rows that cannot be joined because their key failed (and, behind a semi- or anti-join, right rows that failed
        at all): they pass alone, as errors, so that the view knows what it misses."""
        for delta, _, _ in left:
            failed = key_states(delta, self._left.node.on)[1]
            if failed is not None and not self._pad_left:
                yield self._failed(delta, failed, is_left=True)
        for delta, _, _ in right:
            failed = key_states(delta, self._right.node.on)[1]
            if self._half and delta.error is not None:
                lost = delta.error > Status.VALUE
                failed = lost if failed is None else failed | lost
            if failed is not None and failed.any() and not self._pad_right:
                yield self._failed(delta, failed, is_left=False)

    # ------------------------------------------------------------------ the whole output

    def current(self) -> Iterator[Delta]:
        """Everything the join holds now (between epochs); also sets the partner counts."""
        for counts, state in ((self._left_counts, self._left), (self._right_counts, self._right)):
            if counts is not None:
                counts.values = np.zeros(max(64, state.index.limit), np.int64)
        for delta, ids, slots in _stored(self._left):
            if self._needs_pairs:
                yield from self._left_pairs((delta, ids, slots))
            if self._pad_left:
                yield self._alone_now(delta, ids, slots, self._left, self._right, self._left_counts, is_left=True)
            failed = key_states(delta, self._left.node.on)[1]
            if failed is not None and not self._pad_left:
                yield self._failed(delta, failed, is_left=True)
        if self._right_counts is not None:
            self._right_counts.turned()
        for delta, ids, slots in _stored(self._right):
            if self._pad_right:
                yield self._alone_now(delta, ids, slots, self._right, self._left, self._right_counts, is_left=False)
            failed = key_states(delta, self._right.node.on)[1]
            if self._half and delta.error is not None:
                failed = (delta.error > Status.VALUE) | (False if failed is None else failed)
            if failed is not None and not self._pad_right:
                yield self._failed(delta, failed, is_left=False)

    def _alone_now(
        self,
        delta: Delta,
        ids: np.ndarray,
        slots: np.ndarray,
        mine: ReverseJoinOperator,
        theirs: ReverseJoinOperator,
        counts: Counts | None,
        is_left: bool,
    ) -> Delta:
        if counts is not None:
            alone = counts.values[slots] == 0
        else:
            alone = theirs.new_sizes(_groups(theirs, delta, ids, mine.node.on)) == 0
        return self._pad(delta.filter(~alone if self._node.kind is JoinKind.SEMI else alone), is_left)

    def end_epoch(self) -> None:
        pass

    # ------------------------------------------------------------------ rows

    def _pair(self, left: Delta, right: Delta, weight: np.ndarray) -> Delta:
        if self._node.identity is Identity.LEFT:
            ids = left.id
        elif self._node.identity is Identity.RIGHT:
            ids = right.id
        else:
            ids = combine(left.id, right.id)
        return Delta(left.columns + right.columns, weight, ids, _worse(left.error, right.error))

    def _residual(self, pairs: Delta) -> tuple[Delta, np.ndarray | None]:
        """Pairs whose residual is TRUE (or fails), and which rows those are (None: all)."""
        keep: np.ndarray | None = None
        if self._node.residual is not None:
            verdict = evaluate(self._node.residual, pairs.columns, len(pairs))
            keep = verdict.data
            if verdict.status is not None:
                failed = verdict.status > Status.VALUE
                keep = (verdict.data & (verdict.status == Status.VALUE)) | failed
                if failed.any():
                    codes = np.where(failed, verdict.status, Status.VALUE).astype(np.uint8)
                    pairs.error = _worse(pairs.error, codes)
        if self._half and pairs.error is not None:
            sound = pairs.error == Status.VALUE  # a row that failed is no partner; it is reported by itself
            keep = sound if keep is None else keep & sound
        if keep is None or keep.all():
            return pairs, None
        return pairs.filter(keep), keep

    def _pad(self, delta: Delta, is_left: bool) -> Delta:
        """Rows of one side alone: NULLs for the other; as they are for a semi- or anti-join."""
        error = self._key_error(delta, is_left)
        if self._half:
            return Delta(delta.columns, delta.weight, delta.id, error)
        return Delta(self._wide(delta, is_left), delta.weight, self._lone_ids(delta, is_left), error)

    def _failed(self, delta: Delta, mask: np.ndarray, is_left: bool) -> Delta:
        rows = delta.filter(mask)
        error = self._key_error(rows, is_left)
        nil = np.broadcast_to(NIL, rows.id.shape)
        ids = combine(rows.id, nil) if is_left else combine(nil, rows.id)
        if self._half:
            columns = rows.columns if is_left else self._blank(len(rows), self._left)
            return Delta(columns, rows.weight, ids, error)
        return Delta(self._wide(rows, is_left), rows.weight, ids, error)

    def _key_error(self, rows: Delta, is_left: bool) -> np.ndarray | None:
        """The rows' own errors together with those of their join keys."""
        error = rows.error
        for i in self._left.node.on if is_left else self._right.node.on:
            status = rows.columns[i].status
            if status is not None and (status > Status.VALUE).any():
                error = _worse(error, np.maximum(status, np.uint8(Status.VALUE)))
        return error

    def _wide(self, rows: Delta, is_left: bool) -> tuple[Vec, ...]:
        if is_left:
            return rows.columns + self._blank(len(rows), self._right)
        return self._blank(len(rows), self._left) + rows.columns

    @staticmethod
    def _blank(count: int, side: ReverseJoinOperator) -> tuple[Vec, ...]:
        return tuple(nulls(c.type, count) for c in side.node.schema)

    def _lone_ids(self, delta: Delta, is_left: bool) -> np.ndarray:
        identity = self._node.identity
        if identity is (Identity.LEFT if is_left else Identity.RIGHT):
            return delta.id
        nil = np.broadcast_to(NIL, delta.id.shape)
        return combine(delta.id, nil) if is_left else combine(nil, delta.id)

    # ------------------------------------------------------------------ snapshots

    def dump(self) -> State:
        out = {}
        if self._left_counts is not None:
            out["left"] = self._left_counts.values[: self._left.index.limit]
        if self._right_counts is not None:
            out["right"] = self._right_counts.values[: self._right.index.limit]
        return out

    def load(self, state: State) -> None:
        if self._left_counts is not None:
            self._left_counts.values = grown(np.array(state["left"]), 64)
        if self._right_counts is not None:
            self._right_counts.values = grown(np.array(state["right"]), 64)


def _groups(side: ReverseJoinOperator, delta: Delta, ids: np.ndarray, on: tuple[int, ...]) -> np.ndarray:
    """Group slots on `side` of rows from the other one; -1 where the key has a NULL or is unknown there."""
    groups = side.arrangement.find(ids)
    missing = key_states(delta, on)[0]
    if missing is not None:
        groups = np.where(missing, np.int32(-1), groups)
    return groups


def _stored(side: ReverseJoinOperator) -> Iterator[Chunk]:
    """All stored rows with their key ids and slots."""
    slots = side.index.slots()
    step = 1 << 16
    for start in range(0, len(slots), step):
        chosen = slots[start : start + step]
        delta = side.read(chosen, np.ones(len(chosen), np.int8))
        yield delta, side.arrangement.index.ids(side.groups_of(chosen)), chosen


def _worse(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(np.maximum(a, b))
