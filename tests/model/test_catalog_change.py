"""DDL is decided in one place: the catalog it gives, its refusals, and both databases by the same random statements."""

from __future__ import annotations

import random

import pytest

import belvedere
from belvedere.cluster.catalog import catalogs
from belvedere.errors import BelvedereError, CatalogError
from belvedere.model import catalog_change, ddl
from belvedere.sql import parse_statement
from belvedere.sql.catalog import Catalog

TABLES, VIEWS = ("t", "U"), ("v", "W", "x")


def statement(rng: random.Random) -> str:
    """Names are few, so that most statements meet something that exists."""
    table, view = rng.choice(TABLES), rng.choice(VIEWS)
    name = rng.choice([table, view])
    spelled = rng.choice([name, name.swapcase()])
    exists, absent = rng.choice(["", "IF EXISTS "]), rng.choice(["", "IF NOT EXISTS "])
    query = f"SELECT id, n + {rng.randrange(2)} AS n FROM {rng.choice([*TABLES, *TABLES, *VIEWS])}"
    return rng.choice(
        [
            f"CREATE TABLE {absent}{spelled} (id BIGINT PRIMARY KEY, n INT)",
            f"ALTER TABLE {spelled} ADD COLUMN c{rng.randrange(3)} INT",
            f"DROP TABLE {exists}{spelled}",
            f"DROP MATERIALIZED VIEW {exists}{spelled}",
            f"CREATE MATERIALIZED VIEW {absent}{spelled} AS {query}",
            f"CREATE OR REPLACE MATERIALIZED VIEW {spelled} AS {query}",
            f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS {query}",
        ]
    )


def described(catalog: Catalog) -> object:
    """Everything but the versions of views, which are numbers of view groups in a cluster."""
    views = [{**ddl.view_json(view), "version": 0} for view in catalog.views.values()]
    return sorted(catalog.tables.items()), sorted(views, key=lambda view: view["name"])


@pytest.mark.parametrize("seed", range(4))
def test_both_databases_have_the_catalog_and_the_refusals_that_are_decided_here(seed: int) -> None:
    rng = random.Random(seed)
    catalog, document, kinds = Catalog(), catalogs.empty(), set()
    with belvedere.open() as embedded:
        for _ in range(70):
            sql = statement(rng)
            try:
                change = catalog_change.apply(catalog, parse_statement(sql, catalog))
            except BelvedereError as refused:
                with pytest.raises(type(refused)) as found:
                    embedded.execute(sql)
                assert str(found.value) == str(refused), sql
                with pytest.raises(type(refused)) as found:
                    catalogs.execute(document, sql)
                assert str(found.value) == str(refused), sql
                kinds.add(type(refused))
                continue
            kinds.add(type(change))
            embedded.execute(sql)
            after = catalogs.execute(document, sql)
            assert (after is None) == (change is None), sql
            if after is not None and change is not None:
                document = catalogs.retire(after, range(10_000)) or after
                catalog = change.catalog
            assert described(embedded.catalog) == described(catalog), sql
            assert described(catalogs.compile(document).catalog) == described(catalog), sql
    assert len(kinds) >= 7, kinds


def test_a_view_is_replaced_together_with_what_reads_it() -> None:
    catalog = Catalog()
    for sql in (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)",
        "CREATE MATERIALIZED VIEW low AS SELECT id, n FROM t",
        "CREATE MATERIALIZED VIEW high AS SELECT id FROM low",
        "CREATE MATERIALIZED VIEW aside AS SELECT id FROM t",
    ):
        change = catalog_change.apply(catalog, parse_statement(sql, catalog))
        assert change is not None
        catalog = change.catalog
    sql = "CREATE OR REPLACE MATERIALIZED VIEW LOW AS SELECT id, n + 1 AS n FROM t"
    change = catalog_change.apply(catalog, parse_statement(sql, catalog))
    assert isinstance(change, catalog_change.ViewsCreated)
    assert [(view.name, view.version) for view in change.views] == [("low", 2), ("high", 2)]
    assert catalog.views["low"].version == 1, "a catalog is never changed in place"
    operation = catalog_change.operation(change)
    assert [view["name"] for view in operation["views"]] == ["low", "high"]


def test_a_manifest_adds_columns_where_create_table_refuses() -> None:
    catalog = Catalog()
    create = "CREATE TABLE t (id BIGINT PRIMARY KEY)"
    change = catalog_change.reconcile(catalog, parse_statement(create, catalog))
    assert isinstance(change, catalog_change.TableCreated)
    catalog = change.catalog
    wider = parse_statement("CREATE TABLE T (id BIGINT PRIMARY KEY, n INT)", Catalog())
    with pytest.raises(CatalogError, match="'t' exists already"):
        catalog_change.apply(catalog, wider)
    change = catalog_change.reconcile(catalog, wider)
    assert isinstance(change, catalog_change.ColumnsAdded)
    assert [c.name for c in change.columns] == ["n"] and [c.name for c in change.table.columns] == ["id", "n"]
    assert catalog_change.reconcile(change.catalog, wider) is None
