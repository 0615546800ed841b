"""Small constructors of plan nodes: schemas, keys and identities are derived here and nowhere else.

Every node's key is unique by construction:

    Delta        the primary key
    Join         one side's key where each of its rows matches at most once, else both keys; columns which the equality
                 fixes are left out
    Aggregate    the group columns        Distinct   all columns        Union   the branches' keys and the branch number
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from belvedere.plan import nodes as n
from belvedere.plan.exprs import name_columns, references
from belvedere.sql.expr import ColumnRef, Expr, Literal
from belvedere.sql.query import JoinKind
from belvedere.sql.text import expr_text
from belvedere.types import BOOLEAN, INT, Column, Schema


def column_of(expr: Expr, schema: Schema) -> Column:
    """Name, type and nullability of a projected expression."""
    if isinstance(expr, ColumnRef):
        return schema[expr.index]
    nullable = expr.value is None if isinstance(expr, Literal) else True
    return Column(expr_text(expr), expr.type, nullable)


def projection(
    node: n.Node, exprs: Sequence[Expr], names: Sequence[str] | None = None, keep_key: bool = True
) -> tuple[n.Node, tuple[int, ...]]:
    """Columns `exprs` (named `names`, if given), followed by the key columns that are missing among them. Returns the
    node itself where nothing would change, and the key's positions."""
    named = [name_columns(e, node.schema) for e in exprs]
    if keep_key:
        present = {e.index for e in named if isinstance(e, ColumnRef)}
        named.extend(references(node.schema, (k for k in node.key if k not in present)))
    columns = [column_of(e, node.schema) for e in named]
    for i, name in enumerate(names or ()):
        columns[i] = Column(name, columns[i].type, columns[i].nullable)
    places = {e.index: i for i, e in reversed(list(enumerate(named))) if isinstance(e, ColumnRef)}
    key = tuple(places[k] for k in node.key) if keep_key else ()
    schema = tuple(columns)
    identity = references(node.schema, range(len(node.schema)))
    if tuple(named) == identity and schema == node.schema:
        return node, node.key
    return n.ProjectionNode(node, tuple(named), schema, key), key


def selection(node: n.Node, predicate: Expr) -> n.Node:
    return n.SelectionNode(node, name_columns(predicate, node.schema))


def id_columns(node: n.Node) -> tuple[int, ...] | None:
    """Output columns whose hash, in this order, is the id of a row; None if ids are made another way."""
    if isinstance(node, n.ProjectionNode):
        below = id_columns(node.input)
        if below is None:
            return None
        places = {e.index: i for i, e in reversed(list(enumerate(node.exprs))) if isinstance(e, ColumnRef)}
        return tuple(places[c] for c in below) if all(c in places for c in below) else None
    if isinstance(node, (n.SelectionNode, n.ReverseJoinNode)):
        return id_columns(node.input)
    if isinstance(node, n.JoinNode):
        if node.identity is n.Identity.LEFT:
            return id_columns(node.left)
        if node.identity is n.Identity.RIGHT:
            below = id_columns(node.right)
            return None if below is None else tuple(c + len(node.left.schema) for c in below)
        return None
    if isinstance(node, n.UnionNode):
        return None
    return node.key


def marked(node: n.Node) -> n.Node:
    """The node with a constant as part of its key. A full join pads either side with NULLs; where both keys can be NULL
    themselves, only such a mark tells a padded left row from a padded right one."""
    exprs: list[Expr] = [*references(node.schema, range(len(node.schema))), Literal(True, BOOLEAN)]
    schema = (*node.schema, Column("present", BOOLEAN, False))
    return n.ProjectionNode(node, tuple(exprs), schema, (*node.key, len(node.schema)))


def nullable_key(node: n.Node) -> bool:
    """Whether all key columns can be NULL at once."""
    return all(node.schema[k].nullable for k in node.key)


def join(left: n.ReverseJoinNode, right: n.ReverseJoinNode, kind: JoinKind, residual: Expr | None) -> n.JoinNode:
    """The join of two arrangements, with the smallest identity that is unique."""
    split = len(left.schema)
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        both = (*left.schema, *right.schema)
        named = None if residual is None else name_columns(residual, both)
        return n.JoinNode(left, right, kind, named, n.Identity.LEFT, left.schema, left.key)
    schema = (
        *_padded(left.schema, kind in (JoinKind.RIGHT, JoinKind.FULL)),
        *_padded(right.schema, kind in (JoinKind.LEFT, JoinKind.FULL)),
    )
    named = None if residual is None else name_columns(residual, schema)
    right_key = tuple(k + split for k in right.key)
    if kind in (JoinKind.INNER, JoinKind.LEFT) and set(right.key) <= set(right.on):
        return n.JoinNode(left, right, kind, named, n.Identity.LEFT, schema, left.key)
    if kind in (JoinKind.INNER, JoinKind.RIGHT) and set(left.key) <= set(left.on):
        return n.JoinNode(left, right, kind, named, n.Identity.RIGHT, schema, right_key)
    left_part, right_part = left.key, right_key
    if kind in (JoinKind.INNER, JoinKind.LEFT):
        right_part = tuple(k + split for k in right.key if k not in right.on)
    elif kind is JoinKind.RIGHT:
        left_part = tuple(k for k in left.key if k not in left.on)
    return n.JoinNode(left, right, kind, named, n.Identity.PAIR, schema, left_part + right_part)


def _padded(schema: Schema, padded: bool) -> Schema:
    return tuple(Column(c.name, c.type, True) for c in schema) if padded else schema


def union(branches: Sequence[n.Node], exprs: Sequence[Sequence[Expr]]) -> n.UnionNode:
    """Branch i gives columns `exprs[i]` (over itself), then hidden key columns, then its number.

    Key columns that all branches show as plain columns stay where they are. The rest get hidden places, which branches
    share where types agree (the branch number keeps them apart) and which are NULL in the others."""
    width = len(exprs[0])
    plain = {p for p in range(width) if all(isinstance(e[p], ColumnRef) for e in exprs)}
    hidden: list[Column] = []
    filled: list[dict[int, int]] = []
    key: set[int] = set()
    for node, outs in zip(branches, exprs, strict=True):
        shown = {e.index: p for p, e in reversed(list(enumerate(outs))) if p in plain and isinstance(e, ColumnRef)}
        mine: dict[int, int] = {}
        for k in node.key:
            if k in shown:
                key.add(shown[k])
                continue
            column = node.schema[k]
            slot = next((s for s, c in enumerate(hidden) if s not in mine and c.type == column.type), None)
            if slot is None:
                slot = len(hidden)
                hidden.append(Column(column.name, column.type))
            mine[slot] = k
        filled.append(mine)
    inputs: list[n.Node] = []
    names = [column_of(name_columns(e, branches[0].schema), branches[0].schema).name for e in exprs[0]]
    schema = (
        *(Column(name, e.type) for name, e in zip(names, exprs[0], strict=True)),
        *hidden,
        Column("branch", INT, False),
    )
    union_key = (*sorted(key), *range(width, len(schema)))
    for number, (node, outs, mine) in enumerate(zip(branches, exprs, filled, strict=True)):
        all_exprs: list[Expr] = [name_columns(e, node.schema) for e in outs]
        for slot, column in enumerate(hidden):
            source = mine.get(slot)
            all_exprs.append(Literal(None, column.type) if source is None else references(node.schema, [source])[0])
        all_exprs.append(Literal(number, INT))
        inputs.append(n.ProjectionNode(node, tuple(all_exprs), schema, union_key))
    return n.UnionNode(tuple(inputs), schema, union_key)


def positions(exprs: Iterable[Expr]) -> dict[Expr, int]:
    """Where each distinct expression stands first."""
    found: dict[Expr, int] = {}
    for i, expr in enumerate(exprs):
        found.setdefault(expr, i)
    return found
