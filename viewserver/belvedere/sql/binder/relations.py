"""FROM: tables, views, WITH names and nested queries, and the joins between them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from sqlglot import exp

from belvedere.sql import functions
from belvedere.sql.binder.expressions import ExpressionBinder
from belvedere.sql.binder.scope import Context, Scope, ScopeColumn, relation_columns
from belvedere.sql.coercion import Mismatch, common
from belvedere.sql.expr import Call, Expr
from belvedere.sql.parser import offset_before
from belvedere.sql.query import Join, JoinKind, Project, Query, Scan
from belvedere.types import BOOLEAN, Column, Schema


@dataclass(frozen=True, slots=True)
class BoundRelation:
    """A bound part of FROM and the names it offers."""

    query: Query
    columns: tuple[ScopeColumn, ...]


def bind_from(ctx: Context, select: exp.Select) -> BoundRelation:
    """The whole FROM clause. As in Spark, a comma binds looser than JOIN."""
    first = select.args.get("from_")
    if first is None:
        raise ctx.source.unsupported(
            "a SELECT without FROM is not supported", ctx.source.tokens[0], "read from at least one table or view"
        )
    return _joined(ctx, first.this, select.args.get("joins") or [])


def _joined(ctx: Context, first: exp.Expr, joins: list[exp.Join]) -> BoundRelation:
    done: BoundRelation | None = None
    current = _relation(ctx, first)
    comma: exp.Join | None = None
    for join in joins:
        if _is_comma(ctx, join):
            done = current if done is None else _cross(ctx, done, current, comma)
            current, comma = _relation(ctx, join.this), join
        else:
            current = _join(ctx, current, join)
    return current if done is None else _cross(ctx, done, current, comma)


def _is_comma(ctx: Context, join: exp.Join) -> bool:
    if join.args.get("on") is not None or join.args.get("using") or join.args.get("side"):
        return False
    offset = offset_before(ctx.source, join.this, ("JOIN", ","))
    return offset is not None and ctx.source.text[offset] == ","


def _cross(ctx: Context, left: BoundRelation, right: BoundRelation, join: exp.Join | None) -> BoundRelation:
    return _make(ctx, left, right, JoinKind.CROSS, None, join, left.columns, right.columns)


def _relation(ctx: Context, node: exp.Expr) -> BoundRelation:
    relation = _named(ctx, node) if isinstance(node, exp.Table) else _nested(ctx, node)
    if node.args.get("joins"):
        relation = _joined_onto(ctx, relation, node.args["joins"])
    return relation


def _joined_onto(ctx: Context, relation: BoundRelation, joins: list[exp.Join]) -> BoundRelation:
    for join in joins:
        if _is_comma(ctx, join):
            relation = _cross(ctx, relation, _relation(ctx, join.this), join)
        else:
            relation = _join(ctx, relation, join)
    return relation


def _named(ctx: Context, node: exp.Table) -> BoundRelation:
    source = ctx.source
    name = node.name
    query = ctx.ctes.get(name.lower())
    if query is None:
        found = ctx.catalog.find(name)
        if found is None:
            known = sorted({*ctx.catalog.tables, *ctx.catalog.views, *ctx.ctes})
            close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=3, cutoff=0.6)
            hint = f"did you mean {', '.join(close)}?" if close else "there is " + (", ".join(known) or "none yet")
            raise source.error(f"no table or view {name!r}", node, hint)
        query = Scan(found.name, found.columns)
    return _aliased(ctx, query, node.args.get("alias"), name, node)


def _nested(ctx: Context, node: exp.Expr) -> BoundRelation:
    inner = node.this
    alias = node.args.get("alias")
    named = isinstance(inner, exp.Subquery) and (inner.args.get("joins") or inner.args.get("alias"))
    if isinstance(inner, exp.Table) or named:  # a parenthesised join
        relation = _relation(ctx, inner)
        if alias is None or not alias.name:
            return relation
        if alias.args.get("columns"):
            raise ctx.source.unsupported(
                "column names for a join in parentheses are not supported",
                alias,
                "name them: (SELECT x AS a FROM …) AS q",
            )
        columns = tuple(replace(c, qualifier=alias.name) for c in relation.columns)
        return BoundRelation(relation.query, columns)
    # A query in FROM sees nothing of its neighbours, nor of the query around a subquery.
    query = ctx.bind(
        replace(ctx, outer=None),
        node if any(node.args.get(k) for k in ("order", "limit", "offset", "with_")) else inner,
    )
    return _aliased(ctx, query, alias, None, node)


def _aliased(
    ctx: Context, query: Query, alias: exp.TableAlias | None, name: str | None, node: exp.Expr
) -> BoundRelation:
    qualifier = alias.name if alias is not None and alias.name else name
    renamed = alias.args.get("columns") if alias is not None else None
    if renamed:
        query = rename(ctx, query, [c.name for c in renamed], node)
    return BoundRelation(query, relation_columns(qualifier, query.schema))


def rename(ctx: Context, query: Query, names: list[str], node: exp.Expr) -> Query:
    """The same rows under other column names."""
    if len(names) != len(query.schema):
        listed = ", ".join(c.name for c in query.schema)
        raise ctx.source.error(f"{len(names)} column names for {len(query.schema)} columns", node, f"columns: {listed}")
    refs = tuple(c.expr for c in relation_columns(None, query.schema))
    schema = tuple(replace(c, name=n) for c, n in zip(query.schema, names, strict=True))
    return Project(query, refs, schema)


_JOINS = "JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, CROSS JOIN, LEFT SEMI JOIN, LEFT ANTI JOIN"
_SIDES = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}


def _kind(ctx: Context, join: exp.Join) -> JoinKind:
    side, kind = (str(join.args.get(k) or "").upper() for k in ("side", "kind"))
    conditions = join.args.get("on") is not None or bool(join.args.get("using"))
    fits = {"": True, "INNER": not side, "CROSS": not side and not conditions, "OUTER": bool(side)}
    fits.update(dict.fromkeys(("SEMI", "ANTI"), side in ("", "LEFT")))
    if not fits.get(kind, False) or (side and side not in _SIDES):
        what = (
            " ".join(w for w in (side, kind) if w)
            + " JOIN"
            + (" with a condition" if kind == "CROSS" and not side else "")
        )
        hint = "CROSS JOIN takes no condition" if what.endswith("condition") else f"joins: {_JOINS}"
        raise ctx.source.unsupported(f"{what} is not supported", _first_word(ctx, join), hint)
    if kind in ("SEMI", "ANTI"):
        return JoinKind.SEMI if kind == "SEMI" else JoinKind.ANTI
    if side:
        return _SIDES[side]
    if join.args.get("on") is None and not join.args.get("using"):
        return JoinKind.CROSS
    return JoinKind.INNER


def _join(ctx: Context, left: BoundRelation, join: exp.Join) -> BoundRelation:
    kind = _kind(ctx, join)
    right = _relation(ctx, join.this)
    shift = len(left.query.schema)
    moved = tuple(c.shifted(shift) for c in right.columns)
    on, using = join.args.get("on"), join.args.get("using") or []
    if kind in _SIDES.values() and isinstance(on, exp.Boolean) and on.this:
        on = None  # what sqlglot writes where ON is missing
    if on is None and not using and kind is not JoinKind.CROSS:
        raise ctx.source.error(f"a {kind.value} join needs a condition", _at(ctx, join), "JOIN … ON a.x = b.y")
    if using:
        return _using(ctx, left, right, kind, [u for u in using if isinstance(u, exp.Expr)], join)
    condition = None
    if on is not None:
        # ON sees its own join only, plus what the WHERE around a subquery sees (for a clear message).
        binder = ExpressionBinder(ctx.source, Scope((*left.columns, *moved), ctx.outer), "ON")
        condition = binder.condition(on, "ON")
    return _make(ctx, left, right, kind, condition, join, left.columns, right.columns)


def _using(
    ctx: Context, left: BoundRelation, right: BoundRelation, kind: JoinKind, names: list[exp.Expr], join: exp.Join
) -> BoundRelation:
    shift = len(left.query.schema)
    moved = tuple(c.shifted(shift) for c in right.columns)
    equal: list[Expr] = []
    merged: list[ScopeColumn] = []
    for name in names:
        bare = exp.column(exp.to_identifier(name.name))
        bare.this.meta.update(name.meta or (name.this.meta if isinstance(name.this, exp.Expr) else {}))
        a, b = (Scope(side).resolve(ctx.source, bare) for side in (left.columns, moved))
        expr = b.expr if kind is JoinKind.RIGHT else a.expr
        try:
            equal.append(functions.compare("eq", a.expr, b.expr))
            if kind is JoinKind.FULL:
                type_, both = common((a.expr, b.expr), "USING")
                expr = Call("coalesce", tuple(both), type_)
        except Mismatch:
            raise ctx.source.error(
                f"column {a.name!r} of USING is {a.expr.type} on the left and {b.expr.type} on the right",
                bare,
                f"join with ON, and cast one of them: cast(… as {a.expr.type})",
            ) from None
        merged.append(ScopeColumn(None, a.name, expr, kind is not JoinKind.INNER and (a.nullable or b.nullable)))
    taken = {m.name.lower() for m in merged}
    condition = equal[0] if len(equal) == 1 else Call("and", tuple(equal), BOOLEAN)

    def hide(columns: tuple[ScopeColumn, ...]) -> tuple[ScopeColumn, ...]:
        # A merged column of an earlier USING has no qualifier: the new one takes its place.
        kept = (c for c in columns if not (c.qualifier is None and c.name.lower() in taken))
        return tuple(replace(c, hidden=c.hidden or c.name.lower() in taken) for c in kept)

    made = _make(ctx, left, right, kind, condition, join, hide(left.columns), hide(right.columns))
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        return BoundRelation(made.query, left.columns)
    return BoundRelation(made.query, (*merged, *made.columns))


def _make(
    ctx: Context,
    left: BoundRelation,
    right: BoundRelation,
    kind: JoinKind,
    condition: Expr | None,
    join: exp.Join | None,
    left_columns: tuple[ScopeColumn, ...],
    right_columns: tuple[ScopeColumn, ...],
) -> BoundRelation:
    shift = len(left.query.schema)
    pads_left = kind in (JoinKind.RIGHT, JoinKind.FULL)
    pads_right = kind in (JoinKind.LEFT, JoinKind.FULL)
    position = None if join is None else ctx.source.where(_at(ctx, join))
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        query = Join(left.query, right.query, kind, condition, left.query.schema, position)
        return BoundRelation(query, left_columns)
    schema = (*_padded(left.query.schema, pads_left), *_padded(right.query.schema, pads_right))
    columns = (
        *(replace(c, nullable=c.nullable or pads_left) for c in left_columns),
        *(replace(c.shifted(shift), nullable=c.nullable or pads_right) for c in right_columns),
    )
    return BoundRelation(Join(left.query, right.query, kind, condition, schema, position), columns)


def _padded(schema: Schema, pads: bool) -> Schema:
    return tuple(Column(c.name, c.type, True) for c in schema) if pads else schema


def _first_word(ctx: Context, join: exp.Join) -> int | None:
    """Where `LEFT OUTER JOIN` and its like begin."""
    at = _at(ctx, join)
    words = {word for key in ("side", "kind") for word in str(join.args.get(key) or "").upper().split()}
    for token in reversed(ctx.source.tokens):
        if at is None or token.start >= at:
            continue
        if token.text.upper() not in words:
            break
        at = token.start
    return at


def _at(ctx: Context, join: exp.Join) -> int | None:
    return offset_before(ctx.source, join.this, ("JOIN", ","))
