"""Says what the first start is doing: the engine's kernels are compiled once per machine and kept on disk."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console


def compile_kernels(stream: TextIO = sys.stderr) -> None:
    """Compile what is not in the cache yet, with a line about it; returns at once when everything is."""
    from belvedere.engine import warm  # loads numba: only for commands that run the engine

    if warm.is_warm():
        return
    console = Console(file=stream)
    if not console.is_terminal:
        console.print("compiling kernels (once, about 20 s)")
        warm.warm(lambda _: None)
        return
    with console.status("compiling kernels (once, about 20 s)") as status:
        warm.warm(lambda name: status.update(f"compiling kernels (once, about 20 s): {name}"))
