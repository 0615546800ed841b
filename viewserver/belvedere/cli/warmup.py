"""Says what the first start is doing: the engine's kernels are compiled once per machine and kept on disk.

Loading all compiled kernels takes a second, which a small command should not pay; so a stamp beside numba's cache
remembers that they were compiled from these sources, and what a command needs is then loaded as it goes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

import click

PATIENCE_SECONDS = 1.5
"""Loading compiled kernels takes less than this; more means that they are being compiled."""


def compile_kernels(stream: TextIO = sys.stderr) -> None:
    """Compile the kernels unless that was done before, with a line about it when it takes long enough to be noticed."""
    mark = stamp()
    if mark.exists():
        return
    from belvedere.engine.warm import warm  # loads numba: only when there is something to compile

    slow = threading.Timer(PATIENCE_SECONDS, click.echo, ["compiling kernels (once, about 25 s)"], {"file": stream})
    slow.daemon = True
    slow.start()
    try:
        warm(lambda text: click.echo(f"  {text}", file=stream) if slow.finished.is_set() else None)
    finally:
        slow.cancel()
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError:
        # A read-only installation: the next start looks again, which is slower and not wrong.
        return


def stamp() -> Path:
    """The file that exists once the kernels of these sources are compiled; named after the sources and numba."""
    found = importlib.util.find_spec("belvedere.engine")
    assert found is not None and found.origin is not None
    engine = Path(found.origin).parent
    sources = sorted(engine.rglob("*.py"))
    state = [f"{source}:{source.stat().st_mtime_ns}" for source in sources]
    name = hashlib.sha256("\n".join([version("numba"), sys.version, *state]).encode()).hexdigest()[:16]
    return Path(os.environ.get("NUMBA_CACHE_DIR") or engine / "__pycache__") / f"belvedere-warm-{name}"
