"""Random tables and random bound queries over them, seeded."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Column, Schema, Type

T = TableDef("t", (Column("k", INT, False), Column("a", INT), Column("b", INT), Column("s", STRING)), ("k",))
U = TableDef("u", (Column("i", INT, False), Column("j", INT, False), Column("x", INT), Column("s", STRING)), ("j", "i"))
W = TableDef("w", (Column("s", STRING, False), Column("y", INT), Column("z", BIGINT)), ("s",))
CATALOG = Catalog({t.name: t for t in (T, U, W)})


def tables(rng: random.Random) -> dict[str, list[tuple[Any, ...]]]:
    def small() -> int | None:
        return None if rng.random() < 0.15 else rng.randrange(4)

    def word() -> str | None:
        return None if rng.random() < 0.15 else rng.choice("pqr")

    t: list[tuple[Any, ...]] = [(k, small(), small(), word()) for k in rng.sample(range(20), rng.randrange(9))]
    u: list[tuple[Any, ...]] = [(i, j, small(), word()) for i in range(3) for j in range(3) if rng.random() < 0.6]
    w: list[tuple[Any, ...]] = [(s, small(), small()) for s in "pqr" if rng.random() < 0.7]
    return {"t": t, "u": u, "w": w}


class Maker:
    """Queries of limited depth. `views` are further relations that may be read. `guarded`: with divisions that would
    fail if the condition written before them did not exclude the rows in question."""

    def __init__(self, rng: random.Random, views: dict[str, Schema] | None = None, guarded: bool = False):
        self._rng, self._views, self._guarded = rng, views or {}, guarded

    def query(self, depth: int) -> q.Query:
        rng = self._rng
        if depth == 0 or rng.random() < 0.1:
            return self._scan()
        make: list[Callable[[int], q.Query]] = [
            self._filter, self._filter, self._project, self._aggregate, self._aggregate, self._join, self._join,
            self._join, self._distinct, self._union, self._commas,
        ]  # fmt: skip
        return rng.choice(make)(depth - 1)

    def _scan(self) -> q.Query:
        choices: list[tuple[str, Schema]] = [(t.name, t.columns) for t in (T, U, W)]
        choices += list(self._views.items())
        return q.Scan(*self._rng.choice(choices))

    def _filter(self, depth: int) -> q.Query:
        below = self.query(depth)
        return q.Filter(below, self.predicate(below.schema))

    def _project(self, depth: int) -> q.Query:
        below = self.query(depth)
        exprs = tuple(self.scalar(below.schema) for _ in range(self._rng.randrange(1, 4)))
        return project(below, exprs)

    def _aggregate(self, depth: int) -> q.Query:
        below, rng = self.query(depth), self._rng
        group = tuple(self.scalar(below.schema) for _ in range(rng.choice([0, 1, 1, 1, 2])))
        calls = []
        for _ in range(rng.randrange(3) if group else 1 + rng.randrange(2)):
            function = rng.choice(["count", "sum", "min", "max", "count"])
            arg: Expr | None = self._typed(below.schema, INT) if function == "sum" else self.scalar(below.schema)
            if function == "count" and rng.random() < 0.5:
                arg = None
            kind = {"count": BIGINT, "sum": BIGINT}.get(function) or (arg.type if arg is not None else BIGINT)
            condition = self.predicate(below.schema) if rng.random() < 0.2 else None
            distinct = arg is not None and function != "sum" and rng.random() < 0.3
            calls.append(q.AggregateCall(function, arg, kind, distinct, condition))
        types = [g.type for g in group] + [c.type for c in calls]
        if not types:
            return below
        return q.Aggregate(below, group, tuple(calls), tuple(Column(f"c{i}", t) for i, t in enumerate(types)))

    def _distinct(self, depth: int) -> q.Query:
        return q.Distinct(self._project(depth))

    def _union(self, depth: int) -> q.Query:
        rng = self._rng
        branches = [self.query(depth) for _ in range(rng.choice([2, 2, 3]))]
        types = [rng.choice([INT, STRING]) for _ in range(rng.randrange(1, 4))]
        parts = tuple(project(b, tuple(self._typed(b.schema, t) for t in types)) for b in branches)
        return q.UnionAll(parts, tuple(Column(f"c{i}", t) for i, t in enumerate(types)))

    def _join(self, depth: int) -> q.Query:
        rng = self._rng
        left, right = self.query(depth), self.query(max(0, depth - 1))
        both = (*left.schema, *right.schema)
        kind = rng.choice([k for k in q.JoinKind if k is not q.JoinKind.CROSS])
        parts = [self._equality(left.schema, right.schema) for _ in range(rng.choice([1, 1, 2]))]
        if rng.random() < 0.4:
            parts.append(self.predicate(both))
        rng.shuffle(parts)
        condition = parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOLEAN)
        out = left.schema if kind in (q.JoinKind.SEMI, q.JoinKind.ANTI) else both
        return q.Join(left, right, kind, condition, out, (1, 1))

    def _commas(self, depth: int) -> q.Query:
        """FROM a, b, c WHERE …: equalities that connect them in any order."""
        rng = self._rng
        leaves = [self.query(max(0, depth - 2)) for _ in range(rng.choice([2, 3]))]
        joined: q.Query = leaves[0]
        starts = [0]
        for leaf in leaves[1:]:
            starts.append(len(joined.schema))
            joined = q.Join(joined, leaf, q.JoinKind.CROSS, None, (*joined.schema, *leaf.schema), (1, 1))
        order = rng.sample(range(len(leaves)), len(leaves))
        parts: list[Expr] = []
        for one, other in pairwise(order):
            a, b = self._matching(leaves[one].schema, leaves[other].schema)
            parts.append(Call("eq", (moved(a, starts[one]), moved(b, starts[other])), BOOLEAN))
        parts.append(self.predicate(joined.schema))
        rng.shuffle(parts)
        return q.Filter(joined, Call("and", tuple(parts), BOOLEAN))

    def _equality(self, left: Schema, right: Schema) -> Expr:
        a, b = self._matching(left, right)
        args = (a, moved(b, len(left)))
        return Call("eq", args if self._rng.random() < 0.5 else args[::-1], BOOLEAN)

    def _matching(self, left: Schema, right: Schema) -> tuple[Expr, Expr]:
        """Columns of one type of both; numbers may need a cast."""
        rng = self._rng
        pairs = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if _family(a.type) == _family(b.type)]
        if not pairs:
            return Call("cast", (ref(left, 0),), STRING), Call("cast", (ref(right, 0),), STRING)
        i, j = rng.choice(pairs)
        a, b = ref(left, i), ref(right, j)
        if a.type != b.type:
            return _cast(a, BIGINT), _cast(b, BIGINT)
        return a, b

    def _typed(self, schema: Schema, wanted: Type) -> Expr:
        found = [i for i, c in enumerate(schema) if c.type == wanted]
        if not found:
            return Literal(1 if wanted == INT else "p", wanted)
        return ref(schema, self._rng.choice(found))

    def scalar(self, schema: Schema) -> Expr:
        rng = self._rng
        plain = ref(schema, rng.randrange(len(schema)))
        if rng.random() < 0.6 or plain.type not in (INT, BIGINT):
            return plain
        if self._guarded and rng.random() < 0.3:
            return Call("case", (_nonzero(plain), _inverse(plain), Literal(None, DOUBLE)), DOUBLE)
        return rng.choice(
            [
                Call("coalesce", (plain, Literal(7, plain.type)), plain.type),
                Call("add", (plain, Literal(1, plain.type)), plain.type),
                Call("case", (self.predicate(schema), plain, Literal(None, plain.type)), plain.type),
            ]
        )

    def predicate(self, schema: Schema) -> Expr:
        rng = self._rng
        roll = rng.random()
        if roll < 0.2:
            return Call(rng.choice(["and", "or"]), (self.predicate(schema), self.predicate(schema)), BOOLEAN)
        if roll < 0.27:
            return Call("not", (self.predicate(schema),), BOOLEAN)
        if roll < 0.34:
            common, a, b = (self._simple(schema) for _ in range(3))
            return Call("or", (Call("and", (common, a), BOOLEAN), Call("and", (b, common), BOOLEAN)), BOOLEAN)
        if roll < 0.4:
            return rng.choice([Literal(True, BOOLEAN), Literal(None, BOOLEAN), Literal(False, BOOLEAN)])
        return self._simple(schema)

    def _simple(self, schema: Schema) -> Expr:
        rng = self._rng
        column = ref(schema, rng.randrange(len(schema)))
        if rng.random() < 0.2:
            return Call(rng.choice(["is_null", "is_not_null"]), (column,), BOOLEAN)
        if self._guarded and rng.random() < 0.4 and column.type in (INT, BIGINT):
            other = ref(schema, rng.randrange(len(schema)))
            if other.type not in (INT, BIGINT):
                other = column
            divided = Call("add", (_inverse(column), _inverse(other)), DOUBLE)
            large = Call("gt", (divided, Literal(0.4, DOUBLE)), BOOLEAN)
            return Call("and", (_nonzero(column), _nonzero(other), large), BOOLEAN)
        name = rng.choice(["eq", "ne", "lt", "le", "gt", "ge"])
        same = [i for i, c in enumerate(schema) if c.type == column.type]
        if rng.random() < 0.4:
            return Call(name, (column, ref(schema, rng.choice(same))), BOOLEAN)
        value = (
            rng.choice("pqr") if column.type == STRING else float(rng.randrange(4)) if column.type == DOUBLE else None
        )
        return Call(name, (column, Literal(rng.randrange(4) if value is None else value, column.type)), BOOLEAN)


def ref(schema: Schema, index: int) -> ColumnRef:
    return ColumnRef(index, schema[index].type, schema[index].name)


def moved(expr: Expr, offset: int) -> Expr:
    if isinstance(expr, ColumnRef):
        return ColumnRef(expr.index + offset, expr.type, expr.name)
    return expr if isinstance(expr, Literal) else Call(expr.name, tuple(moved(a, offset) for a in expr.args), expr.type)


def project(below: q.Query, exprs: tuple[Expr, ...]) -> q.Project:
    return q.Project(below, exprs, tuple(Column(f"c{i}", e.type) for i, e in enumerate(exprs)))


def _nonzero(number: Expr) -> Expr:
    return Call("ne", (number, Literal(0, number.type)), BOOLEAN)


def _inverse(number: Expr) -> Expr:
    return Call("div", (Literal(1.0, DOUBLE), _cast(number, DOUBLE)), DOUBLE)


def _cast(expr: Expr, target: Type) -> Expr:
    return expr if expr.type == target else Call("cast", (expr,), target)


def _family(type: Type) -> str:
    return "number" if type in (INT, BIGINT) else str(type)
