"""A recomputation that survives rows which cannot be computed, for views with rows in quarantine.

DuckDB stops at the first error, so the query is carried out operator by operator, every expression inside TRY, and each
column has a second one that says where it failed. That follows our rules as far as they can be followed from outside;
where they cannot (`CannotTell`: what a lazy function makes of a failed column, a failed key, a failed row that is
grouped) nothing is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from belvedere.model.recompute import Recomputation
from belvedere.sql.catalog import ViewDef
from belvedere.sql.duckdb_expr import expression
from belvedere.sql.expr import Call, ColumnRef, Expr, columns, walk
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
    inputs,
)
from belvedere.sql.registry import SCALARS, fallible
from belvedere.types import BIGINT, BOOLEAN, Column, Kind, decimal

_JOINS = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN", JoinKind.RIGHT: "RIGHT JOIN", JoinKind.FULL: "FULL JOIN"}


class CannotTell(Exception):
    """Whether a row fails depends on more than can be seen from outside."""


class TolerantRecomputation(Recomputation):
    """Every operator's rows are a DuckDB table: values c0, c1, …, whether each failed f0, f1, …, and whether the row
    did: e."""

    def rows_and_failures(self, view: ViewDef) -> tuple[pa.Table, int]:
        """The rows that can be computed, and how many others there are."""
        name, width = self._stage(view.query), len(view.columns)
        failed = " OR ".join(["e", *(f"f{i}" for i in range(width))])
        listed = ", ".join(f"c{i}" for i in range(width))
        good = self._connection.sql(f"SELECT {listed} FROM {name} WHERE NOT ({failed})").to_arrow_table()
        return good, self._count(name, failed)

    def _count(self, table: str, condition: str) -> int:
        ((count,),) = self._connection.sql(f"SELECT count(*) FROM {table} AS t WHERE {condition}").fetchall()
        return int(count)

    def _make(self, sql: str) -> str:
        self._made += 1
        name = f"stage_{self._made}"
        self._connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        return name

    _made = 0

    def _stage(self, query: Query) -> str:
        if not may_fail(query):
            return self._plain(query)
        if isinstance(query, Filter):
            return self._filter(query)
        if isinstance(query, Project):
            return self._project(query)
        if isinstance(query, Aggregate):
            return self._aggregate(query)
        if isinstance(query, UnionAll):
            return self._make(" UNION ALL BY NAME ".join(f"SELECT * FROM {self._stage(i)}" for i in query.inputs))
        if isinstance(query, Join) and query.kind in _JOINS:
            return self._join(query)
        if isinstance(query, Distinct):
            below = self._stage(query.input)
            self._refuse(below, ["e", *(f"f{i}" for i in range(len(query.schema)))], "a failed row among distinct ones")
            return self._make(f"SELECT DISTINCT * FROM {below}")
        if isinstance(query, Scan):
            return self._plain(query)
        raise CannotTell("a failure below a semi-join or a cross join")

    def _plain(self, query: Query) -> str:
        """A part that does not fail."""
        found = self._fetch(self._exact(query))
        self._made += 1
        name = f"plain_{self._made}"
        self._connection.register(name, found.rename_columns([f"c{i}" for i in range(found.num_columns)]))
        flags = ", ".join(["false AS e", *(f"false AS f{i}" for i in range(found.num_columns))])
        return self._make(f"SELECT *, {flags} FROM {name}")

    def _refuse(self, table: str, conditions: Sequence[str], why: str) -> None:
        if conditions and self._count(table, " OR ".join(f"({c})" for c in conditions)):
            raise CannotTell(why)

    def _project(self, query: Project) -> str:
        below, width = self._stage(query.input), len(query.input.schema)
        doubts: list[str] = []
        tried = ", ".join(f"{_outcome(e, width, doubts)} AS s{i}" for i, e in enumerate(query.exprs))
        self._refuse(below, doubts, "a failure that a lazy function may hide")
        values = ", ".join(f"s{i}.v AS c{i}, s{i} IS NULL AS f{i}" for i in range(len(query.exprs)))
        return self._make(f"SELECT {values}, e FROM (SELECT {tried}, t.e FROM {below} AS t) AS p")

    def _filter(self, query: Filter) -> str:
        if isinstance(query.input, Join) and query.input.kind is JoinKind.CROSS:
            raise CannotTell("a join condition that may fail")
        below, width = self._stage(query.input), len(query.input.schema)
        doubts = ["t.e"]
        tried = _outcome(query.predicate, width, doubts)
        self._refuse(below, doubts, "a failure that a filter may hide")
        return self._make(
            f"SELECT * EXCLUDE (p, e), p IS NULL AS e FROM (SELECT t.*, {tried} AS p FROM {below} AS t) AS q "
            "WHERE p IS NULL OR p.v"
        )

    def _join(self, query: Join) -> str:
        if query.condition is not None and fallible(query.condition):
            raise CannotTell("a join condition that may fail")
        left, right = self._stage(query.left), self._stage(query.right)
        a, b = len(query.left.schema), len(query.right.schema)
        used = set() if query.condition is None else columns(query.condition)
        self._refuse(left, ["e", *(f"f{i}" for i in used if i < a)], "a failed row that is joined")
        self._refuse(right, ["e", *(f"f{i - a}" for i in used if i >= a)], "a failed row that is joined")
        texts = [*(f"l.c{i}" for i in range(a)), *(f"r.c{i}" for i in range(b))]
        flags = [*(f"l.f{i}" for i in range(a)), *(f"r.f{i}" for i in range(b))]
        condition = "true" if query.condition is None else expression(query.condition, texts)
        listed = ", ".join(
            f"{text} AS c{i}, coalesce({flag}, false) AS f{i}"
            for i, (text, flag) in enumerate(zip(texts, flags, strict=True))
        )
        return self._make(
            f"SELECT {listed}, false AS e FROM {left} AS l {_JOINS[query.kind]} {right} AS r ON {condition}"
        )

    def _aggregate(self, query: Aggregate) -> str:
        below, width = self._stage(query.input), len(query.input.schema)
        doubts = ["t.e"]
        keys = [_outcome(g, width, doubts) for g in query.group]
        doubts += [f"{key} IS NULL" for key in keys]
        parts = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        for i, call in enumerate(query.calls):
            parts.append(f"{_ONE if call.arg is None else _outcome(call.arg, width, doubts)} AS a{i}")
            parts.append(f"{_ONE if call.filter is None else _outcome(call.filter, width, doubts)} AS w{i}")
        self._refuse(below, doubts, "a failed row that is grouped")
        values = [f"k{i}.v AS c{i}" for i in range(len(keys))]
        schema = [Column(f"c{i}", g.type) for i, g in enumerate(query.group)]
        calls, flags = [], []
        for i, call in enumerate(query.calls):
            at = len(schema)
            values += [f"a{i}.v AS c{at}", f"w{i}.v IS TRUE AS c{at + 1}"]
            values += [f"(w{i} IS NULL OR (w{i}.v AND a{i} IS NULL)) IS TRUE AS c{at + 2}"]
            type_ = BOOLEAN if call.arg is None else call.arg.type
            schema += [Column(f"c{at}", type_), Column(f"c{at + 1}", BOOLEAN), Column(f"c{at + 2}", BOOLEAN)]
            calls.append(
                replace(
                    call,
                    arg=None if call.arg is None else ColumnRef(at, type_),
                    filter=ColumnRef(at + 1, BOOLEAN),
                    # whether a sum of integers overflows is judged below
                    type=decimal(38, 0) if is_whole_sum(call) else call.type,
                )
            )
            flags.append(AggregateCall("count", None, BIGINT, False, ColumnRef(at + 2, BOOLEAN)))
        staged = self._make(f"SELECT {', '.join(values)} FROM (SELECT {', '.join(parts)} FROM {below} AS t) AS p")
        name = f"\0{staged}"
        self._sums[name] = staged
        group = tuple(ColumnRef(i, g.type) for i, g in enumerate(query.group))
        out = [
            *schema[: len(group)],
            *(Column("", c.type) for c in calls),
            *(Column("", BIGINT) for _ in flags),
        ]
        named = tuple(replace(c, name=f"c{i}") for i, c in enumerate(out))
        found = self._plain(Aggregate(Scan(name, tuple(schema)), group, (*calls, *flags), named))
        listed = [f"c{i}, false AS f{i}" for i in range(len(group))]
        for i, call in enumerate(query.calls, len(group)):
            failed = f"c{i + len(calls)} > 0"
            text = f"TRY_CAST(c{i} AS BIGINT)" if is_whole_sum(call) else f"c{i}"
            listed.append(f"{text} AS c{i}, {failed} OR (c{i} IS NOT NULL AND {text} IS NULL) AS f{i}")
        return self._make(f"SELECT {', '.join(listed)}, false AS e FROM {found}")


_ONE = "{'v': true}"


def may_fail(query: Query) -> bool:
    """Whether anything in the query, views and tables apart, can fail."""
    if isinstance(query, Filter):
        exprs: Sequence[Expr | None] = (query.predicate,)
    elif isinstance(query, Project):
        exprs = query.exprs
    elif isinstance(query, Join):
        exprs = (query.condition,)
    elif isinstance(query, Aggregate):
        exprs = [*query.group, *(c.arg for c in query.calls), *(c.filter for c in query.calls)]
        if any(c.function in ("sum", "avg") and c.type.kind is not Kind.DOUBLE for c in query.calls):
            return True
    else:
        exprs = ()
    return any(e is not None and fallible(e) for e in exprs) or any(may_fail(below) for below in inputs(query))


_FAILS, _FAILING = re.compile(r"CAST\(error\('[^']*'\) AS"), "CAST(CAST(CAST('fails' AS INTEGER) AS VARCHAR) AS"
"""DuckDB's error() counts as volatile, which TRY does not take; a failing cast does the same."""


def tried_sql(text: str) -> str:
    """{'v': value}, or NULL where DuckDB fails."""
    return f"TRY({{'v': {_FAILS.sub(_FAILING, text)}}})"


def is_whole_sum(call: AggregateCall) -> bool:
    return call.function == "sum" and call.type.kind is Kind.BIGINT


def _outcome(expr: Expr, width: int, doubts: list[str]) -> str:
    """DuckDB text of {'v': value}, or NULL where it fails. `doubts`: conditions under which that cannot be told."""
    if isinstance(expr, Call) and expr.name in ("and", "or"):
        decides = "false" if expr.name == "and" else "true"
        arms = [_outcome(arg, width, doubts) for arg in expr.args]
        decided = " OR ".join(f"({arm}).v IS NOT DISTINCT FROM {decides}" for arm in arms)
        failed = " OR ".join(f"({arm}) IS NULL" for arm in arms)
        value = f" {expr.name} ".join(f"({arm}).v" for arm in arms)
        return f"CASE WHEN {decided} THEN {{'v': {decides}}} WHEN {failed} THEN NULL ELSE {{'v': {value}}} END"
    text = tried_sql(expression(expr, [f"t.c{i}" for i in range(width)]))
    inherited = " OR ".join(f"t.f{i}" for i in sorted(columns(expr)))
    inside = {part.name for part in walk(expr) if isinstance(part, Call)}
    if inherited and any(SCALARS[name].lazy for name in inside):
        doubts.append(inherited)
    if inside & {"and", "or"}:
        doubts.append(f"{text} IS NULL")
    return f"CASE WHEN {inherited} THEN NULL ELSE {text} END" if inherited else text
