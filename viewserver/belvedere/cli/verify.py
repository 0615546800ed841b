"""`belvedere verify`: recompute views with another engine and compare, row by row."""

from __future__ import annotations

import click

from belvedere.cli import context, exits, output


@click.command(short_help="Recompute views with DuckDB and compare.")
@click.argument("views", nargs=-1)
@context.common
@click.pass_context
def verify(ctx: click.Context, views: tuple[str, ...]) -> None:
    """Recompute VIEWS (default: all) from the base tables with DuckDB and compare every row.

    Exit code 3 when a view differs or is incomplete (rows in quarantine).
    """
    settings = context.settings(ctx)
    good = True
    with settings.reader() as db:
        for name in views or tuple(db.catalog.views):
            report = db.verify(name)
            good &= bool(report.ok)
            if settings.json:
                output.emit_json({k: v for k, v in report.to_dict().items() if k != "parts"})
            else:
                click.echo(str(report))
    if not good:
        ctx.exit(exits.INCOMPLETE)
