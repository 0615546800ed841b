"""`verify` by Spark: views at one epoch against Spark SQL over their base tables at that epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from belvedere.errors import CatalogError
from belvedere.model import verify as shared
from belvedere.model.recompute import uneven
from belvedere.model.recompute_failing import CannotTell
from belvedere.model.verify import Report
from belvedere.spark.moments import Moment, NamedFrames, open_moment
from belvedere.spark.verify.compare import Difference, compare
from belvedere.spark.verify.exact import register_exact
from belvedere.spark.verify.recompute import Recomputation, Tolerant
from belvedere.spark.verify.scope import Scope
from belvedere.sql.catalog import Catalog, TableDef, ViewDef

ENGINE = "spark"
# Spark may compute a common part of two expressions before it knows that one of them needs it: it would fail rows that
# do not fail, and fail where a failure is asked about.
_SETTINGS = {
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}


def verify(
    spark: SparkSession,
    database: Any,
    views: Sequence[str] = (),
    scope: Scope | None = None,
    **access: str,
) -> Iterator[Report]:
    """One report a view (none named: all of them), all at one epoch, each when it is done. `database`: a directory, the
    URL of a pool, or an embedded database that is open."""
    scope = scope or Scope()
    catalog, found = _described(database, **access)
    wanted = [_view(catalog, name) for name in views] or list(catalog.views.values())
    needed = {v.name for v in wanted} | shared.below(catalog, wanted)
    register_exact(spark)
    moment = open_moment(spark, database, needed, **access)
    try:
        for view in wanted:
            yield _verified(spark, moment, view, scope, found[view.name])
    finally:
        moment.close()


def _view(catalog: Catalog, name: str) -> ViewDef:
    relation = catalog.relation(name)
    if isinstance(relation, TableDef):
        raise CatalogError(f"{relation.name!r} is a base table; only views can be verified")
    return relation


def _described(database: Any, **access: str) -> tuple[Catalog, dict[str, tuple[str, ...]]]:
    """The catalog, and the columns by which rows of each view are told apart."""
    import belvedere

    if hasattr(database, "key_columns"):
        return _keys(database)
    if "://" in str(database):
        with belvedere.connect(str(database), **access) as pool:  # type: ignore[arg-type]
            return _keys(pool)
    with belvedere.open(database, read_only=True) as reader:
        return _keys(reader)


def _keys(database: Any) -> tuple[Catalog, dict[str, tuple[str, ...]]]:
    catalog: Catalog = database.catalog
    return catalog, {n: shared.visible_key(v, database.key_columns(n)) for n, v in catalog.views.items()}


def _verified(spark: SparkSession, moment: Moment, view: ViewDef, scope: Scope, key: tuple[str, ...]) -> Report:
    started = time.monotonic()
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    frames = NamedFrames.of(spark, moment)
    try:
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        report = _compared(spark, moment, frames, view, scope, key)
    finally:
        frames.close()
        for name, old in before.items():
            spark.conf.set(name, str(old))
    return replace(report, seconds=time.monotonic() - started)


def _compared(
    spark: SparkSession, moment: Moment, frames: NamedFrames, view: ViewDef, scope: Scope, key: tuple[str, ...]
) -> Report:
    catalog = moment.catalog
    failed = moment.quarantined(view.name)
    below = {n for n in shared.below(catalog, [view]) if n in catalog.views}
    incomplete = {n: count for n in sorted(below) if (count := moment.quarantined(n))}
    unread = {n: moment.unreadable(n) for n in sorted(shared.below(catalog, [view])) if n in catalog.tables}
    beside = sum(rows + cells for rows, cells in unread.values())
    report = Report(
        view.name, moment.epoch, False, 0, failed, sum(incomplete.values()) + beside, engine=ENGINE, scope=str(scope)
    )
    if any(cells for _, cells in unread.values()):
        named = ", ".join(f"{cells:,} of {n!r}" for n, (_, cells) in unread.items() if cells)
        why = f"not compared: base rows have cells that cannot be read ({named}), and Spark knows no such value"
        return replace(report, problem=why, compared=False)
    try:
        difference, failures = _difference(spark, catalog, frames, view, scope, key, incomplete, failed > 0)
    except (CannotTell, PySparkException) as error:
        why = "Spark cannot recompute the view" if report.complete else report.incomplete
        return replace(report, problem=f"not compared: {why} ({_first_line(error)})", compared=False)
    same = not difference.total and (failures == failed or not scope.whole)
    problem = None
    if failures != failed and scope.whole:
        problem = f"{failed:,} rows are in quarantine, but {failures:,} rows of a recomputation fail"
    elif same and not report.complete:
        problem = f"{report.incomplete}; the {difference.rows:,} rows shown are right"
    off = abs(failures - failed) if scope.whole else 0
    return replace(
        report,
        ok=same and report.complete,
        rows=difference.rows,
        missing=difference.missing,
        extra=difference.extra,
        different=difference.different,
        counts=difference.counts,
        differences=max(difference.total, off),
        problem=problem,
    )


def _difference(
    spark: SparkSession,
    catalog: Catalog,
    frames: NamedFrames,
    view: ViewDef,
    scope: Scope,
    key: tuple[str, ...],
    given: dict[str, int],
    fails: bool,
) -> tuple[Difference, int]:
    """And how many rows cannot be computed. Errors that do not count (of a row that a later condition drops) stop Spark
    too: then it is tried operator by operator."""
    loose = [c.name for c, is_loose in zip(view.columns, uneven(catalog, view.query), strict=True) if is_loose]
    found = scope.of(frames.moment.frame(view.name), key, view.name)
    if not fails:
        try:
            rows = Recomputation(spark, catalog, frames, given).rows(view)
            return compare(found, scope.of(rows, key, view.name), key, loose), 0
        except PySparkException as error:
            if not _of_a_row(error):
                raise
    rows, failures = Tolerant(spark, catalog, frames, given).rows_and_failures(view)
    return compare(found, scope.of(rows, key, view.name), key, loose), failures


def _of_a_row(error: PySparkException) -> bool:
    """Whether a row could not be computed (SQLSTATE class 22: data exceptions)."""
    return str(error.getSqlState() or "").startswith("22") or "SQLSTATE: 22" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
