"""The changes of a view as a stream: an offset is an epoch, so a batch is what happened between two epochs.

The rows of a batch are a function of its two epochs. Spark writes both down before it computes a batch; computed again,
after a crash as well, it has the same rows. The history between them has to be there: the running query pins it; for a
query that stands still it is the retention of the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import belvedere
from belvedere.errors import DataError
from belvedere.spark.source.options import SourceOptions
from belvedere.spark.source.origin import open_origin
from belvedere.spark.source.pool import connected
from belvedere.spark.source.schema import batches, chosen

NOW, ROWS = "now", "rows"
_EPOCH = "epoch"


@dataclass
class ChangesPart(InputPartition):
    """What happened after `start` up to `end`; a start of 0: all rows at `end`."""

    start: int
    end: int


class ChangesReader(DataSourceStreamReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        origin = open_origin(options)
        self._columns = chosen(origin.describe().columns, schema, origin.what)
        self._database: Any = None
        self._pin: Any = None
        self._held_epoch = 0

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_database": None, "_pin": None}

    def _open(self) -> Any:
        return (
            belvedere.open(self._options.database, read_only=True)
            if self._options.embedded
            else connected(self._options)
        )

    def _held(self, epoch: int) -> Any:
        """The database of the driver, which keeps what came after an epoch."""
        if self._database is None:
            self._database = self._open()
        if epoch and epoch != self._held_epoch:
            before, self._pin = self._pin, self._database.snapshot(epoch)
            self._held_epoch = epoch
            if before is not None:
                before.close()
        return self._database

    def initialOffset(self) -> dict[str, int]:
        starting = self._options.starting
        if starting == ROWS:
            return {_EPOCH: 0}
        if starting == NOW:
            return {_EPOCH: self._held(0).epoch}
        if not starting.isdecimal():
            raise DataError(f"option 'starting' is now, rows or an epoch; found {starting!r}")
        return {_EPOCH: int(starting)}

    def latestOffset(self, *given: Any) -> dict[str, int]:
        """Spark 4.1 gives nothing, later ones the start of the batch and a limit; a batch has no limit here."""
        start = int(given[0][_EPOCH]) if given and given[0] else 0
        return {_EPOCH: max(start, self._held(start).epoch)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [ChangesPart(start[_EPOCH], end[_EPOCH])] if start[_EPOCH] < end[_EPOCH] else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangesPart)
        with self._open() as db:
            for table in _changes(db, self._options.relation, partition):
                yield from batches(table.select(self._columns), self._schema)

    def commit(self, end: dict[str, int]) -> None:
        self._held(end[_EPOCH])

    def stop(self) -> None:
        if self._pin is not None:
            self._pin.close()
        if self._database is not None:
            self._database.close()
        self._pin = self._database = None


def _changes(db: Any, view: str, part: ChangesPart) -> Iterator[pa.Table]:
    if not part.start:
        with db.snapshot(part.end) as moment:
            rows = moment.scan(view)
        yield _marked(rows, part.end, pa.array([1] * len(rows), pa.int32()))
        return
    with db.subscribe(view, after=part.start) as subscription:
        for change in subscription.until(part.end):
            yield _marked(change.table, change.epoch, pa.array(change.weights).cast(pa.int32()))


def _marked(rows: pa.Table, epoch: int, weight: pa.Array) -> pa.Table:
    epochs = pa.array([epoch] * len(rows), pa.int64())
    return rows.append_column("_epoch", epochs).append_column("_weight", weight)
