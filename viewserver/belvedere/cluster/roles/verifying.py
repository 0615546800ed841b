"""Verification of a pool's state: what is stored of a view group against what a fresh shard makes of DELTA.

Byte by byte. It runs where the verification was asked for, beside the pool, at an epoch that its caller holds. Of each
row that is wanted a digest of 16 bytes is kept, and not the row. A digest that differs need not be damage: a group's
value may have parts of views that were dropped, which mean nothing and stay until it is written again. So the few rows
that differ are computed once more and looked at part by part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import Store
from belvedere.cluster.roles.recomputing import group_tables, live_tags, recompute, same_value
from belvedere.engine.formats import THIS_VERSION, Engines
from belvedere.engine.routing import buckets_of
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state_check import TableCheck
from belvedere.engine.vec import Vec
from belvedere.protocol.ring import BUCKETS
from belvedere.types import BINARY

_NO_IDS = np.empty((0, 2), np.uint64)


@dataclass(frozen=True)
class StateLook:
    """One view group at one epoch. `engine`: that of the pool. `parts`: see `recompute`."""

    store: Store
    document: bytes
    engine: int
    epoch: int
    group: int
    parts: int = 1
    engines: Engines = THIS_VERSION

    def checks(self) -> Iterator[TableCheck]:
        """Table by table, in the order of their names."""
        wanted: dict[str, _Wanted] = {}
        for table, ids, values in self._computed(None):
            wanted.setdefault(table, _Wanted()).add(ids, values)
        tags = live_tags(self.document, self.group)
        found = {
            table: self._compare(table, wanted.get(table, _Wanted()))
            for table in sorted(wanted.keys() | group_tables(self.document, self.group, self.store.usage()))
        }
        doubtful = {table: check.different for table, check in found.items() if len(check.different)}
        harmless = self._harmless(doubtful, tags) if doubtful.keys() & tags.keys() else {}
        for table, check in found.items():
            kept = ~np.array([id.tobytes() in harmless.get(table, ()) for id in check.different], np.bool_)
            yield TableCheck(table, check.rows, check.missing, check.extra, check.different[kept])

    def _computed(self, buckets: np.ndarray | None) -> Iterator[tuple[str, np.ndarray, pa.BinaryArray]]:
        writes = recompute(
            self.store, self.document, self.engine, {self.group}, self.epoch, parts=self.parts, buckets=buckets,
            engines=self.engines,
        )  # fmt: skip
        for write in writes:
            yield write.table, write.ids, write.values

    def _compare(self, table: str, wanted: _Wanted) -> TableCheck:
        seen = np.zeros(wanted.rows, np.bool_)
        extra, different = [_NO_IDS], [_NO_IDS]
        for ids, values in self.store.scan(table, 0, BUCKETS, self.epoch + 1):
            at = wanted.index.find(ids)
            there = at >= 0
            seen[at[there]] = True
            extra.append(ids[~there])
            wrong = (_digests(values)[there] != wanted.digests[at[there]]).any(axis=1)
            different.append(ids[there][wrong])
        return TableCheck(
            table,
            wanted.rows,
            wanted.index.ids(np.flatnonzero(~seen)),
            np.concatenate(extra),
            np.concatenate(different),
        )

    def _harmless(
        self, doubtful: Mapping[str, np.ndarray], tags: Mapping[str, frozenset[int]]
    ) -> dict[str, set[bytes]]:
        """Rows that differ only in what views that are gone have left in them."""
        buckets = np.zeros(BUCKETS, np.bool_)
        for ids in doubtful.values():
            buckets[buckets_of(ids)] = True
        right: dict[tuple[str, bytes], bytes] = {}
        looked = {table: {id.tobytes() for id in ids} for table, ids in doubtful.items() if table in tags}
        for table, ids, values in self._computed(buckets):
            for id, value in zip(ids, values, strict=True) if table in looked else ():
                if id.tobytes() in looked[table]:
                    right[table, id.tobytes()] = value.as_py()
        out: dict[str, set[bytes]] = {}
        for table, keys in looked.items():
            ids = doubtful[table]
            for id, value in zip(ids, self.store.read(table, ids, self.epoch + 1).to_pylist(), strict=True):
                wanted = right.get((table, id.tobytes()))
                if wanted is not None and value is not None and same_value(value, wanted, tags[table]):
                    out.setdefault(table, set()).add(id.tobytes())
            assert len(keys) == len(ids)
        return out


@dataclass
class _Wanted:
    """Ids and digests of the rows of a table that should be there."""

    index: HashIndex = field(default_factory=HashIndex)
    digests: np.ndarray = field(default_factory=lambda: np.empty((0, 2), np.uint64))

    @property
    def rows(self) -> int:
        return len(self.index)

    def add(self, ids: np.ndarray, values: pa.BinaryArray) -> None:
        slots, _ = self.index.insert(ids)  # an index without removals numbers what it is given
        if len(self.digests) < self.index.limit:
            grown = np.empty((max(self.index.limit, 2 * len(self.digests)), 2), np.uint64)
            grown[: len(self.digests)] = self.digests
            self.digests = grown
        self.digests[slots] = _digests(values)


def _digests(values: pa.BinaryArray) -> np.ndarray:
    """A hash of 128 bits of each value."""
    return hash_rows([Vec(BINARY, values)], len(values))
