"""Two naive interpreters over Python rows: one for bound queries, one for plans. Slow and obvious on purpose.

The one for plans also checks what plans promise: ids and keys are unique at every node, schemas fit expressions, and a
view's ids are the hashes of its key columns.
"""

from __future__ import annotations

import calendar
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from belvedere.plan import nodes as n
from belvedere.sql import query as q
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, walk
from belvedere.types import Kind

Row = tuple[Any, ...]
Tables = Mapping[str, Sequence[Row]]


class Failed:
    """An error as a value of a row."""

    def __repr__(self) -> str:
        return "error"


ERROR = Failed()


def _norm(value: Any) -> Any:
    """Equality of groups and keys: NaN equals NaN, -0.0 equals 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def evaluate(expr: Expr, row: Row) -> Any:
    if isinstance(expr, ColumnRef):
        return row[expr.index]
    if isinstance(expr, Literal):
        return expr.value
    name = expr.name
    if name == "case":
        return _case(expr, row)
    args = [evaluate(a, row) for a in expr.args]
    if name == "and":
        return False if any(a is False for a in args) else _worst(args, True)
    if name == "or":
        return True if any(a is True for a in args) else _worst(args, False)
    if name == "coalesce":
        return next((a for a in args if a is not None), None)
    if ERROR in args:
        return ERROR
    if name in ("is_null", "is_not_null"):
        return (args[0] is None) == (name == "is_null")
    if name == "null_safe_eq":
        return (args[0] is None) == (args[1] is None) and _norm(args[0]) == _norm(args[1])
    if name == "is_true":
        return args[0] is True
    if name == "in":
        return _in(args)
    if None in args:
        return None
    return _strict(name, args, expr)


def _worst(args: list[Any], otherwise: bool) -> Any:
    return ERROR if ERROR in args else None if None in args else otherwise


def _case(call: Call, row: Row) -> Any:
    parts = list(call.args)
    default = parts.pop() if len(parts) % 2 else None
    for when, then in zip(parts[::2], parts[1::2], strict=True):
        held = evaluate(when, row)
        if held is ERROR:
            return ERROR
        if held is True:
            return evaluate(then, row)
    return None if default is None else evaluate(default, row)


def _in(args: list[Any]) -> Any:
    if args[0] is None:
        return None
    if args[0] in [a for a in args[1:] if a is not None]:
        return True
    return None if None in args[1:] else False


def _strict(name: str, args: list[Any], expr: Call) -> Any:
    a = args[0]
    if name == "not":
        return not a
    if name == "cast":
        if expr.type.kind is Kind.STRING:
            return str(a)
        if expr.type.kind is Kind.DECIMAL:
            return Decimal(a)
        try:
            return float(a) if expr.type.kind is Kind.DOUBLE else int(a)
        except ValueError:
            return ERROR
    if name == "neg":
        return -a
    if name == "year":
        return a.year
    if name == "like":
        pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in args[1])
        return re.fullmatch(pattern, a, re.DOTALL) is not None
    b = args[1]
    if name in ("date_add", "date_sub"):
        return a + timedelta(days=b if name == "date_add" else -b)
    if name == "add_months":
        year, month = divmod(a.year * 12 + a.month - 1 + b, 12)
        return date(year, month + 1, min(a.day, calendar.monthrange(year, month + 1)[1]))
    compare = {"eq": a == b, "ne": a != b}
    if name in compare:
        return compare[name]
    if name in ("lt", "le", "gt", "ge"):
        return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[name]
    if name == "div":
        return ERROR if b == 0 else a / b
    if name == "mod":
        return ERROR if b == 0 else math.fmod(a, b)
    if name == "concat":
        return "".join(args)
    return {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b}[name]()


def aggregate(call: q.AggregateCall | n.AggregateTerm, values: list[Any]) -> Any:
    """`values`: arguments of the rows that count (True for count(*))."""
    if ERROR in values:
        return ERROR
    values = [v for v in values if v is not None]
    if call.distinct:
        values = list({_norm(v): v for v in values}.values())
    if call.function == "count":
        return len(values)
    if not values:
        return None
    if call.function == "avg":
        return math.fsum(values) / len(values)
    if call.function == "sum":
        return math.fsum(values) if call.type.kind is Kind.DOUBLE else sum(values)
    return min(values) if call.function == "min" else max(values)


# -- queries: a list of (row, error of the row's membership)


def rows_of(query: q.Query, tables: Tables) -> list[tuple[Row, bool]]:
    if isinstance(query, q.Scan):
        return [(tuple(r[: len(query.schema)]), False) for r in tables[query.name]]
    if isinstance(query, q.Filter):
        found = []
        for row, failed in rows_of(query.input, tables):
            held = evaluate(query.predicate, row)
            if held is True or held is ERROR:
                found.append((row, failed or held is ERROR))
        return found
    if isinstance(query, q.Project):
        return [(tuple(evaluate(e, r) for e in query.exprs), f) for r, f in rows_of(query.input, tables)]
    if isinstance(query, q.Distinct):
        unique: dict[Any, tuple[Row, bool]] = {}
        for row, failed in rows_of(query.input, tables):
            key = tuple(map(_norm, row))
            unique[key] = (row, failed or unique.get(key, (row, False))[1])
        return list(unique.values())
    if isinstance(query, q.UnionAll):
        return [r for part in query.inputs for r in rows_of(part, tables)]
    if isinstance(query, q.Aggregate):
        return _group(query, tables)
    return _query_join(query, tables)


def _group(query: q.Aggregate, tables: Tables) -> list[tuple[Row, bool]]:
    groups: dict[Any, tuple[Row, list[Row], list[bool]]] = {}
    if not query.group:
        groups[()] = ((), [], [])
    for row, failed in rows_of(query.input, tables):
        values = tuple(evaluate(g, row) for g in query.group)
        group = groups.setdefault(tuple(map(_norm, values)), (values, [], []))
        group[1].append(row)
        group[2].append(failed)
    found = []
    for values, members, failures in groups.values():
        outs = []
        for call in query.calls:
            taken = [r for r in members if call.filter is None or evaluate(call.filter, r) is True]
            outs.append(aggregate(call, [True if call.arg is None else evaluate(call.arg, r) for r in taken]))
        found.append(((*values, *outs), any(failures)))
    return found


def _query_join(join: q.Join, tables: Tables) -> list[tuple[Row, bool]]:
    left, right = rows_of(join.left, tables), rows_of(join.right, tables)

    def holds(a: Row, b: Row) -> Any:
        return True if join.condition is None else evaluate(join.condition, a + b)

    return [
        (row, failed)
        for _, row, failed in joined(
            [(None, *r) for r in left], [(None, *r) for r in right], join.kind, holds, len(join.left.schema),
            len(join.right.schema), lambda a, b: None,
        )
    ]  # fmt: skip


def joined(left: Any, right: Any, kind: q.JoinKind, holds: Any, lw: int, rw: int, identify: Any) -> list[Any]:
    """(id, row, failed) of a join; `identify` makes an id from the ids of both sides (None: padded)."""
    out, used = [], set()
    for lid, a, lf in left:
        matches = []
        for j, (rid, b, rf) in enumerate(right):
            held = holds(a, b)
            if held is True or held is ERROR:
                matches.append((identify(lid, rid), a + b, lf or rf or held is ERROR))
                used.add(j)
        if kind is q.JoinKind.SEMI:
            if matches:
                out.append((identify(lid, None), a, lf or all(m[2] for m in matches)))
        elif kind is q.JoinKind.ANTI:
            if not matches:
                out.append((identify(lid, None), a, lf))
        else:
            out += matches
            if not matches and kind in (q.JoinKind.LEFT, q.JoinKind.FULL):
                out.append((identify(lid, None), a + (None,) * rw, lf))
    if kind in (q.JoinKind.RIGHT, q.JoinKind.FULL):
        out += [(identify(None, rid), (None,) * lw + b, rf) for j, (rid, b, rf) in enumerate(right) if j not in used]
    return out


def result(query: q.Query, tables: Tables) -> Counter[Row]:
    """What a view of the query shows: rows in which nothing failed."""
    return _clean(rows_of(query, tables))


def _clean(rows: Any) -> Counter[Row]:
    return Counter(tuple(map(_norm, r)) for r, failed in rows if not failed and ERROR not in r)


# -- plans: id -> (row, failed)


class Machine:
    """Evaluates plan nodes over whole tables, once per distinct node."""

    def __init__(self, tables: Tables):
        self._tables = tables
        self._done: dict[n.Node, dict[Any, tuple[Row, bool]]] = {}

    def view(self, view: n.ViewNode) -> Counter[Row]:
        return _clean((row[: view.visible], failed or ERROR in row) for row, failed in self.rows(view).values())

    def rows(self, node: n.Node) -> dict[Any, tuple[Row, bool]]:
        if node not in self._done:
            listed = self._rows(node)
            rows = {i: (row, failed) for i, row, failed in listed}
            assert len(rows) == len(listed), f"ids repeat in {type(node).__name__}"
            for row, _ in rows.values():
                assert len(row) == len(node.schema)
            if not _below_distinct(node):
                keys = Counter(tuple(_norm(row[k]) for k in node.key) for row, _ in rows.values())
                assert all(c == 1 for c in keys.values()), f"key repeats in {type(node).__name__}: {keys}"
            self._done[node] = rows
        return self._done[node]

    def _rows(self, node: n.Node) -> list[tuple[Any, Row, bool]]:
        check(node)
        if isinstance(node, n.DeltaNode):
            rows = [tuple(r[c] for c in node.columns) for r in self._tables[node.table]]
            return [(_hash(r, node.key), r, False) for r in rows]
        if isinstance(node, n.SelectionNode):
            out = []
            for i, (row, failed) in self.rows(node.input).items():
                held = evaluate(node.predicate, row)
                if held is True or held is ERROR:
                    out.append((i, row, failed or held is ERROR))
            return out
        if isinstance(node, n.ProjectionNode):
            return [(i, tuple(evaluate(e, r) for e in node.exprs), f) for i, (r, f) in self.rows(node.input).items()]
        if isinstance(node, n.IndexNode):
            return [(_hash(r, node.key), r, f) for r, f in self.rows(node.input).values()]
        if isinstance(node, n.PreAggregationNode):
            return self._pre_aggregation(node)
        if isinstance(node, n.AggregateNode):
            width = len(node.key)
            return [
                (i, r[:width] + tuple(r[width + c] for c in node.calls), f)
                for i, (r, f) in self.rows(node.input).items()
            ]
        if isinstance(node, n.ReverseJoinNode):
            return [(i, r, f) for i, (r, f) in self.rows(node.input).items()]
        if isinstance(node, n.JoinNode):
            return self._join(node)
        if isinstance(node, n.DistinctNode):
            unique: dict[Any, tuple[Any, Row, bool]] = {}
            for row, failed in self.rows(node.input).values():
                i = _hash(row, node.key)
                unique[i] = (i, row, failed or unique.get(i, (i, row, False))[2])
            return list(unique.values())
        if isinstance(node, n.UnionNode):
            out = []
            for branch, part in enumerate(node.inputs):
                for i, (row, failed) in self.rows(part).items():
                    assert row[-1] == branch
                    out.append((("union", branch, i), row, failed))
            return out
        below = self.rows(node.input)
        for i, (row, _) in below.items():
            assert i == _hash(row, node.key), "the ids of a view are the hashes of its key columns"
        # Views over this one see clean rows only.
        return [(i, r, f) for i, (r, f) in below.items() if not f and ERROR not in r]

    def _pre_aggregation(self, node: n.PreAggregationNode) -> list[tuple[Any, Row, bool]]:
        groups: dict[Any, tuple[Row, list[Row], list[bool]]] = {}
        if not node.group:
            groups[_hash((), ())] = ((), [], [])
        for row, failed in self.rows(node.input).values():
            values = tuple(row[c] for c in node.group)
            group = groups.setdefault(_hash(row, node.group), (values, [], []))
            group[1].append(row)
            group[2].append(failed)
        out = []
        for i, (values, members, failures) in groups.items():
            outs = []
            for call in node.calls:
                taken = [r for r in members if call.filter is None or r[call.filter] is True]
                outs.append(aggregate(call, [True if call.arg is None else r[call.arg] for r in taken]))
            out.append((i, (*values, *outs), any(failures)))
        return out

    def _join(self, node: n.JoinNode) -> list[tuple[Any, Row, bool]]:
        def holds(a: Row, b: Row) -> Any:
            pairs = [(a[x], b[y]) for x, y in zip(node.left.on, node.right.on, strict=True)]
            if any(x is None or y is None or x is ERROR or y is ERROR or _norm(x) != _norm(y) for x, y in pairs):
                return False
            return True if node.residual is None else evaluate(node.residual, a + b)

        def identify(left: Any, right: Any) -> Any:
            if node.identity is n.Identity.LEFT:
                assert left is not None
                return left
            if node.identity is n.Identity.RIGHT:
                assert right is not None
                return right
            return ("pair", left, right)

        left = [(i, r, f) for i, (r, f) in self.rows(node.left).items()]
        right = [(i, r, f) for i, (r, f) in self.rows(node.right).items()]
        return joined(left, right, node.kind, holds, len(node.left.schema), len(node.right.schema), identify)


def _hash(row: Row, key: Sequence[int]) -> Any:
    return ("hash", *(_norm(row[k]) for k in key))


def _below_distinct(node: n.Node) -> bool:
    return isinstance(node, n.ProjectionNode) and not node.key and bool(node.input.key)


def check(node: n.Node) -> None:
    """Types and positions fit."""
    if isinstance(node, n.SelectionNode):
        _check_expr(node.predicate, node.input)
    elif isinstance(node, n.ProjectionNode):
        assert len(node.exprs) == len(node.schema)
        for expr, column in zip(node.exprs, node.schema, strict=True):
            assert expr.type == column.type, (expr, column)
            _check_expr(expr, node.input)
        if not _below_distinct(node) and not isinstance(node.exprs[-1] if node.exprs else None, Literal):
            assert len(node.key) >= len(node.input.key)
    elif isinstance(node, n.AggregateNode):
        assert len(node.schema) == len(node.key) + len(node.calls)
    elif isinstance(node, n.PreAggregationNode):
        assert len(node.schema) == len(node.group) + len(node.calls)
        for call in node.calls:
            assert call.filter is None or node.input.schema[call.filter].type.kind is Kind.BOOLEAN
    elif isinstance(node, n.JoinNode):
        for x, y in zip(node.left.on, node.right.on, strict=True):
            assert node.left.schema[x].type == node.right.schema[y].type
        if node.residual is not None:
            for part in walk(node.residual):
                if isinstance(part, ColumnRef):
                    assert (*node.left.schema, *node.right.schema)[part.index].type == part.type
    elif isinstance(node, n.UnionNode):
        for branch in node.inputs:
            assert [c.type for c in branch.schema] == [c.type for c in node.schema]
            assert branch.key == node.key


def _check_expr(expr: Expr, over: n.Node) -> None:
    for part in walk(expr):
        if isinstance(part, ColumnRef):
            assert over.schema[part.index].type == part.type, (part, over.schema[part.index])
