"""`belvedere get`, `lookup` and `scan`: rows of a view (or base table) at the newest epoch, or at an earlier one."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from belvedere.cli import context, exits, output, values
from belvedere.errors import DataError, ViewFailed
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.cli.context import AnyDatabase

T = TypeVar("T")


def key_of(db: AnyDatabase, relation: str, texts: tuple[str, ...]) -> Any:
    """Key values given on the command line, in the types of the relation's key columns."""
    columns = db.key_columns(relation)
    return parse_key(relation, columns, texts)


def parse_key(relation: str, columns: tuple[Column, ...], texts: tuple[str, ...]) -> Any:
    """One value for a key of one column, a tuple otherwise; raises DataError with what the key is."""
    if len(texts) != len(columns):
        hint = f"; belvedere lookup {relation} prints all rows whose key begins so" if len(texts) < len(columns) else ""
        raise _wrong_number(relation, columns, texts, hint)
    parsed = parse_prefix(relation, columns, texts)
    return parsed[0] if len(parsed) == 1 else parsed


def parse_prefix(relation: str, columns: tuple[Column, ...], texts: tuple[str, ...]) -> tuple[Any, ...]:
    """Values of the first key columns."""
    if len(texts) > len(columns):
        raise _wrong_number(relation, columns, texts, "")
    try:
        return tuple(values.parse(text, column.type) for text, column in zip(texts, columns, strict=False))
    except values.Broken as reason:
        raise DataError(f"key of {relation}: {reason}") from None


def _wrong_number(relation: str, columns: tuple[Column, ...], texts: tuple[str, ...], hint: str) -> DataError:
    names = ", ".join(f"{c.name} {c.type}" for c in columns)
    return DataError(
        f"the key of {relation} is ({names}): {len(columns)} values are needed, {len(texts)} were given{hint}"
    )


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
STALE = click.option(
    "--allow-stale", is_flag=True, help="Of a view that has failed, the rows that it had before; stderr says so."
)
AT = click.option("--at", metavar="EPOCH|TIME", help="Read as of this epoch or UTC time, within the retention.")


def possibly_stale(read: Callable[..., T], allow_stale: bool) -> T:
    """With `--allow-stale`, who reads rows of before learns that they are."""
    try:
        return read()
    except ViewFailed as error:
        if not allow_stale:
            raise
        found = read(allow_stale=True)
        click.echo(f"{error}. These rows are from before that.", err=True)
        return found


@click.command(short_help="One row of a view by its key.")
@click.argument("view")
@click.argument("key", nargs=-1, required=True)
@AT
@AFTER
@STALE
@click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for --after.")
@context.common
@click.pass_context
def get(
    ctx: click.Context,
    view: str,
    key: tuple[str, ...],
    at: str | None,
    after: str | None,
    allow_stale: bool,
    timeout: float,
) -> None:
    """Print the row of VIEW whose key is KEY (one value per key column). Exit code 1 when there is none."""
    settings = context.settings(ctx)
    with settings.reader() as db:
        wanted = key_of(db, view, key)
        read = functools.partial(db.get, view, wanted, at=moment(at), after=after, timeout=timeout)
        row = possibly_stale(read, allow_stale)
    if row is None:
        click.echo(f"no row {' '.join(key)} in {view}", err=True)
        ctx.exit(exits.REFUSED)
    output.emit_record(row, as_json=settings.json)


LIMIT = click.option(
    "--limit", type=click.IntRange(0), help="At most so many rows.  [default: 100 in a terminal, else all]"
)
REVERSE = click.option("--reverse", is_flag=True, help="From the greatest key down.")
COLUMNS = click.option("--columns", metavar="NAME,…", help="Only these columns, in this order.")


def names(columns: str | None) -> list[str] | None:
    """`--columns`: names between commas."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def shown(limit: int | None, settings: context.GlobalOptions) -> int | None:
    """The limit that was asked for, or what a terminal has room for."""
    return 100 if limit is None and not settings.json and output.console().is_terminal else limit


@click.command(short_help="The rows of a view whose key begins so.")
@click.argument("view")
@click.argument("prefix", nargs=-1, required=True)
@LIMIT
@REVERSE
@COLUMNS
@AT
@AFTER
@STALE
@click.option("--timeout", default=10.0, show_default=True, help="Seconds to wait for --after.")
@context.common
@click.pass_context
def lookup(
    ctx: click.Context,
    view: str,
    prefix: tuple[str, ...],
    limit: int | None,
    reverse: bool,
    columns: str | None,
    at: str | None,
    after: str | None,
    allow_stale: bool,
    timeout: float,
) -> None:
    """Print the rows of VIEW whose key begins with PREFIX (a value for each of its first columns), in key order."""
    settings = context.settings(ctx)
    with settings.reader() as db:
        read = functools.partial(
            db.lookup,
            view,
            *parse_prefix(view, db.key_columns(view), prefix),
            limit=shown(limit, settings),
            reverse=reverse,
            columns=names(columns),
            at=moment(at),
            after=after,
            timeout=timeout,
        )
        table = possibly_stale(read, allow_stale)
    output.emit_table(table, as_json=settings.json)


@click.command(short_help="The rows of a view.")
@click.argument("view")
@click.option("--start", multiple=True, metavar="VALUE", help="From this key on (repeat for keys of several columns).")
@click.option("--stop", multiple=True, metavar="VALUE", help="Up to this key, not included.")
@LIMIT
@REVERSE
@COLUMNS
@AT
@STALE
@context.common
@click.pass_context
def scan(
    ctx: click.Context,
    view: str,
    start: tuple[str, ...],
    stop: tuple[str, ...],
    limit: int | None,
    reverse: bool,
    columns: str | None,
    at: str | None,
    allow_stale: bool,
) -> None:
    """Print rows of VIEW in key order. The first columns of a key will do for --start and --stop."""
    settings = context.settings(ctx)
    with settings.reader() as db:
        key = db.key_columns(view)
        read = functools.partial(
            db.scan,
            view,
            start=parse_prefix(view, key, start) or None,
            stop=parse_prefix(view, key, stop) or None,
            limit=shown(limit, settings),
            reverse=reverse,
            columns=names(columns),
            at=moment(at),
        )
        table = possibly_stale(read, allow_stale)
    output.emit_table(table, as_json=settings.json)
