"""Queries that are answered once rather than maintained: there ORDER BY, LIMIT and OFFSET make sense.

The bound form has no place for them (a view is a set), so they are checked when the statement is parsed and added to
the DuckDB text when it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from belvedere.sql.binder import bind_tree
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.sql.duckdb import to_duckdb
from belvedere.sql.parser import Source, first_offset, offset_before, statements, word
from belvedere.sql.reading import read
from belvedere.sql.statements import Select
from belvedere.sql.views import ADHOC
from belvedere.types import Schema


def bind_select(source: Source, catalog: Catalog) -> Select:
    """A SELECT statement; its last clauses are checked against its own columns."""
    tree = read(source)
    tail = _take_tail(tree)
    query = bind_tree(source, tree, catalog)
    _tail_sql(source, tail, query.schema)
    return Select(source.sql, ViewDef(ADHOC, source.sql, query))


def select_to_duckdb(select: Select, relation: Callable[[str], str]) -> str:
    """The whole statement for DuckDB, in the order and up to the number of rows that it asks for."""
    source = statements(select.sql)[0]
    tail = _take_tail(read(source))
    return to_duckdb(select.view.query, relation) + _tail_sql(source, tail, select.view.query.schema)


def _take_tail(tree: exp.Expr) -> dict[str, exp.Expr]:
    tail = {}
    for key in ("order", "limit", "offset"):
        value = tree.args.get(key)
        if isinstance(value, exp.Expr):
            tail[key] = value
            tree.set(key, None)
    return tail


def _tail_sql(source: Source, tail: dict[str, exp.Expr], schema: Schema) -> str:
    text = ""
    if "order" in tail:
        text += " ORDER BY " + ", ".join(_order_item(source, item, schema) for item in tail["order"].expressions)
    for key in ("limit", "offset"):
        if key in tail:
            value = tail[key].expression
            if not isinstance(value, exp.Literal) or not value.this.isdigit():
                at = offset_before(source, value, (key.upper(),))
                at = word(source, (key.upper(),)) if at is None else at
                raise source.error(f"{key.upper()} needs a whole number", at, f"{key.upper()} 10")
            text += f" {key.upper()} {value.this}"
    return text


def _order_item(source: Source, item: exp.Expr, schema: Schema) -> str:
    node = item.this
    position: int | None = None
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        position = int(node.this)
    elif isinstance(node, exp.Column):
        names = [c.name.lower() for c in schema]
        if node.name.lower() in names:
            position = names.index(node.name.lower()) + 1
    if position is None or not 1 <= position <= len(schema):
        names_text = ", ".join(c.name for c in schema)
        raise source.unsupported(
            "ORDER BY takes columns of the result, or their numbers",
            node if first_offset(node) is not None else word(source, ("ORDER BY", "ORDER")),
            f"columns: {names_text}",
        )
    descending = bool(item.args.get("desc"))
    nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{position} {'DESC' if descending else 'ASC'} NULLS {nulls}"
