"""Repair on a real cluster: damage is written into the served store, below the pool, and mended while writes go on."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import belvedere
from belvedere import errors
from belvedere.backend.seam import RowShape, TableWrite
from belvedere.backend.served.client import FlightStore
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.shard import Shard, view_table
from belvedere.model.keys import key_codec
from belvedere.model.stored_rows import view_rows
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import BUCKETS
from tests.cluster.real import started, status, until
from tests.cluster.zookeeper_server import require_zookeeper

SHAPE = ClusterShape(viewservers=2, distributors=1, coordinators=2, session_timeout=4.0, sync=False)
STATEMENTS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total BIGINT)",
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING)",
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS customers FROM spend GROUP BY n",
    "CREATE MATERIALIZED VIEW named AS "
    "SELECT o.id, c.name, o.total FROM orders o JOIN customers c ON o.customer = c.id",
    "CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 / total AS part FROM orders",
)
QUIET = 20
"""Customers whose orders are not written while there is damage."""
NEWEST = 1 << 62


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    require_zookeeper()
    made = started(tmp_path_factory.mktemp("cluster"), SHAPE)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def db(cluster: LocalCluster) -> Iterator[ClusterDatabase]:
    found = belvedere.connect(cluster.url, timeout=90.0)
    for statement in STATEMENTS:
        found.execute(statement)
    found.put("customers", [{"id": id, "name": f"customer {id}"} for id in range(2 * QUIET)])
    token = found.put("orders", [order(id) for id in range(400)])
    found.wait(token, 60.0)
    yield found
    found.close()


def order(id: int, total: int | None = None) -> dict[str, Any]:
    return {"id": id, "customer": id % (2 * QUIET), "total": id % 7 if total is None else total}


class Below:
    """The store of a pool, as nobody should touch it."""

    def __init__(self, db: ClusterDatabase) -> None:
        self._db = db
        self.store = db.stores.connection(db.deadline()).store
        assert isinstance(self.store, FlightStore)

    @property
    def document(self) -> bytes:
        known = self._db.epochs.newest(self._db.deadline(), 0.0)
        return self._db.epochs.document(known.committed, self._db.deadline())

    def rows(self, table: str) -> list[tuple[np.ndarray, bytes]]:
        found = []
        for ids, values in self.store.scan(table, 0, BUCKETS, NEWEST):
            found += [(ids[at : at + 1], values[at].as_py()) for at in range(len(ids))]
        return found

    def view(self, name: str) -> Any:
        views = [view for group in catalogs.compile(self.document).shard.view_groups for view in group.views]
        return max((view for view in views if view.name == name), key=lambda view: view.version)

    def find(self, name: str, **wanted: Any) -> tuple[np.ndarray, bytes]:
        """The row of a view with these values."""
        view = self.view(name)
        names = [column.name for column in view.schema]
        for id, value in self.rows(view_table(view)):
            (row,) = decoded(view, id, value)
            if all(dict(zip(names, row, strict=True))[column] == expected for column, expected in wanted.items()):
                return id, value
        raise AssertionError(f"no row of {name} has {wanted}")

    def set_row(self, name: str, id: np.ndarray, value: bytes | None, like: bytes) -> None:
        """Write a row of a view in the place of what is there, or of nothing."""
        view = self.view(name)
        rows = view_rows(view.schema, id, pa.array([like], pa.binary()))
        keys = key_codec(view.schema, view.key).encode([rows.columns[i].to_arrow() for i in view.key], 1)
        write = TableWrite(
            view_table(view),
            id,
            pa.array([value], pa.binary()),
            True,
            keys,
            shape=RowShape(view.schema, tuple(view.key)),
        )
        self._write(view_table(view), id, write)

    def set_state(self, table: str, id: np.ndarray, value: bytes | None) -> None:
        self._write(table, id, TableWrite(table, id, pa.array([value], pa.binary())))

    def _write(self, table: str, id: np.ndarray, write: TableWrite) -> None:
        epoch = int(self.store.written_at(table, id, NEWEST)[0])
        committed = self._db.epochs.newest(self._db.deadline(), 0.0).epoch
        self.store.write(epoch or committed, [write])

    def groups_of(self, name: str) -> str:
        """The state table of the groups that only aggregates of this view read."""
        number = self.view(name).version
        shard = Shard(None)  # type: ignore[arg-type]
        shard.configure(catalogs.compile(self.document).shard)
        (found,) = [
            table
            for table, groups in shard._groups.items()
            if table.startswith(f"{number} ")
            and all(isinstance(facet, PreAggregationOperator) for facet in groups.facets.values())
        ]
        return found


def decoded(view: Any, id: np.ndarray, value: bytes) -> list[tuple[Any, ...]]:
    rows = view_rows(view.schema, id, pa.array([value], pa.binary()))
    return list(zip(*(column.to_arrow().to_pylist() for column in rows.columns), strict=True))


class Writer:
    """Writes orders of customers from `QUIET` on, all the time."""

    def __init__(self, url: str) -> None:
        self._db = belvedere.connect(url, timeout=60.0)
        self._stop = threading.Event()
        self.writes, self.failure = 0, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.token: Any = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60.0)
        self._db.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.writes += 1
                id = 2 * QUIET * (self.writes % 10) + QUIET + self.writes % QUIET
                with contextlib.suppress(errors.Unavailable):
                    self.token = self._db.put("orders", [order(id, self.writes % 50)])
                time.sleep(0.02)
        except BaseException as error:
            self.failure = error


def expected(db: ClusterDatabase) -> None:
    """All views are what the tables say, at one epoch."""
    with db.snapshot() as snapshot:
        orders, customers = snapshot.scan("orders").to_pylist(), snapshot.scan("customers").to_pylist()
        names = {row["id"]: row["name"] for row in customers}
        groups: dict[int, list[int]] = {}
        for row in orders:
            groups.setdefault(row["customer"], []).append(row["total"])
        sizes: dict[int, int] = {}
        for totals in groups.values():
            sizes[len(totals)] = sizes.get(len(totals), 0) + 1
        right = {
            "spend": {(customer, len(totals), sum(totals)) for customer, totals in groups.items()},
            "sizes": set(sizes.items()),
            "named": {(row["id"], names[row["customer"]], row["total"]) for row in orders},
        }
        for view, rows in right.items():
            assert {tuple(row.values()) for row in snapshot.scan(view).to_pylist()} == rows, view


def plant(db: ClusterDatabase) -> None:
    """One of each kind."""
    below = Below(db)
    id, value = below.find("spend", customer=3)
    _, other = below.find("spend", customer=5)
    below.set_row("spend", id, other, value)  # another row's content, under this one's key
    id, value = below.find("named", id=7)
    below.set_row("named", id, None, value)
    _, value = below.find("sizes", n=10)
    size = value.replace((10).to_bytes(8, "little"), (77).to_bytes(8, "little"))
    below.set_row("sizes", np.array([[12345, 678]], np.uint64), size, size)


def test_a_healthy_view_has_nothing_to_repair_while_it_is_written(cluster: LocalCluster, db: ClusterDatabase) -> None:
    with Writer(cluster.url):
        for view in ("spend", "sizes", "named", "ratio"):
            report = db.repair(view, dry_run=True)
            assert report.ok and report.found == 0 and report.epoch, report


def test_rows_of_views_are_mended_under_writes_and_a_dry_run_says_which(
    cluster: LocalCluster, db: ClusterDatabase
) -> None:
    with Writer(cluster.url) as writer:
        plant(db)
        dry = db.repair("spend", dry_run=True)
        assert sorted(row.problem for row in dry.rows) == ["different", "extra"] and not dry.ok, dry
        assert db.repair("spend", dry_run=True).found == 2, "a dry run changes nothing"
        report = db.repair("spend")
        assert report.ok and report.mended == 2 and report.tried_again == 0, report
        assert db.repair("spend", dry_run=True).found == 0
        report = db.repair("named", keys=[8])
        assert report.mended == 0, "this row is right"
        report = db.repair("named", keys=[7])
        assert report.ok and report.mended == 1, report
        assert writer.failure is None
    expected(db)
    assert db.status()["repairs"]["rows"] >= 3


def test_state_is_mended_and_what_it_becomes_later_is_right(cluster: LocalCluster, db: ClusterDatabase) -> None:
    below = Below(db)
    table = below.groups_of("spend")
    rows = below.rows(table)
    for id, _ in rows[:3]:
        below.set_state(table, id, None)
    id, value = rows[3]
    below.set_state(table, id, value[:-3])  # that cannot be read
    dry = db.repair("spend", dry_run=True)
    assert dry.tables == {table: 4}, dry
    report = db.repair("spend")
    assert report.ok and report.mended == 4, report
    token = db.put("orders", [order(id, 9) for id in range(0, 400, 3)])
    db.wait(token, 60.0)
    expected(db)
    assert db.repair("spend", dry_run=True).found == 0


def test_a_leader_and_a_view_server_die_in_the_middle(cluster: LocalCluster, db: ClusterDatabase) -> None:
    below = Below(db)
    table = below.groups_of("spend")
    for id, _ in below.rows(table)[:5]:
        below.set_state(table, id, None)
    with Writer(cluster.url) as writer:
        plant(db)
        found: list[Any] = []
        failed: list[BaseException] = []

        def repair() -> None:
            try:
                found.append(db.repair("spend"))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=repair)
        thread.start()
        until(lambda: below.store.list_documents("repair/") or found or failed, 60.0, "a document of the repair")
        leader = status(cluster)["leader"]
        victims = [next(name for name in cluster.children if leader.startswith(name))]
        victims.append(next(name for name in cluster.children if name.startswith(Role.VIEWSERVER.value)))
        for name in victims:
            pid = cluster.children[name].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        thread.join(180.0)
        assert not failed and found and found[0].ok, (found, failed)
        assert writer.failure is None
        db.repair("named")
    until(lambda: db.repair("spend", dry_run=True).found == 0, 60.0, "nothing left to repair")
    expected(db)


def test_everything_is_rebuilt_aside(cluster: LocalCluster, db: ClusterDatabase) -> None:
    below = Below(db)
    id, value = below.find("spend", customer=4)
    before = below.view("spend").version
    below.set_row("spend", id, None, value)
    report = db.repair("spend", everything=True)
    assert report.ok and {"spend", "sizes"} <= set(report.rebuilt), report
    assert below.view("spend").version > before
    expected(db)


def test_what_is_asked_for_has_to_make_sense(db: ClusterDatabase) -> None:
    with pytest.raises(errors.DataError, match="one of them"):
        db.repair("spend", keys=[1], start=3)
    with pytest.raises(errors.DataError, match="nothing else can be asked for"):
        db.repair("spend", everything=True, keys=[1])
    with pytest.raises(errors.CatalogError):
        db.repair("nowhere")


def test_documents_of_repairs_go(cluster: LocalCluster, db: ClusterDatabase, tmp_path: Path) -> None:
    store = Below(db).store
    until(lambda: not store.list_documents("repair/"), 120.0, f"no documents: {store.list_documents('repair/')}")
