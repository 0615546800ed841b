"""What the demo shows: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from belvedere.cli import output

BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last `width` values as small bars; the tallest is the largest shown."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(int(v / top * len(BARS)), len(BARS) - 1)] for v in shown)


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value below which that fraction lies (nearest rank); 0 for nothing."""
    ordered = sorted(values)
    return ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@dataclass
class ScreenFrame:
    """Everything one picture needs."""

    elapsed: float = 0.0
    seconds: float = 0.0
    rows: int = 0
    rate: float = 0.0
    p50: float = 0.0  # milliseconds
    p99: float = 0.0
    epoch: int = 0
    rates: list[float] = field(default_factory=list)
    freshness: list[float] = field(default_factory=list)
    views: dict[str, tuple[list[str], list[tuple[Any, ...]], str]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    writer: str = "starting"


def freshness(frame: ScreenFrame) -> str:
    """How long writes of the last seconds took to be visible everywhere."""
    return f"p50 {frame.p50:.1f} ms   p99 {frame.p99:.1f} ms" if frame.p50 else "(no writes)"


def picture(frame: ScreenFrame) -> RenderableType:
    """The whole screen."""
    numbers = Table.grid(padding=(0, 2))
    numbers.add_row(
        "written", f"{frame.rows:,} rows   {frame.rate:,.0f} per second", Text(sparkline(frame.rates, 40), style="cyan")
    )
    numbers.add_row(
        "freshness",
        freshness(frame),
        Text(sparkline(frame.freshness, 40), style="magenta"),
    )
    numbers.add_row("writer", Text(frame.writer, style="green" if frame.writer == "running" else "bold red"), "")
    numbers.add_row("epoch", str(frame.epoch), "")
    views = []
    for name, (columns, rows, kind) in frame.views.items():
        table = output.table_of(columns, rows)
        views.append(Panel(table, title=f"[bold]{name}[/] · {kind}", title_align="left", border_style="blue"))
    return Group(
        Panel(numbers, title="[bold]belvedere demo[/]", title_align="left", border_style="blue"),
        Columns(views, expand=False, equal=False),
        ProgressBar(total=frame.seconds, completed=min(frame.elapsed, frame.seconds), width=60),
        "",
        *(Text(f"  {event}", style="dim") for event in frame.events[-6:]),
    )


def line(frame: ScreenFrame) -> str:
    """One line for logs."""
    return (
        f"{frame.elapsed:5.1f} s  {frame.rows:>9,} rows  {frame.rate:>8,.0f} writes/s  "
        f"freshness {freshness(frame)}  writer {frame.writer}"
    )
