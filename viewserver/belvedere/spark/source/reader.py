"""A batch read: which columns, which keys, and the rows of each part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from belvedere.errors import DataError
from belvedere.model import order
from belvedere.model.ranges import KeyRange
from belvedere.spark.source.filters import key_ranges
from belvedere.spark.source.options import SourceOptions
from belvedere.spark.source.origin import Described, open_origin
from belvedere.spark.source.schema import batches, chosen
from belvedere.types import Column, Kind


class RelationReader(DataSourceReader):
    """It is sent to the tasks with the ranges that are read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._described = open_origin(options).describe()
        self._columns = chosen(self._described.columns, schema, open_origin(options).what)
        self._ranges = asked_ranges(self._described, options)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_described": None}  # tasks need no codec, and it holds functions

    def partitions(self) -> Sequence[InputPartition]:
        found = list(open_origin(self._options).parts(self._ranges, self._columns))
        return found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if type(partition) is InputPartition:  # nothing passes
            return
        for table in open_origin(self._options).read(partition, self._columns):
            yield from batches(table, self._schema)


class PushingReader(RelationReader):
    """A reader that narrows what it reads by the filters of the query.

    Only for frames that one query uses, once. Spark (4.3 at least) keeps the plan of a Python source's read with the
    frame, filters included: the next query over the frame reads what the last filters left, and both sides of a union
    of one frame read what the second one's did. So it is not done unless somebody asks for it, and `prefix`, `start`
    and `stop`, which belong to the frame, are the safe way.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        codec = self._described.codec
        if codec is not None and self._ranges is None:
            self._ranges = key_ranges(codec, filters)
        return filters  # a range is only where to look: Spark evaluates them all


def asked_ranges(described: Described, options: SourceOptions) -> list[KeyRange] | None:
    """The range that options name; None: all keys."""
    if not (options.prefix or options.start or options.stop):
        return None
    owner = repr(options.relation)
    if described.codec is None:
        raise DataError(f"{options.content.value} of {owner} has no order of keys; leave prefix, start and stop out")
    if options.prefix and (options.start or options.stop):
        raise DataError("options 'prefix' and 'start' or 'stop' name two ranges; give one of them")
    codec = described.codec
    values = [
        [_value(v, c) for v, c in zip(given, codec.columns, strict=False)] + list(given[len(codec.columns) :])
        for given in (options.prefix, options.start, options.stop)
    ]
    if options.prefix:
        return [order.prefix_range(codec, values[0], None, False, owner)]
    return [order.key_range(codec, values[1] or None, values[2] or None, None, False, owner)]


def _value(value: Any, column: Column) -> Any:
    """What JSON has no form for comes as text."""
    try:
        match column.type.kind, value:
            case Kind.DATE, str():
                return date.fromisoformat(value)
            case Kind.TIMESTAMP, str():
                return datetime.fromisoformat(value)
            case Kind.DECIMAL, str():
                return Decimal(value)
            case Kind.DOUBLE, str():
                return float(value)
            case Kind.BINARY, str():
                return bytes.fromhex(value)
    except (ValueError, ArithmeticError) as error:
        raise DataError(f"key column {column.name!r} is {column.type}: {value!r} does not fit") from error
    return value
