"""Types of columns in Spark's words, exactly, and batches in the form that Spark takes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from belvedere.errors import DataError
from belvedere.types import Kind, Schema, Type

_TYPES: dict[Kind, spark.DataType] = {
    Kind.BOOLEAN: spark.BooleanType(),
    Kind.INT: spark.IntegerType(),
    Kind.BIGINT: spark.LongType(),
    Kind.DOUBLE: spark.DoubleType(),
    Kind.STRING: spark.StringType(),
    Kind.BINARY: spark.BinaryType(),
    Kind.DATE: spark.DateType(),
    Kind.TIMESTAMP: spark.TimestampType(),
    Kind.NULL: spark.NullType(),
}
BATCH_ROWS = 1 << 16


def spark_type(type: Type) -> spark.DataType:
    if type.kind is Kind.DECIMAL:
        return spark.DecimalType(type.precision, type.scale)
    return _TYPES[type.kind]


def spark_schema(columns: Schema) -> spark.StructType:
    """All of them nullable: what a key column says of NULL binds those who write, and Spark drops it in most plans."""
    return spark.StructType([spark.StructField(c.name, spark_type(c.type), True) for c in columns])


def chosen(columns: Schema, wanted: spark.StructType, what: str) -> list[str]:
    """The names of the columns that a schema asks for, in its order. Spark passes on the schema of `load` or of the
    user, who so chooses columns; another type would be a cast that nobody wrote."""
    known = {c.name.lower(): c for c in columns}
    names = []
    for field in wanted.fields:
        column = known.get(field.name.lower())
        if column is None:
            raise DataError(f"{what} has no column {field.name!r}; it has {', '.join(c.name for c in columns)}")
        if field.dataType != spark_type(column.type):
            told = field.dataType.simpleString()
            raise DataError(f"column {column.name!r} of {what} is {column.type}, not {told}; cast it after reading")
        names.append(column.name)
    return names


def batches(table: pa.Table, schema: spark.StructType) -> Iterator[pa.RecordBatch]:
    """The columns of a table, which stand in the schema's order, as batches that Spark takes without a look at them."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = [c.cast(f.type) if c.type != f.type else c for c, f in zip(table.columns, wanted, strict=True)]
    yield from pa.Table.from_arrays(columns, schema=wanted).to_batches(max_chunksize=BATCH_ROWS)
