"""Rows of an embedded database as files that the tasks of this machine read.

The tables of an embedded database are in the memory of each process that reads it. If every task opened it, each
would load all of it, at an epoch of its own. So the planning process reads it once, at one epoch, and writes what was
asked for as Arrow files; tasks map them. They lie among the session's temporary files, which Spark removes with it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from belvedere.model.ranges import KeyRange
from belvedere.spark.source.origin import Described, Origin
from belvedere.spark.source.partitions import CopiedPart, slices
from belvedere.spark.source.schema import BATCH_ROWS
from belvedere.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Column,
    Schema,
    Type,
    decimal,
)


def write_copy(directory: Path, table: pa.Table) -> Path:
    """A new file with these rows."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{uuid.uuid4().hex}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=BATCH_ROWS)
    return path


def parts_of(path: Path, count: int) -> list[CopiedPart]:
    with pa.memory_map(str(path)) as file:
        batches = pa.ipc.open_file(file).num_record_batches
    return [CopiedPart(str(path), first, stop) for first, stop in slices(0, batches, count)] if batches else []


def read_copy(part: CopiedPart, columns: list[str]) -> Iterator[pa.Table]:
    with pa.memory_map(part.path) as source:
        file = pa.ipc.open_file(source)
        for number in range(part.first, part.stop):
            yield pa.Table.from_batches([file.get_batch(number)]).select(columns)


class CopyOrigin(Origin):
    """Rows that were copied before (`belvedere.spark.moments`)."""

    def describe(self) -> Described:
        with pa.memory_map(self.options.copy) as file:
            return Described(columns_of(pa.ipc.open_file(file).schema), None)

    def parts(self, ranges: Sequence[KeyRange] | None, columns: list[str]) -> Sequence[InputPartition]:
        return parts_of(Path(self.options.copy), self.options.partitions)

    def read(self, part: InputPartition, columns: list[str]) -> Iterator[pa.Table]:
        assert isinstance(part, CopiedPart)
        yield from read_copy(part, columns)


def columns_of(schema: pa.Schema) -> Schema:
    """The columns of a table that we wrote."""
    return tuple(Column(field.name, _type_of(field.type)) for field in schema)


def _type_of(type: pa.DataType) -> Type:
    if pa.types.is_decimal128(type):
        return decimal(type.precision, type.scale)
    return next(known for known in _PLAIN if known.arrow == type)


_PLAIN = (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP, NULL)


def session_directory() -> Path:
    """Where files of the running session belong, which go with it."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / "belvedere" / str(os.getpid())
