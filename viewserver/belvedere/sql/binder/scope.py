"""Which names a part of a query may use, and what they stand for.

A column of a scope is an expression over the schema of the relation below, not only a position: after `JOIN … USING
(k)` the bare name `k` may be a coalesce of both sides, while `t.k` and `u.k` remain what they were.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import ColumnRef, Expr, Literal, remap
from belvedere.sql.parser import SqlText
from belvedere.sql.query import Query
from belvedere.sql.registry import Nulls, nulls_of
from belvedere.types import Column, Schema


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """`hidden`: only reachable with its qualifier (the sides of a USING column)."""

    qualifier: str | None
    name: str
    expr: Expr
    nullable: bool
    hidden: bool = False

    def shifted(self, by: int) -> ScopeColumn:
        return replace(self, expr=remap(self.expr, lambda i: i + by))

    @property
    def label(self) -> str:
        return f"{self.qualifier}.{self.name}" if self.qualifier else self.name


@dataclass(frozen=True, slots=True)
class Scope:
    """Columns in order, and the scope of the query around (for subqueries in WHERE).

    `correlated`: names of the outer query may be used here (its columns then come first in the input)."""

    columns: tuple[ScopeColumn, ...]
    outer: Scope | None = None
    correlated: bool = False

    def matches(self, name: str, qualifier: str | None) -> list[ScopeColumn]:
        """Columns of this scope alone that the name may mean."""
        name = name.lower()
        if qualifier is None:
            return [c for c in self.columns if c.name.lower() == name and not c.hidden]
        wanted = qualifier.lower()
        return [c for c in self.columns if c.name.lower() == name and (c.qualifier or "").lower() == wanted]

    def resolve(self, source: SqlText, node: exp.Column) -> ScopeColumn:
        """The one column that the name means, or a refusal that lists the candidates."""
        if node.args.get("db") is not None:
            raise source.unsupported(f"column {node.sql()} has too many parts", node, "write table.column")
        name, qualifier = node.name, node.table or None
        found = self.matches(name, qualifier)
        if len(found) > 1:
            labels = ", ".join(sorted({c.label for c in found}))
            raise source.error(f"column {name!r} is ambiguous", node, f"it may be any of: {labels}")
        if found:
            return found[0]
        if self.outer is not None:
            around = self.outer.matches(name, qualifier)
            if around and self.correlated:
                return self.outer.resolve(source, node)
            if around:
                raise source.unsupported(
                    f"column {node.sql()!r} belongs to the outer query",
                    node,
                    "outer columns may be used in the WHERE of an EXISTS or IN subquery without GROUP BY",
                )
            if self.outer.outer is not None and self.outer.outer.matches(name, qualifier):
                raise source.unsupported(
                    f"column {node.sql()!r} belongs to a query more than one level out", node, "join that table instead"
                )
        raise self._unknown(source, node, name, qualifier)

    def _unknown(self, source: SqlText, node: exp.Column, name: str, qualifier: str | None) -> Exception:
        qualifiers = sorted({c.qualifier for c in self.columns if c.qualifier})
        if qualifier is not None and qualifier.lower() not in (q.lower() for q in qualifiers):
            known = ", ".join(qualifiers) if qualifiers else "none"
            return source.error(f"no table {qualifier!r} here for column {node.sql()!r}", node, f"tables: {known}")
        visible = [c for c in self.columns if qualifier is None or (c.qualifier or "").lower() == qualifier.lower()]
        names = list(dict.fromkeys(c.name for c in visible))
        close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=3, cutoff=0.6)
        listed = close or names[:12]
        label = "did you mean" if close else "columns:"
        more = ", …" if not close and len(names) > 12 else ""
        return source.error(f"no column {node.sql()!r}", node, f"{label} {', '.join(listed)}{more}" if listed else None)


@dataclass(frozen=True, slots=True)
class Context:
    """What binding one (sub)query needs besides its tree."""

    source: SqlText
    catalog: Catalog
    bind: Callable[[Context, exp.Expr], Query]
    ctes: dict[str, Query] = field(default_factory=dict)
    outer: Scope | None = None


def relation_columns(qualifier: str | None, schema: Schema, start: int = 0) -> tuple[ScopeColumn, ...]:
    """The columns of a relation that stand at `start` of the input."""
    return tuple(
        ScopeColumn(qualifier, c.name, ColumnRef(start + i, c.type, c.name), c.nullable) for i, c in enumerate(schema)
    )


def nullable(expr: Expr, is_nullable: Callable[[int], bool]) -> bool:
    """Whether an expression can be NULL: never says no wrongly."""
    if isinstance(expr, Literal):
        return expr.value is None
    if isinstance(expr, ColumnRef):
        return is_nullable(expr.index)
    if expr.name == "case":
        results = [*expr.args[1::2], expr.args[-1]] if len(expr.args) % 2 else [*expr.args[1::2]]
        return any(nullable(a, is_nullable) for a in results)
    match nulls_of(expr):
        case Nulls.NEVER:
            return False
        case Nulls.MORE:
            return True
        case Nulls.ALL:
            return all(nullable(a, is_nullable) for a in expr.args)
    return any(nullable(a, is_nullable) for a in expr.args)


def schema_of(exprs: Iterable[Expr], names: Iterable[str], below: Schema) -> Schema:
    """The schema of a projection."""
    return tuple(Column(n, e.type, nullable(e, lambda i: below[i].nullable)) for e, n in zip(exprs, names, strict=True))
