"""Base tables the slow, obvious way: a dictionary of rows whose cells carry timestamps.

The meaning of `put` and `delete` in a few lines, so that it can be read and believed: cells are merged
last-writer-wins by timestamp; a row delete at T masks what was written at or before T, whenever it arrives; of two puts
with one timestamp the later wins; a put, even of the key alone, makes the row live. The package under test is not
imported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

CLOCK_START = 10**15
"""Timestamps of writes without `ts=` in the model: later than every explicit one that a test uses."""


@dataclass
class Row:
    """Cells as (timestamp, value); `put` and `deleted` are the newest timestamps of any put and of any delete."""

    cells: dict[str, tuple[int, Any]] = field(default_factory=dict)
    put: int = -1
    deleted: int = -1


@dataclass
class Table:
    """One base table: column name -> SQL type text (lower case), key columns, rows by key."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...]
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)

    def put(self, values: Mapping[str, Any], ts: int) -> None:
        """Write the given columns of one row."""
        row = self.rows.setdefault(self._key(values), Row())
        row.put = max(row.put, ts)
        for name, value in values.items():
            if name not in self.key and ts >= row.cells.get(name, (-1, None))[0]:
                row.cells[name] = (ts, value)

    def delete(self, values: Mapping[str, Any], ts: int) -> None:
        """Delete one row."""
        row = self.rows.setdefault(self._key(values), Row())
        row.deleted = max(row.deleted, ts)

    def live(self) -> Iterator[tuple[Any, ...]]:
        """The rows that exist now, with values in column order."""
        for key, row in self.rows.items():
            if row.put <= row.deleted:
                continue
            by_key = dict(zip(self.key, key, strict=True))
            cells = {n: v for n, (ts, v) in row.cells.items() if ts > row.deleted}
            yield tuple(by_key[c] if c in by_key else cells.get(c) for c in self.columns)

    def add_column(self, name: str, type: str) -> None:
        """ALTER TABLE ADD COLUMN: NULL in the rows that exist, as if written with them."""
        self.columns[name] = type
        for row in self.rows.values():
            row.cells[name] = (row.put, None)

    def _key(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_hashable(values[k]) for k in self.key)


def _hashable(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


class Base:
    """All base tables of one database and its clock."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self._clock = CLOCK_START

    def tick(self) -> int:
        """The next own timestamp."""
        self._clock += 1
        return self._clock

    def create(self, sql: str) -> Table:
        """CREATE TABLE."""
        table = parse_table(sql)
        self.tables[table.name] = table
        return table

    def write(
        self, table: str, rows: Sequence[Mapping[str, Any]], deletes: Iterable[bool] | bool, ts: int | None
    ) -> None:
        """One ordered batch: rows where `deletes` holds are deletes."""
        target = self.tables[table]
        marks = [deletes] * len(rows) if isinstance(deletes, bool) else list(deletes)
        for row, delete in zip(rows, marks, strict=True):
            stamp = self.tick() if ts is None else ts
            (target.delete if delete else target.put)(row, stamp)


_TABLE = re.compile(r"\s*create\s+table\s+(?:if\s+not\s+exists\s+)?(\w+)\s*\((.*)\)\s*;?\s*$", re.I | re.S)
_COLUMN = re.compile(r"(\w+)\s+(\w+(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?)\s*(.*)$", re.I | re.S)
_KEY = re.compile(r"primary\s+key\s*\(([^)]*)\)\s*$", re.I)


def parse_table(sql: str) -> Table:
    """The table that a CREATE TABLE of the plain form makes."""
    found = _TABLE.match(sql)
    if found is None:
        raise ValueError(f"not a plain CREATE TABLE: {sql!r}")
    name, body = found.groups()
    columns: dict[str, str] = {}
    key: tuple[str, ...] = ()
    for part in _split(body):
        listed = _KEY.match(part)
        if listed:
            key = tuple(k.strip() for k in listed.group(1).split(","))
            continue
        column = _COLUMN.match(part)
        if column is None:
            raise ValueError(f"not a plain column: {part!r}")
        columns[column.group(1)] = canonical(column.group(2))
        if "primary" in column.group(3).lower():
            key = (column.group(1),)
    return Table(name, columns, key)


def _split(body: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in body:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [*parts, current.strip()]


def canonical(type: str) -> str:
    """A type as Spark's simpleString writes it."""
    text = re.sub(r"\s+", "", type).lower()
    if text in ("decimal", "numeric"):
        return "decimal(10,0)"
    if re.fullmatch(r"(decimal|numeric)\(\d+\)", text):
        return text.replace("numeric", "decimal").replace(")", ",0)")
    return {"integer": "int", "long": "bigint", "bool": "boolean", "text": "string"}.get(text, text)


def from_json(value: Any, type: str) -> Any:
    """A JSON value as the Python value of a column: decimals, dates and timestamps are JSON strings, binaries hex."""
    if value is None:
        return None
    if type == "double":
        return float(value)
    if type.startswith("decimal"):
        return Decimal(str(value))
    if type == "date":
        return date.fromisoformat(value)
    if type == "timestamp":
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    if type == "binary":
        return bytes.fromhex(value)
    return value
