"""`belvedere get` and `belvedere scan`: rows of a view (or base table) at the newest epoch, or at an earlier one."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import click

from belvedere.cli import context, exits, output, values
from belvedere.errors import DataError
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.embedded.statements import Executing


def key_of(db: Executing, relation: str, texts: tuple[str, ...]) -> Any:
    """Key values given on the command line, in the types of the relation's key columns."""
    columns = db.key_columns(relation)
    return parse_key(relation, columns, texts)


def parse_key(relation: str, columns: tuple[Column, ...], texts: tuple[str, ...]) -> Any:
    """One value for a key of one column, a tuple otherwise; raises DataError with what the key is."""
    if len(texts) != len(columns):
        names = ", ".join(f"{c.name} {c.type}" for c in columns)
        raise DataError(
            f"the key of {relation} is ({names}): {len(columns)} values are needed, {len(texts)} were given"
        )
    try:
        parsed = tuple(values.parse(text, column.type) for text, column in zip(texts, columns, strict=True))
    except values.Broken as reason:
        raise DataError(f"key of {relation}: {reason}") from None
    return parsed[0] if len(parsed) == 1 else parsed


def moment(text: str | None) -> int | dt.datetime | None:
    """`--at`: an epoch (a number), or a date and time (UTC unless it names a zone)."""
    if text is None:
        return None
    if text.removeprefix("e").isdigit():
        return int(text.removeprefix("e"))
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither an epoch nor a date and time like 2026-01-31T12:00:00") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)


def token(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """`--after`: a token as `put` prints it, or an epoch."""
    if text is not None and not re.fullmatch(r"e?\d+(,[^,:]+:\d+)*", text):
        raise click.BadParameter(f"{text!r} is no token; give what put or delete printed, or an epoch")
    return text


AFTER = click.option("--after", metavar="TOKEN", callback=token, help="Wait until this write is visible.")
AT = click.option("--at", metavar="EPOCH|TIME", help="Read as of this epoch or UTC time, within the retention.")


@click.command(short_help="One row of a view by its key.")
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@AT
@AFTER
@click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for --after.")
@context.common
@click.pass_context
def get(ctx: click.Context, view: str, key: tuple[str, ...], at: str | None, after: str | None, timeout: float) -> None:
    """Print the row of VIEW whose key is KEY (one value per key column). Exit code 1 when there is none."""
    settings = context.settings(ctx)
    with settings.reader() as db:
        row = db.get(view, key_of(db, view, key), at=moment(at), after=after, timeout=timeout)
    if row is None:
        click.echo(f"no row {' '.join(key)} in {view}", err=True)
        ctx.exit(exits.REFUSED)
    output.emit_record(row, as_json=settings.json)


@click.command(short_help="The rows of a view.")
@click.argument("view")
@click.option("--start", multiple=True, metavar="VALUE", help="From this key on (repeat for keys of several columns).")
@click.option("--stop", multiple=True, metavar="VALUE", help="Up to this key, not included.")
@click.option("--limit", type=click.IntRange(0), help="At most so many rows.  [default: 100 in a terminal, else all]")
@AT
@context.common
@click.pass_context
def scan(
    ctx: click.Context, view: str, start: tuple[str, ...], stop: tuple[str, ...], limit: int | None, at: str | None
) -> None:
    """Print rows of VIEW in key order."""
    settings = context.settings(ctx)
    if limit is None and not settings.json and output.console().is_terminal:
        limit = 100
    with settings.reader() as db:
        table = db.scan(
            view,
            start=key_of(db, view, start) if start else None,
            stop=key_of(db, view, stop) if stop else None,
            limit=limit,
            at=moment(at),
        )
    output.emit_table(table, as_json=settings.json)
