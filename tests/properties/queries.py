"""Random queries over the whole scope: joins, nesting, WITH, grouping, DISTINCT, UNION ALL, subqueries in WHERE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.properties.expressions import NUMBERS, Expressions, Ref, family
from tests.properties.schemas import Column, Relation
from tests.properties.sql import Sql, join, sql

SUMMABLE = NUMBERS
DEPTH = 2
"""How deep scalar expressions nest."""


@dataclass(frozen=True)
class Query:
    """A query and what it returns."""

    sql: Sql
    columns: tuple[Column, ...]


class Queries:
    """A generator of queries over some relations (base tables and earlier views)."""

    def __init__(self, rng: Random, relations: Sequence[Relation]) -> None:
        self.rng, self.relations = rng, relations
        self.names = 0
        self.ctes: list[Sql] = []

    def query(self, types: Sequence[str] | None = None) -> Query:
        """A whole query (with these columns, if given), with its WITH clause if one came up."""
        made = self._query(self.rng.choice((0, 1, 1, 2)), types)
        if self.ctes:
            made = Query(sql("WITH {} {}", join(", ", self.ctes), made.sql), made.columns)
        return made

    def _query(self, depth: int, wanted: Sequence[str] | None) -> Query:
        kind = self.rng.random()
        if kind < 0.38:
            return self._select(depth, wanted, distinct=self.rng.random() < 0.15)
        if kind < 0.85 or (depth == 0 and kind < 0.93):
            return self._aggregate(depth, wanted)
        if kind < 0.93:
            return self._union(depth, wanted)
        return self._select(depth, wanted, distinct=True)

    def _name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # FROM

    def _source(self, depth: int) -> tuple[Sql, list[Ref]]:
        """A relation, a nested query or a WITH name, under a fresh alias."""
        alias = self._name("x")
        if depth > 0 and self.rng.random() < 0.5:
            inner = self._query(depth - 1, None)
            columns = inner.columns
            if self.rng.random() < 0.3:
                name = self._name("w")
                self.ctes.append(sql("{} AS ({})", name, inner.sql))
                text = sql("{} {}", name, alias)
            else:
                text = sql("({}) {}", inner.sql, alias)
        else:
            relation = self.rng.choice(self.relations)
            columns = relation.columns
            text = sql("{} {}", relation.name, alias)
        return text, [Ref(f"{alias}.{c.name}", c.type) for c in columns]

    def _from(self, depth: int) -> tuple[Sql, list[Ref], list[Sql]]:
        """FROM text, scope, and conditions that belong into WHERE (of comma joins)."""
        text, scope = self._source(depth)
        conditions: list[Sql] = []
        commas_only = self.rng.random() < 0.2
        for _ in range(self.rng.choice((0, 0, 0, 1, 1, 2))):
            other, more = self._source(max(depth - 1, 0))
            equal = self._equality(scope, more)
            if equal is None:
                continue
            if commas_only:
                text = sql("{}, {}", text, other)
                conditions.append(equal)
            else:
                kind = self.rng.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
                if self.rng.random() < 0.2:
                    second = self._equality(scope, more)
                    equal = sql("{} AND {}", equal, second or equal)
                if self.rng.random() < 0.25:
                    equal = sql("{} AND {}", equal, Expressions(self.rng, [*scope, *more]).predicate(DEPTH))
                text = sql(f"{{}} {kind} {{}} ON {{}}", text, other, equal)
            scope = [*scope, *more]
        return text, scope, conditions

    def _equality(self, left: Sequence[Ref], right: Sequence[Ref]) -> Sql | None:
        """An equality between the two sides; integers of both widths meet, decimals by value."""
        pairs = [(a, b) for a in left for b in right if _meet(a.type, b.type)]
        if not pairs:
            return None
        a, b = self.rng.choice(pairs)
        return sql("{} = {}", a.text, b.text)

    # WHERE

    def _where(self, scope: Sequence[Ref], conditions: list[Sql], depth: int) -> Sql:
        """WHERE text, perhaps empty."""
        parts = list(conditions)
        if self.rng.random() < 0.3:
            parts.append(Expressions(self.rng, scope).predicate(DEPTH))
        if self.rng.random() < 0.2:
            parts.append(self._subquery(scope, depth) or sql("true"))
        return sql(" WHERE {}", join(" AND ", parts)) if parts else sql("")

    def _subquery(self, scope: Sequence[Ref], depth: int) -> Sql | None:
        """IN, NOT IN, EXISTS or NOT EXISTS."""
        source, inner = self._source(max(depth - 1, 0))
        pairs = [(a, b) for a in scope for b in inner if _meet(a.type, b.type)]
        if not pairs:
            return None
        outer, column = self.rng.choice(pairs)
        kind = self.rng.choice(("IN", "IN", "NOT IN", "EXISTS", "EXISTS", "NOT EXISTS"))
        if kind in ("IN", "NOT IN"):
            where = self._where(inner, [], 0) if self.rng.random() < 0.5 else sql("")
            return sql(f"{outer.text} {kind} (SELECT {column.text} FROM {{}}{{}})", source, where)
        extra = sql("")
        if self.rng.random() < 0.4:
            extra = sql(" AND {}", Expressions(self.rng, [*inner, *scope]).predicate(1))
        return sql(f"{kind} (SELECT 1 FROM {{}} WHERE {column.text} = {outer.text}{{}})", source, extra)

    # Kinds of queries

    def _select(self, depth: int, wanted: Sequence[str] | None, distinct: bool) -> Query:
        source, scope, conditions = self._from(depth)
        expressions = Expressions(self.rng, scope)
        types = wanted or [expressions.any_type() for _ in range(self.rng.randint(1, 4))]
        outputs = [expressions.of(t, self.rng.choice((0, 0, 1, DEPTH))) for t in types]
        word = "DISTINCT " if distinct else ""
        listed = join(", ", [sql(f"{{}} AS c{i}", o) for i, o in enumerate(outputs)])
        text = sql(f"SELECT {word}{{}} FROM {{}}{{}}", listed, source, self._where(scope, conditions, depth))
        return Query(text, tuple(Column(f"c{i}", t) for i, t in enumerate(types)))

    def _aggregate(self, depth: int, wanted: Sequence[str] | None) -> Query:
        source, scope, conditions = self._from(depth)
        expressions = Expressions(self.rng, scope)
        keys: list[tuple[Sql, str]] = []
        if self.rng.random() < 0.85:
            for _ in range(self.rng.choice((1, 1, 2))):
                type = family(self.rng.choice(scope).type)
                key = expressions.with_column(type, self.rng.choice((0, 0, 0, 1, DEPTH)))
                if key is not None and all(key.spark != k.spark for k, _ in keys):
                    keys.append((key, type))
        outputs: list[tuple[Sql, str]] = []
        if wanted is None:
            outputs = [k for k in keys if self.rng.random() < 0.85]
            outputs += [self._call(expressions) for _ in range(self.rng.randint(1, 3))]
            self.rng.shuffle(outputs)
        else:
            for type in wanted:
                same = [k for k in keys if k[1] == type]
                outputs.append(self.rng.choice(same) if same else (self._call_of(expressions, type), type))
        listed = join(", ", [sql(f"{{}} AS c{i}", o) for i, (o, _) in enumerate(outputs)])
        text = sql("SELECT {} FROM {}{}", listed, source, self._where(scope, conditions, depth))
        if keys:
            text = sql("{} GROUP BY {}", text, join(", ", [k for k, _ in keys]))
        if self.rng.random() < 0.2:
            call, type = self._call(expressions)
            text = sql("{} HAVING {}", text, sql("{} IS NOT NULL" if type not in NUMBERS else "{} > 1", call))
        return Query(text, tuple(Column(f"c{i}", t) for i, (_, t) in enumerate(outputs)))

    def _call(self, expressions: Expressions) -> tuple[Sql, str]:
        kind = self.rng.random()
        if kind < 0.4:
            return self._call_of(expressions, "bigint"), "bigint"
        if kind < 0.55:
            type = self.rng.choice(("double", "decimal"))
            return self._call_of(expressions, type), type
        if kind < 0.65:
            return sql("({} + {})", *(self._call_of(expressions, "bigint") for _ in range(2))), "bigint"
        type = expressions.any_type()
        return self._call_of(expressions, type), type

    def _call_of(self, expressions: Expressions, type: str) -> Sql:
        """An aggregate call of that result type."""
        distinct = "DISTINCT " if self.rng.random() < 0.2 else ""
        call = None
        if type == "bigint":
            kind = self.rng.randrange(3)
            if kind == 0:
                call = sql("count(*)")
            elif kind == 1:
                call = sql(f"count({distinct}{{}})", expressions.of(expressions.any_type(), 1))
            else:
                argument = expressions.of(self.rng.choice(("int", "bigint")), 1)
                call = sql(f"sum({distinct}{{}})", argument)
        elif type == "double" and self.rng.random() < 0.5:
            if self.rng.random() < 0.5:
                call = sql("avg({})", expressions.of("int", 1))
            else:
                call = sql(f"sum({distinct}{{}})", expressions.of("double", 1))
        elif type == "decimal" and self.rng.random() < 0.5:
            # DuckDB's sum has 38 digits at the argument's scale; in a UNION that would cut a longer scale off.
            argument = expressions.of("decimal", 1)
            call = sql(f"sum({distinct}{{}})", argument, duck=f"sum({distinct}CAST({{}} AS DECIMAL(34,4)))")
        if call is None:
            call = sql(self.rng.choice(("min", "max")) + "({})", expressions.of(type, 1))
        if self.rng.random() < 0.15:
            call = sql("{} FILTER (WHERE {})", call, expressions.predicate(1))
        return call

    def _union(self, depth: int, wanted: Sequence[str] | None) -> Query:
        first = self._query(depth - 1, wanted)
        types = [c.type for c in first.columns]
        parts = [first.sql]
        for _ in range(self.rng.choice((1, 1, 2))):
            parts.append(self._query(depth - 1, types).sql)
        return Query(join(" UNION ALL ", parts), first.columns)


def _meet(a: str, b: str) -> bool:
    """Whether columns of these types may be compared for equality in a join."""
    integers = ("int", "bigint")
    return family(a) == family(b) or (a in integers and b in integers)
