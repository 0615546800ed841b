"""Which ids an epoch wrote, in the family `l` of `_meta`: for readers of changes, and for the collection of tombstones.

    "lc" tag epoch digest -> ids     ids that logged writes of this epoch touched
    "lg" epoch tag digest -> rows    ids whose row ended with this epoch, and their keys

The digest is that of the ids: an epoch that is written again writes the same rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.keyvalues import PUT, cells_of
from belvedere.backend.hbase.layout import LIVENESS, LOG_FAMILY, TAG_BYTES, after, word

_CHANGED, _GONE = b"lc", b"lg"
_STAMP = 1
_IDS = 1 << 15
"""In one row: half a megabyte."""
_ENDED = 1 << 12
"""Of rows with keys, which may be long."""
_COLUMNS = Columns(LOG_FAMILY, (LIVENESS,))


@dataclass(frozen=True)
class Ended:
    """Rows that ended, with their keys, if the table has such."""

    ids: np.ndarray
    keys: pa.BinaryArray | None

    def part(self, at: int, count: int) -> Ended:
        return Ended(self.ids[at : at + count], None if self.keys is None else self.keys.slice(at, count))

    def pack(self) -> bytes:
        """A number: of ids, with a bit for keys; ids; lengths of keys, keys."""
        count = (len(self.ids) << 1) | (self.keys is not None)
        head = count.to_bytes(4, "big") + np.ascontiguousarray(self.ids).tobytes()
        if self.keys is None:
            return head
        lengths = np.asarray(pc.binary_length(self.keys)).astype(np.int32)
        return head + lengths.tobytes() + b"".join(self.keys.to_pylist())

    @classmethod
    def unpack(cls, content: bytes) -> Ended:
        count, keyed = divmod(int.from_bytes(content[:4], "big"), 2)
        ids = np.frombuffer(content, np.uint64, 2 * count, 4).reshape(-1, 2)
        if not keyed:
            return cls(ids, None)
        begin = 4 + 16 * count
        lengths = np.frombuffer(content, np.int32, count, begin)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        keys = pa.py_buffer(content[begin + 4 * count :])
        return cls(ids, pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), keys]))


class ChangeLog:
    """Thread-safe."""

    def __init__(self, cells: Cells, table: str) -> None:
        self._cells, self._table = cells, table

    def write(
        self, epoch: int, touched: Sequence[tuple[bytes, np.ndarray]], gone: Sequence[tuple[bytes, Ended]]
    ) -> None:
        """Tags, with the ids of their tables."""
        moment = word(epoch)
        entries: dict[bytes, bytes] = {}
        for tag, ids in touched:
            for at in range(0, len(ids), _IDS):
                content = np.ascontiguousarray(ids[at : at + _IDS]).tobytes()
                entries[_CHANGED + tag + moment + xxhash.xxh3_64_digest(content)] = content
        for tag, ended in gone:
            for at in range(0, len(ended.ids), _ENDED):
                content = ended.part(at, _ENDED).pack()
                entries[_GONE + moment + tag + xxhash.xxh3_64_digest(content)] = content
        if not entries:
            return
        named, contents = (pa.array(list(part), pa.binary()) for part in (entries, entries.values()))
        self._cells.put(self._table, cells_of(named, LOG_FAMILY.encode(), LIVENESS, _STAMP, PUT, contents))

    def changed(self, tag: bytes, since: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        """Epochs in `(since, upto]`, ascending, with their ids, ascending."""
        begin = _CHANGED + tag
        if upto <= since or upto < 0:
            return
        entries = (
            (int.from_bytes(row[len(begin) : len(begin) + 8], "big"), content)
            for row, content in self._rows(begin + word(max(0, since + 1)), begin + word(min(upto + 1, 2**64 - 1)))
        )
        for epoch, parts in groupby(entries, key=lambda entry: entry[0]):
            ids = np.frombuffer(b"".join(content for _, content in parts), np.uint64).reshape(-1, 2)
            yield epoch, np.unique(ids, axis=0)

    def gone(self, since: int, upto: int) -> Iterator[tuple[bytes, Ended]]:
        """Tags, and rows that ended with an epoch in `(since, upto]`."""
        at = len(_GONE) + 8
        for row, content in self._rows(_GONE + word(since + 1), _GONE + word(upto + 1)):
            yield row[at : at + TAG_BYTES], Ended.unpack(content)

    def forget(self, tags: Sequence[bytes], collected: int, horizon: int, swept: int, fence: int) -> None:
        """What was changed in `(collected, horizon]`, and what ended in `(swept, fence]`."""
        for tag in tags:
            self._remove(_CHANGED + tag + word(collected + 1), _CHANGED + tag + word(horizon + 1))
        self._remove(_GONE + word(swept + 1), _GONE + word(fence + 1))

    def drop(self, tag: bytes) -> None:
        """What was changed in a table that is dropped; what ended in it goes with the others of its epochs."""
        self._remove(_CHANGED + tag, after(_CHANGED + tag))

    def _rows(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        for piece in self._cells.scan(self._table, start, stop, _COLUMNS):
            yield from zip(piece.row.to_pylist(), piece.value.to_pylist(), strict=True)

    def _remove(self, start: bytes, stop: bytes) -> None:
        for piece in self._cells.scan(self._table, start, stop, _COLUMNS, keys_only=True):
            self._cells.delete(self._table, piece.row, LOG_FAMILY, None, [_STAMP] * len(piece))
