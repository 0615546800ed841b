"""Which engine recomputes a view: DuckDB, in the memory of one pod, or Spark, in executors of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from belvedere_operator.api.materialized_view import AUTO, DUCKDB, SPARK
from belvedere_operator.api.quantities import bytes_of
from belvedere_operator.gateway import PoolFigures

AUTO_ABOVE = "1Gi"


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why it is that one. `problem`: why it cannot be had."""

    engine: str
    why: str
    problem: str = ""


NO_SPARK = (
    "there is no image of Spark: give spec.spark.image of the pool, or that of the operator (spark.image of the chart)"
)


def choose(wanted: str, view: str, figures: PoolFigures | None, has_spark: bool, auto_above: str | None) -> Choice:
    """`wanted`: auto, duckdb or spark. `auto_above`: bytes beyond which auto is Spark."""
    if wanted == SPARK:
        return Choice(SPARK, "asked for", "" if has_spark else NO_SPARK)
    if wanted == DUCKDB or not has_spark:
        return Choice(DUCKDB, "asked for" if wanted == DUCKDB else "there is no image of Spark")
    assert wanted == AUTO
    limit = auto_above or AUTO_ABOVE
    size = None if figures is None else bytes_below(view, figures)
    if size is None:
        return Choice(DUCKDB, "its size is not known")
    if size > bytes_of(limit):
        return Choice(SPARK, f"it and what it reads are more than {limit}")
    return Choice(DUCKDB, f"it and what it reads are not more than {limit}")


def bytes_below(view: str, figures: PoolFigures) -> int | None:
    """Of the rows of a view and of the tables below it, about: what a recomputation reads. None: nobody knows."""
    told = figures.view(view)
    if told is None:
        return None
    sizes = [told.bytes, *(_of_table(name, figures) for name in sorted(tables_below(view, figures)))]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _of_table(name: str, figures: PoolFigures) -> int | None:
    table = figures.table(name)
    return None if table is None else table.bytes


def tables_below(view: str, figures: PoolFigures, trail: Sequence[str] = ()) -> set[str]:
    """Names of the base tables, in lower case."""
    told, found = figures.view(view), set[str]()
    if told is None or view.lower() in trail:
        return found
    for name in told.reads:
        if figures.view(name) is None:
            found.add(name.lower())
        else:
            found |= tables_below(name, figures, (*trail, view.lower()))
    return found
