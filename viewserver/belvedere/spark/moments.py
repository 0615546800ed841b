"""Several relations at one epoch, as data frames, for as long as the moment is held.

A pool keeps what an epoch sees while a pin is held: a moment holds one and names its epoch to each read. An embedded
database keeps older epochs of views only; so a moment copies what is needed in one step, and frames read the copies.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import belvedere
from belvedere.cluster.catalog.names import ServedTable
from belvedere.cluster.client.connecting import connect
from belvedere.cluster.client.quarantine import unreadable
from belvedere.embedded.statements import Statements
from belvedere.errors import DataError
from belvedere.spark.engines import UNTOLD, require_engine
from belvedere.spark.source.copies import write_copy
from belvedere.sql.catalog import Catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Moment(Protocol):
    """An epoch, held."""

    @property
    def epoch(self) -> int: ...
    @property
    def catalog(self) -> Catalog: ...
    def frame(self, relation: str) -> DataFrame:
        """All rows of a table or view."""

    def quarantined(self, view: str) -> int:
        """How many rows of it are in quarantine."""

    def unreadable(self, table: str) -> tuple[int, int]:
        """How many rows of a base table, and how many cells of its other rows, cannot be read."""

    def close(self) -> None: ...


def open_moment(spark: SparkSession, database: Any, relations: Iterable[str], **access: str) -> Moment:
    """The newest epoch of a database (a directory, a URL, or one that is open), of which these relations are read."""
    if isinstance(database, Statements):
        return CopiedMoment(spark, database, relations)
    if not isinstance(database, str | os.PathLike):
        raise DataError("give the URL of the pool: tasks of Spark open connections of their own")
    if "://" not in str(database):
        with belvedere.open(database, read_only=True) as reader:
            return CopiedMoment(spark, reader, relations)
    if not str(database).startswith(("belvedere://", "belvedere+tls://")):
        raise DataError(f"{database!r} cannot be read by Spark: give a directory or the URL of a pool, belvedere://…")
    return PinnedMoment(spark, str(database), access)


class CopiedMoment:
    """Relations of an embedded database, copied."""

    def __init__(self, spark: SparkSession, database: Statements, relations: Iterable[str]) -> None:
        self._spark, self.catalog = spark, database.catalog
        names = {self.catalog.relation(name).name for name in relations}
        self.epoch, tables, self._failed = database.together(names)
        self._directory = tempfile.TemporaryDirectory(prefix="belvedere-spark-")
        self._files = {name: write_copy(Path(self._directory.name), table) for name, table in tables.items()}

    def frame(self, relation: str) -> DataFrame:
        options = {"database": "copy", "relation": relation, "copy": str(self._files[relation])}
        return self._spark.read.format("belvedere").options(**options).load()

    def quarantined(self, view: str) -> int:
        return self._failed.get(view, 0)

    def unreadable(self, table: str) -> tuple[int, int]:
        return 0, 0  # what its users write is what it holds

    def close(self) -> None:
        self._directory.cleanup()


class PinnedMoment:
    """An epoch of a pool, kept by a pin of this process."""

    def __init__(self, spark: SparkSession, url: str, access: Mapping[str, str]) -> None:
        self._spark, self._options = spark, {"database": url, **access}
        self._database = connect(url, **access)  # type: ignore[arg-type]  # files of TLS, all of them texts
        try:
            engine = int(self._database.status().get("engine") or UNTOLD)
            require_engine(engine)
            self._options["engine"] = str(engine)
            self._snapshot = self._database.snapshot()
        except BaseException:
            self._database.close()
            raise
        self.epoch = self._snapshot.epoch
        self.catalog = self._snapshot.catalog

    def _read(self, relation: str, **options: Any) -> DataFrame:
        return self._spark.read.format("belvedere").options(asOf=self.epoch, **self._options, **options).load(relation)

    def frame(self, relation: str) -> DataFrame:
        return self._read(relation)

    def quarantined(self, view: str) -> int:
        return self._read(view, content="quarantine").count()

    def unreadable(self, table: str) -> tuple[int, int]:
        database = self._database
        deadline = database.deadline()
        known = database.epochs.exactly(self.epoch, deadline)
        served = database.epochs.named(table, known.committed, deadline)
        if not isinstance(served, ServedTable) or served.definition.origin is None:
            return 0, 0
        found = unreadable(database.stores(deadline), served, self.epoch)
        cells = found["row_key"].null_count
        return found.num_rows - cells, cells

    def close(self) -> None:
        self._snapshot.close()
        self._database.close()


@dataclass(frozen=True)
class NamedFrames:
    """Frames of a moment under names of their own in Spark SQL, until they are let go."""

    spark: SparkSession
    moment: Moment
    names: dict[str, str]

    @staticmethod
    def of(spark: SparkSession, moment: Moment) -> NamedFrames:
        return NamedFrames(spark, moment, {})

    def __call__(self, relation: str) -> str:
        if relation not in self.names:
            self.names[relation] = self.add(self.moment.frame(relation))
        return self.names[relation]

    def add(self, frame: DataFrame) -> str:
        name = f"belvedere_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self.names[f"\0{name}"] = name
        return name

    def close(self) -> None:
        for name in set(self.names.values()):
            self.spark.catalog.dropTempView(name)
