"""`format("belvedere")`: base tables, views, DELTA, state and quarantine as data frames."""

from __future__ import annotations

import uuid

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from belvedere.errors import DataError
from belvedere.spark.sink.target import open_target
from belvedere.spark.sink.writer import TableWriter
from belvedere.spark.source.options import Content, read_options
from belvedere.spark.source.origin import open_origin
from belvedere.spark.source.reader import PushingReader, RelationReader
from belvedere.spark.source.schema import spark_schema
from belvedere.spark.stream.reader import ChangesReader


class BelvedereSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "belvedere"

    def schema(self) -> StructType:
        return spark_schema(open_origin(read_options(self.options)).describe().columns)

    def streamReader(self, schema: StructType) -> ChangesReader:
        options = read_options(self.options)
        if options.content is not Content.CHANGES:
            raise DataError("a stream is of the changes of a view: option('content', 'changes')")
        return ChangesReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        if overwrite:
            raise DataError("mode 'overwrite' would delete what it does not name; rows are put by key: mode('append')")
        options = read_options(self.options)
        return TableWriter(open_target(options, schema), options.job or uuid.uuid4().hex)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TableWriter:
        if overwrite:
            raise DataError("output mode 'complete' would delete what it does not name; use 'append' or 'update'")
        options = read_options(self.options)
        return TableWriter(open_target(options, schema), options.job or "stream")

    def reader(self, schema: StructType) -> RelationReader:
        options = read_options(self.options)
        if options.content is Content.CHANGES:
            raise DataError("changes are a stream: spark.readStream.format('belvedere'), not spark.read")
        return (PushingReader if options.pushdown else RelationReader)(options, schema)
