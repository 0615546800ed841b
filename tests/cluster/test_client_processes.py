"""The client and the commands on a real cluster: processes that die are a delay."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import belvedere
from belvedere.cli.main import cli
from belvedere.cluster.process.local import LocalCluster
from belvedere.protocol.messages import Role
from tests.cluster.real import started, status
from tests.cluster.test_catalogs import MANIFEST
from tests.cluster.zookeeper_server import require_zookeeper


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    require_zookeeper()
    made = started(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


def kill(cluster: LocalCluster, name: str) -> None:
    pid = cluster.children[name].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def test_commands_work_over_a_url(cluster: LocalCluster, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0, **options: Any) -> list[Any]:
        result = CliRunner().invoke(cli, ["--url", cluster.url, "--json", *words], prog_name="belvedere", **options)
        assert result.exit_code == code, f"{result.output}{result.stderr}"
        return [json.loads(line) for line in result.stdout.splitlines()]

    manifest, rows = tmp_path / "shop.yaml", tmp_path / "orders.csv"
    manifest.write_text(MANIFEST)
    rows.write_text("id,customer,total\n10,1,5\n11,2,6\n")
    assert [change["action"] for change in run("apply", "-f", str(manifest))] == ["created"] * 3
    assert [change["action"] for change in run("apply", "-f", str(manifest))] == ["unchanged"] * 3
    for wish, message in (
        ("retention: 2h", "pool 'default' keeps history for"),
        ("pool: other", "this is pool 'default'"),
    ):
        manifest.write_text(MANIFEST.replace("{query", f"{{{wish}, query", 1))
        refused = CliRunner().invoke(cli, ["--url", cluster.url, "apply", "-f", str(manifest)], prog_name="belvedere")
        assert refused.exit_code == 1 and message in refused.stderr
    (written,) = run("put", "orders", "--json", '[{"id": 1, "customer": 7, "total": 12.5}]')
    (row,) = run("get", "big", "7", "--after", written["token"])
    assert row["customer"] == 7 and Decimal(row["total"]) == Decimal("12.5")
    run("load", "orders", str(rows))
    assert [row["customer"] for row in run("scan", "spend")] == [1, 2, 7]
    assert run("sql", "-c", "SELECT count(*) AS n FROM orders") == [{"n": 3}]
    (seen, *_) = run("watch", "spend", "--initial", "--changes", "1")
    assert seen["weight"] == 1
    run("delete", "orders", "1")
    run("get", "big", "7", code=1)
    assert run("verify")[0]["ok"]
    (found,) = run("status")
    assert {"epoch", "leader", "members", "views", "tables"} <= found.keys()
    run("get", "nowhere", "7", code=1)
    refused = CliRunner().invoke(cli, ["--url", cluster.url, "--db", "x", "status"])
    assert refused.exit_code == 2 and "give one of them" in refused.stderr


FRESH = """
import re, sys, time
import belvedere

def loaded(*names):
    return sorted(name for name in names if name in sys.modules)

HEAVY = ("numba", "llvmlite", "sqlglot", "duckdb", "belvedere.engine.shard", "belvedere.engine.state",
         "belvedere.engine.expr", "belvedere.plan.planner", "belvedere.sql.parser")
with belvedere.connect(sys.argv[1]) as db:
    cpu = time.process_time()
    with open("/proc/self/status") as status:  # getrusage would tell what the process had that this one was forked from
        rss = int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) / 1024
    assert loaded(*HEAVY, "pandas") == [], loaded(*HEAVY, "pandas")
    epoch = db.epoch
    token = db.put("fresh", [{"id": i, "city": "ab"[i % 2], "n": i} for i in range(10)])
    assert db.get("fresh_by_city", {"city": "a"}, after=str(token)) == {"city": "a", "total": 20}
    assert db.get("Fresh", 3)["n"] == 3 and db.get("fresh", 77) is None
    assert db.scan("fresh_by_city").to_pydict() == {"city": ["a", "b"], "total": [20, 25]}
    assert db.scan("fresh", start=8).num_rows == 2 and db.lookup("fresh_by_city", "b").num_rows == 1
    db.wait(db.delete("fresh", [3]))
    with db.snapshot() as snapshot, db.session() as session:
        assert snapshot.get("fresh_by_city", "b") == session.get("fresh_by_city", "b") == {"city": "b", "total": 22}
    change = next(db.subscribe("fresh_by_city", after=epoch))
    assert change.added.num_rows
    assert db.quarantine("fresh_by_city").num_rows == 0
    db.status()
    assert loaded(*HEAVY) == [], loaded(*HEAVY)
    try:
        db.get("nowhere", 1)
    except belvedere.errors.CatalogError as error:
        assert "no table or view 'nowhere'; there is " in str(error) and "fresh_by_city" in str(error)
    assert db.execute("SELECT count(*) AS n FROM fresh").to_pylist() == [{"n": 9}]
    assert "sqlglot" in sys.modules
print(cpu, rss)
"""


def test_a_fresh_client_reads_and_writes_without_planner_parser_and_kernels(cluster: LocalCluster) -> None:
    with belvedere.connect(cluster.url) as db:
        db.execute("CREATE TABLE fresh (id BIGINT PRIMARY KEY, city STRING, n BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW fresh_by_city AS SELECT city, sum(n) AS total FROM fresh GROUP BY city")
        db.put("fresh", [{"id": 1, "city": "b", "n": 1}])
    done = subprocess.run(
        [sys.executable, "-c", FRESH, cluster.url], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    cpu, rss = map(float, done.stdout.split())
    print(f"connect: {cpu:.2f} s of CPU, {rss:.0f} MB")
    assert rss < 110
    assert cpu < 1.2, "0.6 s on an idle machine"


def test_processes_that_die_are_a_delay(cluster: LocalCluster) -> None:
    seen: list[tuple[int, int]] = []
    with belvedere.connect(cluster.url, timeout=60.0) as db, belvedere.connect(cluster.url, timeout=60.0) as other:
        db.execute("CREATE TABLE counters (id BIGINT PRIMARY KEY, value BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(value) AS value FROM counters")
        start = db.epoch
        watching = threading.Thread(target=lambda: _watch(other, start, seen))
        watching.start()
        leader = status(cluster)["leader"].rsplit("-", 1)[0]
        server = next(c.name for c in cluster.children.values() if c.role is Role.VIEWSERVER)
        epoch = start
        for turn in range(40):
            if turn in (10, 20, 30):
                kill(cluster, {10: leader, 20: server, 30: "store-1"}[turn])
            token = db.put("counters", {"id": turn % 7, "value": turn})
            found = db.scan("totals", after=token).to_pylist()
            expected = {t % 7: t for t in range(turn + 1)}
            assert found == [{"n": len(expected), "value": sum(expected.values())}]
            assert db.epoch >= epoch
            epoch = db.epoch
        watching.join(60.0)
        assert not watching.is_alive()
    assert seen[-1] == (7, sum(range(33, 40)))
    assert all(before != after for before, after in itertools.pairwise(seen))


def _watch(db: Any, start: int, seen: list[tuple[int, int]]) -> None:
    """Follow the one row of the view until it is as the last write leaves it."""
    for change in db.subscribe("totals", after=start):
        (row,) = change.added.to_pylist()
        removed = [(old["n"], old["value"]) for old in change.removed.to_pylist()]
        assert removed == seen[-1:] or not seen, "a change begins where the one before it ended"
        seen.append((row["n"], row["value"]))
        if seen[-1] == (7, sum(range(33, 40))):
            return
