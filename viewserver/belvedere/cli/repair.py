"""`belvedere repair`: put right what verification found."""

from __future__ import annotations

from typing import Any

import click

from belvedere.cli import context, exits, output
from belvedere.errors import CatalogError


@click.command(short_help="Mend what verify found.")
@click.argument("views", nargs=-1, required=True, metavar="VIEW…")
@click.option("--dry-run", is_flag=True, help="Only list the rows that would be replaced.")
@click.option("--all", "everything", is_flag=True, help="Make the views anew, and what reads them, without looking.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only the row of this key; may be repeated.")
@click.option("--prefix", metavar="KEY", help="Keys that begin with these values only, separated by commas.")
@click.option("--start", metavar="KEY", help="Keys from this one on only; the first columns of a key will do.")
@click.option("--stop", metavar="KEY", help="Keys up to this one only, which is not included.")
@context.common
@click.pass_context
def repair(ctx: click.Context, /, views: tuple[str, ...], dry_run: bool, everything: bool, **given: Any) -> None:
    """Put right what is wrong with VIEWs, the state behind them and what is made of them.

    What is stored is compared with what the base rows make, and the right rows take the place of the wrong ones, in an
    epoch like any other. Views stay in service. A database directory must not be open for writing elsewhere.

    Exit code 3 when something is left: rows that could not be mended, or with --dry-run rows that are wrong.
    """
    settings = context.settings(ctx)
    chosen = {part: value for part, value in given.items() if value not in (None, ())}
    if chosen and len(views) != 1:
        raise click.UsageError(f"--{'key' if 'keys' in chosen else next(iter(chosen))} is about the key of one view")
    whole = True
    with settings.writer() as opened:
        db: Any = opened
        if not hasattr(db, "repair"):
            raise CatalogError("repair works in a database directory, and where a pool's coordinators answer")
        for name in views:
            report = db.repair(name, everything=everything, dry_run=dry_run, **_parsed(db, name, chosen))
            whole = whole and report.ok
            if settings.json:
                output.emit_json(report.to_dict())
                continue
            click.echo(str(report))
            for row in report.rows if dry_run else ():
                click.echo(f"  {row.problem} {row.table} {row.id}")
    if not whole:
        ctx.exit(exits.INCOMPLETE)


def _parsed(db: Any, view: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Keys in the types of the view's key."""
    if not chosen:
        return {}
    from belvedere.cli.read import parse_prefix

    columns = db.key_columns(view)

    def parse(text: str) -> Any:
        return parse_prefix(view, columns, tuple(text.split(",")))

    return {part: [parse(key) for key in value] if part == "keys" else parse(value) for part, value in chosen.items()}
