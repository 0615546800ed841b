"""Exit codes, and how an error becomes one: a sentence on stderr, never a traceback.

0  done
1  refused: the statement, the data, a name, or the files are not as they should be
2  the command line itself is wrong
3  done, but the result is not whole: verification found a difference, rows were broken or are in quarantine
4  not in time: a token that is not visible yet, a deadline, a lock held by another process, a cluster that does not
   answer
"""

from __future__ import annotations

import os
import traceback

import click

from belvedere import errors

OK = 0
REFUSED = 1
USAGE = 2
INCOMPLETE = 3
NOT_YET = 4
INTERRUPTED = 130

_LATER = (
    errors.NotYet,
    errors.Locked,
    errors.Unavailable,
    errors.TooManyRequests,
    errors.OutOfTime,
    errors.Draining,
)
DEBUG_VARIABLE = "BELVEDERE_DEBUG"


def code_of(error: BaseException) -> int:
    """The exit code that stands for this error."""
    return NOT_YET if isinstance(error, _LATER) else REFUSED


def caret(text: str, line: int, column: int) -> str:
    """The line of `text` at fault with a caret below the position (both counted from 1)."""
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines)) - 1].replace("\t", " ")
    return f"  {shown}\n  {' ' * (max(column, 1) - 1)}^"


def describe(error: BaseException, text: str | None = None) -> str:
    """What to print for an error; `text` is the SQL it is about, if any."""
    if isinstance(error, errors.SqlError) and error.line is not None and text is not None:
        where = f"line {error.line}, column {error.column}"
        parts = [f"error: {error.reason} ({where})", caret(text, error.line, error.column or 1)]
        return "\n".join([*parts, f"hint: {error.hint}"] if error.hint else parts)
    if isinstance(error, errors.BelvedereError):
        return f"error: {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"error: {error.filename}: {(error.strerror or str(error)).lower()}"
    kind = type(error).__name__
    return f"error: unexpected {kind}: {error} (run again with {DEBUG_VARIABLE}=1 for the traceback)"


def report(error: BaseException, text: str | None = None) -> int:
    """Print the error to stderr and give its exit code."""
    if os.environ.get(DEBUG_VARIABLE):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(describe(error, text), err=True)
    return code_of(error)
