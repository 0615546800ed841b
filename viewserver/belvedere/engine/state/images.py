"""Old and new images of the rows that a batch changed, and the deltas made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Delta
from belvedere.engine.residency import distinct_ids
from belvedere.engine.state.arena import SLACK, string_parts
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import address, plain
from belvedere.engine.state.kernels import images as k
from belvedere.engine.vec import Vec
from belvedere.types import Type

_NO_STATUS = np.empty(0, np.uint8)


class BaseChange:
    """What one batch did to a base table. Valid until the next batch is applied: new images may be read from the
    table."""

    def __init__(
        self,
        columns: Sequence[Vec],
        keys: frozenset[int],
        ids: np.ndarray,
        slots: np.ndarray,
        before: np.ndarray,
        after: np.ndarray,
        change: np.ndarray,
        old: Mapping[int, Vec],
        new: Callable[[int], Vec],
        whole: bool,
        errors: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """`columns`, `ids`: of the batch's changes. `slots`, `before`, `after`, `change`: of every touched row its
        slot, whether it was and is live, and the change that made it what it is. `old`: images of the rows that were
        live, keys excepted (a change names the key of its row). `whole`: each new image is the row of its change; else
        `new(c)` reads column c of the rows that are live.
        `errors`: row errors (as in `Delta`) of the rows that were live and of those that are."""
        self._columns, self._keys, self._ids, self._slots = columns, keys, ids, slots
        self._before, self._after, self._change, self._old = before, after, change, old
        self._new = columns.__getitem__ if whole else new
        live = int(np.count_nonzero(after))
        self._errors = errors
        self._source = np.arange(live) if not whole else change if live == len(change) else change[after.view(np.bool_)]
        self._pair = np.empty(len(slots), np.int32)
        self._old_at, self._new_at = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
        pairs = k.pair_up(before, after, self._source, self._pair, self._old_at, self._new_at)
        self._old_at, self._new_at = self._old_at[:pairs], self._new_at[:pairs]

    def __len__(self) -> int:
        """Rows touched."""
        return len(self._slots)

    @property
    def touched(self) -> np.ndarray:
        """Ids of the rows touched."""
        return np.asarray(self._ids[self._change])

    @property
    def mentioned(self) -> np.ndarray:
        """Ids of all rows that changes named, each once: what the table keeps of a row may change though the row does
        not (a second delete makes a tombstone younger)."""
        return distinct_ids(self._ids)

    def mentioned_keys(self, key: Sequence[int]) -> Delta:
        """The same ids with the columns of their key: of a row that the table has forgotten only a change knows it."""
        at = np.flatnonzero(HashIndex().insert(self._ids)[1])
        columns = [self._columns[i] for i in key]
        if len(at) < len(self._ids):
            columns = [column.take(at) for column in columns]
        return Delta(tuple(columns), np.ones(len(at), np.int8), self._ids[at])

    def emit(self, columns: tuple[int, ...]) -> tuple[Delta, np.ndarray]:
        """The consolidated delta of these columns (removed images first), without pairs that do not differ in them; and
        the slot of each of its rows."""
        new = {c: self._new(c) for c in columns}
        changed = self._changed(columns, new)
        count = len(self._slots)
        old_rows, old_changes, new_rows = (np.empty(count, np.int64) for _ in range(3))
        ids, slots = np.empty((2 * count, 2), np.uint64), np.empty(2 * count, np.int32)
        paired = np.zeros(2 * count, np.uint8)
        olds, news = k.select(
            self._before, self._after, changed, self._pair, self._change, self._source, self._ids, self._slots,
            old_rows, old_changes, new_rows, ids, slots, paired,
        )  # fmt: skip
        old_rows, old_changes, new_rows = old_rows[:olds], old_changes[:olds], new_rows[:news]
        out = tuple(
            self._assemble(self._columns[c], old_changes, new[c], new_rows)
            if c in self._keys
            else self._assemble(self._old.get(c), old_rows, new[c], new_rows)
            for c in columns
        )
        weight = np.ones(olds + news, np.int8)
        weight[:olds] = -1
        mates = paired[: olds + news].view(np.bool_) if olds else None
        error = None
        if self._errors is not None:
            error = np.concatenate([self._errors[0][old_rows], self._error_of_new(new_rows)])
        return Delta(out, weight, ids[: olds + news], error, mates), slots[: olds + news]

    def _error_of_new(self, rows: np.ndarray) -> np.ndarray:
        """Where new images are the changes themselves, no row is in doubt."""
        assert self._errors is not None
        codes = self._errors[1]
        return codes[rows] if len(codes) else np.ones(len(rows), np.uint8)

    def _changed(self, columns: tuple[int, ...], new: Mapping[int, Vec]) -> np.ndarray:
        differ = np.zeros(len(self._old_at), np.uint8)
        if not len(differ):
            return differ
        if self._errors is not None:
            differ |= self._errors[0][self._old_at] != self._error_of_new(self._new_at)
        for c in columns:
            if c in self._keys:
                continue  # equal ids have equal keys
            a, b = self._old[c], new[c]
            type = a.type
            x, y = _status(a), _status(b)
            if type.varlen:
                left, right = string_parts(a.data), string_parts(b.data)
                k.differ_strings(*left, self._old_at, x, *right, self._new_at, y, differ)
            else:
                before, after = plain(a.data), plain(b.data)
                width = before.itemsize * (2 if type.wide else 1)
                k.differ_fixed(width, address(before), self._old_at, x, address(after), self._new_at, y, differ)
        return differ

    @staticmethod
    def _assemble(old: Vec | None, old_rows: np.ndarray, new: Vec, new_rows: np.ndarray) -> Vec:
        if old is None or not len(old_rows):
            return _pick([(new, new_rows)])
        return _pick([(old, old_rows), (new, new_rows)] if len(new_rows) else [(old, old_rows)])


def _status(vec: Vec) -> np.ndarray:
    return _NO_STATUS if vec.status is None else plain(vec.status)


def _whole(vec: Vec, index: np.ndarray) -> bool:
    """Whether the ascending distinct `index` names every row."""
    return len(index) == len(vec)


def _pick(parts: Sequence[tuple[Vec, np.ndarray]]) -> Vec:
    """Rows of columns of one type, one part after the other. Indexes that name every row of a part do so in order: rows
    that changed once come in the order of their changes."""
    type = parts[0][0].type
    if len(parts) == 1 and _whole(*parts[0]) and _ordered(parts[0][1]):
        return parts[0][0]
    status = None
    if any(v.status is not None for v, _ in parts):
        status = np.concatenate([np.ones(len(i), np.uint8) if v.status is None else v.status[i] for v, i in parts])
    count = sum(len(i) for _, i in parts)
    if type.varlen:
        return Vec(type, _pick_strings(type, parts, count), status)
    data = np.empty((count, 2) if type.wide else count, type.dtype)
    at = 0
    for vec, index in parts:
        source, target = plain(vec.data), data[at : at + len(index)]
        if len(index):
            k.pick_fixed(data.itemsize * (2 if type.wide else 1), address(source), index, address(target))
        at += len(index)
    return Vec(type, data, status)


def _ordered(index: np.ndarray) -> bool:
    return bool((index[1:] > index[:-1]).all())


def _pick_strings(type: Type, parts: Sequence[tuple[Vec, np.ndarray]], count: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    at, total = 0, 0
    sources = []
    for vec, index in parts:
        bounds, values = string_parts(vec.data)
        sources.append((bounds, values, index, total))
        total = int(k.measure_picks(bounds, index, offsets, at))
        if total > 0x7FFFFFFF:
            raise OverflowError(f"strings of {count} changed rows do not fit one batch; commit fewer rows at once")
        at += len(index)
    out = np.empty(total + SLACK, np.uint8)
    for bounds, values, index, start in sources:
        k.pick_strings(bounds, values, index, out, start)
    return pa.Array.from_buffers(type.arrow, count, [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0)
