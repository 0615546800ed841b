"""Three experiments of the paper on VMS (Adler et al., Scalable Support for Incremental View Maintenance in Key-Value
Stores, TUM 2017) over a real HBase: what views cost the base table, how long a read takes by a scan of the client, by a
scan of the servers and from a view, and what the types of views cost.

    python -m bench.hbase_paper [--rows N] [--out FILE]

Its own figures that could be found are in `PUBLISHED`; nothing is drawn that was not published.
"""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import happybase
import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.keyvalues import LATEST, PUT, KeyValues
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.engine.warm import compile_kernels
from belvedere.local.child import Leash
from bench import plot
from bench.harness import machine
from bench.hbase_run import (
    TableR,
    cells_of_r,
    load_table,
    measured,
    pool_over,
    summary,
    words,
)
from bench.hbase_views import Bench
from bench.queries import VIEWS

PUBLISHED = {"updates_per_s": 1_000_000, "operations_per_server": 1_000, "read_ms": 5.0}
"""`updates_per_s` and `read_ms` ("less than") are from the report's abstract, on a cluster of its own. Operations of
the base table per second and server are known to us from this project's goals only."""

S_MANIFEST = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: s}}
spec:
  hbase: {{table: "{table}", setReplicationScope: true}}
  columns:
    - {{name: k, type: bigint, encoding: long}}
    - {{name: v, type: double, cell: "d:a", encoding: double}}
  key: [k]
"""
IMAGES = Path("docs/images")
GROUPS = 1000
TYPES = {
    "selection 10 %": VIEWS["q2_10"],
    "selection 50 %": VIEWS["q2_50"],
    "projection": VIEWS["q1"],
    "index": "SELECT x, k, f FROM r",
    "count": "SELECT x, count(*) AS n FROM r GROUP BY x",
    "sum": "SELECT x, sum(f) AS total FROM r GROUP BY x",
    "min": "SELECT x, min(f) AS low FROM r GROUP BY x",
    "max": "SELECT x, max(f) AS high FROM r GROUP BY x",
    "join": "SELECT r.k AS k, r.x AS x, r.f AS f, s.v AS v FROM r JOIN s ON r.x = s.k",
}
INDEX_KEY = "[x, k]"
SIZES = (1_000, 10_000, 50_000)
READS = 20
PUT_ROWS = 100
CLOSED_S = 8.0


class Paper(Bench):
    """In one HBase, state in HBase, one view server."""

    def run(self) -> dict[str, Any]:
        found = self.found
        warm = TableR(self.hbase, "paper_warm")
        warm.write(self.stream(self.rows, 1.0))
        warm.close()
        kinds = {"types": self._types, "base": self._base, "reads": self._reads}
        for part in self.parts:
            found[part] = kinds[part]()
        return found

    # --- what a view costs, by its type

    def _types(self) -> dict[str, Any]:
        table, other = TableR(self.hbase, "paper_r"), TableR(self.hbase, "paper_s")
        table.write(self.stream(self.rows))
        ids = np.arange(100_000)
        for at in range(0, len(ids), 5000):
            other.cells.put(other.name, _cells_of_s(ids[at : at + 5000]))
        found = {}
        with pool_over(self.hbase, self.made, "hbase") as (cluster, db):
            load_table(db, table)
            db.apply_manifest(S_MANIFEST.format(table=other.name))
            for name, query in TYPES.items():
                db.apply_manifest(_view("typed", query, INDEX_KEY if name == "index" else ""))

                def write(rows: int) -> int:
                    written = table.write(self.stream(rows))
                    table.wait_for(db)
                    return written

                write(min(10_000, self.rows))
                found[name] = measured(name, lambda: write(self.rows), self.hbase, cluster)
                db.execute("DROP MATERIALIZED VIEW typed")
        table.close()
        other.close()
        return found

    # --- what views cost the base table

    def _base(self) -> dict[str, Any]:
        """One writer in a closed loop, batches of 100 rows: rate, latency, and the CPU of HBase per row."""
        table = TableR(self.hbase, "paper_base")
        stream = self.stream(2000 * PUT_ROWS, 1.0)
        parts = [cells_of_r(rows) for rows, _ in stream.batches(PUT_ROWS)]
        found = {}

        def loop(name: str, cluster: Any = None) -> None:
            taken: list[float] = []

            def run() -> int:
                end, number = time.perf_counter() + CLOSED_S, 0
                while time.perf_counter() < end:
                    begun = time.perf_counter()
                    table.cells.put(table.name, parts[number % len(parts)])
                    taken.append((time.perf_counter() - begun) * 1000)
                    number += 1
                return number * PUT_ROWS

            found[name] = measured(name, run, self.hbase, cluster) | {"put_ms": summary(taken)}
            print(name, found[name]["put_ms"], flush=True)

        loop("not followed")
        with pool_over(self.hbase, self.made, "hbase") as (cluster, db):
            load_table(db, table)
            loop("followed, no view", cluster)
            made = 0
            for wanted in (1, 3, 6):
                for _ in range(made, wanted):
                    made += 1
                    db.execute(f"CREATE MATERIALIZED VIEW v{made} AS {_nth(made)}")
                loop(f"{wanted} view{'s' if wanted > 1 else ''}", cluster)
        loop("not followed again")
        table.close()
        return found

    # --- how long a read takes

    def _reads(self) -> list[dict[str, Any]]:
        """The sum of a group: by a scan of the whole table, by one that the servers filter, and from the view."""
        found = []
        for size in SIZES:
            table = TableR(self.hbase, f"paper_reads_{size}")
            rows = self.stream(size, 1.0)
            groups = np.arange(size) % GROUPS
            rows.rows = rows.rows.set_column(2, "x", pa.array(groups))
            table.write(rows)
            with (
                pool_over(self.hbase, self.made, "hbase") as (_, db),
                closing(happybase.Connection(*self.hbase.thrift, timeout=60_000)) as connection,
            ):
                load_table(db, table)
                db.execute(
                    "CREATE MATERIALIZED VIEW sums AS SELECT x, count(*) AS n, sum(f) AS total FROM r GROUP BY x"
                )
                (place,) = [t for t in map(bytes.decode, connection.tables()) if ":sums." in t]
                view, base = connection.table(place), connection.table(table.name)

                def by_client(group: int, table: TableR = table) -> float:
                    return _sum_by_client(table, group)

                def by_servers(group: int, base: Any = base) -> float:
                    text = struct.pack(">q", group).replace(b"'", b"''")
                    only = b"SingleColumnValueFilter('d', 'x', =, 'binary:" + text + b"')"
                    rows = base.scan(filter=only, columns=[b"d:f", b"d:x"], batch_size=1000)
                    return sum(struct.unpack(">d", row[b"d:f"])[0] for _, row in rows)

                def by_hbase(group: int, view: Any = view) -> float:
                    row = view.row(b"\x01" + struct.pack(">Q", group + 2**63), columns=[b"c"])
                    return float(struct.unpack(">d", row[b"c:total"])[0])

                def by_belvedere(group: int, db: Any = db) -> float:
                    return float(db.get("sums", group)["total"])

                ways: dict[str, Callable[[int], float]] = {
                    "client scan": by_client,
                    "server scan": by_servers,
                    "view, happybase": by_hbase,
                    "view, belvedere": by_belvedere,
                }
                found.append({"rows": size} | {name: _time(way, size) for name, way in ways.items()})
                wanted = {name: round(way(7), 6) for name, way in ways.items()}
                assert len(set(wanted.values())) == 1, wanted
                print(json.dumps(found[-1]), flush=True)
            table.close()
        return found


def _time(way: Callable[[int], float], size: int) -> dict[str, float]:
    taken = []
    for number in range(READS + 3):
        begun = time.perf_counter()
        way(number * 17 % min(size, GROUPS))
        taken.append((time.perf_counter() - begun) * 1000)
    return summary(taken[3:])


def _sum_by_client(table: TableR, group: int) -> float:
    total = 0.0
    for piece in table.cells.scan(table.name, b"", None, Columns("d", (b"f", b"x"))):
        names = np.asarray(piece.qualifier.to_pylist())
        numbers = np.frombuffer(b"".join(piece.value.to_pylist()), ">i8")
        x, f = numbers[names == b"x"], numbers[names == b"f"].view(">f8")
        total += float(f[x == group].sum())
    return total


def _cells_of_s(ids: np.ndarray) -> KeyValues:
    count = len(ids)
    family, name = (pa.array([text], pa.binary()).take(pa.array(np.zeros(count, np.int64))) for text in (b"d", b"a"))
    stamps, kinds = np.full(count, LATEST, np.int64), np.full(count, PUT, np.uint8)
    return KeyValues(words(ids), family, name, stamps, kinds, words(ids / 8.0))


def _view(name: str, query: str, key: str) -> str:
    keyed = f"\n  key: {key}" if key else ""
    return f"""
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {{name: {name}}}
spec:
  query: {json.dumps(query)}{keyed}
"""


def _nth(number: int) -> str:
    queries = [VIEWS["q3"], VIEWS["q1"], VIEWS["q2_10"], TYPES["count"], TYPES["index"], VIEWS["q2_50"]]
    return queries[number - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--out", type=Path, default=Path("bench/results/hbase_paper.json"))
    parser.add_argument("--parts", default="types,base,reads")
    parser.add_argument("--draw", action="store_true", help="only the pictures, of what was measured before")
    given = parser.parse_args()
    if given.draw:
        plot.draw_paper(json.loads(given.out.read_text()), PUBLISHED, IMAGES)
        return
    compile_kernels()
    results: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-", ignore_cleanup_errors=True) as made:
        hbase = LocalHBase(Path(made) / "hbase", jvm=(), leash=Leash.OURS)
        hbase.start()
        try:
            results |= {"machine": machine()}
            results |= Paper(hbase, Path(made), "hbase", given.rows, given.parts.split(",")).run()
        finally:
            hbase.stop()
    given.out.write_text(json.dumps(results, indent=1) + "\n")
    plot.draw_paper(results, PUBLISHED, IMAGES)


if __name__ == "__main__":
    main()
