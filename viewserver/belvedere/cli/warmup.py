"""Says what the first start is doing: the engine's kernels are compiled once per machine and kept on disk."""

from __future__ import annotations

import sys
import threading
from typing import TextIO

import click

PATIENCE_SECONDS = 1.5
"""Loading compiled kernels takes less than this; more means that they are being compiled."""


def compile_kernels(stream: TextIO = sys.stderr) -> None:
    """Compile or load the kernels, with a line about it only when it takes long enough to be noticed."""
    from belvedere.engine.warm import warm  # loads numba: only for commands that run the engine

    slow = threading.Timer(PATIENCE_SECONDS, click.echo, ["compiling kernels (once, about 20 s)"], {"file": stream})
    slow.daemon = True
    slow.start()
    try:
        warm(lambda text: click.echo(f"  {text}", file=stream) if slow.finished.is_set() else None)
    finally:
        slow.cancel()
