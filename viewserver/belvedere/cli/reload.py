"""`belvedere reload`: read a table of another system again, and correct what differs."""

from __future__ import annotations

from dataclasses import asdict

import click

from belvedere import errors
from belvedere.cli import context, exits, output
from belvedere.model.reloads import ReloadReport


@click.command(short_help="Read an HBase table again, and correct what differs.")
@click.argument("table")
@click.option("--start", default="", help="The first row key, as the shell of HBase writes it (\\x00 is a byte).")
@click.option("--stop", default="", help="The row key before which it ends.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it is done.")
@click.option("--request", default="", help="A name for it: who asks again with the same name is told how far it is.")
@context.common
@click.pass_context
def reload(ctx: click.Context, table: str, start: str, stop: str, no_wait: bool, request: str) -> None:
    """Read the rows of TABLE from HBase again, and correct what is not as HBase has it.

    After a bulk load, which HBase's log does not tell of, or when deletes were lost. Views stay in service. Exit code 3
    when rows were written all the time, so that nothing can be said of them: reload again.
    """
    settings = context.settings(ctx)
    if settings.url is None:
        raise errors.CatalogError("base tables of an embedded database are its own, and nothing passes it by")
    shown = ""

    def progress(report: ReloadReport) -> None:
        nonlocal shown
        text = _text(report)
        if text != shown and not settings.json:
            click.echo(text, err=True)
        shown = text

    with settings.cluster(settings.url) as db:
        report = db.reload(table, start=start, stop=stop, wait=not no_wait, request=request, progress=progress)
    if settings.json:
        output.emit_json(asdict(report))
    elif report.done:
        click.echo(f"{report.table}: {report.corrected} rows corrected, {report.undecided} undecided")
    else:
        click.echo(f"{report.table}: under way; ask again with --request {report.id}")
    if report.undecided:
        ctx.exit(exits.INCOMPLETE)


def _text(report: ReloadReport) -> str:
    if report.phase == "scan":
        rest = "" if report.remaining_s is None else f", about {report.remaining_s:.0f} s left"
        return f"{report.table}: read {report.share:.0%}, {report.rows} changes{rest}"
    return f"{report.table}: {report.phase}, {report.corrected} rows corrected"
