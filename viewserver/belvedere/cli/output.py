"""Results for people (tables) and for programs (JSON, one document per line)."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

NUMBERS = (int, float, Decimal)


def console() -> Console:
    """A console on the current stdout; never narrower than its content when stdout is not a terminal."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else 1000, highlight=False, soft_wrap=False)


def jsonable(value: Any) -> Any:
    """Values of rows in JSON: decimals, dates and times as strings, binary as hex, NaN and infinities by name."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return str(value)
        case dt.datetime() | dt.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case Mapping():
            return {str(k): jsonable(v) for k, v in value.items()}
        case list() | tuple():
            return [jsonable(v) for v in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)


def emit_json(document: Any) -> None:
    """One JSON document on one line."""
    click.echo(json.dumps(jsonable(document), ensure_ascii=False))


def cell(value: Any) -> Text:
    """One value in a table: NULL dimmed, everything else as SQL would print it."""
    match value:
        case None:
            return Text("NULL", style="dim")
        case bool():
            return Text("true" if value else "false")
        case bytes():
            return Text("0x" + value.hex())
        case dt.datetime():
            plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return Text(plain.isoformat(sep=" "))
        case _:
            return Text(str(value))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """A table with numbers to the right."""
    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for position, name in enumerate(columns):
        values = [row[position] for row in rows if row[position] is not None]
        numeric = bool(values) and all(isinstance(v, NUMBERS) and not isinstance(v, bool) for v in values)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    return table


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of an Arrow table as tuples (column names may repeat, so not as dicts)."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True)) if table.num_columns else []


def emit_table(table: pa.Table, *, as_json: bool, summary: bool = True) -> None:
    """Print an Arrow table: JSON lines, or a table with the number of rows below."""
    if as_json:
        for row in rows_of(table):
            emit_json(dict(zip(table.column_names, row, strict=True)))
        return
    console().print(table_of(table.column_names, rows_of(table)))
    if summary:
        click.echo(f"{table.num_rows:,} row{'' if table.num_rows == 1 else 's'}")


def emit_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """Print one record: a JSON document, or one `name  value` line per field."""
    if as_json:
        emit_json(record)
        return
    width = max((len(name) for name in record), default=0)
    for name, value in record.items():
        click.echo(f"{name:<{width}}  {cell(value).plain}")


def bytes_text(count: float) -> str:
    """12,345,678 -> 11.8 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")
