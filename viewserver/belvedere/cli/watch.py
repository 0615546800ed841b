"""`belvedere watch`: the changes of a view as they are committed, one `+` or `-` line each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from belvedere.cli import context, output
from belvedere.cli.read import token

if TYPE_CHECKING:
    from belvedere.model.view_change import ViewChange


@click.command(short_help="Follow the changes of a view.")
@click.argument("view")
@click.option("--after", metavar="TOKEN", callback=token, help="Start after this epoch or token.  [default: now]")
@click.option("--initial", is_flag=True, help="Print the current rows first.")
@click.option("--seconds", type=float, help="Stop after so many seconds.  [default: run until Ctrl-C]")
@click.option("--changes", type=click.IntRange(1), help="Stop after so many changed rows.")
@context.common
@click.pass_context
def watch(
    ctx: click.Context, view: str, after: str | None, initial: bool, seconds: float | None, changes: int | None
) -> None:
    """Print every change of VIEW: - the row before, + the row after, grouped by epoch.

    The epoch printed with each change resumes a watch that was stopped: --after EPOCH.
    """
    settings = context.settings(ctx)
    deadline = None if seconds is None else time.monotonic() + seconds
    seen = 0
    with settings.reader() as db:
        if initial:
            with db.snapshot() as snapshot:
                after = str(snapshot.epoch)
                for row in snapshot.scan(view).to_pylist():
                    _line(snapshot.epoch, "+", row, settings.json)
                    seen += 1
        if changes is not None and seen >= changes:
            return
        for delta in db.subscribe(view, after=after, timeout=seconds):
            for sign, row in _rows(delta):
                _line(delta.epoch, sign, row, settings.json)
                seen += 1
                if changes is not None and seen >= changes:
                    return
            if deadline is not None and time.monotonic() >= deadline:
                return


def _rows(delta: ViewChange) -> Iterator[tuple[str, dict[str, Any]]]:
    """The changed rows of one epoch: what disappears first, then what appears."""
    for row in delta.removed.to_pylist():
        yield "-", row
    for row in delta.added.to_pylist():
        yield "+", row


def _line(epoch: int, sign: str, row: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.emit_json({"epoch": epoch, "weight": 1 if sign == "+" else -1, "row": row})
        return
    text = "  ".join(f"{name}={output.cell(value).plain}" for name, value in row.items())
    click.echo(
        click.style(f"{sign} ", fg="green" if sign == "+" else "red") + text + click.style(f"  @{epoch}", dim=True)
    )
