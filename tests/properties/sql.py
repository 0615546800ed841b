"""SQL text in two dialects at once: Spark's, which Belvedere takes, and DuckDB's, which recomputes.

The generator writes both itself instead of translating, so the oracle owes nothing to the parser and binder under test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sql:
    """One piece of SQL, as Spark and as DuckDB write it."""

    spark: str
    duck: str


Part = Sql | str


def sql(template: str, *parts: Part, duck: str | None = None) -> Sql:
    """Fill `{}` in both dialects; `duck` is the template where DuckDB's differs."""
    return Sql(
        template.format(*(p.spark if isinstance(p, Sql) else p for p in parts)),
        (template if duck is None else duck).format(*(p.duck if isinstance(p, Sql) else p for p in parts)),
    )


def join(separator: str, parts: list[Sql]) -> Sql:
    """All parts with a separator between them."""
    return Sql(separator.join(p.spark for p in parts), separator.join(p.duck for p in parts))
