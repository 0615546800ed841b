"""`belvedere demo`: a live store with three views, a crash in the middle, and a check of everything at the end.

A child process owns the database and writes all the time; this process only reads, so what is on the screen is what any
other process would see. Half-way the child is killed with SIGKILL and started again. What the tables must contain is
computed here from the operations the child had acknowledged, not asked from the database.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.live import Live

from belvedere.cli import context, demo_screen, demo_shop, exits, output
from belvedere.cli.demo_screen import ScreenFrame
from belvedere.errors import BelvedereError, StorageError

if TYPE_CHECKING:
    from belvedere.embedded.database import Database
    from belvedere.embedded.reader import Reader

START_TIMEOUT = 120.0
STOP_TIMEOUT = 60.0
LAST_WORDS = 500
FRAME_SECONDS = 0.25
WINDOW_SECONDS = 2.0
TOP = 5


class DemoWriter:
    """The child process and what it has reported."""

    def __init__(self, path: Path, rate: float):
        self.path, self.rate = path, rate
        self.acknowledged = 0  # operations; the next one has this number
        self.rows = 0
        self.visible: list[tuple[float, float]] = []  # (when, seconds from the call to visible in every view)
        self.process: subprocess.Popen[str] | None = None
        self.listener: threading.Thread | None = None
        self.reports: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def start(self, meanwhile: Callable[[], None]) -> dict[str, Any]:
        """Start the process; `meanwhile` is called until it has the database open. What it found there."""
        command = [sys.executable, "-m", "belvedere.cli.demo_writer", str(self.path), str(self.rate)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.listener = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self.listener.start()
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            meanwhile()
            try:
                report = self.reports.get(timeout=FRAME_SECONDS)
            except queue.Empty:
                if self.process.poll() is not None:
                    break
                continue
            if "ready" in report:
                return report
        raise StorageError(f"the demo's writer did not start: {self.complaint() or 'no answer'}")

    def go(self, operation: int) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(f"{operation}\n")
        self.process.stdin.flush()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            try:
                self.reports.put(json.loads(text))
            except json.JSONDecodeError:
                return  # the line that was being written when the process was killed

    def collect(self) -> None:
        """Take in what has been reported."""
        while True:
            try:
                report = self.reports.get_nowait()
            except queue.Empty:
                return
            if "op" in report:
                self.acknowledged = report["op"] + 1
                self.rows += report["rows"]
            elif "visible" in report:
                self.visible.append((time.monotonic(), report["visible"]))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9, and take in what it had said before."""
        assert self.process is not None
        self.process.kill()
        self._end()

    def stop(self) -> None:
        """Ask it to finish and close the database."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()
        self._end()

    def complaint(self) -> str:
        """End the process; the last words it had on stderr."""
        assert self.process is not None and self.process.stderr is not None
        self.process.kill()
        words = self.process.stderr.read().strip()[-LAST_WORDS:]
        self._end()
        return words

    def _end(self) -> None:
        assert self.process is not None and self.listener is not None
        self.process.wait(STOP_TIMEOUT)
        self.listener.join(STOP_TIMEOUT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
        self.collect()


class Demo:
    """One run: the writer, the reader, and what is on the screen."""

    def __init__(self, path: Path, seconds: float, rate: float):
        self.path, self.seconds = path, seconds
        self.writer = DemoWriter(path, rate)
        self.model = demo_shop.Model()
        self.frame = ScreenFrame(seconds=seconds)
        self.history: deque[tuple[float, int]] = deque()
        self.failures: list[str] = []
        self.printed = 0  # events
        self.started = time.monotonic()

    def event(self, text: str) -> None:
        self.frame.events.append(f"{time.monotonic() - self.started:5.1f} s  {text}")

    def print_events(self) -> None:
        """Those that were not printed yet."""
        for text in self.frame.events[self.printed :]:
            click.echo(text)
        self.printed = len(self.frame.events)

    def run(self, show: Callable[[ScreenFrame], None]) -> None:
        """Write, crash, recover, and read all the while."""
        import belvedere

        self.writer.start(lambda: None)
        self.started = time.monotonic()
        self.event("three views over three tables; the writer commits every write to disk")
        self.writer.go(0)
        self.history.append((self.started, 0))
        self.frame.writer = "running"
        reader = belvedere.open(self.path, read_only=True)
        try:
            self.watch(reader, self.seconds / 2, show)
            self.crash(reader, show)
            # A slow recovery must not eat the second half.
            self.watch(reader, max(self.seconds, time.monotonic() - self.started + self.seconds / 3), show)
        finally:
            reader.close()
        self.writer.stop()
        self.frame.writer = "stopped"

    def watch(self, reader: Reader, until: float, show: Callable[[ScreenFrame], None]) -> None:
        while time.monotonic() - self.started < until:
            self.look(reader, show)
            time.sleep(max(0.0, min(FRAME_SECONDS, until - (time.monotonic() - self.started))))
            if not self.writer.running:
                raise StorageError(f"the demo's writer stopped: {self.writer.complaint()}")

    def look(self, reader: Reader, show: Callable[[ScreenFrame], None]) -> None:
        """One frame."""
        self.writer.collect()
        self.measure(time.monotonic() - self.started)
        self.read(reader)
        show(self.frame)

    def measure(self, elapsed: float) -> None:
        """Rates and freshness over the last seconds."""
        frame, now = self.frame, time.monotonic()
        self.history.append((now, self.writer.rows))
        while len(self.history) > 2 and self.history[0][0] < now - WINDOW_SECONDS:
            self.history.popleft()
        (then, before), (_, rows) = self.history[0], self.history[-1]
        recent = [seconds * 1000 for when, seconds in self.writer.visible if when > now - WINDOW_SECONDS]
        frame.elapsed, frame.rows = elapsed, rows
        frame.rate = (rows - before) / max(now - then, 1e-9)
        frame.p50, frame.p99 = demo_screen.percentile(recent, 0.5), demo_screen.percentile(recent, 0.99)
        frame.rates.append(frame.rate)
        frame.freshness.append(frame.p50)

    def read(self, reader: Reader) -> None:
        """The top rows of all views at one epoch."""
        with reader.snapshot() as snapshot:
            self.frame.epoch = snapshot.epoch
            newest = self.writer.acknowledged // demo_shop.OPERATIONS_PER_STEP * demo_shop.ITEMS_PER_STEP
            lines = snapshot.scan("order_lines", start=max(0, newest - demo_shop.ITEMS_PER_STEP))
            self.show_view("sales", _top(snapshot.scan("sales")))
            self.show_view("order_lines", lines.slice(max(0, len(lines) - TOP)))
            self.show_view("cities", _top(snapshot.scan("cities")))

    def show_view(self, view: str, rows: pa.Table) -> None:
        self.frame.views[view] = (rows.column_names, output.rows_of(rows), demo_shop.KINDS[view])

    def crash(self, reader: Reader, show: Callable[[ScreenFrame], None]) -> None:
        """Kill the writer, start it again, and compare what it finds with what it had acknowledged."""
        self.writer.kill()
        acknowledged = self.writer.acknowledged
        self.frame.writer = "killed"
        self.event(f"writer killed with SIGKILL after {acknowledged:,} acknowledged writes; readers go on")
        found = self.writer.start(lambda: self.look(reader, show))
        totals = demo_shop.Totals(found["orders"], found["items"], found["units"])
        expected = self.model.advance(acknowledged)
        resume = acknowledged
        if totals != expected:
            # The write that was under way may be there, whole: then everything equals one operation more.
            resume += 1
            following = self.model.advance(resume)
            if totals != following:
                self.failures.append(f"after the crash: {totals}, expected {expected} or {following}")
        lost = "nothing acknowledged was lost" if not self.failures else "ACKNOWLEDGED WRITES ARE MISSING"
        self.event(f"writer is back after {found['ready']:.1f} s: {totals.items:,} items, {lost}")
        self.writer.go(resume)
        self.history.clear()
        self.history.append((time.monotonic(), self.writer.rows))
        self.frame.writer = "running"

    def check(self, db: Database) -> None:
        """After the end: the tables against the model, every view against a recomputation."""
        totals, expected = demo_shop.Totals.query(db), self.model.advance(self.writer.acknowledged)
        if totals != expected:
            self.failures.append(f"at the end: {totals}, expected {expected}")
        else:
            self.event(f"tables hold exactly what was acknowledged: {totals.orders:,} orders, {totals.items:,} items")
        for view in demo_shop.VIEWS:
            report = db.verify(view)
            if not report.ok:
                self.failures.append(f"view {view}: {report}")
            else:
                self.event(f"view {view}: {report.rows:,} rows equal a recomputation with DuckDB")


def _top(view: pa.Table) -> pa.Table:
    return view.sort_by([("revenue", "descending")]).slice(0, TOP)


@click.command(short_help="A live store, three views, a crash; about 15 seconds.")
@click.option("--seconds", default=15.0, show_default=True, type=click.FloatRange(2.0), help="How long to write.")
@click.option(
    "--rate", default=20_000.0, show_default=True, type=click.FloatRange(1.0), help="Rows per second to write."
)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the database in this directory (must not exist).")
@context.common
@click.pass_context
def demo(ctx: click.Context, seconds: float, rate: float, keep: Path | None) -> None:
    """Write to a temporary store, watch three views follow, kill the writer, and verify everything.

    Needs nothing but this package. Exit code 0 means that nothing acknowledged was lost and that every view equals its
    query, recomputed with DuckDB.
    """
    import belvedere
    from belvedere.engine.warm import compile_kernels

    settings = context.settings(ctx)
    if keep is not None and keep.exists():
        raise click.UsageError(f"{keep} exists already")
    compile_kernels()  # now, and not in the writer whose rows are watched
    with tempfile.TemporaryDirectory(prefix="belvedere-demo-") as directory:
        run = Demo(keep or Path(directory) / "shop.bv", seconds, rate)
        try:
            _present(run, settings.json)
            db = belvedere.open(run.path)
            try:
                run.check(db)
            finally:
                db.close()
        except BelvedereError as error:
            run.failures.append(str(error))
        finally:
            if run.writer.running:
                run.writer.kill()
    _summary(run, settings.json)
    if run.failures:
        ctx.exit(exits.INCOMPLETE)


def _present(run: Demo, as_json: bool) -> None:
    """On a terminal the picture, elsewhere a line a second and events as they come; for programs only the result."""
    if as_json:
        run.run(lambda _: None)
        return
    console = output.console()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            run.run(lambda frame: live.update(demo_screen.picture(frame)))
        console.print(demo_screen.picture(dataclasses.replace(run.frame, events=[])))
        return
    last = -1.0

    def show(frame: ScreenFrame) -> None:
        nonlocal last
        run.print_events()
        if frame.elapsed - last >= 1.0:
            click.echo(demo_screen.line(frame))
            last = frame.elapsed

    run.run(show)


def _summary(run: Demo, as_json: bool) -> None:
    fresh = [seconds * 1000 for _, seconds in run.writer.visible]
    rows, seconds = run.writer.rows, run.frame.elapsed
    p50, p99 = demo_screen.percentile(fresh, 0.5), demo_screen.percentile(fresh, 0.99)
    if as_json:
        output.emit_json(
            {
                "ok": not run.failures,
                "rows": rows,
                "seconds": round(seconds, 1),
                "freshness_ms": {"p50": round(p50, 2), "p99": round(p99, 2)},
                "events": run.frame.events,
                "failures": run.failures,
            }
        )
        return
    for failure in run.failures:
        click.echo(f"FAILED: {failure}", err=True)
    run.print_events()
    click.echo("")
    click.echo(
        f"{rows:,} rows written durably in {seconds:.0f} s ({rows / seconds:,.0f}/s); visible in every view after "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    )
    if not run.failures:
        click.echo("one kill -9, nothing acknowledged lost, every view verified. Next: docs/tutorial.md")
