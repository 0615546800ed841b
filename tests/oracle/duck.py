"""DuckDB as the oracle: it is shown the base tables of the model as Arrow, and computes queries from scratch."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from tests.oracle.model import Base, Table
from tests.oracle.values import arrow_type, table_rows


class Oracle:
    """One DuckDB connection whose tables mirror a `Base`; time zone UTC, one thread (data is small)."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET threads = 1")
        self.connection.execute("SET TimeZone = 'UTC'")

    def load(self, base: Base) -> None:
        """Show the present rows of every base table."""
        for table in base.tables.values():
            self.show(table.name, arrow_of(table))

    def show(self, name: str, rows: pa.Table) -> None:
        """Show an Arrow table under a name."""
        self.connection.register(name, rows)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return table_rows(self.arrow(sql))

    def arrow(self, sql: str) -> pa.Table:
        """The result of a query."""
        return self.connection.sql(sql).to_arrow_table()

    def close(self) -> None:
        self.connection.close()


def arrow_of(table: Table) -> pa.Table:
    """The live rows of a model table as Arrow."""
    rows = list(table.live())
    arrays = [pa.array([row[i] for row in rows], arrow_type(type)) for i, type in enumerate(table.columns.values())]
    return pa.table(arrays, names=list(table.columns))
