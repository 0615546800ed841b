"""What DELTA has of each row, and what HBase has: compared by digest, family by family.

A digest (`CellTable.digests`) says which cells a row has in a family, since when, and what they are; without masks it
is the same for what HBase shows and for what DELTA shows, if they agree. 24 bytes a row and side are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from belvedere.backend.hbase.followed import FollowedTable
from belvedere.backend.hbase.loading import Loader
from belvedere.backend.hbase.row_keys import row_keys
from belvedere.backend.hbase.wal import CellDecoder
from belvedere.backend.seam import Committed, Store
from belvedere.engine.delta import CellChange, Changes
from belvedere.engine.state.cell_table import CellTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.model.change_codec import WrittenRow
from belvedere.plan.table_names import delta_table
from belvedere.protocol.ring import BUCKETS
from belvedere.sql.catalog import TableDef

_SLICE = BUCKETS // 16
_EMPTY = 0
"""In place of the digest of a family in which a row shows nothing."""


@dataclass(frozen=True)
class Images:
    """Rows by id, ascending: `shown` is the digest of what each family shows (one array per family), `known` that of
    everything that DELTA knows (None: these are HBase's)."""

    ids: np.ndarray
    shown: tuple[np.ndarray, ...]
    known: np.ndarray | None = None

    def of(self, ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """`shown` of these rows; absent ones show nothing."""
        at, there = find(self.ids, ids)
        return tuple(np.where(there, part[at] if len(part) else _EMPTY, _EMPTY) for part in self.shown)


def words(ids: np.ndarray) -> np.ndarray:
    """Ids as one comparable item each (which order it is does not matter)."""
    return np.ascontiguousarray(ids).view(np.dtype((np.void, 16))).reshape(-1)


def find(among: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where ids are among others that are in the order of `words`, and whether they are."""
    have, wanted = words(among), words(ids)
    at = np.minimum(np.searchsorted(have, wanted), max(0, len(have) - 1))
    there = have[at] == wanted if len(have) else np.zeros(len(wanted), np.bool_)
    return at, np.asarray(there)


class Comparison:
    """Of one table. `families`: those that it maps, with the positions of their columns."""

    def __init__(self, table: FollowedTable, store: Store, loader: Loader, committed: Committed) -> None:
        self.table, self._store, self._loader, self._committed = table, store, loader, committed
        self.definition: TableDef = table.definition
        assert self.definition.origin is not None
        stored = self.definition.origin.columns
        self.families = {
            family: [i for i, column in enumerate(stored) if column.family == family]
            for family in self.definition.origin.families
        }

    # ------------------------------------------------------------------ DELTA

    def delta(self, only: np.ndarray | None = None) -> Images:
        """Rows as they are at the newest committed epochs; of these ids, if some are given."""
        found = [self._images(table) for table in (self._tables() if only is None else self._some(only))]
        return _together(found, len(self.families))

    def _tables(self) -> Iterator[CellTable]:
        name = delta_table(self.table.name)
        for first in range(0, BUCKETS, _SLICE):
            below = self._committed().epoch + 1
            for _, values in self._store.scan(name, first, first + _SLICE, below):
                yield self._imported(values)

    def _some(self, ids: np.ndarray) -> Iterator[CellTable]:
        ids = ids[np.lexsort((ids[:, 1], ids[:, 0]))]
        values = self._store.read(delta_table(self.table.name), ids, self._committed().epoch + 1)
        yield self._imported(values.drop_null())

    def _imported(self, values: object) -> CellTable:
        table = CellTable(self.definition)
        if len(values):  # type: ignore[arg-type]
            table.import_(values, 0)
        return table

    def _images(self, table: CellTable) -> Images:
        slots = table.slots()
        return Images(table.ids_at(slots), self._shown(table, slots), table.digests(slots))

    def _shown(self, table: CellTable, slots: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(
            np.where(table.shows(slots, columns), table.digests(slots, False, columns), _EMPTY)
            for columns in self.families.values()
        )

    def forgotten(self, only: np.ndarray, known: Images) -> WrittenRow:
        """Corrections that take away the images that DELTA has of these rows, dead ones too."""
        (table,) = self._some(only)
        slots = table.slots()
        assert known.known is not None
        at, there = find(known.ids, table.ids_at(slots))
        slots, at = slots[there], at[there]
        keys = self.definition.key_positions
        names = tuple((self.definition.columns[i].name, self.definition.columns[i].type) for i in keys)
        kind = np.full(len(slots), CellChange.FORGOTTEN, np.uint8)
        changes = Changes(table.gather(slots, keys), (None,) * len(keys), None, known.known[at], kind)
        return WrittenRow(names, changes)

    def between(self, only: np.ndarray, start: bytes, stop: bytes) -> np.ndarray:
        """Mask of these rows of DELTA whose row keys are from `start` to `stop` (empty: the end)."""
        (table,) = self._some(only)
        slots = table.slots()
        ids = table.ids_at(slots)
        keys = row_keys(self.definition, table.gather(slots, self.definition.key_positions))
        inside = {id.tobytes() for id, key in zip(ids, keys, strict=True) if start <= key and (not stop or key < stop)}
        return np.array([id.tobytes() in inside for id in only], np.bool_)

    # ------------------------------------------------------------------ HBase

    def base(self, start: bytes, stop: bytes, only: np.ndarray | None = None) -> tuple[Images, list[WrittenRow]]:
        """Rows as HBase has them now; with `only` of these ids (in the order of `words`), and what was read of them."""
        decoder = CellDecoder(self.definition)
        found, read = [], []
        for at, family in enumerate(self.families):
            for cells in self._loader.scan(self.table, family, start, stop):
                rows = self._loader.changes(decoder, cells)
                if only is not None:
                    rows = rows.take(np.flatnonzero(find(only, self.ids(rows))[1]))
                    if len(rows.changes):
                        read.append(rows)
                if len(rows.changes):
                    found.append(self._read(at, rows))
        return _merged(found, len(self.families)), read

    def ids(self, rows: WrittenRow) -> np.ndarray:
        changes = rows.resolve(self.definition)
        return hash_rows([changes.columns[i] for i in self.definition.key_positions], len(changes))

    def _read(self, family: int, rows: WrittenRow) -> Images:
        table = CellTable(self.definition)
        table.apply(rows.resolve(self.definition), ())
        slots = table.slots()
        columns = list(self.families.values())[family]
        slots = slots[table.shows(slots, columns)]
        shown = [np.full(len(slots), _EMPTY, np.int64) for _ in self.families]
        shown[family] = table.digests(slots, False, columns)
        return Images(table.ids_at(slots), tuple(shown))

    # ------------------------------------------------------------------ both

    def differing(self, delta: Images, base: Images) -> np.ndarray:
        """Ids of rows that do not show the same, in the order of `words`."""
        ids = _distinct(np.concatenate([delta.ids, base.ids]))
        differ = np.zeros(len(ids), np.bool_)
        for mine, theirs in zip(delta.of(ids), base.of(ids), strict=True):
            differ |= mine != theirs
        return ids[differ]


def same(one: Images, other: Images, ids: np.ndarray) -> np.ndarray:
    """Mask of the ids that show the same in both."""
    mask = np.ones(len(ids), np.bool_)
    for mine, theirs in zip(one.of(ids), other.of(ids), strict=True):
        mask &= mine == theirs
    return mask


def _distinct(ids: np.ndarray) -> np.ndarray:
    return np.unique(words(ids)).view(np.uint64).reshape(-1, 2)


def _together(parts: Sequence[Images], families: int) -> Images:
    if not parts:
        nothing = np.empty(0, np.int64)
        return Images(np.empty((0, 2), np.uint64), (nothing,) * families, nothing)
    ids = np.concatenate([part.ids for part in parts])
    order = np.argsort(words(ids))
    known = None
    if parts[0].known is not None:
        known = np.concatenate([part.known for part in parts if part.known is not None])[order]
    shown = tuple(np.concatenate([part.shown[i] for part in parts])[order] for i in range(families))
    return Images(ids[order], shown, known)


def _merged(parts: Sequence[Images], families: int) -> Images:
    """Parts that each know one family, as rows."""
    if not parts:
        return Images(np.empty((0, 2), np.uint64), (np.empty(0, np.int64),) * families)
    ids = _distinct(np.concatenate([part.ids for part in parts]))
    shown = tuple(np.full(len(ids), _EMPTY, np.int64) for _ in range(families))
    for part in parts:
        at, _ = find(ids, part.ids)
        for whole, one in zip(shown, part.shown, strict=True):
            whole[at] = np.where(one == _EMPTY, whole[at], one)
    return Images(ids, shown)
