"""Whole queries: WITH, set operations, parentheses, and the entry into the binder."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from belvedere.sql.binder.relations import rename
from belvedere.sql.binder.scope import Context, relation_columns, schema_of
from belvedere.sql.binder.select import bind_select, refuse_order
from belvedere.sql.catalog import Catalog
from belvedere.sql.coercion import cast, wider
from belvedere.sql.parser import SqlText, offset_before
from belvedere.sql.query import Distinct, Project, Query, UnionAll
from belvedere.types import Column, Schema, Type


def bind_tree(source: SqlText, tree: exp.Expr, catalog: Catalog) -> Query:
    """A parsed query against a catalog."""
    try:
        return bind(Context(source, catalog, bind), tree)
    except RecursionError:
        raise source.too_deep() from None


def bind(ctx: Context, node: exp.Expr) -> Query:
    """Any query expression."""
    ctx = _with(ctx, node)
    if isinstance(node, exp.Select):
        return bind_select(ctx, node)
    if isinstance(node, exp.Union):
        return _union(ctx, node)
    if isinstance(node, exp.Subquery):
        refuse_order(ctx, node)
        if node.args.get("joins"):
            raise ctx.source.unsupported(
                "a join is only supported in FROM", node.args["joins"][0], "SELECT … FROM (SELECT …) AS q JOIN …"
            )
        return bind(ctx, node.this)
    if isinstance(node, exp.Values):
        raise ctx.source.unsupported("VALUES is not supported as a query", node, "put the rows into a table")
    raise ctx.source.unsupported("only SELECT and UNION are queries here", node, "SELECT … FROM …")


def _with(ctx: Context, node: exp.Expr) -> Context:
    clause = node.args.get("with_")
    if clause is None:
        return ctx
    known = dict(ctx.ctes)
    fresh: set[str] = set()
    for cte in clause.expressions:
        name = cte.alias.lower()
        if name in fresh:
            raise ctx.source.error(f"WITH defines {cte.alias!r} twice", cte.args["alias"])
        query = bind(replace(ctx, ctes=dict(known), outer=None), cte.this)
        names = cte.args["alias"].args.get("columns")
        known[name] = rename(ctx, query, [n.name for n in names], cte) if names else query
        fresh.add(name)
    return replace(ctx, ctes=known)


def _union(ctx: Context, node: exp.Union) -> Query:
    refuse_order(ctx, node)
    left, right = bind(ctx, node.this), bind(ctx, node.expression)
    at = offset_before(ctx.source, node.expression, ("UNION",))
    if len(left.schema) != len(right.schema):
        raise ctx.source.error(
            f"UNION of {len(left.schema)} and {len(right.schema)} columns", at, "select the same number of columns"
        )
    types: list[Type] = []
    for number, (a, b) in enumerate(zip(left.schema, right.schema, strict=True), 1):
        type_ = wider(a.type, b.type)
        if type_ is None:
            raise ctx.source.error(
                f"column {number} of UNION is {a.type} above and {b.type} below", at, "cast one of them"
            )
        types.append(type_)
    parts: list[Query] = []
    for side in (left, right):
        for part in side.inputs if isinstance(side, UnionAll) else (side,):
            parts.append(_as_types(part, types))
    schema: Schema = tuple(
        Column(a.name, t, a.nullable or b.nullable) for a, b, t in zip(left.schema, right.schema, types, strict=True)
    )
    union = UnionAll(tuple(parts), schema)
    return Distinct(union) if node.args.get("distinct") else union


def _as_types(query: Query, types: list[Type]) -> Query:
    if [c.type for c in query.schema] == types:
        return query
    refs = [c.expr for c in relation_columns(None, query.schema)]
    exprs = tuple(cast(r, t) for r, t in zip(refs, types, strict=True))
    return Project(query, exprs, schema_of(exprs, [c.name for c in query.schema], query.schema))
