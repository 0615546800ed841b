"""Verification: a view recomputed from base rows by DuckDB, an engine that shares no code with ours, and compared
as a bag.

Doubles are compared exactly (NaN equals NaN, -0.0 equals 0.0), sums and averages too: see
`belvedere.embedded.recompute`. Only columns that are made with exp, ln, power, round or a cast from decimals may
differ by `RELATIVE`, since libraries disagree on the last bit of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from belvedere.embedded.recompute import Recomputation, connect, uneven
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import Kind, Schema

SHOWN = 10
RELATIVE = 1e-9


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found. `missing`: recomputed rows that the view lacks; `extra`: the reverse (a few of
    each). `ok`: complete and equal. `complete`: nothing is in quarantine. `compared`: the rows could be recomputed."""

    view: str
    epoch: int
    ok: bool
    rows: int
    quarantined: int = 0
    missing: tuple[dict[str, Any], ...] = ()
    extra: tuple[dict[str, Any], ...] = ()
    differences: int = 0
    problem: str | None = None
    compared: bool = True
    parts: tuple[Report, ...] = field(default=())

    @property
    def complete(self) -> bool:
        return self.quarantined == 0

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "view": self.view,
            "epoch": self.epoch,
            "ok": self.ok,
            "rows": self.rows,
            "complete": self.complete,
            "quarantined": self.quarantined,
            "compared": self.compared,
            "differences": self.differences,
            "missing": list(self.missing),
            "extra": list(self.extra),
            "problem": self.problem,
        }
        if self.parts:
            out["parts"] = [p.to_dict() for p in self.parts]
        return out

    def __str__(self) -> str:
        if self.parts:
            return "\n".join(str(p) for p in self.parts)
        if self.ok:
            return f"view {self.view}: {self.rows:,} rows at epoch {self.epoch} equal a recomputation"
        text = f"view {self.view} at epoch {self.epoch}: "
        if self.problem:
            return text + self.problem
        text += f"{self.differences:,} of {self.rows:,} rows differ from a recomputation"
        if self.quarantined:
            text += f" (and {self.quarantined:,} are in quarantine)"
        for name, rows in (("missing", self.missing), ("extra", self.extra)):
            text += "".join(f"\n  {name} {row}" for row in rows)
        return text


def base_tables(catalog: Catalog, view: ViewDef) -> set[str]:
    """Base tables below a view, through other views."""
    from belvedere.sql.query import relations

    out: set[str] = set()
    for name in relations(view.query):
        definition = catalog.relation(name)
        out |= {definition.name} if isinstance(definition, TableDef) else base_tables(catalog, definition)
    return out


def compare(
    catalog: Catalog, view: ViewDef, epoch: int, rows: pa.Table, tables: Mapping[str, pa.Table], quarantined: int
) -> Report:
    """The rows of a view against its query over these base rows, all of one epoch."""
    import duckdb

    connection, name = connect(tables)
    try:
        try:
            expected = Recomputation(catalog, connection, name).rows(view)
        except duckdb.Error as error:
            return _not_compared(view, epoch, rows.num_rows, quarantined, str(error).splitlines()[0])
        connection.register("mine", _plain(rows, view.columns))
        connection.register("theirs", _plain(expected, view.columns))
        extra = connection.sql("SELECT * FROM mine EXCEPT ALL SELECT * FROM theirs").to_arrow_table().to_pylist()
        missing = connection.sql("SELECT * FROM theirs EXCEPT ALL SELECT * FROM mine").to_arrow_table().to_pylist()
    finally:
        connection.close()
    forgiven = [c.name for c, loose in zip(view.columns, uneven(catalog, view.query), strict=True) if loose]
    extra, missing = _forgive(extra, missing, forgiven)
    same = not extra and not missing
    problem = None
    if same and quarantined:
        problem = f"incomplete: {quarantined:,} rows are in quarantine; the other {rows.num_rows:,} are right"
    return Report(
        view.name, epoch, same and not quarantined, rows.num_rows, quarantined, tuple(missing[:SHOWN]),
        tuple(extra[:SHOWN]), max(len(extra), len(missing)), problem,
    )  # fmt: skip


def _not_compared(view: ViewDef, epoch: int, rows: int, quarantined: int, error: str) -> Report:
    """DuckDB knows no quarantine: a row that cannot be computed stops its whole query."""
    if quarantined:
        problem = f"incomplete: {quarantined:,} rows are in quarantine, and for their errors DuckDB recomputes nothing"
    else:
        problem = "not compared: DuckDB cannot recompute it"
    return Report(
        view.name, epoch, False, rows, quarantined, problem=f"{problem} ({error})", compared=False
    )  # fmt: skip


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
        "all views", epoch, all(r.ok for r in reports), sum(r.rows for r in reports),
        sum(r.quarantined for r in reports), differences=sum(r.differences for r in reports),
        compared=all(r.compared for r in reports), parts=tuple(reports),
    )  # fmt: skip
