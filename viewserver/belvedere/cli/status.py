"""`belvedere status` and `belvedere lag`: what the database holds, and how far views are behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from belvedere.cli import context, output


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
    plain = {name: value for name, value in found.items() if not isinstance(value, Mapping | list)}
    output.emit_record(plain, as_json=False)
    for name, value in found.items():
        rows = _rows(value)
        if rows:
            columns = list(dict.fromkeys(key for row in rows for key in row if not isinstance(row[key], Mapping)))
            shown = [[_size(c, row.get(c)) for c in columns] for row in rows]
            click.echo("")
            output.console().print(output.table_of(columns, shown, title=name))


def _size(column: str, value: Any) -> Any:
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
