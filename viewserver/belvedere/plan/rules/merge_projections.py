"""Projections over projections become one; those that change nothing go."""

from __future__ import annotations

from belvedere.plan.canonical import compose
from belvedere.plan.rewriting import bottom_up
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import ColumnRef
from belvedere.sql.query import Project, Query


def merge_projections(query: Query, catalog: Catalog) -> Query:
    """Merge and drop projections everywhere. Names do not count: a view takes those of its definition."""

    def visit(part: Query) -> Query:
        if not isinstance(part, Project):
            return part
        if isinstance(part.input, Project):
            merged = compose(part.exprs, part.input.exprs)
            if merged is not None:
                part = Project(part.input.input, merged, part.schema)
        width = len(part.input.schema)
        unchanged = len(part.exprs) == width and all(
            isinstance(e, ColumnRef) and e.index == i for i, e in enumerate(part.exprs)
        )
        return part.input if unchanged else part

    return bottom_up(query, visit)
