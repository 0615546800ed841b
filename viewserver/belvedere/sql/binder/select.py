"""SELECT: its clauses in the order in which SQL evaluates them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from belvedere.errors import SqlError
from belvedere.sql.binder.aggregates import AggregateCollector, Ungrouped, is_aggregate
from belvedere.sql.binder.expressions import ExpressionBinder
from belvedere.sql.binder.relations import bind_from
from belvedere.sql.binder.scope import Context, Scope, schema_of
from belvedere.sql.binder.subqueries import bind_where
from belvedere.sql.expr import Expr
from belvedere.sql.parser import offset_before, sql_text
from belvedere.sql.query import Aggregate, Distinct, Filter, Project, Query
from belvedere.types import Column

_ONLY_ADHOC = {
    "order": ("ORDER", "a view is a set of rows: sort when you read it"),
    "limit": ("LIMIT", "read the view with a limit instead"),
    "offset": ("OFFSET", "read the view with a start key instead"),
}


def refuse_order(ctx: Context, node: exp.Expr) -> None:
    """Stop at a clause that only a query which is answered once may have, at its end."""
    for key, (word, hint) in _ONLY_ADHOC.items():
        clause = node.args.get(key)
        if clause is not None:
            name = "ORDER BY" if word == "ORDER" else word
            raise ctx.source.unsupported(f"{name} is not supported", offset_before(ctx.source, clause, (word,)), hint)


@dataclass(frozen=True, slots=True)
class Item:
    """One column of a SELECT list: a tree to bind, or (from `*`) an expression that is bound already."""

    name: str
    node: exp.Expr
    expr: Expr | None = None


def bind_select(ctx: Context, node: exp.Select) -> Query:
    """A whole SELECT."""
    refuse_order(ctx, node)
    distinct = node.args.get("distinct")
    relation = bind_from(ctx, node)
    scope = Scope(relation.columns, ctx.outer)
    where = node.args.get("where")
    query, correlated = bind_where(ctx, relation.query, scope, where.this if where is not None else None)
    if correlated:
        ExpressionBinder(ctx.source, scope, "WHERE").bind(correlated[0])  # says which column is out of reach
    items = _items(ctx, scope, node.expressions)
    group, having = node.args.get("group"), node.args.get("having")
    if group is not None or having is not None or any(is_aggregate(i.node) for i in items if i.expr is None):
        query = _aggregated(ctx, scope, query, items, group, having)
    else:
        binder = ExpressionBinder(ctx.source, scope, "SELECT")
        exprs = tuple(i.expr if i.expr is not None else binder.bind(i.node) for i in items)
        query = Project(query, exprs, schema_of(exprs, [i.name for i in items], query.schema))
    return Distinct(query) if distinct is not None else query


def _items(ctx: Context, scope: Scope, nodes: list[exp.Expr]) -> list[Item]:
    items: list[Item] = []
    for node in nodes:
        star = node if isinstance(node, exp.Star) else node.this
        if isinstance(star, exp.Star) and isinstance(node, exp.Star | exp.Column):
            items.extend(_star(ctx, scope, node, star))
            continue
        if isinstance(node, exp.Alias):
            items.append(Item(node.alias, node.this))
        else:
            items.append(Item(node.name if isinstance(node, exp.Column) else sql_text(node), node))
    return items


def _star(ctx: Context, scope: Scope, node: exp.Expr, star: exp.Star) -> list[Item]:
    table = node.table if isinstance(node, exp.Column) else ""
    if table:
        columns = [c for c in scope.columns if (c.qualifier or "").lower() == table.lower()]
        if not columns:
            known = ", ".join(sorted({c.qualifier for c in scope.columns if c.qualifier}))
            raise ctx.source.error(f"no table {table!r} for {table}.*", node, f"tables: {known}")
    else:
        columns = [c for c in scope.columns if not c.hidden]
    left_out = {e.name.lower(): e for e in star.args.get("except_") or []}
    for name, item in left_out.items():
        if name not in (c.name.lower() for c in columns):
            raise ctx.source.error(f"no column {name!r} to leave out", item, None)
    return [Item(c.name, node, c.expr) for c in columns if c.name.lower() not in left_out]


def _aggregated(
    ctx: Context,
    scope: Scope,
    query: Query,
    items: list[Item],
    group: exp.Group | None,
    having: exp.Having | None,
) -> Query:
    groups, names = _group(ctx, scope, items, group)
    collector = AggregateCollector(ctx.source, scope)
    binder = ExpressionBinder(ctx.source, scope, "SELECT", collector)
    bound = [i.expr if i.expr is not None else binder.bind(i.node) for i in items]
    condition: Expr | None = None
    if having is not None:
        aliases = {i.name.lower(): e for i, e in zip(items, bound, strict=True) if i.expr is None}
        condition = ExpressionBinder(ctx.source, scope, "HAVING", collector, aliases).condition(having.this, "HAVING")
    positions = {g: i for i, g in reversed(list(enumerate(groups)))}

    def rewrite(expr: Expr, node: exp.Expr) -> Expr:
        try:
            return collector.rewrite(expr, positions, names)
        except Ungrouped as error:
            raise _ungrouped(ctx, node, error.name) from None

    exprs = tuple(rewrite(e, i.node) for e, i in zip(bound, items, strict=True))
    filter_ = rewrite(condition, having.this) if having is not None and condition is not None else None
    call_columns = (
        Column(n, c.type, c.function != "count") for n, c in zip(collector.labels, collector.calls, strict=True)
    )
    schema = (*schema_of(groups, names, query.schema), *call_columns)
    result: Query = Aggregate(query, tuple(groups), tuple(collector.calls), schema)
    if filter_ is not None:
        result = Filter(result, filter_)
    return Project(result, exprs, schema_of(exprs, [i.name for i in items], schema))


def _ungrouped(ctx: Context, node: exp.Expr, name: str) -> SqlError:
    at = next((c for c in node.find_all(exp.Column) if c.name.lower() == name.lower()), node)
    return ctx.source.error(
        f"column {name!r} is neither in GROUP BY nor inside an aggregate function",
        at,
        f"add it to GROUP BY, or use min({name}) or max({name})",
    )


def _group(ctx: Context, scope: Scope, items: list[Item], group: exp.Group | None) -> tuple[list[Expr], list[str]]:
    """Bound group expressions without repetition, and their names."""
    if group is None:
        return [], []
    nodes = list(group.expressions)
    if group.args.get("all"):
        nodes = [i.node for i in items if i.expr is None and not is_aggregate(i.node)]
    groups: list[Expr] = []
    names: list[str] = []
    binder = ExpressionBinder(ctx.source, scope, "GROUP BY")
    for node in nodes:
        expr, name = _group_item(ctx, scope, binder, items, node)
        if expr not in groups:
            groups.append(expr)
            names.append(name)
    return groups, names


def _group_item(
    ctx: Context, scope: Scope, binder: ExpressionBinder, items: list[Item], node: exp.Expr
) -> tuple[Expr, str]:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        position = int(node.this)
        if not 1 <= position <= len(items):
            raise ctx.source.error(f"GROUP BY {position} has no such column", node, f"the SELECT list has {len(items)}")
        item = items[position - 1]
    elif isinstance(node, exp.Column) and not node.table and not scope.matches(node.name, None):
        # As in Spark: columns of the input first, then names of the SELECT list.
        named = [i for i in items if i.name.lower() == node.name.lower() and i.expr is None]
        item = named[0] if named else Item(node.name, node)
    else:
        item = Item(node.name if isinstance(node, exp.Column) else sql_text(node), node)
    return (item.expr if item.expr is not None else binder.bind(item.node)), item.name
