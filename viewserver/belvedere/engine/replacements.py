"""Rows that take the place of damaged ones: what the document of a repair holds.

A replacement is bytes for an id of a table, and the digest of the bytes that were found to be wrong there. It has no
weight: nothing of it goes through operators, where a difference from wrong bytes would make more of them wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.engine.routing import buckets_of
from belvedere.errors import Damaged

_DIGEST_BYTES = 16
_SCHEMA = pa.schema(
    [
        pa.field("table", pa.int32(), nullable=False),
        pa.field("id", pa.binary(16), nullable=False),
        pa.field("seen", pa.binary(_DIGEST_BYTES)),
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("hidden", pa.bool_(), nullable=False),
    ]
)
_PAGES = " pages "


@dataclass(frozen=True, eq=False)
class Replacement:
    """Of one table. `seen`: the digest of each row as it was found (fixed size binary, null: there was no row).
    `values`: null where there is to be no row. `keys`, `hidden`: as in `TableWrite`."""

    table: str
    ids: np.ndarray
    seen: pa.Array
    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    hidden: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, at: np.ndarray) -> Replacement:
        where = pa.array(at)
        return Replacement(
            self.table,
            self.ids[at],
            self.seen.take(where),
            self.values.take(where),
            None if self.keys is None else self.keys.take(where),
            None if self.hidden is None else self.hidden[at],
        )

    def units(self) -> list[tuple[str, int]]:
        """Rows that are replaced together or not at all: a group and its pages. A group tells how many pages it has, so
        one without the other would be a group that nobody can read. Pages lie in the bucket of their group."""
        name = unit_of(self.table)
        return [(name, bucket) for bucket in buckets_of(self.ids).tolist()]


def unit_of(table: str) -> str:
    """The table of the groups whose pages are in a table; else that table."""
    return table.partition(_PAGES)[0]


def digests(values: pa.BinaryArray) -> pa.Array:
    """What tells a stored value from any other; null where there is none."""
    found = [None if value is None else _digest(value) for value in values.to_pylist()]
    return pa.array(found, pa.binary(_DIGEST_BYTES))


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST_BYTES).digest()


def pack(replacements: Sequence[Replacement]) -> bytes:
    """The document of a repair."""
    batches = []
    for number, one in enumerate(replacements):
        count = len(one)
        hidden = np.zeros(count, np.bool_) if one.hidden is None else one.hidden
        columns = [
            pa.array(np.full(count, number, np.int32)),
            pa.array([id.tobytes() for id in np.ascontiguousarray(one.ids)], pa.binary(16)),
            one.seen,
            one.values,
            pa.nulls(count, pa.binary()) if one.keys is None else one.keys,
            pa.array(hidden),
        ]
        batches.append(pa.record_batch(columns, schema=_SCHEMA))
    names = json.dumps([[one.table, one.keys is not None, one.hidden is not None] for one in replacements])
    schema = _SCHEMA.with_metadata({b"tables": names.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(document: bytes) -> list[Replacement]:
    try:
        with pa.ipc.open_stream(pa.py_buffer(document)) as reader:
            tables = json.loads(reader.schema.metadata[b"tables"])
            batches = list(reader)
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise Damaged(f"a document of a repair that cannot be read: {error}") from None
    found = []
    for batch in batches:
        table, keyed, hiding = tables[batch.column(0)[0].as_py()] if len(batch) else ("", False, False)
        ids = np.frombuffer(b"".join(batch.column(1).to_pylist()), np.uint64).reshape(-1, 2)
        hidden = batch.column(5).to_numpy(zero_copy_only=False) if hiding else None
        keys = batch.column(4) if keyed else None
        if len(batch):
            found.append(Replacement(table, ids, batch.column(2), batch.column(3), keys, hidden))
    return found
