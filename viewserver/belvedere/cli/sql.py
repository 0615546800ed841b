"""`belvedere sql`: statements from an argument, a script, a pipe, or a prompt."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from belvedere.cli import context, exits, output, progress, script
from belvedere.errors import Locked
from belvedere.model.token import Token

if TYPE_CHECKING:
    from belvedere.cli.context import AnyDatabase


@click.command(short_help="Run SQL: a prompt, -c 'SQL', or a script on stdin.")
@click.option(
    "-c", "--command", "commands", multiple=True, metavar="SQL", help="Run these statements (may be repeated)."
)
@click.option("-f", "--file", type=click.File("r"), help="Run the statements of a script (- for stdin).")
@click.option("--read-only", is_flag=True, help="Do not write; works beside a writer in another process.")
@context.common
@click.pass_context
def sql(ctx: click.Context, commands: tuple[str, ...], file: Any, read_only: bool) -> None:
    """Run SQL statements, separated by semicolons.

    Without -c and -f: a prompt with history and completion when standard input is a terminal, else a script from there.
    A script stops at the first statement that is refused.
    """
    settings = context.settings(ctx)
    with _database(settings, read_only) as db:
        if commands or file is not None or not sys.stdin.isatty():
            texts = list(commands) or [(sys.stdin if file is None else file).read()]
            for text in texts:
                run_script(db, text, settings)
            return
        from belvedere.cli.prompt import Prompt  # prompt_toolkit is for the prompt only

        Prompt(db, settings).run()


@contextmanager
def _database(settings: context.GlobalOptions, read_only: bool) -> Iterator[AnyDatabase]:
    """For writing if possible; at a prompt beside another writer, for reading."""
    with ExitStack() as stack:
        if read_only:
            yield stack.enter_context(settings.reader())
            return
        try:
            db: AnyDatabase = stack.enter_context(settings.writer(create=True))
        except Locked as error:
            if not sys.stdin.isatty():
                raise
            click.echo(f"{error}: opened for reading only", err=True)
            db = stack.enter_context(settings.reader())
        yield db


def execute(db: AnyDatabase, sql: str) -> Any:
    """Carry out a statement; the next one sees what it wrote."""
    result = db.execute(sql)
    if isinstance(result, Token):
        db.wait(result)
    return result


def run_script(db: AnyDatabase, text: str, settings: context.GlobalOptions) -> None:
    """Run every statement of a text; errors point into the statement at fault."""
    for piece in script.split(text):
        settings.statement = piece.sql
        with progress.of_builds(db, quiet=settings.json or "VIEW" not in piece.sql.upper()):
            result = execute(db, piece.sql)
        show(result, settings)
        settings.statement = None


def run_at_prompt(db: AnyDatabase, text: str, settings: context.GlobalOptions) -> None:
    """Run statements, print errors and go on; rows come with the time they took."""
    for piece in script.split(text):
        started = time.monotonic()
        try:
            result = execute(db, piece.sql)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            return
        except Exception as error:
            exits.report(error, piece.sql)
            return
        show(result, settings)
        if not settings.json:
            click.secho(f"{(time.monotonic() - started) * 1000:,.1f} ms", dim=True)


def show(result: Any, settings: context.GlobalOptions) -> None:
    """Print whatever a statement gave: rows, a text, a token, or nothing."""
    if isinstance(result, pa.Table):
        output.emit_table(result, as_json=settings.json)
    elif isinstance(result, str):
        if settings.json:
            output.emit_json({"text": result})
        else:
            click.echo(result)
    elif settings.json:
        output.emit_json({"ok": True} if result is None else {"ok": True, "token": result})
    else:
        click.echo("ok" if result is None else f"ok, token {result}")
