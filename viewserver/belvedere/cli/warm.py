"""`belvedere warm`: compile the kernels now, for this machine or into an image."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import click

from belvedere.errors import StorageError


@click.command(short_help="Compile the kernels now.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to, for an image or a package; BELVEDERE_KERNELS then names it.  [default: the user's cache]",
)
@click.option(
    "--cpu", metavar="NAME", help="The least CPU that shall run them, such as x86-64-v3.  [default: this one]"
)
def warm(directory: Path | None, cpu: str | None) -> None:
    """Compile every kernel that is not compiled yet.

    The first start of a version does the same; an image that did it when it was built starts at once.
    """
    # Numba reads its settings when it is loaded, and the processes that compile inherit them.
    if directory is not None:
        os.environ.update(NUMBA_CACHE_DIR=str(directory.resolve()), BELVEDERE_KERNELS="")
    if cpu is not None:
        os.environ.update(NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES=_features(cpu))
    from belvedere.engine.state import kernel_cache
    from belvedere.engine.warm import compile_kernels

    places = kernel_cache.places()
    if (directory is not None and places.base != directory.resolve()) or not places.lasting:
        raise StorageError(f"{directory or 'no cache directory'} cannot be written; name another one with --directory")
    compile_kernels(click.echo)
    click.echo(f"kernels are in {places.base}")


def _features(cpu: str) -> str:
    from belvedere.engine import baselines

    known = baselines.of_machine(platform.machine())
    if cpu not in known:
        raise click.BadParameter(
            f"{cpu!r} is not known; this machine compiles for {', '.join(known)}", param_hint="--cpu"
        )
    return ",".join(f"+{feature}" for feature in known[cpu])
