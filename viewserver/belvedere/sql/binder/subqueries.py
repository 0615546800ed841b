"""IN, NOT IN, EXISTS and NOT EXISTS in WHERE: semi- and anti-joins.

`x NOT IN (S)` is TRUE only if S holds neither x nor a NULL, and x is not NULL unless S is empty. It becomes up to three
anti-joins, each with an equality to look rows up by: x = y; S has a NULL (a constant key on both sides); x IS NULL and
S is not empty (CASE WHEN x IS NULL THEN 1 END = 1). The last two vanish where columns cannot be NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from belvedere.sql import functions
from belvedere.sql.binder.aggregates import is_aggregate
from belvedere.sql.binder.expressions import ExpressionBinder
from belvedere.sql.binder.relations import bind_from
from belvedere.sql.binder.scope import Context, Scope, nullable, relation_columns
from belvedere.sql.coercion import Mismatch
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, columns, remap
from belvedere.sql.parser import offset_before
from belvedere.sql.query import Distinct, Filter, Join, JoinKind, Project, Query
from belvedere.types import BOOLEAN, INT, Column

_ONE = Literal(1, INT)
_ONE_COLUMN = Column("_one", INT, False)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A subquery condition of WHERE."""

    node: exp.Expr
    negated: bool


@dataclass(frozen=True, slots=True)
class Inner:
    """A bound subquery: its rows, its SELECT list and the conditions that tie it to the outer row (both over outer
    columns followed by its own)."""

    query: Query
    outputs: tuple[Expr, ...]
    correlation: tuple[Expr, ...]


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition joined by AND."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [part for child in node.flatten() for part in conjuncts(child)]
    return [node]


def as_predicate(node: exp.Expr) -> Predicate | None:
    """The condition as IN or EXISTS over a subquery, if it is one."""
    negated = False
    while isinstance(node, exp.Paren | exp.Not):
        negated ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None):
        return Predicate(node, negated)
    return None


def bind_where(ctx: Context, query: Query, scope: Scope, where: exp.Expr | None) -> tuple[Query, list[exp.Expr]]:
    """Filter and semi-/anti-join the query by the conditions that need no outer columns; returns those that do."""
    plain: list[Expr] = []
    predicates: list[Predicate] = []
    correlated: list[exp.Expr] = []
    binder = ExpressionBinder(ctx.source, scope, "WHERE")
    for part in conjuncts(where) if where is not None else []:
        predicate = as_predicate(part)
        if predicate is not None:
            predicates.append(predicate)
        elif _reads_outer(part, scope):
            correlated.append(part)
        else:
            plain.append(binder.condition(part, "WHERE"))
    if plain:
        query = Filter(query, plain[0] if len(plain) == 1 else Call("and", tuple(plain), BOOLEAN))
    for predicate in predicates:
        query = _apply(ctx, query, scope, predicate)
    return query, correlated


def _reads_outer(node: exp.Expr, scope: Scope) -> bool:
    if scope.outer is None:
        return False
    return any(
        not scope.matches(c.name, c.table or None) and bool(scope.outer.matches(c.name, c.table or None))
        for c in node.find_all(exp.Column)
    )


def _apply(ctx: Context, left: Query, scope: Scope, predicate: Predicate) -> Query:
    node = predicate.node
    if isinstance(node, exp.Exists):
        at = offset_before(ctx.source, node, ("EXISTS",))
        inner = _bind_inner(ctx, len(left.schema), scope, node.this, want_outputs=False)
        position = ctx.source.where(at)
        kind = JoinKind.ANTI if predicate.negated else JoinKind.SEMI
        if inner.correlation:
            return Join(left, inner.query, kind, _all(inner.correlation), left.schema, position)
        return _constant_join(left, inner.query, kind, position)
    return _in(ctx, left, scope, node, predicate.negated)


def _in(ctx: Context, left: Query, scope: Scope, node: exp.Expr, negated: bool) -> Query:
    subject = node.this
    while isinstance(subject, exp.Paren):
        subject = subject.this
    parts = subject.expressions if isinstance(subject, exp.Tuple) else [subject]
    binder = ExpressionBinder(ctx.source, scope, "WHERE")
    values = [binder.bind(p) for p in parts]
    inner = _bind_inner(ctx, len(left.schema), scope, node.args["query"], want_outputs=True)
    if len(values) != len(inner.outputs):
        raise ctx.source.error(
            f"IN compares {len(values)} value{'s' if len(values) > 1 else ''} with {len(inner.outputs)} columns",
            node,
            "select as many columns as stand left of IN",
        )
    try:
        equal = [functions.compare("eq", v, o) for v, o in zip(values, inner.outputs, strict=True)]
    except Mismatch as error:
        raise ctx.source.error(error.message, node, error.hint) from None
    position = ctx.source.where(node)
    if not negated:
        return Join(left, inner.query, JoinKind.SEMI, _all([*equal, *inner.correlation]), left.schema, position)
    return _not_in(ctx, left, inner, values, equal, node)


def _not_in(ctx: Context, left: Query, inner: Inner, values: list[Expr], equal: list[Expr], node: exp.Expr) -> Query:
    position = ctx.source.where(node)
    width = len(left.schema)
    right = inner.query

    def is_nullable(index: int) -> bool:
        return left.schema[index].nullable if index < width else right.schema[index - width].nullable

    null_left = any(nullable(v, is_nullable) for v in values)
    null_right = any(nullable(o, is_nullable) for o in inner.outputs)
    if len(values) > 1 and (null_left or null_right):
        raise ctx.source.unsupported(
            "NOT IN over several columns that may be NULL is not supported", node, "use NOT EXISTS with equalities"
        )
    result: Query = Join(left, right, JoinKind.ANTI, _all([*equal, *inner.correlation]), left.schema, position)
    if null_right:
        missing = Call("is_null", (inner.outputs[0],), BOOLEAN)
        own = min(columns(inner.outputs[0]), default=width) >= width
        if own:
            nulls: Query = Filter(right, remap(missing, lambda i: i - width))
            tie = inner.correlation
        else:
            nulls, tie = right, (*inner.correlation, missing)
        if tie:
            result = Join(result, nulls, JoinKind.ANTI, _all(tie), left.schema, position)
        else:
            result = _constant_join(result, nulls, JoinKind.ANTI, position)
    if null_left:
        missing = Call("is_null", (values[0],), BOOLEAN)
        if inner.correlation:
            condition = _all([missing, *inner.correlation])
            result = Join(result, right, JoinKind.ANTI, condition, left.schema, position)
        else:
            mark = Call("case", (missing, _ONE, Literal(None, INT)), INT)
            condition = Call("eq", (mark, ColumnRef(width, INT, _ONE_COLUMN.name)), BOOLEAN)
            result = Join(result, _any_row(right), JoinKind.ANTI, condition, left.schema, position)
    return result


def _any_row(query: Query) -> Query:
    """One row with a constant if the query has rows, none otherwise."""
    return Distinct(Project(query, (_ONE,), (_ONE_COLUMN,)))


def _constant_join(left: Query, right: Query, kind: JoinKind, position: tuple[int, int] | None) -> Query:
    """Keep or drop all of left, depending on whether right has rows: a join on a constant column of both."""
    width = len(left.schema)
    refs = tuple(c.expr for c in relation_columns(None, left.schema))
    marked = Project(left, (*refs, _ONE), (*left.schema, _ONE_COLUMN))
    condition = Call(
        "eq", (ColumnRef(width, INT, _ONE_COLUMN.name), ColumnRef(width + 1, INT, _ONE_COLUMN.name)), BOOLEAN
    )
    joined = Join(marked, _any_row(right), kind, condition, marked.schema, position)
    return Project(joined, refs, left.schema)


def _all(parts: Sequence[Expr]) -> Expr:
    flat: list[Expr] = []
    for part in parts:
        flat.extend(part.args if isinstance(part, Call) and part.name == "and" else [part])
    return flat[0] if len(flat) == 1 else Call("and", tuple(flat), BOOLEAN)


def _bind_inner(ctx: Context, width: int, scope: Scope, node: exp.Expr, *, want_outputs: bool) -> Inner:
    while isinstance(node, exp.Subquery) and not any(value for key, value in node.args.items() if key != "this"):
        node = node.this
    inside = replace(ctx, outer=scope)
    if not isinstance(node, exp.Select) or not _is_simple(node):
        query = ctx.bind(inside, node)
        outputs = tuple(c.shifted(width).expr for c in relation_columns(None, query.schema))
        return Inner(query, outputs, ())
    relation = bind_from(inside, node)
    own = Scope(relation.columns, scope)
    where = node.args.get("where")
    query, correlated = bind_where(inside, relation.query, own, where.this if where is not None else None)
    combined = Scope(tuple(c.shifted(width) for c in relation.columns), scope, correlated=True)
    binder = ExpressionBinder(ctx.source, combined, "WHERE")
    ties = tuple(binder.condition(c, "WHERE") for c in correlated)
    outputs = ()
    if want_outputs:
        outputs = tuple(_outputs(binder, combined, node.expressions))
    else:
        for item in node.expressions:  # EXISTS ignores the list, but a misspelt name in it is still a mistake
            if not item.find(exp.Star):
                binder.bind(item.unalias())
    return Inner(query, outputs, ties)


def _outputs(binder: ExpressionBinder, scope: Scope, items: list[exp.Expr]) -> list[Expr]:
    found: list[Expr] = []
    for item in items:
        if isinstance(item, exp.Star):
            found.extend(c.expr for c in scope.columns if not c.hidden)
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            found.extend(c.expr for c in scope.columns if (c.qualifier or "").lower() == item.table.lower())
        else:
            found.append(binder.bind(item.unalias()))
    return found


_SIMPLE = {"expressions", "from_", "joins", "where", "distinct"}


def _is_simple(node: exp.Select) -> bool:
    """A plain selection: neither grouped nor with clauses of its own, no column left out of a `*` (DISTINCT changes
    nothing under IN and EXISTS)."""
    extra = {key for key, value in node.args.items() if value} - _SIMPLE
    stars = [star for item in node.expressions for star in item.find_all(exp.Star)]
    return not (
        extra or any(star.args.get("except_") for star in stars) or any(is_aggregate(e) for e in node.expressions)
    )
