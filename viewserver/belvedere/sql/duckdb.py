"""Bound queries as DuckDB SQL: what `verify` recomputes a view with, and the oracle of the tests.

It is written from the bound query, not from the user's text: types and casts are decided once, by the binder.
Timestamps are plain (UTC) TIMESTAMPs in the result, whether the tables hold them with a time zone or without.

Differences that remain, all of them at the edges:

* an error (1/0, overflow, a failed cast) stops the whole DuckDB query; Belvedere puts the row into quarantine. DuckDB
  may raise one that Spark's AND, OR or a filter would have hidden.
* casts of strings: '1.5' to an integer rounds in DuckDB and fails in Spark; the spellings of booleans and of times
  differ.
* double to string: Java's 1.0E10 is 10000000000.0 in DuckDB. double to decimal and round(double, n): Spark goes through
  the shortest decimal form, DuckDB multiplies by a power of ten.
* decimal division and averages use 128-bit intermediates: with very wide operands DuckDB overflows where Spark does
  not; products of decimals whose scales exceed 38 together go through doubles.
* sums and averages of doubles are rounded at every step and depend on order; Belvedere's are exact.
* -0.0 and 0.0, upper and lower of special letters, and reverse of combined characters follow DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable

from belvedere.sql.duckdb_expr import expression
from belvedere.sql.duckdb_forms import divide_exact, quote, type_name, unscaled
from belvedere.sql.query import (
    Aggregate,
    AggregateCall,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Project,
    Query,
    Scan,
    UnionAll,
)
from belvedere.types import Kind, Schema

_JOINS = {
    JoinKind.INNER: "JOIN",
    JoinKind.CROSS: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
}


def to_duckdb(query: Query, relation: Callable[[str], str]) -> str:
    """A SELECT whose columns have the query's names. `relation` turns catalog names into DuckDB table expressions."""
    inner = _query(query, relation)
    outputs = ", ".join(f"c{i} AS {quote(c.name)}" for i, c in enumerate(query.schema))
    return f"SELECT {outputs} FROM ({inner}) AS q"


def _columns(alias: str, count: int, start: int = 0) -> list[str]:
    return [f"{alias}.c{i}" for i in range(start, start + count)]


def _query(query: Query, relation: Callable[[str], str]) -> str:
    """Columns are c0, c1, … at every level, so names never clash."""
    if isinstance(query, Scan):
        return f"SELECT {_scan_columns(query.schema)} FROM {relation(query.name)} AS t"
    if isinstance(query, UnionAll):
        return " UNION ALL ".join(f"(SELECT * FROM ({_query(i, relation)}) AS u)" for i in query.inputs)
    if isinstance(query, Join):
        return _join(query, relation)
    below = _query(query.input, relation)
    columns = _columns("t", len(query.input.schema))
    if isinstance(query, Filter):
        return f"SELECT * FROM ({below}) AS t WHERE {expression(query.predicate, columns)}"
    if isinstance(query, Distinct):
        return f"SELECT DISTINCT * FROM ({below}) AS t"
    if isinstance(query, Project):
        outputs = ", ".join(f"{expression(e, columns)} AS c{i}" for i, e in enumerate(query.exprs))
        return f"SELECT {outputs} FROM ({below}) AS t"
    return _aggregate(query, below, columns)


def _scan_columns(schema: Schema) -> str:
    parts = []
    for i, column in enumerate(schema):
        text = f"t.{quote(column.name)}"
        if column.type.kind is Kind.TIMESTAMP:
            text = f"make_timestamp(epoch_us({text}))"
        parts.append(f"{text} AS c{i}")
    return ", ".join(parts)


def _join(query: Join, relation: Callable[[str], str]) -> str:
    left, right = _query(query.left, relation), _query(query.right, relation)
    a, b = len(query.left.schema), len(query.right.schema)
    inputs = [*_columns("l", a), *_columns("r", b)]
    condition = "true" if query.condition is None else expression(query.condition, inputs)
    if query.kind in (JoinKind.SEMI, JoinKind.ANTI):
        word = "EXISTS" if query.kind is JoinKind.SEMI else "NOT EXISTS"
        return f"SELECT * FROM ({left}) AS l WHERE {word} (SELECT 1 FROM ({right}) AS r WHERE {condition})"
    outputs = ", ".join(f"{text} AS c{i}" for i, text in enumerate(inputs))
    return f"SELECT {outputs} FROM ({left}) AS l {_JOINS[query.kind]} ({right}) AS r ON {condition}"


def _aggregate(query: Aggregate, below: str, columns: list[str]) -> str:
    groups = [expression(g, columns) for g in query.group]
    # Groups become columns first: DuckDB reads a constant in GROUP BY as a position.
    keys = [f"g.k{i}" for i in range(len(groups))]
    staged = ", ".join(["t.*", *(f"{g} AS k{i}" for i, g in enumerate(groups))])
    inner = _columns("g", len(columns))
    outputs = [*keys, *(_call(c, inner) for c in query.calls)]
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(outputs))
    tail = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {listed} FROM (SELECT {staged} FROM ({below}) AS t) AS g{tail}"


def _call(call: AggregateCall, columns: list[str]) -> str:
    filter_ = "" if call.filter is None else f" FILTER (WHERE {expression(call.filter, columns)})"
    if call.arg is None:
        return f"count(*){filter_}"
    arg = expression(call.arg, columns)
    distinct = "DISTINCT " if call.distinct else ""
    if call.function == "avg" and call.type.kind is Kind.DECIMAL:
        total = f"sum({distinct}{arg}){filter_}"
        number = f"count({distinct}{arg}){filter_}"
        shift = 10 ** (call.type.scale - call.arg.type.scale)
        exact = divide_exact(f"{unscaled(total, call.arg.type)} * {shift}", f"nullif({number}, 0)", call.type)
        return f"CASE WHEN {number} = 0 THEN NULL ELSE {exact} END"
    if call.function == "sum":
        return f"CAST(sum({distinct}{arg}){filter_} AS {type_name(call.type)})"
    if call.function == "avg":
        return f"avg({distinct}CAST({arg} AS DOUBLE)){filter_}"
    return f"{call.function}({distinct}{arg}){filter_}"
