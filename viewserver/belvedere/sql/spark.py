"""Bound queries as Spark SQL: what batch jobs recompute a view with.

Our dialect is Spark's in ANSI mode, so most of it is what a user could have written; it is written from the bound
query, as DuckDB's is (`belvedere.sql.duckdb`), because types, casts and subqueries are decided there. Sums and averages
that are doubles are made from lists by functions that add exactly (`EXACT_SUM`, `EXACT_MEAN`): Spark rounds at every
step, in whatever order its tasks end.
"""

from __future__ import annotations

from collections.abc import Callable

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
from belvedere.sql.spark_expr import spark_expression
from belvedere.types import DOUBLE

EXACT_SUM, EXACT_MEAN = "belvedere_exact_sum", "belvedere_exact_mean"
"""Functions that the session has to know: of a list of numbers, without NULLs, a double; NULL for an empty list."""
JOINS = {
    JoinKind.INNER: "JOIN",
    JoinKind.CROSS: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
}
Relation = Callable[[str], str]
"""Turns catalog names into table expressions, whose columns have the relation's names."""


def to_spark(query: Query, relation: Relation) -> str:
    """A SELECT whose columns have the query's names."""
    outputs = ", ".join(f"c{i} AS {quoted(c.name)}" for i, c in enumerate(query.schema))
    return f"SELECT {outputs} FROM ({staged(query, relation)}) AS q"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def texts(alias: str, count: int) -> list[str]:
    return [f"{alias}.c{i}" for i in range(count)]


def staged(query: Query, relation: Relation) -> str:
    """The same with columns c0, c1, …, as at every level: names never clash."""
    if isinstance(query, Scan):
        listed = ", ".join(f"t.{quoted(c.name)} AS c{i}" for i, c in enumerate(query.schema))
        return f"SELECT {listed} FROM {relation(query.name)} AS t"
    if isinstance(query, UnionAll):
        return " UNION ALL ".join(f"(SELECT * FROM ({staged(i, relation)}) AS u)" for i in query.inputs)
    if isinstance(query, Join):
        return _join(query, relation)
    below, columns = staged(query.input, relation), texts("t", len(query.input.schema))
    if isinstance(query, Filter):
        return f"SELECT * FROM ({below}) AS t WHERE {spark_expression(query.predicate, columns)}"
    if isinstance(query, Distinct):
        return f"SELECT DISTINCT * FROM ({below}) AS t"
    if isinstance(query, Project):
        outputs = ", ".join(f"{spark_expression(e, columns)} AS c{i}" for i, e in enumerate(query.exprs))
        return f"SELECT {outputs} FROM ({below}) AS t"
    return _aggregate(query, below, columns)


def _join(query: Join, relation: Relation) -> str:
    left, right = staged(query.left, relation), staged(query.right, relation)
    a, b = len(query.left.schema), len(query.right.schema)
    inputs = [*texts("l", a), *texts("r", b)]
    condition = "true" if query.condition is None else spark_expression(query.condition, inputs)
    shown = inputs[:a] if query.kind in (JoinKind.SEMI, JoinKind.ANTI) else inputs
    outputs = ", ".join(f"{text} AS c{i}" for i, text in enumerate(shown))
    return f"SELECT {outputs} FROM ({left}) AS l {JOINS[query.kind]} ({right}) AS r ON {condition}"


def _aggregate(query: Aggregate, below: str, columns: list[str]) -> str:
    groups = [spark_expression(g, columns) for g in query.group]
    # Groups become columns first: Spark reads a constant in GROUP BY as a position.
    keys = [f"g.k{i}" for i in range(len(groups))]
    made = ", ".join(["t.*", *(f"{g} AS k{i}" for i, g in enumerate(groups))])
    outputs = [*keys, *(call_text(c, texts("g", len(columns))) for c in query.calls)]
    listed = ", ".join(f"{text} AS c{i}" for i, text in enumerate(outputs))
    tail = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {listed} FROM (SELECT {made} FROM ({below}) AS t) AS g{tail}"


def call_text(call: AggregateCall, columns: list[str]) -> str:
    filter_ = "" if call.filter is None else f" FILTER (WHERE {spark_expression(call.filter, columns)})"
    if call.arg is None:
        return f"count(*){filter_}"
    arg = spark_expression(call.arg, columns)
    if call.function in ("sum", "avg") and call.type == DOUBLE:
        listed = f"collect_list({arg}){filter_}"
        if call.distinct:
            listed = f"array_distinct({listed})"
        return f"{EXACT_MEAN if call.function == 'avg' else EXACT_SUM}({listed})"
    distinct = "DISTINCT " if call.distinct else ""
    return f"CAST({call.function}({distinct}{arg}){filter_} AS {call.type})"
