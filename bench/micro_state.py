"""What state costs per row: hashing, index, tables, DELTA, member vectors. CPU nanoseconds, best of a few repetitions.

PYTHONPATH=viewserver python bench/micro_state.py [rows] [batch]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.members import Members
from belvedere.engine.state.table import Table
from belvedere.engine.vec import Vec
from belvedere.engine.warm import warm
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, DATE, DOUBLE, INT, STRING, Column

SCHEMA = (
    Column("id", BIGINT), Column("name", STRING), Column("price", DOUBLE), Column("customer", BIGINT),
    Column("quantity", INT), Column("day", DATE),
)  # fmt: skip
TYPES = [c.type for c in SCHEMA]


class Bench:
    """Data of `rows` rows of about 60 bytes, worked on in batches."""

    def __init__(self, rows: int, batch: int) -> None:
        self.rows, self.batch = rows, batch
        self.rng = np.random.default_rng(0)
        self.keys = self.rng.permutation(2 * rows)[:rows].astype(np.int64)
        names = [f"customer name number {i:09d}" for i in range(200_000)]
        self.names = pa.array(names)
        self.ids = hash_rows([Vec(BIGINT, self.keys)], rows)

    def time(self, name: str, work: Callable[[], int], repeat: int = 1) -> None:
        best = float("inf")
        for _ in range(repeat):
            start = time.process_time()
            rows = work()
            best = min(best, (time.process_time() - start) / rows)
        print(f"  {name:46s} {best * 1e9:8.1f} ns/row", flush=True)

    def columns(self, index: np.ndarray) -> tuple[Vec, ...]:
        start = int(self.rng.integers(0, len(self.names) - len(index)))
        noise = self.rng.integers(0, 1 << 30, len(index))
        return (
            Vec(BIGINT, self.keys[index]), Vec(STRING, self.names.slice(start, len(index))), Vec(DOUBLE, noise * 0.5),
            Vec(BIGINT, noise), Vec(INT, noise.astype(np.int32)), Vec(DATE, noise.astype(np.int32) >> 10),
        )  # fmt: skip

    def fresh(self) -> list[np.ndarray]:
        return [np.arange(s, min(s + self.batch, self.rows)) for s in range(0, self.rows, self.batch)]

    def random(self, batches: int = 20) -> list[np.ndarray]:
        return [self.rng.choice(self.rows, self.batch, replace=False) for _ in range(batches)]

    def hashing(self) -> None:
        vec = Vec(BIGINT, self.keys)
        text = Vec(STRING, self.names)
        self.time("hash bigint", lambda: len(hash_rows([vec], len(vec))), 3)
        self.time("hash 30-character string", lambda: len(hash_rows([text], len(text))), 3)

    def index(self) -> None:
        index = HashIndex()

        def insert() -> int:
            for rows in self.fresh():
                index.insert(self.ids[rows[0] : rows[-1] + 1])
            return self.rows

        self.time("index insert, growing", insert)
        wanted = [self.ids[r] for r in self.random()]
        self.time("index find, random", lambda: sum(len(index.find(w)) for w in wanted), 3)
        print(f"  index bytes per row {index.nbytes() / len(index):.1f}")

    def table(self) -> None:
        table = Table(TYPES)
        deltas = [Delta(self.columns(r), np.ones(len(r), np.int8), self.ids[r]) for r in self.fresh()]

        def insert() -> int:
            for delta in deltas:
                table.apply(delta)
                table.end_epoch()
            return self.rows

        self.time("table insert", insert)
        deltas.clear()
        updates = []
        for r in self.random():
            old, new = self.columns(r), self.columns(r)
            columns = tuple(_both(a, b) for a, b in zip(old, new, strict=True))
            weight = np.repeat(np.array([-1, 1], np.int8), len(r))
            updates.append(Delta(columns, weight, np.concatenate([self.ids[r], self.ids[r]])))

        def update() -> int:
            for delta in updates:
                table.apply(delta)
                table.end_epoch()
            return self.batch * len(updates)

        self.time("table update (pair = one row)", update, 3)
        slots = [r.astype(np.int32) for r in self.random()]
        self.time("table gather, all columns", lambda: sum(len(table.columns.gather(s)[0]) for s in slots), 3)
        one = self.ids[self.rows // 2]

        def get() -> int:
            for _ in range(2000):
                table.get(one)
            return 2000

        self.time("table get of one row", get, 3)
        print(f"  table bytes per row {table.nbytes() / len(table):.1f}, plain {table.plain_bytes() / len(table):.1f}")

    def delta(self) -> None:
        table = DeltaTable(TableDef("t", SCHEMA, ("id",)))
        needed, clock = range(len(SCHEMA)), [0]
        every = tuple(needed)

        def changes(rows: np.ndarray, present: bool = False, deletes: bool = False) -> Changes:
            clock[0] += len(rows)
            ts = np.arange(clock[0] - len(rows), clock[0], dtype=np.int64)
            masks: list[np.ndarray | None] = [None] * len(SCHEMA)
            if present:
                masks[1] = np.zeros(len(rows), np.bool_)
            delete = self.rng.random(len(rows)) < 0.1 if deletes else None
            return Changes(self.columns(rows), tuple(masks), delete, ts)

        def run(batches: list[Changes]) -> Callable[[], int]:
            def work() -> int:
                for batch in batches:
                    table.apply(batch, needed).emit(every)
                return sum(map(len, batches))

            return work

        self.time("delta insert + emit", run([changes(r) for r in self.fresh()]))
        self.time("delta update + emit", run([changes(r) for r in self.random()]))
        self.time("delta update + emit, again", run([changes(r) for r in self.random()]))
        repeats = [self.rng.integers(0, self.rows, self.batch) for _ in range(20)]
        self.time("delta update + emit, keys may repeat", run([changes(r) for r in repeats]))
        self.time("delta 10 % deletes + emit", run([changes(r, deletes=True) for r in self.random()]))
        plain = [changes(r) for r in self.random()]

        def narrow() -> int:
            for batch in plain:
                table.apply(batch, (0, 3)).emit((0, 3))
            return sum(map(len, plain))

        self.time("delta update + emit of 2 columns", narrow)
        self.time("delta partial update + emit", run([changes(r, present=True) for r in self.random()]))
        print(f"  delta bytes per row {table.nbytes() / len(table):.1f}")

    def members(self) -> None:
        members = Members()
        groups = self.rng.integers(0, self.rows // 10, self.rows).astype(np.int32)
        rows = np.arange(self.rows, dtype=np.int32)

        def add() -> int:
            for s in range(0, self.rows, self.batch):
                members.add(groups[s : s + self.batch], rows[s : s + self.batch])
            return self.rows

        def remove_add() -> int:
            for r in self.random(10):
                members.remove(groups[r], rows[r])
                members.add(groups[r], rows[r])
            return 10 * self.batch

        def probe() -> int:
            wanted = groups[: self.batch]
            return len(members.probe(wanted, None, 0, 1 << 30, None)[0])

        self.time("members add, 10 per group", add)
        self.time("members remove + add", remove_add)
        self.time("members probe, per pair", probe, 3)
        print(f"  members bytes per row {members.nbytes() / len(members):.1f}")


def _both(a: Vec, b: Vec) -> Vec:
    data = pa.concat_arrays([a.data, b.data]) if a.type.varlen else np.concatenate([a.data, b.data])
    return Vec(a.type, data)


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    start = time.perf_counter()
    warm()
    print(f"kernels ready in {time.perf_counter() - start:.2f} s; {rows:,} rows, batches of {batch:,}")
    bench = Bench(rows, batch)
    for part in (bench.hashing, bench.index, bench.table, bench.delta, bench.members):
        part()


if __name__ == "__main__":
    main()
