"""How far builds are, told on standard error while a statement waits for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from belvedere.errors import BelvedereError

FIRST_SECONDS, EVERY_SECONDS = 1.0, 1.0


class BuildLines:
    """Lines about builds from what `status` tells of them. The remaining time follows from what was seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: dict[str, tuple[float, int]] = {}
        self._shown: dict[str, int] = {}

    def of(self, builds: list[dict[str, Any]]) -> Iterator[str]:
        """Of the builds that have moved by a percent at least."""
        for build in builds:
            name, done, total = ", ".join(build["views"]), int(build["done"]), int(build["total"])
            since, begun = self._first.setdefault(name, (self._clock(), done))
            percent = 100 * done // total if total else 100
            if percent == self._shown.get(name):
                continue
            self._shown[name] = percent
            seconds = self._clock() - since
            left = f", about {seconds / (done - begun) * (total - done):.0f} s left" if done > begun else ""
            yield f"building {name}: {percent}%, {done:,} of {total:,}{left}"


@contextmanager
def of_builds(db: Any, *, quiet: bool = False) -> Iterator[None]:
    """While the block runs; a build that takes less than a second is not worth a line."""
    over = threading.Event()

    def tell() -> None:
        lines, pause = BuildLines(), FIRST_SECONDS
        while not over.wait(pause):
            pause = EVERY_SECONDS
            try:
                for line in lines.of(db.status().get("builds", [])):
                    click.echo(line, err=True)
            except BelvedereError:
                return  # who waits hears of it

    thread = threading.Thread(target=tell, name="belvedere-progress", daemon=True)
    if not quiet:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
