"""A trial of a plan before it is in force: every expression is computed once, over a row of zeros and a row of NULLs.

Errors of rows are values here, so an exception is a defect of this program. In an epoch it would stop the database, and
again at every start, since the view is in the log by then. Before the view is created it costs one statement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.expr.evaluate import evaluate_all
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.errors import Defect
from belvedere.plan import nodes
from belvedere.sql.expr import Expr
from belvedere.types import Schema, Type

_STATUS = np.array([Status.VALUE, Status.NULL], np.uint8)


def try_out(views: Sequence[nodes.ViewNode]) -> None:
    """Refuse views whose expressions cannot be computed at all."""
    for node in nodes.topological(nodes.Plan(tuple(views))):
        exprs, schema = _computed(node)
        try:
            evaluate_all(exprs, [_column(c.type) for c in schema], len(_STATUS))
        except Exception as error:
            name = " and ".join(repr(view.name) for view in views)
            raise Defect(
                f"view {name} cannot be computed, which is a defect of this program: {type(error).__name__}: {error}; "
                "nothing was changed. Please report it, and write the view in another way until then"
            ) from error


def _computed(node: nodes.Node) -> tuple[tuple[Expr, ...], Schema]:
    """The expressions of a node, and the columns they are over."""
    if isinstance(node, nodes.ProjectionNode):
        return node.exprs, node.input.schema
    if isinstance(node, nodes.SelectionNode):
        return (node.predicate,), node.input.schema
    if isinstance(node, nodes.JoinNode) and node.residual is not None:
        return (node.residual,), (*node.left.schema, *node.right.schema)
    return (), ()


def _column(type_: Type) -> Vec:
    return Vec(type_, nulls(type_, len(_STATUS)).data, _STATUS)
