"""`make hbase-demo`: views over the tables of an application, in a real HBase on this machine.

HBase is started, an application fills two tables and goes on writing; a pool follows them and keeps three views in the
same HBase; a region server is killed and started again; at the end the views are compared with a scan of the tables.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import happybase

import belvedere
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.engine.warm import compile_kernels

HERE = Path(__file__).parent
VICTIM = "regionserver-1"
CATCH_UP_SECONDS = 180.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the application writes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="belvedere-hbase-demo-", ignore_cleanup_errors=True) as made:
        hbase = LocalHBase(Path(made) / "hbase")
        say("starting HBase: ZooKeeper, a master, two region servers, the Thrift gateway")
        try:
            hbase.start()
            return show(hbase, Path(made), arguments.seconds)
        finally:
            hbase.stop()


def show(hbase: LocalHBase, made: Path, seconds: float) -> int:
    host, port = hbase.thrift
    app = [sys.executable, str(HERE / "app.py"), host, str(port)]
    say("the application fills its tables: 5,000 orders, 100 customers")
    subprocess.run(app, check=True)
    compile_kernels()
    url = f"hbase://{hbase.zookeeper}/shop_views"
    say(f"a pool on {url}: two distributors, two view servers")
    shape = ClusterShape(pool="shop", viewservers=2, distributors=2, store=url, sync=False)
    with LocalCluster(made / "pool", shape) as cluster, belvedere.connect(cluster.url, timeout=120.0) as db:
        begun = time.monotonic()
        db.apply_manifest((HERE / "views.yaml").read_text())
        say(f"three views over the rows that were there, after {time.monotonic() - begun:.1f} s")
        for row in db.scan("spend_by_city").to_pylist():
            print(f"      {row['city']:<8} {row['orders']:>6,} orders {row['total']:>14,}")
        follow(hbase, db, [*app, str(seconds)], seconds)
        say("the application has ended; are the views what a scan of its tables says?")
        return compare(db, happybase.Connection(host, port, timeout=60_000))


def follow(hbase: LocalHBase, db: Any, app: list[str], seconds: float) -> None:
    say("the application writes; a region server will be killed")
    begun, killed, back = time.monotonic(), False, False
    with subprocess.Popen(app, stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        for line in writing.stdout:
            passed = time.monotonic() - begun
            spend = db.scan("spend_by_city").to_pylist()
            print(
                f"  {passed:4.0f} s  {line.strip():<32} view: {sum(row['orders'] for row in spend):,} orders",
                flush=True,
            )
            if not killed and passed > seconds / 4:
                killed = True
                say(f"kill -9 of {VICTIM}")
                hbase.kill(VICTIM)
            if killed and not back and passed > seconds / 2:
                back = True
                say(f"{VICTIM} is started again")
                hbase.start()
    if killed and not back:
        hbase.start()


def compare(db: Any, connection: happybase.Connection) -> int:
    wanted = recomputed(connection)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while True:
        wrong = []
        for view, rows in wanted.items():
            found = {tuple(row.values()) for row in db.scan(view).to_pylist()}
            if found != rows:
                wrong.append(f"{view}: {len(found - rows)} rows too many, {len(rows - found)} missing")
        if not wrong or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for view, rows in wanted.items():
        if not any(line.startswith(f"{view}:") for line in wrong):
            print(f"      {view}: equal, {len(rows):,} rows")
    for line in wrong:
        print(f"      {line}")
    say("WRONG" if wrong else "all three views are exact")
    return 1 if wrong else 0


def recomputed(connection: happybase.Connection) -> dict[str, set[tuple[Any, ...]]]:
    """The views, the slow and obvious way, from a scan."""
    cities = {struct.unpack(">i", key)[0]: row[b"d:city"].decode() for key, row in connection.table("customers").scan()}
    orders = [
        (struct.unpack(">q", key)[0], struct.unpack(">i", row[b"d:customer"])[0], Decimal(row[b"d:total"].decode()))
        for key, row in connection.table("orders").scan(batch_size=1000)
    ]
    count: Counter[Any] = Counter()
    total: dict[Any, Decimal] = {}
    for _, customer, amount in orders:
        for group in (customer, cities[customer]):
            count[group] += 1
            total[group] = total.get(group, Decimal(0)) + amount
    return {
        "big_orders": {one for one in orders if one[2] >= 50},
        "spend": {(group, count[group], total[group]) for group in total if isinstance(group, int)},
        "spend_by_city": {(group, count[group], total[group]) for group in total if isinstance(group, str)},
    }


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
