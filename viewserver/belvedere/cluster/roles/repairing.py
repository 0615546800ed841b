"""What of a pool's store is not what its base rows make, and the documents with the right rows.

`Look` is one epoch, which its caller holds: everything of some view groups computed anew from DELTA, and compared with
what is stored. It runs where the repair was asked for, beside the pool. What leaders do with it is in
`protocol.repairing`, what owners do in `work`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.seam import Store, TableWrite
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.recomputing import StateForms, group_tables, live_tags, recompute, same_value
from belvedere.engine.formats import THIS_VERSION, Engines
from belvedere.engine.ledger import IdSet
from belvedere.engine.replacements import Replacement, digests, pack
from belvedere.engine.shard import view_table
from belvedere.engine.stages import StagedGroup
from belvedere.errors import BelvedereError
from belvedere.model.keys import key_codec
from belvedere.model.repair import DIFFERENT, EXTRA, MISSING, DamagedRow
from belvedere.model.stored_rows import view_rows
from belvedere.plan import nodes
from belvedere.protocol import wire
from belvedere.protocol.gc_documents import repair_document
from belvedere.protocol.messages import Epoch, Repair
from belvedere.protocol.ring import BUCKETS

PART_ROWS = 20_000
PART_BYTES = 16 << 20
"""Of a document: what an epoch carries beside its changes."""

Chosen = Callable[[bytes], bool]
"""Whether a row of that key is to be repaired."""


@dataclass(frozen=True)
class Found:
    """Rows of one table that are not what they should be. `keys`: of tables that are kept in the order of keys."""

    table: str
    ids: np.ndarray
    problems: tuple[str, ...]
    stored: pa.BinaryArray
    right: pa.BinaryArray
    keys: pa.BinaryArray | None

    def rows(self) -> list[DamagedRow]:
        names = [id.tobytes().hex() for id in np.ascontiguousarray(self.ids)]
        return [DamagedRow(self.table, *one) for one in zip(names, self.problems, strict=True)]


def affected(document: bytes, group: int) -> tuple[int, ...]:
    """The view group and all that read views of it, directly or not."""
    found = {group}
    for one in sorted(catalogs.compile(document).shard.view_groups, key=lambda one: one.number):
        if {leaf.version for leaf in one.leaves} & found:
            found.add(one.number)
    return tuple(sorted(found))


@dataclass
class Look:
    """`view`, `chosen`: of the rows of this view only those are repaired; None: all."""

    store: Store
    document: bytes
    engine: int
    epoch: Epoch
    groups: Collection[int]
    view: str = ""
    chosen: Chosen | None = None
    engines: Engines = THIS_VERSION

    def differences(self) -> Iterator[Found]:
        """In the order of tables."""
        right: dict[str, list[TableWrite]] = {}
        for write in recompute(self.store, self.document, self.engine, self.groups, self.epoch, engines=self.engines):
            right.setdefault(write.table, []).append(write)
        known, tags = self.store.tables(), dict[str, frozenset[int]]()
        tables = set(right)
        for group in self.groups:
            tables |= group_tables(self.document, group, known)
            tags |= live_tags(self.document, group)
        views = {view_table(view): view for one in self._groups() for view in one.views}
        for table in sorted(tables):
            found = self._compare(table, right.get(table, []), tags.get(table), views.get(table))
            if found is not None:
                yield found

    def _groups(self) -> list[StagedGroup]:
        return [one for one in catalogs.compile(self.document).shard.view_groups if one.number in self.groups]

    def _compare(
        self, table: str, writes: Sequence[TableWrite], tags: frozenset[int] | None, view: nodes.ViewNode | None
    ) -> Found | None:
        wanted = _Wanted.of(writes)
        parts: list[_Part] = []
        seen = np.zeros(len(wanted.ids), np.bool_)
        for ids, values in self.store.scan(table, 0, BUCKETS, self.epoch + 1):
            at = wanted.index.find(ids)
            there = at >= 0
            seen[at[there]] = True
            if not there.all():
                stored = values.filter(pa.array(~there))
                parts.append((ids[~there], EXTRA, stored, pa.nulls(len(stored), pa.binary())))
            stored, right = values.filter(pa.array(there)), wanted.values.take(pa.array(at[there]))
            wrong = ~np.asarray(pc.equal(stored, right)).astype(np.bool_)
            if tags is not None:
                for number in np.flatnonzero(wrong):
                    wrong[number] = not same_value(stored[number].as_py(), right[number].as_py(), tags)
            if wrong.any():
                mask = pa.array(wrong)
                parts.append((ids[there][wrong], DIFFERENT, stored.filter(mask), right.filter(mask)))
        if not seen.all():
            at = np.flatnonzero(~seen)
            parts.append((wanted.ids[at], MISSING, pa.nulls(len(at), pa.binary()), wanted.values.take(pa.array(at))))
        return self._chosen(table, parts, wanted, view)

    def _chosen(
        self,
        table: str,
        parts: Sequence[_Part],
        wanted: _Wanted,
        view: nodes.ViewNode | None,
    ) -> Found | None:
        if not parts:
            return None
        ids = np.concatenate([part[0] for part in parts])
        problems = [part[1] for part in parts for _ in range(len(part[0]))]
        stored, right = (pa.concat_arrays([part[n] for part in parts]).cast(pa.binary()) for n in (2, 3))
        keys = None if view is None else _keys(view, ids, stored, right, wanted)
        found = Found(table, ids, tuple(problems), stored, right, keys)
        if view is None or view.name != self.view or self.chosen is None:
            return found
        assert keys is not None
        at = np.flatnonzero([self.chosen(key) for key in keys.to_pylist()])
        if not len(at):
            return None
        index = pa.array(at)
        some = tuple(problems[i] for i in at.tolist())
        return Found(table, ids[at], some, stored.take(index), right.take(index), keys.take(index))

    def documents(self, found: Sequence[Found], name: str) -> Iterator[tuple[Repair, bytes]]:
        """What is offered to the leader, part by part."""
        forms = StateForms(catalogs.compile(self.document).shard, self.engine, self.engines)
        rows = [
            Replacement(
                one.table,
                one.ids,
                digests(forms.unpack(one.table, one.stored)),
                forms.unpack(one.table, one.right),
                one.keys,
            )
            for one in found
        ]
        for number, part in enumerate(_parts(rows)):
            data = pack(part)
            yield Repair(repair_document(self.epoch, number, name), wire.digest(data), self.epoch), data


@dataclass(frozen=True)
class _Wanted:
    ids: np.ndarray
    values: pa.BinaryArray
    keys: pa.BinaryArray | None
    index: IdSet

    @classmethod
    def of(cls, writes: Sequence[TableWrite]) -> _Wanted:
        ids = np.concatenate([write.ids for write in writes]) if writes else np.empty((0, 2), np.uint64)
        values = pa.concat_arrays([write.values for write in writes]) if writes else pa.nulls(0, pa.binary())
        keys = [write.keys for write in writes if write.keys is not None]
        return cls(ids, values, pa.concat_arrays(keys) if keys else None, IdSet(ids))


_Part = tuple[np.ndarray, str, pa.Array, pa.Array]
"""Ids, what is wrong with them, what is stored and what is right."""


def _keys(
    view: nodes.ViewNode, ids: np.ndarray, stored: pa.BinaryArray, right: pa.BinaryArray, wanted: _Wanted
) -> pa.BinaryArray:
    """The key of each row: of the one that should be there, or else of the one that is."""
    at = wanted.index.find(ids)
    found: list[bytes] = []
    for number, place in enumerate(at.tolist()):
        if place >= 0 and wanted.keys is not None:
            found.append(wanted.keys[place].as_py())
        else:
            found.append(_key_of(view, ids[number : number + 1], stored.slice(number, 1)))
    return pa.array(found, pa.binary())


def _key_of(view: nodes.ViewNode, ids: np.ndarray, value: pa.BinaryArray) -> bytes:
    """Of a row that nobody made. One that cannot be read has no key that anybody asks for: its id will do."""
    try:
        rows = view_rows(view.schema, ids, value)
        (key,) = key_codec(view.schema, view.key).encode([rows.columns[i].to_arrow() for i in view.key], 1).to_pylist()
        return bytes(key)
    except (BelvedereError, ValueError, IndexError, OverflowError):
        return ids.tobytes()


def _parts(rows: Sequence[Replacement]) -> Iterator[list[Replacement]]:
    """Cut so that no document is too big, and what is replaced together is in one."""
    units: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for number, one in enumerate(rows):
        for at, unit in enumerate(one.units()):
            units.setdefault(unit, []).append((number, at))
    part: dict[int, list[int]] = {}
    count = size = 0
    for places in units.values():
        bytes_ = sum(_size(rows[number], at) for number, at in places)
        if count and (count + len(places) > PART_ROWS or size + bytes_ > PART_BYTES):
            yield _taken(rows, part)
            part, count, size = {}, 0, 0
        for number, at in places:
            part.setdefault(number, []).append(at)
        count, size = count + len(places), size + bytes_
    if part:
        yield _taken(rows, part)


def _size(rows: Replacement, at: int) -> int:
    value = rows.values[at]
    return 64 + (len(value.as_py()) if value.is_valid else 0)


def _taken(rows: Sequence[Replacement], part: Mapping[int, Sequence[int]]) -> list[Replacement]:
    return [rows[number].take(np.array(at)) for number, at in sorted(part.items())]
