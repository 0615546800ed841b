"""`belvedere status` and `belvedere lag`: what the database holds, and how far views are behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from belvedere.cli import context, output

SHARES = ("share", "busy")
"""Columns with parts of one."""


@click.command(short_help="Epoch, tables, views, sizes, backlog.")
@context.common
@click.pass_context
def status(ctx: click.Context) -> None:
    """Print what the database holds: epochs, tables, views, their sizes, and what is incomplete."""
    settings = context.settings(ctx)
    with settings.reader() as db:
        found = db.status()
    if settings.json:
        output.emit_json(found)
        return
    output.emit_record({name: _text(value) for name, value in found.items() if _is_plain(value)}, as_json=False)
    for name, value in found.items():
        rows = _rows(value)
        if rows:
            columns = [
                c for c in dict.fromkeys(key for row in rows for key in row) if any(_told(row, c) for row in rows)
            ]
            shown = [[_shown(c, row.get(c)) for c in columns] for row in rows]
            click.echo("")
            output.console().print(output.table_of(columns, shown, title=name))


def _is_plain(value: Any) -> bool:
    """One line shows it; an empty list or text is nothing to show."""
    if isinstance(value, list | str):
        return bool(value) and not _rows(value)
    return not isinstance(value, Mapping)


def _told(row: Mapping[str, Any], column: str) -> bool:
    """Whether a row says something in this column that is worth its width."""
    value = row.get(column)
    return value is not None and value is not False and value != "" and not isinstance(value, Mapping)


def _text(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _shown(column: str, value: Any) -> Any:
    if value is None:
        return ""
    if column in SHARES and isinstance(value, int | float):
        return f"{value:.1%}"
    return output.bytes_text(value) if column.endswith("bytes") and isinstance(value, int) else value


def _rows(value: Any) -> list[dict[str, Any]]:
    """A nested part of the status as rows of a table: a list of dicts, or a dict of dicts by name."""
    if isinstance(value, Mapping):
        return [{"name": k, **v} if isinstance(v, Mapping) else {"name": k, "value": v} for k, v in value.items()]
    if isinstance(value, list):
        return [dict(row) for row in value if isinstance(row, Mapping)]
    return []


@click.command(short_help="How far views are behind what is durable.")
@context.common
@click.pass_context
def lag(ctx: click.Context) -> None:
    """Print the newest committed epoch, how old it is, and how far it is behind the newest durable write.

    A database that nobody writes has an old epoch and no lag.
    """
    settings = context.settings(ctx)
    with settings.reader() as db:
        found = db.status()
    shown: dict[str, Any] = {
        name: found[name] for name in ("epoch", "age_ms", "written_epoch", "lag_ms", "backlog_rows") if name in found
    }
    output.emit_record(shown, as_json=settings.json)
