"""Random scalar expressions of a wanted type over the columns in scope.

Only what Spark and DuckDB mean alike, or can be spelled alike, and what cannot fail: errors have tests of their own.
Numbers stay small, divisors are never zero, decimals are never divided, doubles are never negated (-0.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.properties.sql import Sql, join, sql

NUMBERS = ("int", "bigint", "double", "decimal")
FAMILIES = ("int", "bigint", "double", "decimal", "string", "date", "timestamp", "boolean")


def family(type: str) -> str:
    """A type without its precision."""
    return type.split("(")[0]


@dataclass(frozen=True)
class Ref:
    """A column that can be referred to."""

    text: str
    type: str


Scope = Sequence[Ref]


class Expressions:
    """A generator of expressions over one scope."""

    def __init__(self, rng: Random, scope: Scope) -> None:
        self.rng, self.scope = rng, scope

    def refs(self, *families: str) -> list[Ref]:
        return [r for r in self.scope if family(r.type) in families]

    def column(self, *families: str) -> Sql | None:
        """A column of one of these types, if there is one."""
        found = self.refs(*families)
        if not found:
            return None
        ref = self.rng.choice(found).text
        return Sql(ref, ref)

    def any_type(self) -> str:
        """A type, more often one that the scope has."""
        if self.scope and self.rng.random() < 0.8:
            return family(self.rng.choice(self.scope).type)
        return self.rng.choice(FAMILIES)

    def of(self, type: str, depth: int) -> Sql:
        """An expression of that type."""
        if depth <= 0 or self.rng.random() < 0.4:
            column = self.column(type) if self.rng.random() < 0.95 else None
            return column or self.literal(type)
        if self.rng.random() < 0.25:
            return self._choice(type, depth - 1)
        maker = getattr(self, f"_{type}")
        made: Sql = maker(depth - 1)
        return made

    def predicate(self, depth: int) -> Sql:
        """A condition: rarely a constant, often one that many rows meet."""
        made = self._boolean(depth) if self.rng.random() < 0.9 else self.of("boolean", depth)
        return sql("({} OR {})", made, self._boolean(0)) if self.rng.random() < 0.4 else made

    def with_column(self, type: str, depth: int) -> Sql | None:
        """An expression that certainly reads a column (for group keys, where a constant would be a position)."""
        for _ in range(5):
            made = self.of(type, depth)
            if any(r.text in made.spark for r in self.scope):
                return made
        return self.column(type)

    def literal(self, type: str) -> Sql:
        rng = self.rng
        if rng.random() < 0.04:
            names = {"decimal": "DECIMAL(10,2)"}
            return sql(f"CAST(NULL AS {names.get(type, type.upper())})")
        if type == "int":
            return sql(str(rng.randint(0, 5)))
        if type == "bigint":
            return sql(f"CAST({rng.randint(0, 5)} AS BIGINT)")
        if type == "double":
            return sql(f"CAST({rng.randint(0, 8) / 4} AS DOUBLE)")
        if type == "decimal":
            return sql(f"CAST({rng.choice(('0.00', '1.50', '0.25', '3.00'))} AS DECIMAL(10,2))")
        if type == "string":
            return sql("'{}'", rng.choice(("", "a", "b", "ab", "z")))
        if type == "date":
            return sql(f"DATE '2024-02-{rng.randint(27, 29)}'")
        if type == "timestamp":
            return sql(f"TIMESTAMP '2024-01-0{rng.randint(1, 2)} 0{rng.randint(0, 1)}:00:00'")
        return sql(rng.choice(("true", "false")))

    def _choice(self, type: str, depth: int) -> Sql:
        kind = self.rng.randrange(4)
        if kind == 0:
            return sql("CASE WHEN {} THEN {} ELSE {} END", self.of("boolean", depth), *self._two(type, depth))
        if kind == 1:
            return sql("coalesce({}, {})", *self._two(type, depth))
        if kind == 2:
            return sql("CASE WHEN {} THEN {} END", self.of("boolean", depth), self.of(type, depth))
        return sql("nullif({}, {})", *self._two(type, depth))

    def _two(self, type: str, depth: int) -> tuple[Sql, Sql]:
        return self.of(type, depth), self.of(type, depth)

    def _extreme(self, type: str, depth: int) -> Sql:
        return sql(self.rng.choice(("greatest", "least")) + "({}, {})", *self._two(type, depth))

    def _int(self, depth: int) -> Sql:
        kind = self.rng.randrange(9)
        if kind < 2:
            return sql(f"({{}} {self.rng.choice('+-')} {{}})", *self._two("int", depth))
        if kind == 2:
            return sql(f"({{}} * {self.rng.randint(2, 3)})", self.of("int", depth))
        if kind == 3:
            return sql(f"({{}} % {self.rng.randint(2, 4)})", self.of("int", depth))
        if kind == 4:
            return sql("length({})", self.of("string", depth), duck="CAST(length({}) AS INTEGER)")
        if kind == 5:
            part = self.rng.choice(("year", "month", "day"))
            return sql(f"{part}({{}})", self.of("date", depth), duck=f"CAST({part}({{}}) AS INTEGER)")
        if kind == 6:
            return sql("abs({})", self.of("int", depth))
        if kind == 7:
            return sql("datediff({}, {})", *self._two("date", depth), duck="CAST(({} - {}) AS INTEGER)")
        return self._extreme("int", depth)

    def _bigint(self, depth: int) -> Sql:
        kind = self.rng.randrange(4)
        if kind == 0:
            return sql("CAST({} AS BIGINT)", self.of("int", depth))
        if kind == 1:
            return sql("({} + {})", self.of("bigint", depth), self.of("int", depth))
        if kind == 2:
            return sql("({} - {})", *self._two("bigint", depth))
        return self._extreme("bigint", depth)

    def _double(self, depth: int) -> Sql:
        kind = self.rng.randrange(5)
        if kind == 0:
            return sql("({} + {})", *self._two("double", depth))
        if kind == 1:
            return sql("({} * CAST(0.5 AS DOUBLE))", self.of("double", depth))
        if kind == 2:
            return sql("CAST({} AS DOUBLE)", self.of("int", depth))
        if kind == 3:
            return sql("({} / 4)", self.of("int", depth))
        return self._extreme("double", depth)

    def _decimal(self, depth: int) -> Sql:
        kind = self.rng.randrange(5)
        if kind == 0:
            return sql("({} + {})", *self._two("decimal", depth))
        if kind == 1:
            return sql("({} * 2)", self.of("decimal", depth))
        if kind == 2:
            return sql("CAST({} AS DECIMAL(10,2))", self.of("int", depth))
        if kind == 3:
            return sql("abs({})", self.of("decimal", depth))
        return sql("({} - {})", *self._two("decimal", depth))

    def _string(self, depth: int) -> Sql:
        kind = self.rng.randrange(7)
        inner = self.of("string", depth)
        if kind == 0:
            return sql("upper({})", inner)
        if kind == 1:
            return sql("({} || {})", inner, self.of("string", depth))
        if kind == 2:
            return sql(f"substring({{}}, {self.rng.randint(1, 2)}, {self.rng.randint(1, 2)})", inner)
        if kind == 3:
            return sql("trim({})", inner)
        if kind == 4:
            return sql("replace({}, 'a', 'bb')", inner)
        if kind == 5:
            return sql("CAST({} AS STRING)", self.of("int", depth))
        return sql("lower({})", inner)

    def _date(self, depth: int) -> Sql:
        kind = self.rng.randrange(3)
        inner = self.of("date", depth)
        if kind == 0:
            days = self.rng.randint(1, 3)
            return sql(f"date_add({{}}, {days})", inner, duck=f"({{}} + {days})")
        if kind == 1:
            return sql("last_day({})", inner)
        return self._extreme("date", depth)

    def _timestamp(self, depth: int) -> Sql:
        inner = self.of("timestamp", depth)
        if self.rng.random() < 0.5:
            unit = self.rng.choice(("DAY", "HOUR"))
            return sql(f"date_trunc('{unit}', {{}})", inner, duck=f"CAST(date_trunc('{unit}', {{}}) AS TIMESTAMP)")
        return sql("({} + INTERVAL '1' DAY)", inner)

    def _left(self, type: str, depth: int) -> Sql:
        """The left side of a comparison: almost always something that varies."""
        return self.with_column(type, depth) or self.of(type, depth)

    def _right(self, type: str, depth: int) -> Sql:
        return self.literal(type) if self.rng.random() < 0.5 else self.of(type, depth)

    def _boolean(self, depth: int) -> Sql:
        kind = self.rng.randrange(11)
        type = self.any_type()
        if kind < 3:
            sign = self.rng.choice(("=", "<>", "<", "<=", ">", ">="))
            return sql(f"({{}} {sign} {{}})", self._left(type, depth), self._right(type, depth))
        if kind == 3:
            return sql(f"({{}} {self.rng.choice(('AND', 'OR'))} {{}})", *self._two("boolean", depth))
        if kind == 4:
            return sql("(NOT {})", self.of("boolean", depth))
        if kind == 5:
            return sql(f"({{}} IS {self.rng.choice(('', 'NOT '))}NULL)", self.of(type, depth))
        if kind == 6:
            options = [self.literal(type) for _ in range(self.rng.randint(1, 3))]
            word = self.rng.choice(("IN", "NOT IN"))
            return sql(f"({{}} {word} ({{}}))", self._left(type, depth), join(", ", options))
        if kind == 7:
            return sql("({} LIKE '{}')", self.of("string", depth), self.rng.choice(("a%", "%b", "_", "%a%")))
        if kind == 8:
            low, high = self._two(type, depth)
            return sql("({} BETWEEN {} AND {})", self._left(type, depth), low, high)
        if kind == 9:
            return sql("({} <=> {})", *self._two(type, depth), duck="({} IS NOT DISTINCT FROM {})")
        column = self.column("boolean")
        return column or self.literal("boolean")
