"""`belvedere put` and `belvedere delete`: a few rows from the shell. Files go through `belvedere load`."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from typing import Any

import click

from belvedere.cli import context, output, values
from belvedere.cli.load import base_table
from belvedere.cli.read import parse_key
from belvedere.errors import DataError
from belvedere.sql.catalog import TableDef


def rows_from_json(text: str, table: TableDef) -> list[dict[str, Any]]:
    """Rows given as JSON: an object, an array of objects, or one object per line."""
    decoder = json.JSONDecoder(parse_float=Decimal)
    documents, position = [], 0
    stripped = text.strip()
    try:
        while position < len(stripped):
            document, position = decoder.raw_decode(stripped, position)
            documents.append(document)
            while position < len(stripped) and stripped[position].isspace():
                position += 1
    except json.JSONDecodeError as error:
        raise DataError(f"the rows are not JSON: {error.msg} at character {error.pos + 1}") from None
    rows = documents[0] if len(documents) == 1 and isinstance(documents[0], list) else documents
    return [typed_row(row, table) for row in rows]


def typed_row(row: Any, table: TableDef) -> dict[str, Any]:
    """A JSON object with values in the types of the table; raises DataError."""
    if not isinstance(row, dict):
        raise DataError(f"a row of {table.name} is a JSON object with columns as names, not {json.dumps(row)[:40]}")
    known = {c.name.lower(): c for c in table.columns}
    typed = {}
    for name, value in row.items():
        column = known.get(name.lower())
        if column is None:
            raise DataError(
                f"table {table.name} has no column {name!r}; it has {', '.join(c.name for c in table.columns)}"
            )
        try:
            typed[column.name] = values.parse(value, column.type)
        except values.Broken as reason:
            raise DataError(f"table {table.name}, column {column.name}: {reason}") from None
    return typed


@click.command(short_help="Write rows: put TABLE --json '{...}'.")
@click.argument("table")
@click.option("--json", "rows", metavar="ROWS", help="An object, an array, or one object per line; - or none: stdin.")
@click.option("--ts", type=int, help="Timestamp of the cells: an older one loses.  [default: now]")
@context.database_path
@click.pass_context
def put(ctx: click.Context, table: str, rows: str | None, ts: int | None) -> None:
    """Write rows to TABLE, all of them at once or none.

    A missing column is left unchanged (NULL in a new row); null sets it to NULL. Prints a token when the rows are
    durable: `belvedere get VIEW KEY --after TOKEN` reads at a state that includes them.
    """
    settings = context.settings(ctx)
    text = sys.stdin.read() if rows is None or rows == "-" else rows
    with settings.writer() as db:
        definition = base_table(db, table)
        parsed = rows_from_json(text, definition)
        token = db.put(definition.name, parsed, ts=ts)
        db.wait(token)
    _done(definition.name, "written", len(parsed), token, settings.json)


@click.command(short_help="Delete a row by its key.")
@click.argument("table")
@click.argument("key", nargs=-1, required=True)
@click.option("--ts", type=int, help="Timestamp of the delete.  [default: now]")
@context.common
@click.pass_context
def delete(ctx: click.Context, table: str, key: tuple[str, ...], ts: int | None) -> None:
    """Delete the row of TABLE whose primary key is KEY (one value per key column)."""
    settings = context.settings(ctx)
    with settings.writer() as db:
        definition = base_table(db, table)
        columns = tuple(definition.columns[i] for i in definition.key_positions)
        token = db.delete(definition.name, [parse_key(definition.name, columns, key)], ts=ts)
        db.wait(token)
    _done(definition.name, "deleted", 1, token, settings.json)


@click.command(short_help="Wait until views have what was written to a row of HBase.")
@click.argument("table")
@click.argument("key", nargs=-1, required=True)
@click.option("--timestamp", type=int, required=True, help="Of a cell that was written, as HBase has it.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds.")
@context.common
@click.pass_context
def wait(ctx: click.Context, table: str, key: tuple[str, ...], timestamp: int, timeout: float) -> None:
    """For rows of a table of HBase that another program has written: wait until all views have the write to the row KEY
    at that timestamp, and print a token for reads after it."""
    settings = context.settings(ctx)
    with settings.writer() as db:
        definition = base_table(db, table)
        waiting = getattr(db, "wait_for", None)
        if waiting is None:
            raise DataError("rows get here through this database only; `put` and `delete` print tokens")
        columns = tuple(definition.columns[i] for i in definition.key_positions)
        token = waiting(definition.name, parse_key(definition.name, columns, key), timestamp, timeout=timeout)
    if settings.json:
        output.emit_json({"table": definition.name, "token": token})
    else:
        click.echo(f"{definition.name}: it is in all views, token {token}")


def _done(table: str, verb: str, count: int, token: Any, as_json: bool) -> None:
    if as_json:
        output.emit_json({"table": table, verb: count, "token": token})
    else:
        click.echo(f"{table}: {count:,} {verb}, token {token}")
