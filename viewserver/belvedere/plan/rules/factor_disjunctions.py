"""Common conjuncts out of ORs: `(a = b and x) or (a = b and y)` is `a = b and (x or y)`.

Without it the equality stays hidden inside the OR and the join has no key (TPC-H query 19)."""

from __future__ import annotations

from belvedere.plan.exprs import TRUE, conjoin, conjuncts, disjoin, disjuncts
from belvedere.plan.rewriting import bottom_up, map_exprs
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Expr
from belvedere.sql.query import Filter, Join, Query


def factor_disjunctions(query: Query, catalog: Catalog) -> Query:
    """Factor every OR that is a conjunct of a filter or of a join condition."""

    def visit(part: Query) -> Query:
        return map_exprs(part, _factored) if isinstance(part, (Filter, Join)) else part

    return bottom_up(query, visit)


def _factored(predicate: Expr) -> Expr:
    parts: list[Expr] = []
    for part in conjuncts(predicate):
        branches = [conjuncts(b) for b in disjuncts(part)]
        common = [c for c in branches[0] if all(c in other for other in branches[1:])] if len(branches) > 1 else []
        if not common:
            parts.append(part)
            continue
        rests = [[c for c in branch if c not in common] for branch in branches]
        parts += common
        if all(rests):  # a branch that is nothing but the common part makes the others redundant
            parts.append(disjoin(conjoin(rest) or TRUE for rest in rests))
    return conjoin(parts) or TRUE
