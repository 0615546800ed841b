"""A keyed set of rows: views, sides of joins and every other table of state live in one of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from belvedere.engine.delta import Delta
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels.columns import gather_status, scatter_status
from belvedere.engine.state.kernels.table import PENDING, upsert
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.ordered import KeyOrder
from belvedere.engine.vec import Status, Vec
from belvedere.types import Type

_NO_STATUS = np.empty(0, np.uint8)


class Table:
    """Rows by id. A removed row stays readable under its slot until `end_epoch`."""

    def __init__(self, types: Sequence[Type]) -> None:
        self.index = HashIndex()
        self.columns = Columns(types)
        self._touched = Buffer(np.uint8)
        self._errors: Buffer | None = None
        self.order: KeyOrder | None = None
        """Rows in key order, if somebody reads them so."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def limit(self) -> int:
        """Every slot is below it."""
        return self.index.limit

    def apply(self, delta: Delta) -> np.ndarray:
        """Insert or overwrite the +1 rows, remove the -1 rows whose id has no +1 row. Returns the slot of every row
        (int32; -1 for a -1 row that was not there, or whose +1 row is known to follow)."""
        index, count = self.index, len(delta)
        slots = np.full(count, -1, np.int32)
        if not count:
            return slots
        index.reserve(count)
        index.reserve_removals(count)
        freed = int(index.ctl[PENDING])
        self._touched.reserve((index.limit + count + 7) // 8)
        weight = plain(delta.weight)
        if delta.paired is not None:
            weight = np.where(delta.paired, np.int8(0), weight)
        upsert(
            index.entries, index.all_ids, index.free, index.pending, index.ctl, self._touched.array,
            plain(delta.id), weight, slots,
        )  # fmt: skip
        self.columns.reserve(index.limit)
        targets = slots if (weight > 0).all() else np.where(weight > 0, slots, np.int32(-1))
        self.columns.scatter(targets, delta.columns)
        self._keep_errors(targets, delta.error)
        if self.order is not None:
            self._note(self.order, targets, freed)
        return slots

    def _note(self, order: KeyOrder, written: np.ndarray, freed: int) -> None:
        order.removed(self.index.pending[freed : int(self.index.ctl[PENDING])], self.limit)
        order.written(written, self.limit)
        if order.hopeless(len(self)):
            self.order = None

    def _keep_errors(self, slots: np.ndarray, error: np.ndarray | None) -> None:
        if error is None and self._errors is None:
            return
        if self._errors is None:
            self._errors = Buffer(np.uint8)
        self._errors.reserve(self.limit)
        scatter_status(self._errors.array, slots, _NO_STATUS if error is None else plain(error))

    def end_epoch(self) -> None:
        """Removed rows are read no more: forget their strings, reuse their slots."""
        removed = self.index.removed()
        if len(removed):
            self.columns.release(removed)
            self.index.end_epoch()

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Slots (int32) of ids, -1 where absent."""
        return self.index.find(ids)

    def get(self, id: np.ndarray) -> tuple[Any, ...] | None:
        """The row of one id (uint64[2]) as Python values."""
        slot = self.index.find_one(id)
        return None if slot < 0 else self.columns.row(slot)

    def live(self, slots: np.ndarray) -> np.ndarray:
        """Mask of slots that have a row now."""
        return np.asarray(self.index.find(self.index.ids(slots)) == slots)

    def live_slots(self) -> np.ndarray:
        """Slots of all rows, ascending."""
        return self.index.slots()

    def gather(self, slots: np.ndarray, columns: Sequence[int]) -> tuple[Vec, ...]:
        """Columns of the rows at these slots."""
        return self.columns.gather(slots, columns)

    def slots(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Live slots, ascending."""
        return self.index.slots(start, stop)

    def rows(self, slots: np.ndarray | None = None) -> Delta:
        """Rows (at these slots, else all) with weight +1."""
        if slots is None:
            slots = self.slots()
        return Delta(
            self.columns.gather(slots), np.ones(len(slots), np.int8), self.index.ids(slots), self.errors(slots)
        )

    def errors(self, slots: np.ndarray) -> np.ndarray | None:
        """Row errors (see `Delta.error`) of the rows at these slots, None if there is none."""
        if self._errors is None:
            return None
        out = np.full(len(slots), Status.VALUE, np.uint8)
        return out if gather_status(self._errors.array, np.ascontiguousarray(slots, np.int32), out) else None

    def nbytes(self) -> int:
        """Memory in use."""
        errors = 0 if self._errors is None else self._errors.nbytes(self.limit)
        return self.index.nbytes() + self.columns.nbytes() + self._touched.nbytes(self.limit // 8 + 1) + errors

    def plain_bytes(self) -> int:
        """What the live rows would take in plain arrays."""
        return self.columns.plain_bytes(len(self))

    def dump(self) -> dict[str, np.ndarray]:
        """Arrays from which `load` restores this table; call it between epochs."""
        arrays = {f"index.{k}": v for k, v in self.index.dump().items()}
        arrays |= {f"columns.{k}": v for k, v in self.columns.dump().items()}
        if self._errors is not None:
            arrays["errors"] = self._errors.array[: self.limit].copy()
        return arrays

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what `dump` gave."""
        self.order = None
        self.index = HashIndex.load({k[6:]: v for k, v in arrays.items() if k.startswith("index.")})
        self.columns.load({k[8:]: v for k, v in arrays.items() if k.startswith("columns.")})
        if "errors" in arrays:
            self._errors = Buffer(np.uint8, rows=self.limit)
            self._errors.array[: self.limit] = arrays["errors"]
