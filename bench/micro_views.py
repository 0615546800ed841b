"""What many views of one table cost: to create them one after the other, and a put of one row until all have it.

    python -m bench.micro_views [--views 800]

Three kinds: views that few rows are in (`WHERE a = …`), views that every row is in, and aggregates over every row. CPU
time of the whole process, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import belvedere

PUTS = 10
KINDS = {
    "few rows": "SELECT id, a FROM t WHERE a = {}",
    "every row": "SELECT id, a + {} AS x FROM t",
    "aggregates": "SELECT a, count(*) AS n, sum(b + {}) AS x FROM t GROUP BY a",
}


def measure(sql: str, views: int) -> tuple[float, float, float]:
    """Medians of the first ten views and of the last ten; and a put."""
    with belvedere.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, b BIGINT)")
        db.put("t", [{"id": i, "a": i % 50, "b": i} for i in range(1000)])
        created = []
        for number in range(views + 1):  # the first one is not counted: it loads what all need
            begin = time.process_time()
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {sql.format(number)}")
            created.append(1e3 * (time.process_time() - begin))
        for row in range(3):
            db.wait(db.put("t", {"id": 5000 + row, "a": row, "b": 2}))
        begin = time.process_time()
        for row in range(PUTS):
            db.wait(db.put("t", {"id": 6000 + row, "a": row, "b": 2}))
        put = 1e3 * (time.process_time() - begin) / PUTS
    return statistics.median(created[1:11]), statistics.median(created[-10:]), put


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=800)
    views = parser.parse_args().views
    print(f"{'views':>12s} {'first ms':>9s} {'last ms':>9s} {'ratio':>6s} {'put ms':>8s}")
    for kind, sql in KINDS.items():
        first, last, put = measure(sql, views)
        print(f"{kind:>12s} {first:9.1f} {last:9.1f} {last / first:6.2f} {put:8.1f}", flush=True)


if __name__ == "__main__":
    main()
