"""`belvedere quarantine`: the rows that a view cannot show, and what of a base table cannot be read, and why."""

from __future__ import annotations

import click

from belvedere.cli import context, exits, output


@click.command(short_help="Rows that could not be computed, with reasons.")
@click.argument("relation")
@context.common
@click.pass_context
def quarantine(ctx: click.Context, relation: str) -> None:
    """Print the rows of a view that are in quarantine, with the reason; of a base table in HBase, the cells and row
    keys that cannot be read. Exit code 3 when there are any.

    A row leaves quarantine when a later write to its base rows makes it computable.
    """
    settings = context.settings(ctx)
    with settings.reader() as db:
        table = db.quarantine(relation)
    if table.num_rows == 0:
        if not settings.json:
            click.echo(f"{relation} is complete: nothing is in quarantine")
        return
    output.emit_table(table, as_json=settings.json)
    ctx.exit(exits.INCOMPLETE)
