"""What a task of a build does: one slice of one part, read from the pool's store and written to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite, write_groups
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.aside import AsideBuild
from belvedere.cluster.client.connecting import connect
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.roles.recomputing import StateForms
from belvedere.cluster.roles.work import encode_keys
from belvedere.engine.exchange import Outgoing
from belvedere.engine.parts import Part
from belvedere.engine.recomputation import Means, Recipe, compute
from belvedere.engine.shard import ShardCatalog
from belvedere.errors import Damaged
from belvedere.spark.engines import require_engine

SECONDS = 120.0
"""That one call to the store may take: who waits for it is not a person."""
LONGEST_REST_S = 5.0


@dataclass(frozen=True)
class Job:
    """A build as every task knows it. `document`: the name of the catalog that it was begun with; `engine`: the
    pool's."""

    url: str
    access: dict[str, str]
    build: AsideBuild
    document: str
    engine: int
    slices: int
    memory_limit: int = 512 << 20

    def recipe(self, catalog: ShardCatalog) -> Recipe:
        """What older view groups have at that epoch is in the store."""
        return Recipe(catalog, frozenset([self.build.view_group]), self.build.since, self.slices, below=False)


class PoolState:
    """The pool's store, as a shard reads it; each call has its own time."""

    def __init__(self, db: ClusterDatabase) -> None:
        self._db = db

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._db.stores(self._db.deadline()).read_some(table, ids, below)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._db.stores(self._db.deadline()).scan(table, first, stop, below)


class Worker:
    """A connection to the pool, with what a build needs of its catalog."""

    def __init__(self, job: Job, db: ClusterDatabase | None = None) -> None:
        require_engine(job.engine)
        self._job = job
        self._own = db is None
        self.db: ClusterDatabase = connect(job.url, timeout=SECONDS, **job.access) if db is None else db
        data = self._store().get_document(job.document)
        if data is None:
            raise Damaged(f"document {job.document!r} is not in the pool's store: the view was changed or dropped")
        self.recipe = job.recipe(catalogs.compile(data).shard)
        self._forms = StateForms(self.recipe.needed, job.engine)
        self.parts = self.recipe.parts()

    def _store(self) -> Any:
        return self.db.stores(self.db.deadline())

    def run(self, at: int, number: int, arrived: Iterator[bytes], send: Callable[[Outgoing], None]) -> int:
        """A slice of a part: returns how many rows it wrote. One that is known to be written is not written again, and
        not computed either if nobody needs rows of it."""
        job, part = self._job, self.parts[at]
        name = job.build.task(at, number, job.slices)
        done = self._store().get_document(name)
        if done is not None and not part.sends:
            return int(done)
        means = Means(
            PoolState(self.db),
            encode_keys,
            previous_images=self._store().previous_images,
            memory_limit=job.memory_limit,
        )
        writes = compute(self.recipe, part, number, arrived, means, send)
        if done is not None:
            return int(done)
        rows = self._write(part, writes)
        self._store().put_document(name, str(rows).encode())
        return rows

    def _write(self, part: Part, writes: Sequence[TableWrite]) -> int:
        """At the version behind the epoch of the leaves: nobody has written these tables before, writes at that epoch
        may be refused as too late, and every epoch that changes them comes after."""
        rows = 0
        for group in write_groups([self._forms.pack(write) for write in writes]):
            self._rest()
            self._store().write(self._job.build.since + 1, group)
            rows += sum(len(write.ids) for write in group)
        return rows

    def _rest(self) -> None:
        pace = self._store().get_document(self._job.build.pace)
        if pace:
            time.sleep(min(int(pace) / 1000, LONGEST_REST_S))

    def close(self) -> None:
        if self._own:
            self.db.close()
