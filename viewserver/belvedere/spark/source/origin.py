"""Where rows come from: an embedded database or a pool, behind one small class each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from belvedere.errors import DataError
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.spark.source.options import Content, SourceOptions
from belvedere.types import BIGINT, BINARY, INT, STRING, Column, Schema

STORED: Schema = (Column("bucket", INT), Column("id", BINARY), Column("value", BINARY))
"""Columns of DELTA and state, as the store keeps them."""
REASON = Column("reason", STRING)
CHANGE: Schema = (Column("_epoch", BIGINT), Column("_weight", INT))
"""What a stream of changes adds: the epoch of a change, and +1 for a row that appears, -1 for one that disappears."""


@dataclass(frozen=True)
class Described:
    """A relation as it is read: its columns, and its key if its rows can be read by ranges of it."""

    columns: Schema
    codec: KeyCodec | None


class Origin(ABC):
    """A relation of one database."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    @abstractmethod
    def describe(self) -> Described:
        """Its columns, by the catalog."""

    @abstractmethod
    def parts(self, ranges: Sequence[KeyRange] | None, columns: list[str]) -> Sequence[InputPartition]:
        """What tasks are to read, all at one epoch: these ranges of keys (None: everything)."""

    @abstractmethod
    def read(self, part: InputPartition, columns: list[str]) -> Iterator[pa.Table]:
        """Rows of a part, with these columns in this order."""

    @property
    def what(self) -> str:
        content = self.options.content
        return f"{'' if content is Content.ROWS else content.value + ' of '}{self.options.relation!r}"


def open_origin(options: SourceOptions) -> Origin:
    if options.copy:
        from belvedere.spark.source.copies import CopyOrigin

        return CopyOrigin(options)
    if options.embedded:
        from belvedere.spark.source.embedded import EmbeddedOrigin

        return EmbeddedOrigin(options)
    if options.database.startswith(("belvedere://", "belvedere+tls://")):
        from belvedere.spark.source.pool import PoolOrigin

        return PoolOrigin(options)
    raise DataError(
        f"{options.database!r} cannot be read by Spark: give the directory of an embedded database or the URL of a"
        " pool, belvedere://host:port; a gateway's rows would all pass through one process"
    )
