"""Verification: a view recomputed from base rows by DuckDB, an engine that shares no code with ours, and compared
as a bag."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import Kind, Schema

SHOWN = 10
RELATIVE = 1e-9
"""DuckDB adds doubles step by step, ours are exact: sums may differ by this much."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found. `missing`: recomputed rows that the view lacks; `extra`: the reverse (a few of
    each)."""

    view: str
    epoch: int
    ok: bool
    rows: int
    quarantined: int = 0
    missing: tuple[dict[str, Any], ...] = ()
    extra: tuple[dict[str, Any], ...] = ()
    differences: int = 0
    problem: str | None = None
    parts: tuple[Report, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "view": self.view,
            "epoch": self.epoch,
            "ok": self.ok,
            "rows": self.rows,
            "quarantined": self.quarantined,
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
        for name, rows in (("missing", self.missing), ("extra", self.extra)):
            text += "".join(f"\n  {name} {row}" for row in rows)
        return text


def duckdb_name(catalog: Catalog, found: Callable[[str], str]) -> Callable[[str], str]:
    """How a query's relations are called in DuckDB: tables by `found`, views as the queries that they stand for."""
    from belvedere.sql.duckdb import to_duckdb

    def relation(name: str) -> str:
        definition = catalog.relation(name)
        if isinstance(definition, TableDef):
            return found(definition.name)
        return f"({to_duckdb(definition.query, relation)})"

    return relation


def base_tables(catalog: Catalog, view: ViewDef) -> set[str]:
    """Base tables below a view, through other views."""
    from belvedere.sql.query import relations

    out: set[str] = set()
    for name in relations(view.query):
        definition = catalog.relation(name)
        out |= {definition.name} if isinstance(definition, TableDef) else base_tables(catalog, definition)
    return out


def connect(tables: Mapping[str, pa.Table]) -> tuple[Any, Callable[[str], str]]:
    """DuckDB over these tables, and how each of them is called there."""
    import duckdb

    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    names = {}
    for number, (name, table) in enumerate(tables.items()):
        names[name] = f"belvedere_{number}"
        connection.register(names[name], table)
    return connection, names.__getitem__


def compare(
    catalog: Catalog, view: ViewDef, epoch: int, rows: pa.Table, tables: Mapping[str, pa.Table], quarantined: int
) -> Report:
    """The rows of a view against its query over these base rows, all of one epoch."""
    import duckdb

    from belvedere.sql.duckdb import to_duckdb

    connection, name = connect(tables)
    try:
        sql = to_duckdb(view.query, duckdb_name(catalog, name))
        try:
            expected = connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            return Report(
                view.name, epoch, False, rows.num_rows, quarantined,
                problem=f"DuckDB cannot recompute it ({quarantined} rows are in quarantine): {error}",
            )  # fmt: skip
        mine, theirs = _plain(rows, view.columns), _plain(expected, view.columns)
        connection.register("mine", mine)
        connection.register("theirs", theirs)
        extra = connection.sql("SELECT * FROM mine EXCEPT ALL SELECT * FROM theirs").to_arrow_table().to_pylist()
        missing = connection.sql("SELECT * FROM theirs EXCEPT ALL SELECT * FROM mine").to_arrow_table().to_pylist()
    finally:
        connection.close()
    extra, missing = _forgive(extra, missing, [c.name for c in view.columns if c.type.kind is Kind.DOUBLE])
    ok = not extra and not missing and not quarantined
    problem = None
    if not extra and not missing and quarantined:
        problem = f"incomplete: {quarantined} rows are in quarantine; the others equal a recomputation"
    return Report(
        view.name, epoch, ok, rows.num_rows, quarantined, tuple(missing[:SHOWN]), tuple(extra[:SHOWN]),
        max(len(extra), len(missing)), problem,
    )  # fmt: skip


def _plain(table: pa.Table, schema: Schema) -> pa.Table:
    """Columns in the view's types; timestamps without a zone, as DuckDB gives them."""
    arrays = []
    for array, column in zip(table.columns, schema, strict=True):
        wanted = pa.timestamp("us") if column.type.kind is Kind.TIMESTAMP else column.type.arrow
        arrays.append(array if array.type == wanted else array.cast(wanted))
    return pa.Table.from_arrays(arrays, names=[c.name for c in schema])


def _forgive(
    extra: list[dict[str, Any]], missing: list[dict[str, Any]], doubles: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Without the pairs that differ only in the last digits of doubles."""
    if not doubles or not extra or not missing:
        return extra, missing

    def rest(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(v for k, v in row.items() if k not in doubles)

    def close(a: dict[str, Any], b: dict[str, Any]) -> bool:
        return all(_close(a[name], b[name]) for name in doubles)

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
    counts = Counter(ok=0)
    for report in reports:
        counts["ok"] += report.ok
    return Report(
        "all views", epoch, counts["ok"] == len(reports), sum(r.rows for r in reports),
        sum(r.quarantined for r in reports), differences=sum(r.differences for r in reports), parts=tuple(reports),
    )  # fmt: skip
