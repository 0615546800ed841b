"""A view recomputed in DuckDB from its bound query, views it reads included."""

from __future__ import annotations

from belvedere.sql.catalog import Catalog
from belvedere.sql.duckdb import to_duckdb


def view_sql(catalog: Catalog, name: str) -> str:
    """DuckDB SQL for the rows of a view, from base tables alone."""

    def relation(other: str) -> str:
        definition = catalog.relation(other)
        if definition.name in catalog.tables:
            return '"' + definition.name.replace('"', '""') + '"'
        return f"({view_sql(catalog, definition.name)})"

    definition = catalog.views[name]
    return to_duckdb(definition.query, relation)
