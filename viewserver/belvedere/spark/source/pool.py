"""Reading a pool: tasks read buckets, or ranges of keys, from its store, at one epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from belvedere.backend.scanning import Piece
from belvedere.cluster.catalog.names import Readable, ReadableView, ServedTable
from belvedere.cluster.client.connecting import connect
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.epochs import Known
from belvedere.cluster.client.quarantine import with_reasons
from belvedere.cluster.client.reading import decode
from belvedere.errors import DataError, EpochExpired
from belvedere.model.keys import KeyCodec, key_codec
from belvedere.model.ranges import KeyRange
from belvedere.model.shapes import to_table
from belvedere.plan.table_names import quarantine_table
from belvedere.protocol.ring import BUCKETS, buckets_of
from belvedere.spark.engines import require_engine
from belvedere.spark.source.options import Content, SourceOptions
from belvedere.spark.source.origin import CHANGE, REASON, STORED, Described, Origin
from belvedere.spark.source.partitions import BucketPart, RangePart, slices

ROWS_OF_A_TASK = 50_000
"""Fewer rows are not worth a task of their own."""


def connected(options: SourceOptions) -> ClusterDatabase:
    return connect(options.database, **options.files)  # type: ignore[arg-type]  # files of TLS, all of them texts


class PoolOrigin(Origin):
    def _known(self, db: ClusterDatabase, epoch: int | None) -> Known:
        deadline = db.deadline()
        return db.epochs.newest(deadline) if epoch is None else db.epochs.exactly(epoch, deadline)

    def _served(self, db: ClusterDatabase, known: Known) -> Readable:
        served, content = db.epochs.named(self.options.relation, known.committed, db.deadline()), self.options.content
        if content in (Content.QUARANTINE, Content.CHANGES) and isinstance(served, ServedTable):
            raise DataError(f"{served.name!r} is a base table; {content.value} are of views only")
        if content is Content.DELTA and isinstance(served, ReadableView):
            raise DataError(f"{served.name!r} is a view; DELTA holds base tables")
        return served

    def describe(self) -> Described:
        if self.options.content is Content.STATE:
            return Described(STORED, None)
        with connected(self.options) as db:
            served = self._served(db, self._known(db, self.options.as_of))
            shape = served.shape
            columns = shape.schema[: shape.visible]
            match self.options.content:
                case Content.DELTA:
                    return Described(STORED, None)
                case Content.QUARANTINE:
                    return Described((*columns, REASON), None)
                case Content.CHANGES:
                    return Described((*columns, *CHANGE), None)
            return Described(columns, KeyCodec(key_codec(shape.schema, shape.key).columns))

    def _table(self, db: ClusterDatabase, known: Known) -> str:
        """The store's table that is read."""
        if self.options.content is Content.STATE:
            tables = db.stores(db.deadline()).usage()
            if self.options.relation not in tables:
                raise DataError(
                    f"the pool's store has no table {self.options.relation!r}; it has {', '.join(sorted(tables))}"
                )
            return self.options.relation
        served = self._served(db, known)
        return quarantine_table(served.shape) if self.options.content is Content.QUARANTINE else served.rows_table

    def parts(self, ranges: Sequence[KeyRange] | None, columns: list[str]) -> Sequence[InputPartition]:
        with connected(self.options) as db:
            known = self._known(db, self.options.as_of)
            if ranges is not None:
                each = slices(0, len(ranges), self.options.partitions) if ranges else []
                return [RangePart(known.epoch, tuple(ranges[a:b])) for a, b in each]
            versions = db.stores(db.deadline()).usage().get(self._table(db, known), 0)
            count = min(self.options.partitions, max(1, -(-versions // ROWS_OF_A_TASK)))
            first, stop = self.options.buckets or (0, BUCKETS)
            if stop > BUCKETS:
                raise DataError(f"option 'buckets' ends at {BUCKETS}; found {first}:{stop}")
            return [BucketPart(known.epoch, a, b) for a, b in slices(first, stop, count)]

    def read(self, part: InputPartition, columns: list[str]) -> Iterator[pa.Table]:
        assert isinstance(part, BucketPart | RangePart)
        require_engine(self.options.engine)
        with connected(self.options) as db:
            deadline = db.deadline()
            try:
                pin = db.pins.pin(part.epoch, deadline)
                try:
                    yield from self._rows(db, part, columns)
                    db.require_kept(part.epoch)
                finally:
                    db.pins.unpin(pin)
            except EpochExpired as error:
                raise EpochExpired(
                    f"{error}; hold the epoch while Spark reads with db.snapshot() and its option 'asOf', or with"
                    " belvedere.spark.moments.open_moment"
                ) from error

    def _rows(self, db: ClusterDatabase, part: BucketPart | RangePart, columns: list[str]) -> Iterator[pa.Table]:
        known = db.epochs.exactly(part.epoch, db.deadline())
        if isinstance(part, RangePart):
            served = self._served(db, known)
            codec = key_codec(served.shape.schema, served.shape.key)
            for one in part.ranges:
                rows = db.rows.range(served, codec, one, part.epoch, db.deadline())
                yield to_table(served.shape, rows).select(columns)
            return
        table = self._table(db, known)
        pieces = db.stores(db.deadline()).scan(table, part.first, part.stop, part.epoch + 1)
        if self.options.content in (Content.STATE, Content.DELTA):
            yield from (_stored(piece).select(columns) for piece in pieces)
            return
        served = self._served(db, known)
        for ids, values in pieces:
            if self.options.content is Content.QUARANTINE:
                assert isinstance(served, ReadableView)
                yield with_reasons(served.shape, values).select(columns)
            else:
                yield to_table(served.shape, decode(served, ids, values)).select(columns)


def _stored(piece: Piece) -> pa.Table:
    ids, values = piece
    raw = np.ascontiguousarray(ids.astype("<u8")).tobytes()
    named = pa.array([raw[16 * i : 16 * i + 16] for i in range(len(ids))], pa.binary())
    return pa.table({"bucket": pa.array(buckets_of(ids).astype(np.int32)), "id": named, "value": values})
