"""Writing a frame, or each batch of a stream, into a base table: each row once, whatever is tried again.

Every piece of a task's rows is one write with a name: of the job, the partition, and its number. A task that is tried
again, or runs twice, writes pieces by the same names, and they are not written again. So it is also with a whole job
that is run again with the same option `job`, within the hour for which names are remembered.

Tasks write to a pool by themselves. An embedded database has one writer: tasks leave files, and the driver writes them
when all are done.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import belvedere
from belvedere.errors import Defect
from belvedere.spark.sink.target import Target, connected
from belvedere.spark.source.copies import session_directory


@dataclass
class Written(WriterCommitMessage):
    """What a task did: rows, and for an embedded database the file with each piece and the name of its write."""

    rows: int
    files: tuple[tuple[str, str], ...]


class TableWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """`job`: a name that is the same for repetitions of it."""

    def __init__(self, target: Target, job: str) -> None:
        self._target, self._job = target, job
        self._directory = str(session_directory() / f"staged-{uuid.uuid4().hex}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        if context is None:
            raise Defect("rows are written by tasks of Spark only")
        name = "-".join(["spark", self._job, *_batch_of(context), str(context.partitionId())])
        pieces = ((f"{name}-{number}", rows) for number, rows in enumerate(self._target.pieces(iterator)))
        return self._staged(pieces) if self._target.options.embedded else self._sent(pieces)

    def _sent(self, pieces: Iterator[tuple[str, pa.Table]]) -> Written:
        count = 0
        with connected(self._target.options) as db:
            for name, rows in pieces:
                self._target.write(db, rows, name)
                count += len(rows)
        return Written(count, ())

    def _staged(self, pieces: Iterator[tuple[str, pa.Table]]) -> Written:
        """Each attempt has files of its own; only those of attempts that Spark counts are written."""
        count, files = 0, list[tuple[str, str]]()
        Path(self._directory).mkdir(parents=True, exist_ok=True)
        for name, rows in pieces:
            path = Path(self._directory) / f"{uuid.uuid4().hex}.arrow"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
            files.append((str(path), name))
            count += len(rows)
        return Written(count, tuple(files))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        if self._target.options.embedded:
            files = [one for told in messages if isinstance(told, Written) for one in told.files]
            if files:
                self._write_staged(files)
        self._forget(messages)

    def _write_staged(self, files: Sequence[tuple[str, str]]) -> None:
        with belvedere.open(self._target.options.database) as db:
            for path, name in files:
                with pa.memory_map(path) as source:
                    rows = pa.ipc.open_file(source).read_all()
                    self._target.write(db, rows, name)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int = -1) -> None:
        self._forget(messages)

    def _forget(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Files of the attempts that Spark told of; those of others go with the session."""
        for told in messages:
            for path, _ in told.files if isinstance(told, Written) else ():
                with contextlib.suppress(FileNotFoundError):
                    Path(path).unlink()


def _batch_of(context: TaskContext) -> list[str]:
    """The query and batch of a stream, which are the same when a batch is tried again after a restart."""
    query, batch = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")
    return [query, batch] if query and batch else []
