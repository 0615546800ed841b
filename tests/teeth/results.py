"""RESULTS.md: who noticed which break when it was last tried.

All breaks take hours, so they are tried in groups; the table keeps what each group showed. A row is replaced when its
break is tried again, and goes when its break is gone.
"""

from __future__ import annotations

import datetime
import fcntl
from collections.abc import Iterable
from pathlib import Path

from tests.teeth.breaks import ROOT, Break, described
from tests.teeth.runner import Report

FILE = ROOT / "tests" / "teeth" / "RESULTS.md"
HEAD = """# Who noticed which break

Written by `make teeth TEETH_ARGS="--record"`: each break when it was last tried, on code whose tests passed without it.

| break | noticed by | not noticed by | date |
|---|---|---|---|
"""


def recorded(file: Path = FILE) -> dict[str, str]:
    """The rows by the name of their break."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [line for line in lines if line.startswith("| ") and line not in HEAD.splitlines()]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def record(reports: Iterable[Report], breaks: Iterable[Break], file: Path = FILE) -> None:
    """Put reports into the table; its rows are in the order of `breaks`. Runs beside this one may do the same."""
    with open(file, "a") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        rows = recorded(file) | {report.broken.name: _row(report) for report in reports}
        file.write_text(HEAD + "".join(f"{rows[b.name]}\n" for b in breaks if b.name in rows))


def _row(report: Report) -> str:
    noticed = [f"`{described(check)}`" for check in report.broken.checks if report.noticed(check)]
    others = [f"`{described(a.check)}` ({a.outcome})" for a in report.answers if not report.noticed(a.check)]
    if report.broken.equivalent:
        noticed.append(f"equivalent: {report.broken.equivalent}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return f"| {report.broken.name} | {', '.join(noticed) or '**nothing**'} | {', '.join(others)} | {today} |"
