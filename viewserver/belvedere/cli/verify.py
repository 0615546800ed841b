"""`belvedere verify`: recompute views with another engine and compare, row by row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from belvedere.cli import context, exits, output

if TYPE_CHECKING:
    from belvedere.model.verify import Report

ROWS = ("missing", "extra", "different", "parts")
"""What of a report is as long as rows are wide."""
F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False, writable=True)


def outcomes(command: F) -> F:
    """Where the result goes besides the terminal."""
    for option in (
        click.option(
            "--html", "page", type=_FILE, help="Also write a page with the result and a plot of earlier ones."
        ),
        click.option("--metrics", type=_FILE, help="Also write figures for Prometheus' collector of text files."),
        click.option(
            "--history", type=_FILE, help="File with earlier results, to which these are added [in the database]."
        ),
        click.option(
            "--summary", type=_FILE, help="Also write a line of JSON for each view, with figures and no rows."
        ),
        click.option("--past", is_flag=True, help="Show the earlier results instead of verifying."),
    ):
        command = option(command)
    return command


def scopes(command: F) -> F:
    """What is verified, and which part of it."""
    for option in (
        click.option("--base", is_flag=True, help="Compare base rows with where they come from, instead of views."),
        click.option("--state", is_flag=True, help="Compare the state behind the views, instead of their rows."),
        click.option("--stop", metavar="KEY", help="Keys up to this one only, which is not included."),
        click.option("--start", metavar="KEY", help="Keys from this one on only; the first columns of a key will do."),
        click.option("--prefix", metavar="KEY", help="Keys that begin with these values only, separated by commas."),
        click.option("--seed", type=int, default=0, help="Another sample."),
        click.option("--sample", type=float, metavar="SHARE", help="This share of the keys only, by hash: 0.01."),
    ):
        command = option(command)
    return command


def places(command: F) -> F:
    """Where Spark runs: the same for all jobs."""
    for option in (
        click.option("--executor-image", metavar="IMAGE", help="Image of executors on Kubernetes: that of the driver."),
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark."),
        click.option("--master", help="Where Spark runs: local[*], spark://…, k8s://… [local[*], or by spark-submit]"),
    ):
        command = option(command)
    return command


def settings_of_spark(given: Mapping[str, Any]) -> dict[str, str]:
    """Those of `places`, as Spark has them."""
    conf = dict(_setting(text) for text in given["conf"])
    if given["executor_image"] is not None:
        conf["spark.kubernetes.container.image"] = given["executor_image"]
    return conf


@click.command(short_help="Recompute views with another engine and compare.")
@click.argument("views", nargs=-1)
@click.option(
    "--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True, help="What recomputes."
)
@scopes
@places
@outcomes
@context.common
@click.pass_context
def verify(ctx: click.Context, /, views: tuple[str, ...], engine: str, **given: Any) -> None:
    """Recompute VIEWS (default: all) from the base tables with another engine and compare every row.

    DuckDB does it in this process. Spark (an extra: belvedere[spark]) does it where --master says, in memory that does
    not grow with the view, and can verify a part: --sample, --prefix, --start, --stop.

    --state compares the state behind views with what a fresh engine makes of the base rows, --base compares base rows
    with where they come from (a table of HBase; of a database directory snapshot and log).

    Exit code 3 when a view differs or is incomplete (rows in quarantine).
    """
    run(ctx, views, engine, **given)


def run(ctx: click.Context, views: tuple[str, ...], engine: str, **given: Any) -> None:
    from belvedere.model import verify_record

    settings = context.settings(ctx)
    history: Path | None = given["history"]
    if history is None and settings.url is None:
        history = settings.path / verify_record.FILE
    if given["past"]:
        _show_past(settings, history, views)
        return
    part = [
        f"--{n.replace('_', '-')}"
        for n in ("sample", "prefix", "start", "stop", "master", "conf", "executor_image")
        if given[n] not in (None, (), "")
    ]
    if engine != "spark" and part:
        raise click.UsageError(f"{part[0]} is for --engine spark")
    if given["state"] and given["base"]:
        raise click.UsageError("--state and --base are two verifications")
    behind = [what for what in ("state", "base") if given[what]]
    if behind and engine == "spark":
        raise click.UsageError(f"--{behind[0]} is not for --engine spark")
    if engine == "spark":
        found = _by_spark(settings, views, given)
    else:
        found = _behind(settings, views, behind[0]) if behind else _by_duckdb(settings, views)
    reports = []
    for report in found:
        reports.append(report)
        if settings.json:
            output.emit_json({k: v for k, v in report.to_dict().items() if k != "parts"})
        else:
            click.echo(str(report))
    if history is not None:
        try:
            verify_record.append(history, [verify_record.entry(r, time.time()) for r in reports])
        except OSError as error:
            if given["history"] is not None:
                raise
            click.echo(f"the history of verifications is not kept: {error}", err=True)
    if given["page"] is not None:
        past = verify_record.read(history) if history is not None else []
        given["page"].write_text(verify_record.page(reports, past))
    if given["summary"] is not None:
        given["summary"].write_text("".join(f"{json.dumps(_summary(report))}\n" for report in reports))
    if given["metrics"] is not None:
        given["metrics"].write_text(verify_record.metrics(reports))
    if not all(report.ok for report in reports):
        ctx.exit(exits.INCOMPLETE)


def _summary(report: Report) -> dict[str, Any]:
    return {name: value for name, value in report.to_dict().items() if name not in ROWS}


def _by_duckdb(settings: context.GlobalOptions, views: tuple[str, ...]) -> Iterator[Report]:
    with settings.reader() as db:
        for name in views or tuple(db.catalog.views):
            yield db.verify(name)


def _behind(settings: context.GlobalOptions, views: tuple[str, ...], what: str) -> Iterator[Report]:
    """State or base rows. A process that only reads a directory has neither state nor a log of its own."""
    with settings.writer() as db:
        for name in views or (None,):
            report = db.verify(name, state=what == "state", base=what == "base")
            yield from report.parts or (report,)


def _by_spark(settings: context.GlobalOptions, views: tuple[str, ...], given: dict[str, Any]) -> Iterator[Report]:
    from belvedere.spark.requirements import require_spark

    if settings.url is not None and not settings.url.startswith("belvedere"):
        raise click.UsageError(
            "Spark reads the store of a pool by itself: name its coordinators with --url belvedere://HOST:PORT"
        )
    require_spark()
    from belvedere.cli.read import parse_prefix

    with settings.reader() as db:
        catalog = db.catalog
        names = [catalog.relation(name).name for name in views] or list(catalog.views)
        keys = {part: given[part] for part in ("prefix", "start", "stop") if given[part] is not None}
        if keys and len(names) != 1:
            raise click.UsageError(f"--{next(iter(keys))} is about the key of one view; name that view")
        columns = db.key_columns(names[0]) if keys else ()
        parts = {part: parse_prefix(names[0], columns, tuple(text.split(","))) for part, text in keys.items()}
    from belvedere.spark.verify.job import verify_job

    part = {"sample": given["sample"], "seed": given["seed"], **parts}
    where = settings.url or str(settings.path)
    return verify_job(where, names, part, given["master"], settings_of_spark(given), settings.access())


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.UsageError(f"--conf is NAME=VALUE; found {text!r}")
    return name, value


def _show_past(settings: context.GlobalOptions, history: Path | None, views: tuple[str, ...]) -> None:
    from belvedere.model import verify_record

    if history is None:
        raise click.UsageError(
            "--past needs --history FILE for a pool: only a database directory has a file of its own"
        )
    wanted = {name.lower() for name in views}
    for one in verify_record.read(history):
        if wanted and one["view"].lower() not in wanted:
            continue
        if settings.json:
            output.emit_json(dict(one))
            continue
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"]))
        counts = ", ".join(f"{count:,} {kind}" for kind, count in one["counts"].items())
        scope = f" ({one['scope']})" if one["scope"] else ""
        result = "right" if one["ok"] else one["problem"] or "differs"
        click.echo(f"{when}  {one['view']}{scope}  {one['rows']:,} rows, {counts}  {one['engine']}  {result}")
