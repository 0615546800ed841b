"""A fresh process that connects over HTTP loads no engine, no server framework and no pandas."""

from __future__ import annotations

import subprocess
import sys

from tests.gateway.serving import ORDERS, SPEND, embedded

FRESH = """
import re, sys, time
import belvedere

HEAVY = ("numba", "llvmlite", "sqlglot", "duckdb", "starlette", "uvicorn", "uvloop", "orjson", "kazoo", "lmdb",
         "pyarrow.flight", "belvedere.engine.engine", "belvedere.engine.shard", "belvedere.engine.state",
         "belvedere.plan.planner", "belvedere.sql.parser", "belvedere.embedded", "belvedere.backend",
         "belvedere.gateway.app")

def loaded(*more):
    return [name for name in (*HEAVY, *more) if name in sys.modules]

with belvedere.connect(sys.argv[1]) as db:
    cpu = time.process_time()
    with open("/proc/self/status") as status:  # getrusage would tell what the process had that this one was forked from
        rss = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) / 1024
    assert loaded("pandas") == [], loaded("pandas")  # pyarrow loads it with the first values, if it is there
    epoch = db.epoch
    token = db.put("orders", [{"id": i, "customer": i % 2, "total": "1.50"} for i in range(10)])
    assert db.get("spend", 1, after=str(token))["n"] == 5 and db.get("spend", 7) is None
    assert db.scan("spend").num_rows == 2 and db.lookup("spend", 0).num_rows == 1
    db.wait(db.delete("orders", [3]))
    with db.snapshot() as snapshot, db.session() as session:
        assert snapshot.get("spend", 1) == session.get("spend", 1)
    assert next(db.subscribe("spend", after=epoch)).added.num_rows
    assert db.quarantine("spend").num_rows == 0
    assert list(db.catalog.views) == ["spend"]
    assert db.execute("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 9}]
    db.status()
    assert loaded() == [], loaded()
print(cpu, rss)
"""


def test_a_fresh_client_is_small() -> None:
    with embedded(None, ORDERS, SPEND) as served:
        done = subprocess.run(
            [sys.executable, "-c", FRESH, served.url], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    cpu, rss = map(float, done.stdout.split())
    print(f"connect: {cpu:.2f} s of CPU, {rss:.0f} MB")
    assert rss < 110
    assert cpu < 1.2, "0.6 s on an idle machine"
