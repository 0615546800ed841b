"""`belvedere load`: a file of rows into a base table, in chunks, with a bar and a rate.

Broken rows do not stop the rest: they are reported with their lines, and the exit code says that the load is
incomplete. `--strict` reads the whole file first and writes nothing if any row is broken.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from belvedere.cli import context, exits, output, rowfiles
from belvedere.errors import CatalogError, DataError
from belvedere.model.rows import GivenRows
from belvedere.model.token import Token
from belvedere.sql.catalog import TableDef

if TYPE_CHECKING:
    from belvedere.cli.context import AnyDatabase

SHOWN_PROBLEMS = 20


@dataclass
class LoadOutcome:
    """What a load did."""

    rows: int = 0
    problems: list[rowfiles.Problem] = field(default_factory=list)
    seconds: float = 0.0


@click.command(short_help="Load a CSV, JSON lines or Parquet file into a table.")
@click.argument("table")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True, exists=True, dir_okay=False))
@click.option("--format", "format", type=click.Choice(["csv", "jsonl", "parquet"]), help="Default: by the file's name.")
@click.option("--strict", is_flag=True, help="Check every row first; write nothing if one is broken.")
@click.option("--chunk", default=20_000, show_default=True, type=click.IntRange(1), help="Rows per atomic write.")
@click.option("--delimiter", default=None, help="CSV field delimiter.  [default: comma; tab for .tsv]")
@click.option("--null", default="", show_default="empty", help="CSV text that means NULL.")
@click.option("--no-header", is_flag=True, help="The CSV has no header: its columns are the table's, in order.")
@click.option("--ignore-extra", is_flag=True, help="Pass over columns that the table does not have.")
@click.option(
    "--errors", type=click.Path(path_type=Path), help="Write all broken rows' lines and reasons here (JSON lines)."
)
@context.common
@click.pass_context
def load(
    ctx: click.Context,
    table: str,
    file: Path,
    format: str | None,
    strict: bool,
    chunk: int,
    delimiter: str | None,
    null: str,
    no_header: bool,
    ignore_extra: bool,
    errors: Path | None,
) -> None:
    """Load FILE (CSV, JSON lines or Parquet; - for standard input) into TABLE.

    Every chunk is one atomic, durable write. Rows that do not fit are reported with their line numbers while the rest
    is loaded (exit code 3); with --strict nothing is written if one row is broken (exit code 1).
    """
    settings = context.settings(ctx)
    options = rowfiles.FileOptions(
        chunk_rows=chunk,
        delimiter=delimiter or ("\t" if file.suffix == ".tsv" else ","),
        null=null,
        header=not no_header,
        ignore_extra=ignore_extra,
    )
    with _on_disk(file) as path, settings.writer() as db:
        kind = format or (rowfiles.format_of(file) if str(file) != "-" else "csv")
        definition = base_table(db, table)
        outcome, tokens = LoadOutcome(), list[Token]()
        started = time.monotonic()
        if strict:
            check = GivenRows(definition)
            for piece in _with_progress(path, kind, definition, options, "checking"):
                _each(piece, check.puts, outcome)
            outcome.rows = 0
        if not outcome.problems:
            try:
                for piece in _with_progress(path, kind, definition, options, "loading"):
                    _each(piece, lambda rows: tokens.append(db.put(definition.name, rows)), outcome)
            except KeyboardInterrupt:
                click.echo(f"{definition.name}: at least {outcome.rows:,} rows are loaded", err=True)
                raise
        for token in tokens:
            db.wait(token)  # whoever reads next finds the rows in the views
        outcome.seconds = time.monotonic() - started
    _report(outcome, definition, settings.json, errors)
    if outcome.problems:
        ctx.exit(exits.REFUSED if strict else exits.INCOMPLETE)


def base_table(db: AnyDatabase, name: str) -> TableDef:
    """The base table of that name; views cannot be written."""
    found = db.catalog.relation(name)
    if not isinstance(found, TableDef):
        raise CatalogError(f"{found.name} is a view; rows are written to base tables ({', '.join(db.catalog.tables)})")
    return found


def _each(chunk: rowfiles.FileChunk, accept: Callable[[Any], Any], outcome: LoadOutcome) -> None:
    """Give a chunk to the database, or to its check; if it is refused, find the rows at fault by halving."""
    outcome.problems += chunk.problems

    def put(start: int, stop: int) -> None:
        if start == stop:
            return
        try:
            accept(chunk.part(start, stop))
            outcome.rows += stop - start
        except DataError as error:
            if stop - start == 1:
                outcome.problems.append(rowfiles.Problem(chunk.lines[start], str(error)))
                return
            middle = (start + stop) // 2
            put(start, middle)
            put(middle, stop)

    put(0, len(chunk))


def _with_progress(
    path: Path, format: str, table: TableDef, options: rowfiles.FileOptions, verb: str
) -> Iterator[rowfiles.FileChunk]:
    """The file's chunks, with a bar on stderr when it is a terminal."""
    console = Console(file=sys.stderr)
    columns = (
        TextColumn(f"{verb} {table.name}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeRemainingColumn(),
    )
    started, rows = time.monotonic(), 0
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(verb, total=rowfiles.size_of(path, format), rows=0, rate=0.0)
        for chunk in rowfiles.read(path, format, table, options):
            yield chunk
            rows += len(chunk)
            progress.update(
                task, completed=chunk.position, rows=rows, rate=rows / max(time.monotonic() - started, 1e-9)
            )


@contextmanager
def _on_disk(file: Path) -> Iterator[Path]:
    """Standard input as a file: Parquet seeks, and --strict reads twice."""
    if str(file) != "-":
        yield file
        return
    with tempfile.NamedTemporaryFile(suffix=".rows") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def _report(outcome: LoadOutcome, table: TableDef, as_json: bool, errors: Path | None) -> None:
    rate = outcome.rows / max(outcome.seconds, 1e-9)
    problems = sorted(outcome.problems, key=lambda p: p.line)
    if errors is not None:
        lines = (json.dumps({"line": p.line, "reason": p.reason}, ensure_ascii=False) + "\n" for p in problems)
        errors.write_text("".join(lines))
    if as_json:
        shown = [{"line": p.line, "reason": p.reason} for p in problems]
        output.emit_json(
            {
                "table": table.name,
                "rows": outcome.rows,
                "broken": len(problems),
                "seconds": round(outcome.seconds, 3),
                "problems": shown,
            }
        )
        return
    for problem in problems[:SHOWN_PROBLEMS]:
        click.echo(f"line {problem.line}: {problem.reason}", err=True)
    if len(problems) > SHOWN_PROBLEMS:
        click.echo(f"… and {len(problems) - SHOWN_PROBLEMS:,} more (--errors FILE writes them all)", err=True)
    click.echo(
        f"{table.name}: {outcome.rows:,} rows loaded in {outcome.seconds:.1f} s ({rate:,.0f} rows/s), "
        f"{len(problems):,} broken"
    )
