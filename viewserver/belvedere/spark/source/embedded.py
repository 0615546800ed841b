"""Reading an embedded database: at one epoch, by the planning process, into files for the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import belvedere
from belvedere.errors import DataError, EpochExpired
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.spark.source.copies import parts_of, read_copy, session_directory, write_copy
from belvedere.spark.source.options import Content
from belvedere.spark.source.origin import CHANGE, REASON, Described, Origin
from belvedere.spark.source.partitions import CopiedPart
from belvedere.sql.catalog import TableDef, ViewDef
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.embedded.reader import Reader


class EmbeddedOrigin(Origin):
    def _open(self) -> Reader:
        return belvedere.open(self.options.database, read_only=True)

    def _relation(self, db: Reader) -> TableDef | ViewDef:
        relation, content = db.catalog.relation(self.options.relation), self.options.content
        if content is Content.STATE:
            raise DataError(
                f"state of {self.options.database!r} cannot be read: an embedded database has it in the memory of its"
                " writing process only; base tables and views can be read"
            )
        if content in (Content.QUARANTINE, Content.CHANGES) and isinstance(relation, TableDef):
            raise DataError(f"{relation.name!r} is a base table; {content.value} are of views only")
        if content is Content.DELTA and isinstance(relation, ViewDef):
            raise DataError(f"{relation.name!r} is a view; DELTA holds base tables")
        return relation

    def describe(self) -> Described:
        with self._open() as db:
            relation = self._relation(db)
            if self.options.content is Content.QUARANTINE:
                return Described((*relation.columns, REASON), None)
            if self.options.content is Content.CHANGES:
                return Described((*relation.columns, *CHANGE), None)
            return Described(relation.columns, KeyCodec(_nullable(db, relation.name)))

    def parts(self, ranges: Sequence[KeyRange] | None, columns: list[str]) -> Sequence[InputPartition]:
        if self.options.buckets is not None:
            raise DataError("option 'buckets' is for pools; an embedded database has no buckets: filter by key instead")
        with self._open() as db:
            relation = self._relation(db)
            if self.options.content is Content.QUARANTINE:
                table = db.quarantine(relation.name)
            elif ranges is None and self.options.as_of is None:
                # all of it in no order: one would have to be built
                table = db.together({relation.name})[1][relation.name].select(columns)
            elif isinstance(relation, TableDef):
                table = self._base(db, relation, ranges, columns)
            else:
                table = self._view(db, relation, ranges, columns)
        return parts_of(write_copy(session_directory(), table), self.options.partitions)

    def _base(self, db: Reader, table: TableDef, ranges: Sequence[KeyRange] | None, columns: list[str]) -> pa.Table:
        """One read of what lies between the first and the last range: two would be at two epochs."""
        if ranges is not None and not ranges:
            return db.scan(table.name, limit=0, columns=columns)
        span = KeyRange() if ranges is None else KeyRange(ranges[0].low, ranges[-1].high)
        epoch, rows = db.read_range(table.name, span, columns=columns)
        wanted = self.options.as_of
        if wanted is not None and wanted != epoch:
            raise EpochExpired(
                f"table {table.name!r} cannot be read at epoch {wanted}, its newest is {epoch}: an embedded database"
                " keeps older epochs of views only; belvedere.spark.moments.open_moment copies several relations at one"
            )
        return rows

    def _view(self, db: Reader, view: ViewDef, ranges: Sequence[KeyRange] | None, columns: list[str]) -> pa.Table:
        with db.snapshot(self.options.as_of) as snapshot:
            at = snapshot.epoch
            wanted = [KeyRange()] if ranges is None else ranges
            found = [db.read_range(view.name, one, columns=columns, at=at)[1] for one in wanted]
            return pa.concat_tables(found) if found else db.scan(view.name, limit=0, columns=columns)

    def read(self, part: InputPartition, columns: list[str]) -> Iterator[pa.Table]:
        assert isinstance(part, CopiedPart)
        yield from read_copy(part, columns)


def _nullable(db: Reader, name: str) -> list[Column]:
    """Columns of the key in the form that keys have everywhere."""
    return [Column(c.name, c.type) for c in db.key_columns(name)]
