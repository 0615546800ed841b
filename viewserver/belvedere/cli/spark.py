"""The `belvedere-spark` command: jobs of Spark, on this machine or wherever `spark-submit` says."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from belvedere.cli import context
from belvedere.cli import verify as verification
from belvedere.cli.main import Commands

TERMINATED = 128 + signal.SIGTERM


class SparkCommands(Commands):
    known = {"verify": ("spark", "verify"), "build": ("spark_build", "build"), "executor": ("spark", "executor")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those for people."""
        return [name for name in self.known if name != "executor"]


@click.group(cls=SparkCommands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--db", "path", type=click.Path(path_type=Path), envvar="BELVEDERE_DB", default=Path("belvedere.bv"),
              show_default="./belvedere.bv", help="The database directory [env: BELVEDERE_DB].")  # fmt: skip
@click.option("--url", envvar="BELVEDERE_URL", help="A pool instead: belvedere://HOST:PORT[,…] [env: BELVEDERE_URL].")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of tables for people.")
@click.version_option(package_name="belvedere", prog_name="belvedere-spark")
@click.pass_context
def cli(ctx: click.Context, /, path: Path, url: str | None, as_json: bool) -> None:
    """Jobs of Spark over a database or a pool. pyspark is an extra: pip install 'belvedere[spark]'.

    Exit codes: as those of `belvedere`.
    """
    if url is not None and ctx.get_parameter_source("path") is click.core.ParameterSource.COMMANDLINE:
        url = None
    ctx.obj = context.GlobalOptions(path=path, url=url, json=as_json)


@click.command(short_help="Recompute views with Spark SQL and compare.")
@click.argument("views", nargs=-1)
@verification.scopes
@verification.places
@verification.outcomes
@context.common
@click.pass_context
def verify(ctx: click.Context, /, views: tuple[str, ...], **given: Any) -> None:
    """Recompute VIEWS (default: all) with Spark SQL at one epoch and compare every row, or those of a part.

    Exit code 3 when a view differs or is incomplete (rows in quarantine).
    """
    verification.run(ctx, views, "spark", **given)


@click.command(hidden=True)
def executor() -> None:
    """Become an executor of Spark: what Spark starts in a pod of the image whose entrypoint this is."""
    from belvedere.spark.kubernetes import executor_command

    words = executor_command(os.environ)
    os.execvp(words[0], words)


def _end(*_: object) -> None:
    """The first process of a container has to say what SIGTERM does. The session ends, and its executors with it."""
    sys.exit(TERMINATED)


def main() -> None:
    """Entry point of the `belvedere-spark` script."""
    signal.signal(signal.SIGTERM, _end)
    cli(prog_name="belvedere-spark")


if __name__ == "__main__":
    main()
