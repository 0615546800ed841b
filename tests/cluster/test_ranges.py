"""Key ranges of base tables, as people list and change them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from belvedere.backend.seam import Backend
from belvedere.backend.served.base_service import BaseClient, BaseService
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.cli import context
from belvedere.cli.main import cli
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.ranges import Ranges
from belvedere.cluster.roles.base_tables import adjust
from belvedere.errors import CatalogError, DataError
from belvedere.protocol.ring import MemberId
from tests.backend.served.base_changes import Change, changes_of, take
from tests.cluster.fake_pool import FakePool

TABLES = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, a BIGINT, b STRING)",
    "CREATE TABLE places (country STRING, zip DECIMAL(9,2), PRIMARY KEY (country, zip))",
    "CREATE MATERIALIZED VIEW v AS SELECT id, a FROM orders",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    made = LmdbStore(tmp_path / "store", nodes=("node-0", "node-1"))
    yield made
    made.close()


@pytest.fixture
def db(store: LmdbStore) -> Iterator[ClusterDatabase]:
    """A pool in this process whose base tables are those of a real store."""
    pool = FakePool()
    pool.step()
    server = StoreServer([StoreService(store), BaseService(store.base)])
    client = BaseClient(server.address)

    def open_store(_: str, address: str) -> Backend:
        return Backend(address, pool.store, client)

    seeds = [coordinator.address for coordinator in pool.coordinators]
    with ClusterDatabase(seeds, pool.hub.transport(MemberId("client")), open_store, max_age=0.0) as made:
        for statement in TABLES:
            made.execute(statement, wait=False)
            while pool.building:
                pool.step()
        assert catalogs.version(pool.document) == 3
        adjust(client, pool.document)
        yield made
    server.close()


def shown(ranges: Ranges) -> list[tuple[Any, ...]]:
    return [(one.source.rpartition("/")[0], one.start, one.stop, one.node) for one in ranges.listed()]


def test_ranges_are_split_moved_and_merged(db: ClusterDatabase, store: LmdbStore) -> None:
    store.base.put("orders", changes_of([Change(key, {"a": 1}) for key in range(100)]))
    take(store, store.base)
    ranges = Ranges(db, "ORDERS")
    (whole,) = ranges.listed()
    assert (whole.start, whole.stop) == (None, None)
    lower, upper = ranges.split()
    assert shown(ranges) == [("orders", None, [50], whole.node), ("orders", [50], None, whole.node)]
    ranges.split([75])
    assert [one.stop for one in ranges.listed()] == [[50], [75], None]
    with pytest.raises(CatalogError, match=rf"name one of its ranges; there are {lower}, "):
        ranges.split()
    with pytest.raises(CatalogError, match=rf"it has no open range '{upper}'; there are"):
        ranges.split(source=upper)
    other = "node-1" if whole.node == "node-0" else "node-0"
    ranges.move(lower, other)
    assert [one.node for one in ranges.listed()] == [other, whole.node, whole.node]
    ranges.split(source=lower)
    ranges.merge(*[one.source for one in ranges.listed()][1:3])
    assert [one.stop for one in ranges.listed()] == [[25], [75], None]
    with pytest.raises(DataError, match="has 1 columns, found 2 values"):
        ranges.split([1, 2])
    with pytest.raises(CatalogError, match="'v' is a view"):
        Ranges(db, "v")


def run(monkeypatch: pytest.MonkeyPatch, db: ClusterDatabase, *words: str, code: int = 0) -> str:
    @contextmanager
    def cluster(self: context.GlobalOptions, url: str) -> Iterator[ClusterDatabase]:
        yield db

    monkeypatch.setattr(context.GlobalOptions, "cluster", cluster)
    result = CliRunner().invoke(cli, ["--url", "belvedere://x:1", "ranges", *words], prog_name="belvedere")
    assert result.exit_code == code, f"exit code {result.exit_code}: {result.output}"
    return result.output


def test_the_command(db: ClusterDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = json.loads(run(monkeypatch, db, "places", "--json"))
    assert whole["from"] is None and whole["to"] is None
    text = run(monkeypatch, db, "places", "split", "de", "10115.00")
    assert "de, 10115.00" in text and "source" in text and whole["node"] in text
    lower, upper = json.loads(run(monkeypatch, db, "places", "--json"))
    assert lower["to"] == upper["from"] == ["de", "10115.00"]
    moved = json.loads(run(monkeypatch, db, "places", "move", lower["source"], "node-1", "--json"))
    assert moved[0]["node"] == "node-1"
    (one,) = json.loads(run(monkeypatch, db, "places", "merge", lower["source"], upper["source"], "--json"))
    assert one["to"] is None
    assert "are no neighbours" in run(monkeypatch, db, "places", "merge", one["source"], one["source"], code=1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("orders", "merge", "orders/1"), "merge takes two words: two sources"),
        (("orders", "move"), "move takes two words: a source and a node"),
        (("orders", "--source", "x"), "--source is for `split` without a key"),
        (("orders", "split", "x"), "key of table 'orders': 'x' is not a bigint"),
    ],
)
def test_wrong_usage(db: ClusterDatabase, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str) -> None:
    assert reason in run(monkeypatch, db, *words, code=2)


def test_an_embedded_database_has_no_ranges(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["--db", str(tmp_path), "ranges", "orders"], prog_name="belvedere")
    assert result.exit_code == 2 and "name a cluster with --url" in result.output
