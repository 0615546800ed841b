"""Verification: a view recomputed from base rows by DuckDB, an engine that shares no code with ours, and compared
as a bag.

Doubles are compared exactly (NaN equals NaN, -0.0 equals 0.0), sums and averages too: see
`belvedere.model.recompute`. Only columns that are made with exp, ln, power, round or a cast from decimals may
differ by `RELATIVE`, since libraries disagree on the last bit of those.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa

from belvedere.model.recompute import Recomputation, connect, duckdb, uneven
from belvedere.model.recompute_failing import CannotTell, TolerantRecomputation
from belvedere.model.stored_rows import unread_cells
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.types import Column, Kind, Schema

SHOWN = 10
RELATIVE = 1e-9
KINDS = ("missing", "extra", "different")
VIEW, STATE, TABLE = "view", "state", "table"
_SUBJECTS = {VIEW: "view", STATE: "state of view", TABLE: "table"}
Row: TypeAlias = dict[str, Any]
Pair: TypeAlias = dict[str, Row]
"""Two rows of one key: the view's (`found`) and the recomputed one (`expected`)."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found. `missing`: recomputed rows that the view lacks; `extra`: the reverse; `different`: the
    rows of a key that both have (a few of each; `counts` says how many there are). `ok`: complete and equal.
    `complete`: nothing is in quarantine, in the view or in views that it reads. `compared`: the rows could be
    recomputed. `scope`: which part of the view was looked at, in words; empty for all of it. `subject`: what it is
    about, the rows of a view, the state behind one, or the rows of a base table."""

    view: str
    epoch: int
    ok: bool
    rows: int
    quarantined: int = 0
    quarantined_below: int = 0
    missing: tuple[dict[str, Any], ...] = ()
    extra: tuple[dict[str, Any], ...] = ()
    differences: int = 0
    problem: str | None = None
    compared: bool = True
    different: tuple[Pair, ...] = ()
    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    engine: str = "duckdb"
    scope: str = ""
    seconds: float = 0.0
    subject: str = VIEW
    parts: tuple[Report, ...] = field(default=())

    @property
    def complete(self) -> bool:
        return self.quarantined == 0 and self.quarantined_below == 0

    @property
    def incomplete(self) -> str:
        """What is missing, in words."""
        of_itself = f"{self.quarantined:,} rows are in quarantine" if self.quarantined else ""
        of_others = (
            f"{self.quarantined_below:,} rows of views and tables below are in quarantine"
            if self.quarantined_below
            else ""
        )
        return "incomplete: " + " and ".join(filter(None, (of_itself, of_others)))

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "view": self.view,
            "epoch": self.epoch,
            "ok": self.ok,
            "rows": self.rows,
            "complete": self.complete,
            "quarantined": self.quarantined,
            "quarantined_below": self.quarantined_below,
            "compared": self.compared,
            "differences": self.differences,
            "missing": list(self.missing),
            "extra": list(self.extra),
            "different": list(self.different),
            "counts": dict(self.counts),
            "problem": self.problem,
            "engine": self.engine,
            "scope": self.scope,
            "subject": self.subject,
            "seconds": round(self.seconds, 3),
        }
        if self.parts:
            out["parts"] = [p.to_dict() for p in self.parts]
        return out

    def __str__(self) -> str:
        if self.parts:
            return "\n".join(str(p) for p in self.parts)
        about = f"{_SUBJECTS[self.subject]} {self.view}"
        right = "its origin" if self.subject == TABLE else "a recomputation"
        if self.ok and self.problem:
            return f"{about}: {self.problem}"
        if self.ok:
            part = f" ({self.scope})" if self.scope else ""
            return f"{about}: {self.rows:,} rows{part} at epoch {self.epoch} equal {right}"
        text = f"{about} at epoch {self.epoch}: "
        if self.problem:
            return text + self.problem
        text += f"{self.differences:,} of {self.rows:,} rows differ from {right}"
        if not self.complete:
            text += f" ({self.incomplete})"
        for name, rows in (("missing", self.missing), ("extra", self.extra)):
            text += "".join(f"\n  {name} {row}" for row in rows)
        if self.subject != VIEW:
            return text + "".join(f"\n  different {p['found']}" for p in self.different)
        return text + "".join(f"\n  different {p['found']}, not {p['expected']}" for p in self.different)


def below(catalog: Catalog, views: Iterable[ViewDef]) -> set[str]:
    """Tables and views that these read, directly or not."""
    out: set[str] = set()
    for view in views:
        for name in view.reads:
            definition = catalog.relation(name)
            if definition.name not in out:
                out.add(definition.name)
                out |= below(catalog, [definition]) if isinstance(definition, ViewDef) else set()
    return out


def compare(
    catalog: Catalog,
    view: ViewDef,
    epoch: int,
    rows: Mapping[str, pa.Table],
    quarantined: Mapping[str, int],
    key: Sequence[str] = (),
) -> Report:
    """The rows of a view against its query, all of one epoch. `rows`: of the view and of what it reads. Views below are
    recomputed from base rows too, but for those with rows in quarantine: these are taken as they are, since their
    dependants see such rows as absent. `key`: columns that are unique, if the view shows such: rows are told apart by
    them."""
    started = time.monotonic()
    mine, failed = rows[view.name], quarantined.get(view.name, 0)
    known = below(catalog, [view])
    incomplete = {n: quarantined[n] for n in sorted(known) if quarantined.get(n) and n not in catalog.tables}
    unread = {n: count for n in sorted(known) if (count := quarantined.get(unread_cells(n), 0))}
    beside = sum(quarantined.get(n, 0) for n in known if n in catalog.tables) + sum(unread.values())
    report = Report(view.name, epoch, False, mine.num_rows, failed, sum(incomplete.values()) + beside)
    if unread:
        named = ", ".join(f"{count:,} of {name!r}" for name, count in unread.items())
        return _not_compared(
            report, f"base rows have cells that cannot be read ({named}), and DuckDB knows no such value"
        )
    connection, name = connect({n: rows[n] for n in known if n in catalog.tables or n in incomplete})
    try:
        try:
            expected, failures = _recompute(catalog, view, connection, name, set(incomplete), failed > 0)
        except (CannotTell, duckdb().Error) as error:
            return _not_compared(report, str(error).splitlines()[0])
        connection.register("mine", _plain(mine, view.columns))
        connection.register("theirs", _plain(expected, view.columns))
        extra = connection.sql("SELECT * FROM mine EXCEPT ALL SELECT * FROM theirs").to_arrow_table().to_pylist()
        missing = connection.sql("SELECT * FROM theirs EXCEPT ALL SELECT * FROM mine").to_arrow_table().to_pylist()
    finally:
        connection.close()
    forgiven = [c.name for c, loose in zip(view.columns, uneven(catalog, view.query), strict=True) if loose]
    extra, missing = _forgive(extra, missing, forgiven)
    same = not extra and not missing and failures == failed
    problem = None
    if failures != failed:
        problem = f"{failed:,} rows are in quarantine, but {failures:,} rows of a recomputation fail"
    elif same and not report.complete:
        problem = f"{report.incomplete}; the {mine.num_rows:,} rows shown are right"
    differences = max(len(extra), len(missing), abs(failures - failed))
    different = _paired(extra, missing, key)
    return replace(
        report, ok=same and report.complete, missing=tuple(missing[:SHOWN]), extra=tuple(extra[:SHOWN]),
        different=tuple(different[:SHOWN]), differences=differences, problem=problem,
        counts=dict(zip(KINDS, (len(missing), len(extra), len(different)), strict=True)),
        seconds=time.monotonic() - started,
    )  # fmt: skip


def _paired(extra: list[Row], missing: list[Row], key: Sequence[str]) -> list[Pair]:
    """Take rows of one key out of both lists."""
    if not key:
        return []

    def of(row: Row) -> tuple[Any, ...]:
        return tuple("NaN" if row[name] != row[name] else row[name] for name in key)

    wanted = {of(row): row for row in missing}
    pairs = [{"found": row, "expected": wanted[of(row)]} for row in extra if of(row) in wanted]
    paired = {of(pair["found"]) for pair in pairs}
    for rows in (extra, missing):
        rows[:] = [row for row in rows if of(row) not in paired]
    return pairs


def visible_key(view: ViewDef, key: Sequence[Column]) -> tuple[str, ...]:
    """The names of a view's key, if it shows all of its columns."""
    shown = {c.name for c in view.columns}
    return tuple(c.name for c in key) if key and all(c.name in shown for c in key) else ()


def _recompute(
    catalog: Catalog, view: ViewDef, connection: Any, name: Callable[[str], str], given: set[str], fails: bool
) -> tuple[pa.Table, int]:
    """The rows, and how many cannot be computed. Errors that do not count (in a branch not taken, say) stop DuckDB too:
    then it is tried the other way."""
    if not fails:
        try:
            return Recomputation(catalog, connection, name, given).rows(view), 0
        except duckdb().Error as error:
            with contextlib.suppress(CannotTell, duckdb().Error):
                rows, failures = TolerantRecomputation(catalog, connection, name, given).rows_and_failures(view)
                if not failures:
                    return rows, 0
            raise error
    return TolerantRecomputation(catalog, connection, name, given).rows_and_failures(view)


def with_foreign(report: Report, foreign: Sequence[str]) -> Report:
    """What others wrote to where the view is stored is no difference of its rows, but makes others read them wrong."""
    if not foreign:
        return report
    said = f"somebody else wrote to its table: {'; '.join(foreign[:SHOWN])}" + (", and more" if foreign[SHOWN:] else "")
    return replace(report, ok=False, problem=said if report.problem is None else f"{report.problem}; {said}")


def _not_compared(report: Report, error: str) -> Report:
    """DuckDB knows no quarantine: a row that cannot be computed stops its whole query, but where TRY helps."""
    why = "DuckDB cannot recompute the view" if report.complete else f"{report.incomplete}"
    return replace(report, problem=f"not compared: {why} ({error})", compared=False)


def _plain(table: pa.Table, schema: Schema) -> pa.Table:
    """Columns in the view's types; timestamps without a zone, as DuckDB gives them."""
    arrays = []
    for array, column in zip(table.columns, schema, strict=True):
        wanted = pa.timestamp("us") if column.type.kind is Kind.TIMESTAMP else column.type.arrow
        arrays.append(array if array.type == wanted else array.cast(wanted))
    return pa.Table.from_arrays(arrays, names=[c.name for c in schema])


def _forgive(
    extra: list[dict[str, Any]], missing: list[dict[str, Any]], loose: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Without the pairs that differ only in the last digits of these columns."""
    if not loose or not extra or not missing:
        return extra, missing

    def rest(row: dict[str, Any]) -> tuple[Any, ...]:
        # NaN equals itself here, as everywhere else in views
        return tuple("NaN" if v != v else v for k, v in row.items() if k not in loose)

    def close(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return all(_close(a[name], b[name]) for name in loose)

    by_rest: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in missing:
        by_rest.setdefault(rest(row), []).append(row)
    left = []
    for row in extra:
        candidates = by_rest.get(rest(row), [])
        found = next((i for i, other in enumerate(candidates) if close(row, other)), None)
        if found is None:
            left.append(row)
        else:
            candidates.pop(found)
    return left, [row for rows in by_rest.values() for row in rows]


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=RELATIVE)


def together(reports: Sequence[Report], epoch: int) -> Report:
    """One report of several views."""
    return Report(
        "all views",
        epoch,
        all(r.ok for r in reports),
        sum(r.rows for r in reports),
        sum(r.quarantined for r in reports),
        sum(r.quarantined_below for r in reports),
        differences=sum(r.differences for r in reports),
        compared=all(r.compared for r in reports),
        counts={kind: sum(r.counts[kind] for r in reports) for kind in KINDS},
        seconds=sum(r.seconds for r in reports),
        parts=tuple(reports),
    )
