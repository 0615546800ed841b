"""What is written, and how: the table, its columns, and the names under which parts of a job can be repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BooleanType, StructType

import belvedere
from belvedere.cluster.client.connecting import connect
from belvedere.errors import CatalogError, DataError, RequestReused
from belvedere.model.keys import key_codec
from belvedere.model.order import positions
from belvedere.spark.source.options import Content, SourceOptions
from belvedere.spark.source.schema import chosen
from belvedere.sql.catalog import TableDef

PIECE_ROWS = 1 << 15
"""Rows of one write, which is atomic and has a name."""


@dataclass(frozen=True)
class Target:
    """A base table as a job writes it. It is sent to the tasks."""

    options: SourceOptions
    table: TableDef
    columns: tuple[str, ...]
    """Of the rows that are written, in their order; the column that says what is deleted is left out."""
    deletes: str
    schema: pa.Schema = field(compare=False)

    def pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """The rows of one task in pieces that are the same whenever the same rows are written: in the order of their
        keys, so in whatever order a repetition of the task meets them."""
        found = [_typed(pa.Table.from_batches([batch]), self) for batch in batches if batch.num_rows]
        if not found:
            return
        rows = pa.concat_tables(found).combine_chunks()
        keys = self._keys(rows)
        order = pa.compute.sort_indices(keys)
        rows, keys = rows.take(order), keys.take(order)
        same = pa.compute.equal(keys.slice(0, len(keys) - 1), keys.slice(1)) if len(keys) > 1 else pa.array([False])
        if pa.compute.any(same).as_py():
            twice = rows.slice(pa.compute.index(same, True).as_py(), 1).select(self.table.key).to_pylist()[0]
            raise DataError(f"two rows for the key {twice} of table {self.table.name!r}: which one wins is not said")
        for start in range(0, len(rows), PIECE_ROWS):
            yield rows.slice(start, PIECE_ROWS)

    def _keys(self, rows: pa.Table) -> pa.BinaryArray:
        codec = key_codec(self.table.columns, self.table.key_positions)
        arrays = [rows.column(name).combine_chunks() for name in self.table.key]
        for name, array in zip(self.table.key, arrays, strict=True):
            if array.null_count:
                raise DataError(
                    f"a key column of table {self.table.name!r} is never NULL; column {name!r} is, in a row"
                )
        return codec.encode([a.chunk(0) if isinstance(a, pa.ChunkedArray) else a for a in arrays], len(rows))

    def write(self, db: Any, rows: pa.Table, name: str) -> None:
        """One piece, once, whoever else writes it by this name."""
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, rows.schema) as stream:
            stream.write_table(rows)
        request = f"{name}:{hashlib.blake2b(buffer.getvalue(), digest_size=16).hexdigest()}"
        try:
            if self.deletes:
                marks = rows.column(self.deletes).fill_null(False).to_numpy()
                db.write(self.table.name, rows.select(list(self.columns)), deletes=marks, request=request)
            else:
                db.put(self.table.name, rows, request=request)
        except RequestReused as error:
            raise RequestReused(
                f"a task of the job wrote other rows when it was tried before ({error}): the rows of a job have to be"
                " the same whenever they are computed; write them to a file first, and that to the table"
            ) from error


def open_target(options: SourceOptions, schema: StructType) -> Target:
    """Checked against the catalog, before any task starts."""
    if options.content is not Content.ROWS or options.copy:
        raise DataError("rows are written to base tables; leave the option 'content' out")
    if options.embedded:
        with belvedere.open(options.database, read_only=True) as db:
            relation = db.catalog.relation(options.relation)
    else:
        with connected(options) as db:
            relation = db.catalog.relation(options.relation)
    if not isinstance(relation, TableDef):
        raise CatalogError(f"{relation.name!r} is a view; rows are written to base tables")
    if relation.origin is not None:
        raise CatalogError(f"table {relation.name!r} belongs to another system, and is written there")
    what = f"table {relation.name!r}"
    deletes = _deletes(options, schema)
    rows = StructType([f for f in schema.fields if f.name != deletes])
    names = chosen(relation.columns, rows, what)
    missing = [k for k in relation.key if k not in names]
    if missing:
        raise DataError(f"{what} has the key ({', '.join(relation.key)}); the rows have no column {missing[0]!r}")
    types = [relation.columns[i].type.arrow for i in positions(relation.columns, names, what)]
    fields = [pa.field(name, type) for name, type in zip(names, types, strict=True)]
    if deletes:
        fields.append(pa.field(deletes, pa.bool_()))
    return Target(options, relation, tuple(names), deletes, pa.schema(fields))


def connected(options: SourceOptions) -> Any:
    if options.database.startswith(("http://", "https://")):
        return belvedere.connect(options.database, **options.files)  # type: ignore[arg-type]  # files of TLS
    return connect(options.database, **options.files)  # type: ignore[arg-type]


def _deletes(options: SourceOptions, schema: StructType) -> str:
    if not options.deletes:
        return ""
    found = next((f for f in schema.fields if f.name.lower() == options.deletes.lower()), None)
    if found is None or not isinstance(found.dataType, BooleanType):
        raise DataError(f"option 'deletes' names a boolean column of the rows; {options.deletes!r} is none")
    return found.name


def _typed(rows: pa.Table, target: Target) -> pa.Table:
    """Columns by the table's names and types (Spark has a time zone of its own for timestamps)."""
    by_name = {name.lower(): name for name in rows.column_names}
    arrays = [rows.column(by_name[f.name.lower()]).cast(f.type) for f in target.schema]
    return pa.Table.from_arrays(arrays, schema=target.schema)
