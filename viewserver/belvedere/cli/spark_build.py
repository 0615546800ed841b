"""`belvedere-spark build`: compute what a pool waits for."""

from __future__ import annotations

from typing import Any

import click

from belvedere.cli import context, exits, output
from belvedere.cli import verify as verification


@click.command(short_help="Build views that a pool waits for.")
@click.argument("views", nargs=-1)
@click.option("--slices", type=click.IntRange(0, 4096), default=0, help="Cut the buckets into so many [by rows].")
@click.option("--checkpoint", metavar="DIR", default="", help="Keep rows between stages in this directory, which all "
              "executors reach, so that a killed build does not compute them again.")  # fmt: skip
@click.option("--freshness", "fresh", type=float, default=2.0, show_default=True,
              help="Rest while views in service are behind by more seconds.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Stay, take what comes, and let the pool count on it (build: auto).")
@verification.places
@context.common
@click.pass_context
def build(ctx: click.Context, /, views: tuple[str, ...], **given: Any) -> None:
    """Build VIEWS (default: all that the pool waits for) from the rows that are there, while writes go on.

    A build that was killed goes on where it was when the same command is given again. Exit code 3 when the views were
    changed or dropped meanwhile.
    """
    from belvedere.spark.requirements import require_spark

    settings: context.GlobalOptions = ctx.obj
    if settings.url is None:
        raise click.UsageError("Spark builds views of a pool: name its coordinators with --url belvedere://HOST:PORT")
    require_spark()
    from belvedere.spark.build.building import Settings
    from belvedere.spark.build.job import build_job

    how = Settings(given["slices"], int(given["fresh"] * 1000), given["checkpoint"])
    reports = build_job(
        settings.url,
        views,
        given["master"],
        verification.settings_of_spark(given),
        settings.access(),
        how=how,
        follow=(lambda: True) if given["follow"] else None,
        tell=lambda line: click.echo(line, err=True),
    )
    good = True
    for report in reports:
        good = good and report.ok
        if settings.json:
            output.emit_json(report.to_dict())
        else:
            click.echo(str(report))
    if not good and not given["follow"]:
        ctx.exit(exits.INCOMPLETE)
