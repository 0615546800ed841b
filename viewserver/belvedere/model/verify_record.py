"""What verifications leave behind: a history to look back at, figures for Prometheus, and a page to show to others."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from belvedere.model.verify import KINDS, Report

Entry: TypeAlias = Mapping[str, Any]
"""A report as JSON (`Report.to_dict`) without its examples, and when it was made: `at`, in seconds since 1970."""

FILE = "verified.jsonl"
"""The history of an embedded database, in its directory."""
COLORS = {"missing": "#c0392b", "extra": "#e67e22", "different": "#8e44ad"}
_WIDTH, _HEIGHT, _LEFT = 640, 160, 50


def entry(report: Report, at: float) -> Entry:
    left_out = {*KINDS, "parts"}
    return {"at": round(at, 3), **{k: v for k, v in report.to_dict().items() if k not in left_out}}


def append(path: Path, entries: Iterable[Entry]) -> None:
    """One line each; lines of several processes do not mix, since each is one write."""
    with path.open("ab", buffering=0) as file:
        for one in entries:
            file.write(json.dumps(one).encode() + b"\n")


def read(path: Path) -> list[Entry]:
    """All entries; the half of a line that a crash left is no entry."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def metrics(reports: Sequence[Report]) -> str:
    """The newest result of each view in the text format of Prometheus, for a collector that reads files."""
    out = []
    for name, what, of in (
        ("rows", "Rows of a view that the newest verification looked at", lambda r: r.rows),
        ("missing", "Rows that a view lacks", lambda r: r.counts["missing"]),
        ("extra", "Rows that a view has and should not", lambda r: r.counts["extra"]),
        ("different", "Rows of a view with other values than they should have", lambda r: r.counts["different"]),
        ("quarantined", "Rows of a view in quarantine", lambda r: r.quarantined),
        ("ok", "1 if a view is complete and right", lambda r: int(r.ok)),
        ("epoch", "The epoch that was verified", lambda r: r.epoch),
        ("seconds", "How long it took", lambda r: round(r.seconds, 3)),
    ):
        full = f"belvedere_verified_{name}"
        out += [f"# HELP {full} {what}.", f"# TYPE {full} gauge"]
        out += [f'{full}{{view="{r.view}",engine="{r.engine}"}} {of(r)}' for r in reports]
    return "\n".join(out) + "\n"


def page(reports: Sequence[Report], past: Sequence[Entry]) -> str:
    """A page of HTML that needs nothing else: the results, examples, and a plot of the differences over time."""
    rows = "".join(
        f"<tr class={'ok' if r.ok else 'bad'}><td>{_text(r.view)}<td>{r.epoch}<td>{r.rows:,}"
        + "".join(f"<td>{r.counts[kind]:,}" for kind in KINDS)
        + f"<td>{r.quarantined:,}<td>{_text(r.engine)}<td>{_text(r.scope or 'all rows')}<td>{r.seconds:.1f}"
        f"<td>{_text(r.problem or ('right' if r.ok else 'differs'))}</tr>"
        for r in reports
    )
    heads = ("view", "epoch", "rows", *KINDS, "in quarantine", "engine", "scope", "seconds", "result")
    return (
        "<!doctype html><meta charset=utf-8><title>Verification</title><style>"
        "body{font:14px system-ui;margin:2em;max-width:70em}table{border-collapse:collapse}"
        "td,th{padding:.3em .7em;border-bottom:1px solid #ddd;text-align:left}.bad td{color:#c0392b}"
        "pre{background:#f6f6f6;padding:.7em;overflow:auto}</style><h1>Verification</h1><table><tr>"
        + "".join(f"<th>{head}" for head in heads)
        + f"</tr>{rows}</table>"
        + "".join(_examples(r) for r in reports)
        + "".join(_plot(view, past) for view in sorted({r.view for r in reports}))
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _examples(report: Report) -> str:
    lines = [f"missing    {row}" for row in report.missing] + [f"extra      {row}" for row in report.extra]
    lines += [f"different  {pair['found']}\n  expected {pair['expected']}" for pair in report.different]
    return f"<h2>{_text(report.view)}</h2><pre>{_text(chr(10).join(lines))}</pre>" if lines else ""


def _plot(view: str, past: Sequence[Entry]) -> str:
    """Differences of a view by verification, the newest on the right; a green dot is a view without any."""
    entries = [e for e in past if e.get("view") == view][-60:]
    if not entries:
        return ""
    most = max(1, *(sum(e["counts"].values()) for e in entries))
    step = (_WIDTH - _LEFT) / len(entries)
    parts = [f'<text x="0" y="12">{most:,}</text><text x="0" y="{_HEIGHT}">0</text>']
    for i, one in enumerate(entries):
        x, y = _LEFT + i * step, float(_HEIGHT)
        for kind in KINDS:
            size = _HEIGHT * one["counts"][kind] / most
            y -= size
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" height="{size:.1f}" fill="{COLORS[kind]}"/>'
            )
        if not sum(one["counts"].values()):
            parts.append(f'<circle cx="{x + step * 0.4:.1f}" cy="{_HEIGHT - 4}" r="3" fill="#27ae60"/>')
    legend = ", ".join(f'<span style="color:{color}">{kind}</span>' for kind, color in COLORS.items())
    return (
        f"<h2>{_text(view)}: differences of the last {len(entries)} verifications</h2><p>{legend}</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 4}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'
    )
