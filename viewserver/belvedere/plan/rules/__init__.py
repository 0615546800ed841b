"""Rewrites of bound queries, one per file, applied in the order of `RULES`.

Predicates are pushed three times: outer joins are narrowed by what stands directly above them and joins ordered by the
conditions that sit in them, and both let more move on. Column pruning and sharing look at several views at once, so
they are not rules: see `belvedere.plan.demand` and `.sharing`.
"""

from __future__ import annotations

from collections.abc import Callable

from belvedere.plan.rules.factor_disjunctions import factor_disjunctions
from belvedere.plan.rules.fold_constants import fold_constants
from belvedere.plan.rules.merge_projections import merge_projections
from belvedere.plan.rules.narrow_outer_joins import narrow_outer_joins
from belvedere.plan.rules.push_predicates import push_predicates
from belvedere.plan.rules.push_semi_joins import push_semi_joins
from belvedere.plan.rules.reorder_joins import reorder_joins
from belvedere.sql.catalog import Catalog
from belvedere.sql.query import Query

Rule = Callable[[Query, Catalog], Query]

RULES: tuple[Rule, ...] = (
    fold_constants,
    factor_disjunctions,
    push_predicates,
    narrow_outer_joins,
    push_semi_joins,
    push_predicates,
    reorder_joins,
    push_predicates,
    merge_projections,
)


def rewrite(query: Query, catalog: Catalog) -> Query:
    """The query after every rule, in order."""
    for rule in RULES:
        query = rule(query, catalog)
    return query
