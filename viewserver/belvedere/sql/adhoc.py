"""Queries that are answered once rather than maintained: there ORDER BY, LIMIT and OFFSET make sense.

The bound form has no place for them (a view is a set), so they are checked when the statement is parsed and added to
the DuckDB text when it is answered. What a WHERE says about the first columns of a key is found here as well, so that
only those rows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from sqlglot import exp

from belvedere.sql.binder import bind_tree
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.sql.duckdb import to_duckdb
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, Value
from belvedere.sql.parser import SqlText, first_offset, offset_before, statements, word
from belvedere.sql.query import Filter, Query, Scan, inputs
from belvedere.sql.reading import read
from belvedere.sql.statements import Select
from belvedere.sql.views import ADHOC
from belvedere.types import Schema


def bind_select(source: SqlText, catalog: Catalog) -> Select:
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


def key_prefixes(query: Query, key: Callable[[str], Sequence[str]]) -> dict[str, tuple[Value, ...]]:
    """By relation, the values that the first columns of its key have in every row that the query can use, as far as
    comparisons right above it say so. `key`: the key columns of a relation. What is read in several places is left
    out."""
    places: dict[str, list[tuple[Value, ...]]] = {}
    _find_prefixes(query, [], key, places)
    return {name: found[0] for name, found in places.items() if len(found) == 1 and found[0]}


def _find_prefixes(
    query: Query, above: list[Expr], key: Callable[[str], Sequence[str]], places: dict[str, list[tuple[Value, ...]]]
) -> None:
    if isinstance(query, Filter):
        _find_prefixes(query.input, [*above, query.predicate], key, places)
    elif isinstance(query, Scan):
        known = {query.schema[at].name: value for part in above for at, value in _equalities(part)}
        prefix = tuple(known[name] for name in takewhile(known.__contains__, key(query.name)))
        places.setdefault(query.name, []).append(prefix)
    else:
        for below in inputs(query):
            _find_prefixes(below, [], key, places)


def _equalities(predicate: Expr) -> Iterator[tuple[int, Value]]:
    """Columns and the constants that they equal in every row for which the predicate is TRUE."""
    match predicate:
        case Call("and", parts):
            for part in parts:
                yield from _equalities(part)
        case Call(
            "eq", (ColumnRef() as column, Literal() as constant) | (Literal() as constant, ColumnRef() as column)
        ):
            if constant.value is not None and constant.type == column.type:
                yield column.index, constant.value


def _take_tail(tree: exp.Expr) -> dict[str, exp.Expr]:
    tail = {}
    for key in ("order", "limit", "offset"):
        value = tree.args.get(key)
        if isinstance(value, exp.Expr):
            tail[key] = value
            tree.set(key, None)
    return tail


def _tail_sql(source: SqlText, tail: dict[str, exp.Expr], schema: Schema) -> str:
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


def _order_item(source: SqlText, item: exp.Expr, schema: Schema) -> str:
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
