"""A view's rows recomputed by Spark SQL from base tables: an engine that shares no code with ours.

Where nothing can fail, or nothing did, it is one query. Else the query is carried out operator by operator, each row
with columns that say what of it failed (`Tolerant`): Spark stops at the first error, Belvedere sets the row aside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from belvedere.model.recompute_failing import CannotTell, is_whole_sum, may_fail
from belvedere.spark.moments import NamedFrames
from belvedere.spark.verify.outcome import NEVER, Outcome, outcome
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.expr import Call, ColumnRef, Expr, columns
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
from belvedere.sql.registry import fallible
from belvedere.sql.spark import JOINS, call_text, staged, to_spark
from belvedere.sql.spark_expr import spark_expression
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, decimal


class Recomputation:
    """Queries over frames. `given`: views whose rows are taken as they are."""

    def __init__(self, spark: SparkSession, catalog: Catalog, frames: NamedFrames, given: Collection[str]) -> None:
        self._spark, self._catalog, self._frames, self._given = spark, catalog, frames, given

    def rows(self, view: ViewDef) -> DataFrame:
        return self._spark.sql(to_spark(view.query, self._relation))

    def _relation(self, name: str) -> str:
        definition = self._catalog.relation(name)
        if isinstance(definition, TableDef) or definition.name in self._given:
            return self._frames(definition.name)
        return f"({to_spark(definition.query, self._relation)})"


class Tolerant(Recomputation):
    """Rows of each operator are a view of Spark's: values c0, c1, …, whether each failed f0, f1, …, and whether the row
    did: e. A value that failed is NULL."""

    def rows_and_failures(self, view: ViewDef) -> tuple[DataFrame, int]:
        """The rows that can be computed, and how many others there are."""
        name, width = self._stage(view.query), len(view.columns)
        failed = " OR ".join(["e", *(f"f{i}" for i in range(width))])
        listed = ", ".join(f"c{i} AS `{c.name.replace('`', '``')}`" for i, c in enumerate(view.columns))
        return self._spark.sql(f"SELECT {listed} FROM {name} WHERE NOT ({failed})"), self._count(name, failed)

    def _count(self, name: str, condition: str) -> int:
        return self._spark.sql(f"SELECT 1 FROM {name} AS t WHERE {condition}").count()

    def _make(self, sql: str) -> str:
        return self._frames.add(self._spark.sql(sql))

    def _refuse(self, name: str, conditions: Sequence[str], why: str) -> None:
        if conditions and self._count(name, " OR ".join(f"({c})" for c in conditions)):
            raise CannotTell(why)

    def _stage(self, query: Query) -> str:
        if not may_fail(query) or isinstance(query, Scan):
            return self._plain(query)
        match query:
            case Filter():
                return self._filter(query)
            case Project():
                return self._project(query)
            case Aggregate():
                return self._aggregate(query)
            case UnionAll():
                return self._make(" UNION ALL ".join(f"SELECT * FROM {self._stage(i)}" for i in query.inputs))
            case Join() if query.kind not in (JoinKind.SEMI, JoinKind.ANTI, JoinKind.CROSS):
                return self._join(query)
            case Distinct():
                below = self._stage(query.input)
                self._refuse(below, ["e", *_flags(len(query.schema))], "a failed row among distinct ones")
                return self._make(f"SELECT DISTINCT * FROM {below}")
        raise CannotTell("a failure below a semi-join or a cross join")

    def _plain(self, query: Query) -> str:
        width = len(query.schema)
        flags = ", ".join([*(f"false AS f{i}" for i in range(width)), "false AS e"])
        return self._make(f"SELECT *, {flags} FROM ({staged(query, self._relation)}) AS t")

    def _project(self, query: Project) -> str:
        below, width = self._stage(query.input), len(query.input.schema)
        made = [outcome(e, width) for e in query.exprs]
        return self._make(f"SELECT {_listed(made)}, t.e FROM {below} AS t")

    def _filter(self, query: Filter) -> str:
        if isinstance(query.input, Join) and query.input.kind is JoinKind.CROSS:
            raise CannotTell("a join condition that may fail")
        below, width = self._stage(query.input), len(query.input.schema)
        self._refuse(below, ["t.e"], "a failure that a filter may hide")
        made = outcome(query.predicate, width)
        kept = ", ".join([*(f"t.c{i}" for i in range(width)), *(f"t.f{i}" for i in range(width))])
        return self._make(
            f"SELECT {kept}, ({made.fails}) AS e FROM {below} AS t "
            f"WHERE ({made.fails}) OR coalesce({made.value}, false)"
        )

    def _join(self, query: Join) -> str:
        if query.condition is not None and fallible(query.condition):
            raise CannotTell("a join condition that may fail")
        left, right = self._stage(query.left), self._stage(query.right)
        a, b = len(query.left.schema), len(query.right.schema)
        used = set() if query.condition is None else columns(query.condition)
        self._refuse(left, ["e", *(f"f{i}" for i in used if i < a)], "a failed row that is joined")
        self._refuse(right, ["e", *(f"f{i - a}" for i in used if i >= a)], "a failed row that is joined")
        values = [*(f"l.c{i}" for i in range(a)), *(f"r.c{i}" for i in range(b))]
        flags = [*(f"l.f{i}" for i in range(a)), *(f"r.f{i}" for i in range(b))]
        condition = "true" if query.condition is None else spark_expression(query.condition, values)
        listed = ", ".join(
            [
                *(f"{value} AS c{i}" for i, value in enumerate(values)),
                *(f"coalesce({flag}, false) AS f{i}" for i, flag in enumerate(flags)),
            ]
        )
        return self._make(
            f"SELECT {listed}, false AS e FROM {left} AS l {JOINS[query.kind]} {right} AS r ON {condition}"
        )

    def _aggregate(self, query: Aggregate) -> str:
        below, width = self._stage(query.input), len(query.input.schema)
        self._refuse(below, ["t.e"], "a failed row that is grouped")
        keys = [outcome(g, width) for g in query.group]
        self._refuse(below, [k.fails for k in keys], "a failed row that is grouped")
        made = list(keys)
        calls, failures = list[AggregateCall](), list[str]()
        for call in query.calls:
            arg = Outcome("true", NEVER) if call.arg is None else outcome(call.arg, width)
            taken = Outcome("true", NEVER) if call.filter is None else outcome(call.filter, width)
            at = len(made)
            counts = f"coalesce({taken.value}, false)"
            made += [arg, Outcome(counts, NEVER)]
            made.append(Outcome(f"(({taken.fails}) OR ({counts} AND ({arg.fails})))", NEVER))
            value: Expr | None = None if call.arg is None else ColumnRef(at, call.arg.type)
            if value is not None and is_whole_sum(call):
                # whether a sum of whole numbers overflows is judged on the result: so wide, no step of it can
                value = Call("cast", (value,), decimal(38, 0))
            calls.append(replace(call, arg=value, filter=ColumnRef(at + 1, BOOLEAN)))
            failures.append(f"t.c{at + 2}")
        name = self._make(f"SELECT {', '.join(f'{m.value} AS c{i}' for i, m in enumerate(made))} FROM {below} AS t")
        return self._judged(query, name, calls, failures, [f"t.c{i}" for i in range(len(made))])

    def _judged(
        self, query: Aggregate, name: str, calls: list[AggregateCall], failures: list[str], columns: list[str]
    ) -> str:
        """Groups of staged rows: a group fails where one of its values did, or its sum does not fit."""
        width = len(query.group)
        keys = [f"t.c{i}" for i in range(width)]
        values, flags, made = [f"c{i}" for i in range(width)], [f"false AS f{i}" for i in range(width)], list(keys)
        for i, (call, failed) in enumerate(zip(calls, failures, strict=True), width):
            text = call_text(call, columns)
            fails = f"n{i} > 0"
            made.append(f"count(*) FILTER (WHERE {failed}) AS n{i}")
            if call.function in ("sum", "avg") and call.type != DOUBLE:
                # NULL where it does not fit, and where there is nothing to add
                text = f"try_{text.removeprefix('CAST(').rpartition(' AS ')[0]}"
                made.append(f"{call_text(replace(call, function='count', type=BIGINT), columns)} AS m{i}")
                values.append(f"try_cast(c{i} AS {call.type}) AS c{i}")
                fails += f" OR (m{i} > 0 AND try_cast(c{i} AS {call.type}) IS NULL)"
            else:
                values.append(f"c{i}")
            made.append(f"{text} AS c{i}")
            flags.append(f"({fails}) AS f{i}")
        made[:width] = [f"{key} AS c{i}" for i, key in enumerate(keys)]
        tail = f" GROUP BY {', '.join(keys)}" if keys else ""
        below = self._make(f"SELECT {', '.join(made)} FROM {name} AS t{tail}")
        return self._make(f"SELECT {', '.join([*values, *flags])}, false AS e FROM {below}")


def _flags(width: int) -> list[str]:
    return [f"f{i}" for i in range(width)]


def _listed(made: Sequence[Outcome]) -> str:
    values = [f"{m.value} AS c{i}" for i, m in enumerate(made)]
    return ", ".join([*values, *(f"({m.fails}) AS f{i}" for i, m in enumerate(made))])
