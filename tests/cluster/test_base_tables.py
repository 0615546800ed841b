"""Base tables in the store follow the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.base_tables import adjust
from belvedere.sql.catalog import TableDef
from belvedere.types import Column


class Held:
    """A store that holds definitions."""

    def __init__(self) -> None:
        self.held: dict[str, TableDef] = {}

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None:
        self.held[table.name] = table

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        self.held[table] = replace(self.held[table], columns=(*self.held[table].columns, *columns))

    def drop_table(self, table: str) -> None:
        del self.held[table]

    def tables(self) -> dict[str, TableDef]:
        return dict(self.held)


def test_tables_come_grow_and_go_with_the_catalog() -> None:
    store, document = Held(), catalogs.empty()
    store.create_table(TableDef("foreign", (), ()))
    expected = {
        "CREATE TABLE Orders (id BIGINT PRIMARY KEY)": {"Orders": 1},
        "ALTER TABLE orders ADD COLUMN note STRING": {"Orders": 2},
        "CREATE TABLE people (id BIGINT PRIMARY KEY)": {"Orders": 2, "people": 1},
        "DROP TABLE orders": {"people": 1},
        "CREATE TABLE orders (id BIGINT PRIMARY KEY)": {"people": 1, "orders~2": 1},
    }
    for statement, tables in expected.items():
        following = catalogs.execute(document, statement)
        assert following is not None
        document = following
        adjust(store, document)
        adjust(store, document)
        assert {name: len(table.columns) for name, table in store.held.items() if name != "foreign"} == tables
    assert "foreign" in store.held, "what no catalog ever had is not ours"
