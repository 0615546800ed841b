"""A view's query over given base rows, computed by DuckDB, with sums and averages exact as ours are.

DuckDB adds doubles step by step, so its sums depend on the order of the rows. Aggregates that hold such sums are
therefore computed apart: DuckDB makes the groups and hands over their values as lists, the values are added here with
`math.fsum`, and the result stands in the query as a table. What is above (HAVING, joins, views over views) sees exact
numbers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.errors import DataError, UnsupportedSql
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.duckdb import to_duckdb
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
)
from belvedere.types import DOUBLE, Kind
from belvedere.waiting import uninterrupted

_UNEVEN = {"exp", "ln", "power"}
"""Functions that IEEE 754 does not define to the last bit: libraries differ."""


@cache
def duckdb() -> Any:
    """The module, loaded when it is first needed. Its extension ends the process if an interrupt meets its
    initialisation, so a thread that none can reach loads it."""
    return uninterrupted(lambda: importlib.import_module("duckdb"))


def connect(tables: Mapping[str, pa.Table]) -> tuple[Any, Callable[[str], str]]:
    """DuckDB over these tables, and how each of them is called there."""
    connection = duckdb().connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    names = {}
    for number, (name, table) in enumerate(tables.items()):
        names[name] = f"belvedere_{number}"
        connection.register(names[name], table)
    return connection, names.__getitem__


UNANSWERED = "this query can be a view but cannot be answered at once"


@contextmanager
def answering() -> Iterator[None]:
    """What DuckDB raises while it answers somebody's query, as errors of ours. A row that cannot be computed fails the
    whole query, as it does in Spark."""
    module = duckdb()
    try:
        yield
    except (module.DataError, module.InvalidInputException, pa.ArrowInvalid) as error:
        reason = str(error).split("\n")[0].partition(" Error: ")[2] or str(error).split("\n")[0]
        if reason.startswith("Division by zero"):  # it goes on with our own text of the expression
            reason = "division by zero"
        raise DataError(f"the query meets a row that cannot be computed: {reason}; leave it out with WHERE") from error
    except module.OutOfMemoryException as error:
        raise DataError("the query needs more memory than there is; make it smaller, or a view") from error
    except module.Error as error:
        raise UnsupportedSql(f"{UNANSWERED}: {str(error).splitlines()[0]}", hint="make it a view") from error


class Recomputation:
    """Queries over the tables of one connection. `given`: views whose rows are there too and are not recomputed."""

    def __init__(self, catalog: Catalog, connection: Any, table: Callable[[str], str], given: Set[str] = frozenset()):
        self._catalog, self._connection, self._table, self._given = catalog, connection, table, given
        self._views: dict[str, str] = {}
        self._sums: dict[str, str] = {}

    def rows(self, view: ViewDef) -> pa.Table:
        """The rows of the view; a view that it reads is recomputed too."""
        return self._fetch(self._exact(view.query))

    def _fetch(self, query: Query) -> pa.Table:
        return self._connection.sql(to_duckdb(query, self._relation)).to_arrow_table()

    def _relation(self, name: str) -> str:
        if name in self._sums:
            return self._sums[name]
        definition = self._catalog.relation(name)
        if isinstance(definition, TableDef) or definition.name in self._given:
            return self._table(definition.name)
        if definition.name not in self._views:
            self._views[definition.name] = f"({to_duckdb(self._exact(definition.query), self._relation)})"
        return self._views[definition.name]

    def _exact(self, query: Query) -> Query:
        """The query with tables in place of aggregates that DuckDB would round."""
        if isinstance(query, Scan):
            return query
        if isinstance(query, Join):
            return replace(query, left=self._exact(query.left), right=self._exact(query.right))
        if isinstance(query, UnionAll):
            return replace(query, inputs=tuple(self._exact(i) for i in query.inputs))
        query = replace(query, input=self._exact(query.input))
        if not isinstance(query, Aggregate) or not any(map(_rounds, query.calls)):
            return query
        calls = tuple(replace(c, function="list") if _rounds(c) else c for c in query.calls)
        found = self._fetch(replace(query, calls=calls))
        schema = tuple(replace(c, name=f"c{i}") for i, c in enumerate(query.schema))
        arrays = list(found.columns)
        for at, call in enumerate(query.calls, len(query.group)):
            if _rounds(call):
                add = exact_mean if call.function == "avg" else exact_sum
                arrays[at] = pa.array(map(add, _lists(found.column(at))), pa.float64())
        name = f"\0sums {len(self._sums)}"  # no relation of the catalog can be called so
        self._sums[name] = f"belvedere_sums_{len(self._sums)}"
        self._connection.register(self._sums[name], pa.Table.from_arrays(arrays, names=[c.name for c in schema]))
        refs: tuple[Expr, ...] = tuple(ColumnRef(i, c.type, c.name) for i, c in enumerate(schema))
        return Project(Scan(name, schema), refs, query.schema)


def _rounds(call: AggregateCall) -> bool:
    """Sums and averages that are doubles (an average of integers too)."""
    return call.function in ("sum", "avg") and call.type == DOUBLE


def _lists(column: pa.ChunkedArray) -> Iterator[np.ndarray]:
    """Values of each group, without NULLs; nothing for a group that has none."""
    for chunk in column.chunks:
        values = chunk.values.fill_null(0).to_numpy(zero_copy_only=False)
        present = chunk.values.is_valid().to_numpy(zero_copy_only=False)
        offsets = chunk.offsets.to_numpy()
        for start, end in pairwise(offsets):
            yield values[start:end][present[start:end]]


def exact_sum(values: np.ndarray) -> float | None:
    """The sum, rounded once; NaN and infinities as IEEE adds them; NULL for nothing."""
    if not len(values):
        return None
    special = values[~np.isfinite(values)]
    if len(special):
        with np.errstate(invalid="ignore"):  # inf - inf
            return float(special.sum())
    try:
        return math.fsum(values.tolist())
    except OverflowError:  # a partial sum: the whole may fit
        return _to_double(sum(map(Fraction, values.tolist()), Fraction()))


def exact_mean(values: np.ndarray) -> float | None:
    """The exact sum divided by the number of values, rounded once."""
    if not len(values):
        return None
    if not np.isfinite(values).all():
        return exact_sum(values)
    numbers = values.tolist()
    return _to_double(_total(numbers) / len(numbers))


def _total(numbers: list[Any]) -> Fraction:
    """The exact sum: what fsum rounds off is added in the same way, until nothing is left."""
    if isinstance(numbers[0], int):
        return Fraction(sum(numbers))
    parts: list[float] = []
    try:
        while rest := math.fsum([*numbers, *(-part for part in parts)]):
            parts.append(rest)
    except OverflowError:
        return sum(map(Fraction, numbers), Fraction())
    return sum(map(Fraction, parts), Fraction())


def _to_double(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def uneven(catalog: Catalog, query: Query) -> tuple[bool, ...]:
    """For each column, whether it is a double made with functions that DuckDB and we may round differently."""
    found = _uneven(catalog, query)
    return tuple(f and c.type == DOUBLE for f, c in zip(found, query.schema, strict=True))


def _uneven(catalog: Catalog, query: Query) -> Sequence[bool]:
    if isinstance(query, Scan):
        below = catalog.relation(query.name)
        return [False] * len(query.schema) if isinstance(below, TableDef) else _uneven(catalog, below.query)
    if isinstance(query, Filter | Distinct):
        return _uneven(catalog, query.input)
    if isinstance(query, UnionAll):
        return [any(branches) for branches in zip(*(_uneven(catalog, i) for i in query.inputs), strict=True)]
    if isinstance(query, Join):
        left = _uneven(catalog, query.left)
        one_side = query.kind in (JoinKind.SEMI, JoinKind.ANTI)
        return left if one_side else [*left, *_uneven(catalog, query.right)]
    inner = _uneven(catalog, query.input)
    exprs = query.exprs if isinstance(query, Project) else [*query.group, *(c.arg for c in query.calls)]
    return [e is not None and (any(inner[i] for i in columns(e)) or any(map(_differs, walk(e)))) for e in exprs]


def _differs(expr: Expr) -> bool:
    if not isinstance(expr, Call):
        return False
    if expr.name in ("cast", "try_cast"):
        # DuckDB divides the digits by a power of ten, in two steps where they are many
        return expr.type == DOUBLE and expr.args[0].type.kind is Kind.DECIMAL
    return expr.name in _UNEVEN or (expr.name == "round" and expr.type == DOUBLE)
