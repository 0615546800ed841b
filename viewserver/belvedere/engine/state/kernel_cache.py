"""Compiled kernels on disk, addressed by what they were compiled from.

Numba's own cache is keyed by the path and the contents of the one file that defines a function. So every clone and
every installation compiles again, a kernel keeps old code of a function that it calls in another file, and two
processes that save two variants of one function at once can leave the code of one under the name of the other. Here a
directory is named after the contents of all sources with kernels and the versions of the compiler; inside it is one
directory per CPU and in that one file per kernel and argument types, replaced as a whole. Equal sources share a
directory, wherever they are installed; nothing is ever out of date; writers cannot disturb each other. A file is named
after the sources that its kernel depends on, so new sources take from the other directories what has not changed.

Directories are looked at in this order: what came with the image or the package (`BELVEDERE_KERNELS`, or `_kernels` in
the engine's folder), which is only read and may be for a lesser CPU than this one; then the user's own.
"""

from __future__ import annotations

# Numba makes its settings at run time and has few types.
# mypy: disable-error-code="attr-defined,no-untyped-call"
import contextlib
import functools
import hashlib
import importlib.resources
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba.core import caching, codegen, compiler, config, serialize

from belvedere.engine import baselines

MODULES = (
    "state.btree",
    "state.kernels.table",
    "state.treap",
    "state.doubles",
    "state.kernels.merge",
    "state.kernels.cells",
    "state.kernels.wal",
    "state.kernels.parts",
    "expr.int128",
    "state.kernels.rows",
    "expr.casts.scan",
    "state.distinct",
    "state.kernels.images",
    "state.kernels.members",
    "state.kernels.ordered",
    "state.sums",
    "state.kernels.strings",
    "expr.calendar",
    "state.kernels.hash",
    "state.kernels.columns",
    "expr.text",
    "kernels",
    "expr.numeric",
    "state.minmax",
    "state.tally",
)
"""Modules of the engine that define kernels, those that take longest to compile first."""
HELPERS = ("state.jit", "state.wide", "state.btree_nodes")
"""Modules that define only parts of kernels and constants in them."""
KEEP = 16
"""Directories of other sources that are kept, those used last: about 6 MB each."""
BELOW = "belvedere-kernels"
"""What is kept below a directory that a user named, perhaps for other things as well."""
SHIPPED = "BELVEDERE_KERNELS"
"""Environment variable: a directory with compiled kernels which is only read; empty for none."""
COMPLETE = "complete"


@dataclass(frozen=True)
class Cpu:
    """What code is compiled for."""

    triple: str
    name: str
    features: str

    @staticmethod
    def target() -> Cpu:
        """What numba compiles for in this process: this machine, unless NUMBA_CPU_NAME says otherwise."""
        features = codegen.get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
        return Cpu(llvm.get_process_triple(), config.CPU_NAME or llvm.get_host_cpu_name(), features)

    @staticmethod
    def host() -> Cpu:
        return Cpu(llvm.get_process_triple(), llvm.get_host_cpu_name(), codegen.get_host_cpu_features())

    @property
    def key(self) -> str:
        return _hash(self.triple, self.name, self.features)

    def runs(self, other: Cpu) -> bool:
        """Whether this machine runs code that was compiled for the other."""
        if self == other:
            return True
        known = baselines.of_machine(self.triple.partition("-")[0])
        if self.triple != other.triple or other.name not in known:
            return False
        return {*_enabled(other.features), *known[other.name]} <= _enabled(self.features)


def _enabled(features: str) -> set[str]:
    return {feature[1:] for feature in features.split(",") if feature.startswith("+")}


def _hash(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:24]


@functools.cache
def _sources() -> dict[str, str]:
    """Text by module. Read once, when the first kernel is defined: what a process compiles belongs to the sources that
    it started with."""
    engine = importlib.resources.files("belvedere.engine")
    return {name: engine.joinpath(f"{name.replace('.', '/')}.py").read_text() for name in (*MODULES, *HELPERS)}


@functools.cache
def _compiler() -> str:
    """The name of this compiler and its settings."""
    settings = (config.OPT, config.BOUNDSCHECK, config.LOOP_VECTORIZE, config.SLP_VECTORIZE, config.DEBUGINFO_DEFAULT)
    return _hash(str(settings), sys.version, *(version(package) for package in ("numba", "llvmlite", "numpy")))


@functools.cache
def digest() -> str:
    """The name of all sources and the compiler."""
    return _hash(_compiler(), *(text for _, text in sorted(_sources().items())))


@functools.cache
def _digest_for(module: str) -> str:
    """The name of what a module's kernels are compiled from: its source, those it imports, and so on."""
    needed, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in _sources():
            continue
        needed.add(name)
        for folder, names in _IMPORT.findall(_sources()[name]):
            waiting += [folder, *(f"{folder}.{word}".lstrip(".") for word in re.findall(r"\w+", names))]
    return _hash(_compiler(), *(_sources()[name] for name in sorted(needed)))


_IMPORT = re.compile(r"^from belvedere\.engine\.?([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


def _user_bases() -> Iterator[Path]:
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR)
    with contextlib.suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _shipped_base() -> Path | None:
    given = os.environ.get(SHIPPED)
    if given is None:
        return Path(__file__).parent.parent / "_kernels"
    return Path(given) if given else None


@dataclass(frozen=True)
class CacheDirectories:
    """The directories of this process; each is of one CPU."""

    shipped: tuple[Path, ...]
    own: Path
    """The one that is written."""
    lasting: bool
    """Whether `own` outlives the process."""

    @property
    def base(self) -> Path:
        """The directory that a user would name to get this one."""
        return self.own.parents[2]

    def complete(self) -> bool:
        """Whether every declared kernel is compiled."""
        return any((place / COMPLETE).exists() for place in (*self.shipped, self.own))


@functools.cache
def places() -> CacheDirectories:
    """Where kernels are looked for and kept. The first of the user's directories that can be written is its own; if
    none can, a directory that goes with the process."""
    cpu, inside = Cpu.target(), Path(BELOW) / digest()
    base = _shipped_base()
    shipped = _usable(base / inside, cpu, Cpu.host()) if base else []
    for base in _user_bases():
        with contextlib.suppress(OSError):
            return CacheDirectories(tuple(shipped), _prepare(base / inside, cpu), True)
        shipped += _usable(base / inside, cpu, cpu)  # it may still be read
    made = tempfile.TemporaryDirectory(prefix="belvedere-", ignore_cleanup_errors=True)
    _removed_at_exit.append(made)
    return CacheDirectories(tuple(shipped), _prepare(Path(made.name) / inside, cpu), False)


_removed_at_exit: list[tempfile.TemporaryDirectory[str]] = []


def _usable(directory: Path, cpu: Cpu, host: Cpu) -> list[Path]:
    """Those directories of CPUs whose code may run here: made for this one first, then those that can do most."""
    found: list[tuple[bool, int, Path]] = []
    with contextlib.suppress(OSError):
        for place in sorted(directory.iterdir()):
            with contextlib.suppress(OSError, TypeError):
                made_for = Cpu(*(place / "cpu").read_text().split("\n"))
                if made_for == cpu or host.runs(made_for):
                    found.append((made_for != cpu, -len(made_for.features), place))
    return [place for *_, place in sorted(found)]


def _prepare(directory: Path, cpu: Cpu) -> Path:
    """Make the directory of a CPU, note that it is used, and remove what was not used for longest."""
    place = directory / cpu.key
    fresh = not place.exists()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    if fresh or not (place / "cpu").exists():
        _replace(place / "cpu", f"{cpu.triple}\n{cpu.name}\n{cpu.features}".encode())
        prune(directory.parent)
    os.utime(directory)
    tempfile.TemporaryFile(dir=place).close()  # refused where only reading is allowed
    return place


def prune(root: Path, keep: int = KEEP) -> None:
    """Keep the directories of the sources that were used last. A process that still works in a removed one compiles
    what it misses, and makes it anew to save."""
    used: list[tuple[float, Path]] = []
    for directory in root.iterdir():
        with contextlib.suppress(OSError):
            used.append((directory.stat().st_mtime, directory))
    for _, directory in sorted(used, reverse=True)[keep:]:
        shutil.rmtree(directory, ignore_errors=True)


def mark_complete() -> None:
    """Every declared kernel is in the process's own directory."""
    _replace(places().own / COMPLETE, str(int(time.time())).encode())


def _replace(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one, whoever else writes at the same time."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


class KernelCache(caching._Cache):
    """What numba asks when a kernel is called with types that this process has not met."""

    def __init__(self, function: Any) -> None:
        self._module = function.__module__.removeprefix("belvedere.engine.")
        self._name = f"{self._module}.{function.__qualname__}"
        self._enabled = True
        _sources()

    @property
    def cache_path(self) -> str:
        return str(places().own)

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def flush(self) -> None:
        for file in places().own.glob(f"{self._name}-*"):
            file.unlink(missing_ok=True)

    def kept(self, sig: Any) -> bool:
        """Whether this process's directory has the code; takes it from the directory of other sources if it can."""
        own = places().own / self._file(sig)
        if own.exists():
            return True
        for other in own.parents[2].glob(f"*/{own.parent.name}/{own.name}"):
            with contextlib.suppress(OSError):
                os.link(other, own)
                return True
        return own.exists()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code, or None."""
        target_context.refresh()
        if not self._enabled:
            return None
        for place in (*places().shipped, places().own):
            if place == places().own:
                self.kept(sig)  # takes it over from other sources, if they have it
            payload = _read(place / self._file(sig))
            if payload is not None:
                return compiler.CompileResult._rebuild(target_context, *payload)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code; a full or read-only disk costs time at the next start, and nothing now."""
        if not self._enabled or data.library.has_dynamic_globals:
            return
        body = serialize.dumps(data._reduce())
        with contextlib.suppress(OSError):
            places().own.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(places().own / self._file(sig), hashlib.sha256(body).digest() + body)

    def _file(self, sig: Any) -> str:
        return f"{self._name}-{_hash(_digest_for(self._module), *(str(type) for type in sig))}"


def _read(file: Path) -> Any:
    """What `save_overload` wrote; None if it is not there or damaged: a crash may leave a file without contents."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    body = data[32:]
    return pickle.loads(body) if hashlib.sha256(body).digest() == data[:32] else None
