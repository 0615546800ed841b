"""Rows and bytes of a pool's tables, about: a store counts versions of rows, which are more than there are rows.

Ids are spread evenly over the buckets, so a part of them tells of all; small tables are counted. A table is looked at
again when its versions have changed, a few seconds later at the earliest, and a status looks at some tables only, those
first that were not seen for longest: it is answered at once, however many views there are.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from belvedere import errors
from belvedere.cluster.client.stores import PatientStore
from belvedere.model.stored_rows import base_rows
from belvedere.protocol.ring import BUCKETS
from belvedere.sql.catalog import TableDef

COUNTED = 2000
"""A table with as many versions is counted; of one with more, so many versions are looked at."""
APART_S, LATEST_S = 5.0, 60.0
"""Tables whose versions have changed are looked at again after the first; all others after the second."""
AT_ONCE = 40


@dataclass(frozen=True, slots=True)
class Stored:
    """A table of the store: how many versions it has, and of a base table, which keeps tombstones, what it is."""

    versions: int
    base: TableDef | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Seen:
    estimate: Estimate
    versions: int
    at: float


class Estimates:
    """May be used by many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def of(self, store: PatientStore, tables: Mapping[str, Stored], epoch: int) -> Mapping[str, Estimate]:
        """By table; one that was not looked at yet is left out."""
        with self._lock:
            for table in self._seen.keys() - tables.keys():
                del self._seen[table]
            due = sorted(self._due(tables), key=lambda table: self._seen[table].at if table in self._seen else 0.0)
            for table in due[:AT_ONCE]:
                try:
                    found = estimate(store, table, tables[table], epoch)
                except errors.BelvedereError:
                    continue  # collected meanwhile, or nobody answers: the next one looks again
                self._seen[table] = _Seen(found, tables[table].versions, self._clock())
            return {table: seen.estimate for table, seen in self._seen.items()}

    def _due(self, tables: Mapping[str, Stored]) -> Iterable[str]:
        now = self._clock()
        for table, stored in tables.items():
            seen = self._seen.get(table)
            if seen is None or now - seen.at >= (APART_S if seen.versions != stored.versions else LATEST_S):
                yield table


def estimate(store: PatientStore, table: str, stored: Stored, epoch: int) -> Estimate:
    """From a scan of as many buckets as have `COUNTED` versions."""
    if not stored.versions:
        return Estimate(0, 0)
    stop = min(BUCKETS, math.ceil(BUCKETS * COUNTED / stored.versions))
    rows = size = 0
    for ids, values in store.scan(table, 0, stop, epoch + 1):
        there = values.drop_null()
        rows += len(there) if stored.base is None else len(base_rows(stored.base, ids, values))
        size += there.nbytes
    return Estimate(rows * BUCKETS // stop, size * BUCKETS // stop)
