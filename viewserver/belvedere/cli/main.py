"""The `belvedere` command: global options, the list of commands, and the border where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from belvedere.cli import context, exits

# name -> (module, attribute): loaded when called. The order is the order of `belvedere --help`.
COMMANDS = {
    "demo": ("demo", "demo"),
    "apply": ("apply", "apply"),
    "explain": ("explain", "explain"),
    "sql": ("sql", "sql"),
    "load": ("load", "load"),
    "put": ("write", "put"),
    "delete": ("write", "delete"),
    "wait": ("write", "wait"),
    "get": ("read", "get"),
    "lookup": ("read", "lookup"),
    "scan": ("read", "scan"),
    "watch": ("watch", "watch"),
    "status": ("status", "status"),
    "lag": ("status", "lag"),
    "verify": ("verify", "verify"),
    "repair": ("repair", "repair"),
    "quarantine": ("quarantine", "quarantine"),
    "ranges": ("ranges", "ranges"),
    "reload": ("reload", "reload"),
    "inspect": ("inspect", "inspect"),
    "bench": ("bench", "bench"),
    "local": ("local", "local"),
    "scale": ("local", "scale"),
    "coordinator": ("roles", "coordinator"),
    "distributor": ("roles", "distributor"),
    "viewserver": ("roles", "viewserver"),
    "store": ("roles", "store"),
    "serve": ("serve", "serve"),
    "gateway": ("gateway", "gateway"),
    "openapi": ("openapi", "openapi"),
    "discard": ("discard", "discard"),
    "dev": ("dev", "dev"),
    "warm": ("warm", "warm"),
    "completion": ("completion", "completion"),
}


class Commands(click.Group):
    """A group that loads its commands lazily and ends every failure with a sentence and an exit code."""

    known = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.known)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.known:
            return None
        module, attribute = self.known[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"belvedere.cli.{module}"), attribute)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader (`| head`) has seen enough. Stdout goes nowhere, so that the interpreter's last flush is quiet.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(exits.OK)
        except KeyboardInterrupt:
            click.echo("interrupted; what was acknowledged before is kept", err=True)
            ctx.exit(exits.INTERRUPTED)
        except Exception as error:
            ctx.exit(exits.report(error, ctx.obj.statement if ctx.obj is not None else None))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--db",
    "path",
    type=click.Path(path_type=Path),
    envvar="BELVEDERE_DB",
    default=Path("belvedere.bv"),
    show_default="./belvedere.bv",
    help="The database directory [env: BELVEDERE_DB].",
)
@click.option(
    "--url",
    envvar="BELVEDERE_URL",
    help="A cluster instead: belvedere://HOST:PORT[,…] of its coordinators, or https://HOST of a gateway "
    "[env: BELVEDERE_URL].",
)
@context.certificates()
@context.bearer_file()
@click.option("--json", "as_json", is_flag=True, help="JSON for programs instead of tables for people.")
@click.version_option(package_name="belvedere", prog_name="belvedere")
@click.pass_context
def cli(
    ctx: click.Context, /, path: Path, url: str | None, as_json: bool, bearer_file: Path | None, **files: Path | None
) -> None:
    """Materialized views over key-value tables: exact and fresh while the tables change.

    Start with `belvedere demo`. Exit codes: 0 done, 1 refused, 2 wrong usage, 3 incomplete or verification failed,
    4 not in time or locked.
    """
    given = click.core.ParameterSource.COMMANDLINE
    if url is not None and ctx.get_parameter_source("path") is given:
        if ctx.get_parameter_source("url") is given:
            raise click.UsageError("--db and --url name two databases; give one of them")
        url = None
    certificates = {name.removeprefix("tls_"): file for name, file in files.items() if file is not None}
    ctx.obj = context.GlobalOptions(path=path, url=url, certificates=certificates, bearer=bearer_file, json=as_json)


def main() -> None:
    """Entry point of the `belvedere` script."""
    cli(prog_name="belvedere")


if __name__ == "__main__":
    main()
