"""Views of a real pool that Spark builds while rows change, compared with the same views built through epochs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import belvedere
from belvedere.cli.spark import cli as spark_cli
from belvedere.cluster.catalog import aside, catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape
from belvedere.cluster.roles.recomputing import group_tables, recompute
from belvedere.engine.version import ENGINE_VERSION
from belvedere.errors import BelvedereError
from belvedere.protocol.messages import Epoch
from belvedere.protocol.ring import BUCKETS
from belvedere.spark.build.building import Settings, build, waiting_builds
from belvedere.spark.build.frames import part_frame
from belvedere.spark.build.job import build_job
from belvedere.spark.build.task import Job, Worker
from tests.cluster.real import started, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

SHAPE = ClusterShape(viewservers=2, distributors=1, coordinators=1, session_timeout=10.0, sync=False)
ROWS = 1200
TABLES = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, region INT)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2), price DOUBLE)",
)
QUERIES = {
    "spend": "SELECT customer, count(*) AS n, sum(total) AS total, sum(price) AS p, max(total) AS m "
    "FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.name, o.total FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "regions": "SELECT c.region, count(DISTINCT o.customer) AS n, sum(o.total / (o.id - 17)) AS t "
    "FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region",
    "all_rows": "SELECT count(*) AS n, min(price) AS low FROM orders",
    "odd": "SELECT id, 1 / (id - 5) AS x FROM orders",
}


def manifest(views: dict[str, str], build: str) -> str:
    documents = [
        {
            "apiVersion": "belvedere.dev/v1alpha1",
            "kind": "MaterializedView",
            "metadata": {"name": name.replace("_", "-")},
            "spec": {"name": name, "query": query, "build": build},
        }
        for name, query in views.items()
    ]
    return "\n---\n".join(json.dumps(document) for document in documents)


def orders(first: int, count: int, turn: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": i, "customer": (i * 7 + turn) % 90, "total": Decimal(i + turn) / 4, "price": i * 0.1 + turn}
        for i in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ClusterDatabase]]:
    cluster = started(tmp_path_factory.mktemp("pool"), SHAPE)
    try:
        with belvedere.connect(cluster.url) as db:
            assert isinstance(db, ClusterDatabase)
            for statement in TABLES:
                db.execute(statement)
            db.put("customers", [{"id": i, "name": f"name {i}", "region": i % 4} for i in range(80)])
            db.wait(db.put("orders", orders(0, ROWS)))
            yield cluster.url, db
    finally:
        cluster.stop()


class Writing:
    """Orders that change, come and go until it is left."""

    def __init__(self, db: ClusterDatabase) -> None:
        self._db, self._stop = db, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.turns = 0
        self._last: Any = None

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.turns += 1
            first = self.turns * 53 % ROWS
            self._db.put("orders", orders(first, 20, self.turns))
            self._db.delete("orders", [(first + 11 * i) % ROWS for i in range(5)])
            changed = {"id": self.turns % 80, "name": f"name {self.turns}", "region": self.turns % 4}
            self._last = self._db.put("customers", [changed])

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """When all of it is in the views."""
        self._stop.set()
        self._thread.join()
        if self._last is not None:
            self._db.wait(self._last)


def built(db: ClusterDatabase, *views: str) -> None:
    def done() -> bool:
        told = db.status()
        return not any(set(views) & set(one["views"]) for one in told["builds"]) and set(views) <= told["views"].keys()

    until(done, 240.0, "a build that is complete")


Tables = dict[str, dict[bytes, bytes]]


def tables_of(db: ClusterDatabase, view: str) -> tuple[Tables, Tables]:
    """All tables of the view group of a view, as the store has them and as they should be."""
    with db.snapshot() as at:
        known = db.epochs.exactly(at.epoch, db.deadline())
        store: Any = db.stores(db.deadline(240.0))
        document = store.get_document(known.committed.catalog_document)
        assert document is not None
        group = next(g for g in catalogs.compile(document).view_groups if view in {v.definition.name for v in g.views})
        found: Tables = {}
        for table in group_tables(document, group.number, store.usage()):
            for ids, values in store.scan(table, 0, BUCKETS, at.epoch + 1):
                rows = found.setdefault(table, {})
                rows.update(zip([key.tobytes() for key in ids], values.to_pylist(), strict=True))
        wanted: Tables = {}
        for write in recompute(store, document, ENGINE_VERSION, {group.number}, at.epoch):
            rows = wanted.setdefault(write.table, {})
            rows.update(zip([key.tobytes() for key in write.ids], write.values.to_pylist(), strict=True))
        return found, wanted


def shown(tables: Tables) -> Tables:
    """Rows of views and of quarantines, by names without versions."""
    return {name.rpartition(" ")[0]: rows for name, rows in tables.items() if name.startswith(("view ", "quarantine "))}


def test_what_spark_builds_is_what_epochs_build(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    url, db = pool
    with Writing(db) as writing:
        db.apply_manifest(manifest(QUERIES, "spark"), wait=False)
        until(lambda: bool(waiting_builds(db)), 120.0, "a build that waits")
        (told,) = [one for one in db.status()["builds"] if "spend" in one["views"]]
        assert told["by"] == "spark" and "run `belvedere-spark build`" in told["state"]
        with pytest.raises(BelvedereError, match="spend"):
            db.scan("spend")
        said: list[str] = []
        (report,) = build(spark, url, settings=Settings(slices=2), tell=said.append)
        turns = writing.turns
        built(db, *QUERIES)
    assert report.ok and set(report.views) == set(QUERIES) and report.rows > 2 * ROWS
    assert turns > 0 and any("slices" in line for line in said)
    found, wanted = tables_of(db, "spend")
    assert found == wanted and len(found) > 10, "state is not what a fresh shard computes"
    rows = {name: sorted(map(repr, db.scan(name).to_pylist())) for name in QUERIES}
    for name in QUERIES:
        db.execute(f"DROP MATERIALIZED VIEW {name}")
    db.apply_manifest(manifest(QUERIES, "epochs"))
    assert rows == {name: sorted(map(repr, db.scan(name).to_pylist())) for name in QUERIES}
    assert shown(tables_of(db, "spend")[0]) == shown(found)
    until(lambda: not db.stores(db.deadline()).list_documents(aside.BUILDS), 120.0, "documents of a build that go")


def test_a_build_that_was_killed_goes_on_and_a_task_may_run_twice(
    spark: SparkSession, pool: tuple[str, ClusterDatabase], tmp_path: Path
) -> None:
    url, db = pool
    query = {"again": QUERIES["named"]}
    db.apply_manifest(manifest(query, "spark"), wait=False)
    until(lambda: bool(waiting_builds(db)), 120.0, "a build that waits")
    stopped = []

    def interrupted(line: str) -> None:
        if not stopped and any(f" {n} of " in line for n in range(1, 9)):
            stopped.append(line)
            spark.sparkContext.cancelAllJobs()

    settings = Settings(slices=3, checkpoint=str(tmp_path))
    try:
        reports = list(build(spark, url, ["again"], settings, interrupted))
    except Exception as error:
        assert "cancel" in str(error).lower()
        store, (waiting,) = db.stores(db.deadline()), waiting_builds(db)
        mine = aside.AsideBuild(waiting.view_group, waiting.since)
        assert store.list_documents(mine.tasks) and not store.list_documents(mine.done)
        db.put("orders", orders(0, 50, 9))
        words = ["--url", url, "--json", "build", "again", "--slices", "3", "--checkpoint", str(tmp_path)]
        done = CliRunner().invoke(spark_cli, words)
        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout.splitlines()[-1])
        assert told["ok"] and told["resumed"] > 0 and told["views"] == ["again"]
    else:
        assert [report.ok for report in reports] == [True]
    built(db, "again")
    db.wait(db.put("orders", orders(40, 5, 3)))
    names = {row["id"]: row["name"] for row in db.scan("customers").to_pylist()}
    wanted = {(r["id"], names.get(r["customer"]), r["total"]) for r in db.scan("orders").to_pylist()}
    assert {tuple(row.values()) for row in db.scan("again").to_pylist()} == wanted


def test_a_view_that_is_dropped_meanwhile_leaves_nothing(
    spark: SparkSession, pool: tuple[str, ClusterDatabase]
) -> None:
    url, db = pool
    db.apply_manifest(manifest({"gone": QUERIES["spend"]}, "spark"), wait=False)
    until(lambda: bool(waiting_builds(db)), 120.0, "a build that waits")
    (waiting,) = waiting_builds(db)
    dropped = []

    def drop(_: str) -> None:
        if not dropped:
            dropped.append(db.execute("DROP MATERIALIZED VIEW gone"))

    (report,) = build(spark, url, ["gone"], Settings(slices=2), drop)
    assert report.stopped and not report.ok and "changed or dropped" in report.problem
    until(lambda: not db.stores(db.deadline()).list_documents(aside.BUILDS), 120.0, "documents that go")

    def tables() -> list[str]:
        mine = (f"{waiting.view_group} ", f"view gone {waiting.view_group}", f"quarantine gone {waiting.view_group}")
        return [table for table in db.stores(db.deadline()).usage() if table.startswith(mine)]

    until(lambda: not tables(), 120.0, "tables that go")


def test_a_builder_that_stays_is_known_to_the_pool_while_it_does(
    spark: SparkSession, pool: tuple[str, ClusterDatabase]
) -> None:
    url, db = pool

    def known() -> dict[str, str]:
        return aside.runners(db.stores(db.deadline()).list_documents(aside.RUNNERS), int(time.time() * 1000))

    seen = []

    def follow() -> bool:
        seen.append(known())
        return False

    assert list(build_job(url, follow=follow)) == []
    assert len(seen) == 1 and len(seen[0]) == 1 and known() == {}
    with pytest.raises(BelvedereError, match="builds with its own engine"):
        list(build_job("shop.bv"))
    done = CliRunner().invoke(spark_cli, ["--db", "shop.bv", "build"])
    assert done.exit_code == 2 and "name its coordinators" in done.output


def test_an_engine_that_the_pool_lacks_is_refused(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    job = Job(pool[0], {}, aside.AsideBuild(1, Epoch(1)), "catalog/1", 99, 1)
    with pytest.raises(BelvedereError, match="engine 99"):
        Worker(job)
    with pytest.raises(Exception, match="engine 99"):
        part_frame(spark, job, 0, None).count()
