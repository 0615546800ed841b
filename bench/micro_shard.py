"""CPU microseconds per base operation of a view server's engine: decode, load what is missing, compute, pack.

    python bench/micro_shard.py [operations] [batch]

Three shards share one ring. Counted is the CPU time of all of them in `receive`, `run`, `finish`; routing (what a
distributor does) is told apart, the store (dicts) is not counted. "cold": everything is evicted before each epoch, so
every key is loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.engine.shard import BUCKETS, Shard, ShardCatalog, StagedGroup, TableWrite, route_changes
from belvedere.engine.vec import Vec
from belvedere.engine.warm import warm
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import BIGINT, DOUBLE, STRING, Column
from bench.queries import VIEWS

R = TableDef(
    "r",
    (Column("k", BIGINT, False), Column("a", BIGINT), Column("x", BIGINT), Column("f", DOUBLE), Column("s", STRING)),
    ("k",),
)
S = TableDef("s", (Column("k", BIGINT, False), Column("v", DOUBLE)), ("k",))
CATALOG = Catalog({"r": R, "s": S})
SERVERS = 3


class DictStore:
    """The newest version of everything; counts its own time."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.seconds = 0.0
        self.rows = self.bytes = 0

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        begin = time.process_time()
        rows = self.tables.get(table, {})
        data = np.ascontiguousarray(ids).tobytes()
        out = pa.array([rows.get(data[i : i + 16]) for i in range(0, len(data), 16)], pa.binary())
        self.seconds += time.process_time() - begin
        return out

    def scan(self, table: str, first: int, stop: int, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        yield from ()

    def write(self, changes: Sequence[TableWrite]) -> None:
        for change in changes:
            rows = self.tables.setdefault(change.table, {})
            data = np.ascontiguousarray(change.ids).tobytes()
            for i, value in enumerate(change.values.to_pylist()):
                key = data[16 * i : 16 * i + 16]
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
                    self.bytes += len(value)
            self.rows += len(change.ids)


def operations(rng: np.random.Generator, live: int, groups: int, count: int, first: bool) -> Changes:
    """Inserts first, then updates and deletes of rows that are there."""
    keys = np.arange(count, dtype=np.int64) if first else rng.integers(0, live, count)
    columns = (
        Vec(BIGINT, keys),
        Vec(BIGINT, rng.integers(0, 1 << 40, count)),
        Vec(BIGINT, rng.integers(0, groups, count)),
        Vec(DOUBLE, rng.integers(0, 1 << 20, count) / 1024),
        Vec(STRING, pa.array([f"some text of the row {k % 1000}" for k in keys.tolist()])),
    )
    delete = None if first else rng.random(count) < 0.1
    return Changes(columns, (None,) * 5, delete, np.arange(count, dtype=np.int64) + time.monotonic_ns() // 1000)


def views(query: str) -> tuple[nodes.ViewNode, ...]:
    sql = VIEWS[query]
    return plan_views(CATALOG, [ViewDef(query, sql, bind_query(sql, CATALOG))], nodes.Plan(()))


class Pool:
    def __init__(self, query: str):
        self.store = DictStore()
        self.owner = (np.arange(BUCKETS) % SERVERS).astype(np.uint16)
        self.shards = [Shard(self.store) for _ in range(SERVERS)]
        for me, shard in enumerate(self.shards):
            shard.configure(ShardCatalog((R, S), (StagedGroup(1, views(query)),)))
            shard.own(self.owner, me)
        self.number = 0
        self.seconds: dict[str, float] = {}

    def _timed(self, name: str, begin: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - begin

    def epoch(self, table: TableDef, changes: Changes) -> None:
        self.number += 1
        begin = time.process_time()
        routed = route_changes(table, changes, self.owner)
        self._timed("route", begin)
        begin, before = time.process_time(), self.store.seconds
        for shard in self.shards:
            shard.begin(self.number, {})
        for part, (target, payload, _) in enumerate(routed):
            self.shards[target].receive(0, (0, part), payload)
        for stage in range(self.shards[0].stages):
            for out in [out for shard in self.shards for out in shard.run(stage)]:
                self.shards[out.target].receive(out.stage, (0, 0), out.payload)
        self._timed("run", begin + self.store.seconds - before)
        begin = time.process_time()
        made = [shard.finish() for shard in self.shards]
        self._timed("finish", begin)
        for changed in made:
            self.store.write(changed)
        for shard in self.shards:
            shard.persisted(self.number)
            shard.committed(self.number)


def measure(query: str, groups: int, count: int, batch: int, cold: bool) -> str:
    rng = np.random.default_rng(3)
    pool = Pool(query)
    live = count
    if query == "q4":
        keys = np.arange(groups, dtype=np.int64)
        columns = (Vec(BIGINT, keys), Vec(DOUBLE, keys / 2))
        pool.epoch(S, Changes(columns, (None,) * 2, None, keys + 1))
    for start in range(0, live, 100_000):
        part = operations(rng, live, groups, min(100_000, live - start), True)
        part.columns[0].data += start
        pool.epoch(R, part)
    pool.seconds, pool.store.rows, pool.store.bytes = {}, 0, 0
    for _ in range(count // batch):
        if cold:
            for shard in pool.shards:
                shard.evict()
        pool.epoch(R, operations(rng, live, groups, batch, False))
    done = count // batch * batch
    times = ", ".join(f"{name} {1e6 * s / done:5.2f}" for name, s in pool.seconds.items())
    rest = f"{pool.store.rows / done:5.2f} rows and {pool.store.bytes / done:6.0f} bytes written per operation"
    return f"{query:6} {groups:7,} groups {'cold' if cold else 'warm'}: us per operation {times}; {rest}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    warm()
    for query, groups in (("q1", 1), ("q3", 100_000), ("q3", 1_000), ("q4", 100_000)):
        for cold in (False, True):
            print(measure(query, groups, count, batch, cold), flush=True)


if __name__ == "__main__":
    main()
