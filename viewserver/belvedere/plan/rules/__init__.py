"""Rewrites of bound queries, one per file, applied in the order of `RULES`.

Predicates are pushed twice: joins can only be ordered once conditions sit in them, and an order found lets more move on. Column
pruning and sharing look at several views at once, so they are not rules: see `belvedere.plan.demand` and `.sharing`.
"""

from __future__ import annotations

from collections.abc import Callable

from belvedere.plan.rules.factor_disjunctions import factor_disjunctions
from belvedere.plan.rules.fold_constants import fold_constants
from belvedere.plan.rules.merge_projections import merge_projections
from belvedere.plan.rules.push_predicates import push_predicates
from belvedere.plan.rules.reorder_joins import reorder_joins
from belvedere.sql.catalog import Catalog
from belvedere.sql.query import Query

Rule = Callable[[Query, Catalog], Query]

RULES: tuple[Rule, ...] = (
    fold_constants,
    factor_disjunctions,
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
