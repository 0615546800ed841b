"""A part of a build as a query of Spark: rows that earlier parts sent go to the slices that they are for, each task
computes the slices that are its own, and what it sends on is what the query returns.

    ids 0 … N-1 ─┐
                 ├─ shuffle by slice, sort ─▶ mapInArrow: a shard of the engine per slice ─▶ (target, stage, payload)
    sent before ─┘                                     └──▶ state and rows of views, into the store
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from belvedere.engine.exchange import Outgoing
from belvedere.spark.build.task import Job, Worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENT = "target int, stage int, payload binary"
_SCHEMA = pa.schema([("target", pa.int32()), ("stage", pa.int32()), ("payload", pa.binary())])
BATCH_BYTES = 8 << 20


def part_frame(spark: SparkSession, job: Job, at: int, sent: DataFrame | None) -> DataFrame:
    """What a part sends on; its tasks run when somebody asks. `sent`: what all parts before it sent."""
    slices = spark.range(0, job.slices, 1, job.slices).selectExpr(
        "CAST(id AS int) AS target", "-1 AS stage", "CAST(NULL AS binary) AS payload"
    )
    if sent is None:
        return slices.mapInArrow(_slices(job, at), SENT)
    # A slice that nothing was sent to has work to do all the same.
    rows = slices.unionByName(sent).repartitionById(job.slices, "target")
    return rows.sortWithinPartitions("target", "stage").mapInArrow(_slices(job, at), SENT)


def _slices(job: Job, at: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        worker = Worker(job)
        try:
            for number, payloads in _by_target(batches):
                sent: list[Outgoing] = []
                worker.run(at, number, payloads, sent.append)
                for _ in payloads:
                    pass  # what was not asked for
                yield from _batches(sent)
        finally:
            worker.close()

    return run


def _by_target(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Payloads of one slice after the other. Each is taken before the next one is asked for."""
    rows = _rows(batches)
    waiting = next(rows, None)

    def payloads(target: int) -> Iterator[bytes]:
        nonlocal waiting
        while waiting is not None and waiting[0] == target:
            payload, waiting = waiting[1], next(rows, None)
            if payload is not None:
                yield payload

    while waiting is not None:
        yield waiting[0], payloads(waiting[0])


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes | None]]:
    for batch in batches:
        targets = batch.column(0).to_pylist()
        payloads = batch.column(2)
        for row, target in enumerate(targets):
            yield target, payloads[row].as_py()


def _batches(sent: list[Outgoing]) -> Iterator[pa.RecordBatch]:
    """In pieces that Spark can hold with ease."""
    waiting: list[Outgoing] = []
    size = 0
    for out in sent:
        waiting.append(out)
        size += len(out.payload)
        if size >= BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(sent: list[Outgoing]) -> pa.RecordBatch:
    columns = ([out.target for out in sent], [out.stage for out in sent], [out.payload for out in sent])
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
