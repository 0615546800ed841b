"""Aggregate functions: collected while SELECT and HAVING are bound, then replaced by columns of the Aggregate.

While a clause is being bound, the k-th distinct call is a column at `PENDING + k`. Once all are known, `rewrite` turns
group expressions and calls into positions of the Aggregate's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from belvedere.sql import decimals, functions
from belvedere.sql.binder.expressions import ExpressionBinder
from belvedere.sql.binder.scope import Scope
from belvedere.sql.coercion import Mismatch, boolean, cast, is_number
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.sql.parser import SqlText, sql_text
from belvedere.sql.query import AggregateCall
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, Kind

PENDING = 1 << 30


class Ungrouped(Exception):
    """A column that is neither grouped nor inside an aggregate."""

    def __init__(self, name: str):
        self.name = name
        super().__init__(name)


@dataclass
class AggregateCollector:
    """The distinct aggregate calls of one SELECT."""

    source: SqlText
    scope: Scope
    calls: list[AggregateCall] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def add(self, binder: ExpressionBinder, node: exp.Anonymous, condition: exp.Expr | None) -> Expr:
        inner = ExpressionBinder(self.source, self.scope, "an aggregate function")
        filter_ = None if condition is None else inner.condition(condition, "FILTER")
        try:
            call = _bind(inner, node, filter_)
        except Mismatch as error:
            raise self.source.error(error.message, node, error.hint) from None
        if call not in self.calls:
            self.calls.append(call)
            self.labels.append(sql_text(node))
        position = self.calls.index(call)
        return ColumnRef(PENDING + position, call.type, self.labels[position])

    def rewrite(self, expr: Expr, groups: Mapping[Expr, int], names: list[str]) -> Expr:
        """The expression over the output of the Aggregate."""
        if expr in groups:
            position = groups[expr]
            return ColumnRef(position, expr.type, names[position])
        if isinstance(expr, ColumnRef):
            if expr.index < PENDING:
                raise Ungrouped(expr.name)
            return ColumnRef(len(names) + expr.index - PENDING, expr.type, expr.name)
        if isinstance(expr, Call):
            # A constant stays one: a scale, a unit or a pattern that equals a group by chance must not become a column.
            args = (a if isinstance(a, Literal) else self.rewrite(a, groups, names) for a in expr.args)
            return Call(expr.name, tuple(args), expr.type)
        return expr


def _bind(binder: ExpressionBinder, node: exp.Anonymous, filter_: Expr | None) -> AggregateCall:
    name = node.name.lower()
    nodes, distinct = list(node.expressions), False
    if nodes and isinstance(nodes[0], exp.Distinct):
        distinct, nodes = True, list(nodes[0].expressions)
    if name == "count":
        return _count(binder, node, nodes, distinct, filter_)
    if len(nodes) != 1:
        raise binder.source.error(f"aggregate function {name} takes 1 argument, found {len(nodes)}", node)
    arg = binder.bind(nodes[0])
    if name == "count_if":
        return AggregateCall("count", None, BIGINT, filter=_both(filter_, boolean(arg, "the argument of count_if")))
    if name in ("bool_and", "every"):
        return AggregateCall("min", boolean(arg, f"the argument of {name}"), BOOLEAN, filter=filter_)
    if name in ("bool_or", "some", "any"):
        return AggregateCall("max", boolean(arg, f"the argument of {name}"), BOOLEAN, filter=filter_)
    if name in ("min", "max", "any_value"):
        # DISTINCT changes nothing here; any value is fine for any_value, so the smallest is, which does not depend on
        # order.
        return AggregateCall("max" if name == "max" else "min", arg, arg.type, filter=filter_)
    if arg.type.kind in (Kind.STRING, Kind.NULL):
        arg = cast(arg, DOUBLE)
    if not is_number(arg.type):
        raise Mismatch(f"{name} needs numbers, found {arg.type}", "count, min and max take every type")
    if name == "sum":
        return AggregateCall("sum", arg, decimals.sum_type(arg.type), distinct, filter_)
    result = decimals.avg_type(arg.type) if arg.type.kind is Kind.DECIMAL else DOUBLE
    return AggregateCall("avg", arg, result, distinct, filter_)


def _count(
    binder: ExpressionBinder, node: exp.Anonymous, nodes: list[exp.Expr], distinct: bool, filter_: Expr | None
) -> AggregateCall:
    if not nodes:
        raise binder.source.error("aggregate function count needs an argument", node, "count(*) counts rows")
    if isinstance(nodes[0], exp.Star):
        if nodes[0].args.get("except_"):
            raise binder.source.unsupported("count(* EXCEPT …) is not supported", node, "count(a, b) names the columns")
        if distinct:
            raise binder.source.unsupported("count(distinct *) is not supported", node, "count(distinct column)")
        return AggregateCall("count", None, BIGINT, filter=filter_)
    args = [binder.bind(n) for n in nodes]
    if distinct:
        if len(args) > 1:
            raise binder.source.unsupported(
                "count(distinct …) of several columns is not supported",
                node,
                "count the rows of a subquery: SELECT count(*) FROM (SELECT DISTINCT a, b …)",
            )
        return AggregateCall("count", args[0], BIGINT, True, filter_)
    if len(args) == 1 and not isinstance(args[0], Literal):
        return AggregateCall("count", args[0], BIGINT, False, filter_)
    for arg in args:  # rows in which every argument has a value
        if isinstance(arg, Literal) and arg.value is not None:
            continue
        filter_ = _both(filter_, Call("is_not_null", (arg,), BOOLEAN))
    return AggregateCall("count", None, BIGINT, filter=filter_)


def _both(left: Expr | None, right: Expr) -> Expr:
    return right if left is None else Call("and", (left, right), BOOLEAN)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether an expression contains an aggregate function of its own query."""
    if isinstance(node, exp.Subquery | exp.Select | exp.Window):
        return False
    if isinstance(node, exp.Anonymous) and node.name.lower() in functions.AGGREGATES:
        return True
    return any(is_aggregate(child) for child in node.iter_expressions())
