"""Bound queries: relational dataclasses with resolved names and types, between SQL text and the maintenance plan.

A query says *what* a view is. Nothing here knows how it will be maintained. Every relation has a `schema`; expressions
refer to positions in the schema of their input(s). Subqueries in WHERE are already semi- and anti-joins, WITH is
inlined.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from belvedere.sql.expr import Expr
from belvedere.types import Schema, Type


class JoinKind(enum.Enum):
    """SEMI and ANTI output the left columns only. CROSS is an inner join whose condition still sits in a Filter
    above."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    CROSS = "cross"


@dataclass(frozen=True, slots=True)
class Scan:
    """All rows of a base table or of another view, by its catalog name."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which the predicate is TRUE."""

    input: Query
    predicate: Expr

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class Project:
    """One expression per output column."""

    input: Query
    exprs: tuple[Expr, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class Join:
    """`condition` is over left columns followed by right columns (None: none written). The planner extracts the
    equalities. `position` is (line, column) of the join in the SQL, for refusals that only the planner can decide."""

    left: Query
    right: Query
    kind: JoinKind
    condition: Expr | None
    schema: Schema
    position: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """count (arg None: count(*)), sum, min, max, avg over `arg`, of DISTINCT values if so, of rows where `filter` is
    TRUE."""

    function: str
    arg: Expr | None
    type: Type
    distinct: bool = False
    filter: Expr | None = None


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Output: the group expressions, then one column per call. No group expression: one row always (SQL's global
    aggregate, also over empty input)."""

    input: Query
    group: tuple[Expr, ...]
    calls: tuple[AggregateCall, ...]
    schema: Schema


@dataclass(frozen=True, slots=True)
class Distinct:
    """Rows without repetition; NULLs equal each other, as do NaNs."""

    input: Query

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, slots=True)
class UnionAll:
    """Rows of all inputs, which have the same types."""

    inputs: tuple[Query, ...]
    schema: Schema


Query = Scan | Filter | Project | Join | Aggregate | Distinct | UnionAll


def inputs(query: Query) -> tuple[Query, ...]:
    """The relations directly below."""
    if isinstance(query, Scan):
        return ()
    if isinstance(query, Join):
        return (query.left, query.right)
    if isinstance(query, UnionAll):
        return query.inputs
    return (query.input,)


def relations(query: Query) -> dict[str, int]:
    """The tables and views that the query reads, by name: how many columns each had when the query was bound."""
    if isinstance(query, Scan):
        return {query.name: len(query.schema)}
    out: dict[str, int] = {}
    for below in inputs(query):
        out |= relations(below)
    return out
