"""Compiled kernels on disk: shared by equal sources, never out of date, safe to share, and of bounded number."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import belvedere
from belvedere.engine import baselines, warm
from belvedere.engine.state import jit, kernel_cache
from belvedere.engine.state.kernel_cache import Cpu

PACKAGE = Path(belvedere.__file__).parent
SCRIPT = """
import json, sys
import numpy as np
from numba.core import event

class Compiled(event.Listener):
    names = []
    def on_start(self, event): self.names.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass

event.register("numba:compile", Compiled())
from belvedere.engine.expr.casts import scan
from belvedere.engine.state import kernel_cache
text = np.frombuffer(b"1970-01-02" + b"2024-02-29", np.uint8).copy()
if "read-only" in sys.argv:
    text.flags.writeable = False
out, hard = np.zeros(2, np.int64), np.zeros(2, np.bool_)
scan.date_rows(np.array([0, 10, 20], np.int32), text, out, hard)
places = kernel_cache.places()
print(json.dumps({"days": out.tolist(), "compiled": Compiled.names, "own": str(places.own), "lasting": places.lasting}))
"""
"""Parses dates, in a kernel of one module that calls functions of another; says what was compiled for it."""
DAYS = [1, 19782]


class Clone:
    """A copy of the package, as another checkout or another installation has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copytree(PACKAGE, directory / "belvedere", ignore=shutil.ignore_patterns("__pycache__", "_kernels"))

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.directory / "belvedere" / "engine" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def start(
        self, cache: Path | str, *arguments: str, script: str = SCRIPT, **environment: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env={
                **{k: v for k, v in os.environ.items() if k != jit.STRICT},
                "PYTHONPATH": str(self.directory),
                "NUMBA_CACHE_DIR": str(cache),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, cache: Path | str, *arguments: str, **environment: str) -> dict[str, Any]:
        return finish(self.start(cache, *arguments, **environment))


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    result: dict[str, Any] = json.loads(out)
    return result


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def filled(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the script's kernel is compiled."""
    cache = tmp_path_factory.mktemp("filled")
    first = clone.run(cache)
    assert first["days"] == DAYS
    assert first["compiled"].count("date_rows") == 1
    return cache


def test_a_clone_of_equal_sources_compiles_nothing(filled: Path, tmp_path: Path) -> None:
    result = Clone(tmp_path / "elsewhere").run(filled)
    assert (result["days"], result["compiled"]) == (DAYS, [])


def test_a_kernel_follows_a_change_in_a_function_of_another_module(filled: Path, tmp_path: Path) -> None:
    changed = Clone(tmp_path / "changed")
    changed.edit("expr/calendar.py", "doy - 719468", "doy - 719468 + 1000")
    result = changed.run(filled)
    assert result["days"] == [day + 1000 for day in DAYS]
    changed.edit("expr/calendar.py", "doy - 719468 + 1000", "doy - 719468")
    again = changed.run(filled)
    assert (again["days"], again["compiled"]) == (DAYS, [])


def test_other_kernels_are_taken_over_when_a_module_changes(filled: Path, tmp_path: Path) -> None:
    changed = Clone(tmp_path / "changed")
    changed.edit("state/btree.py", "from __future__", "# another line\nfrom __future__")
    result = changed.run(filled)
    assert (result["days"], result["compiled"]) == (DAYS, [])
    assert result["own"] != Clone(tmp_path / "same").run(filled)["own"]


def test_a_damaged_file_is_compiled_again(clone: Clone, filled: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(filled, cache)
    for file in cache.rglob("*date_rows*"):
        file.write_bytes(file.read_bytes()[:-100])
    result = clone.run(cache)
    assert (result["days"], result["compiled"].count("date_rows")) == (DAYS, 1)
    assert clone.run(cache)["compiled"] == []


def test_without_a_directory_to_write_kernels_are_kept_for_the_process(clone: Clone) -> None:
    result = clone.run("/dev/null/no", XDG_CACHE_HOME="/dev/null/no")
    assert (result["days"], result["lasting"]) == (DAYS, False)
    assert not Path(result["own"]).exists()


def test_a_read_only_directory_is_read(clone: Clone, filled: Path) -> None:
    """As an image has it: nothing can be written, and nothing is compiled."""
    result = clone.run("/dev/null/no", XDG_CACHE_HOME="/dev/null/no", BELVEDERE_KERNELS=str(filled))
    assert (result["days"], result["compiled"]) == (DAYS, [])


def test_read_only_arrays_run_the_declared_code(clone: Clone, filled: Path) -> None:
    result = clone.run(filled, "read-only")
    assert (result["days"], result["compiled"]) == (DAYS, [])


def test_undeclared_types_are_refused_in_tests(clone: Clone, filled: Path) -> None:
    process = clone.start(filled, "read-only", **{jit.STRICT: "1"})
    process.communicate(timeout=300)
    assert process.returncode != 0


def test_processes_that_compile_at_once_leave_a_cache_that_works(clone: Clone, tmp_path: Path) -> None:
    racing = [clone.start(tmp_path) for _ in range(2)]
    assert [finish(process)["days"] for process in racing] == [DAYS, DAYS]
    result = clone.run(tmp_path)
    assert (result["days"], result["compiled"]) == (DAYS, [])
    assert not list(tmp_path.rglob("*.tmp"))


def test_kernels_of_a_named_cpu_are_used_by_those_that_can_do_more(clone: Clone, tmp_path: Path) -> None:
    name = next(iter(baselines.of_machine(Cpu.host().triple.partition("-")[0])))
    clone.run(tmp_path / "shipped", NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES="")
    result = clone.run(tmp_path / "own", BELVEDERE_KERNELS=str(tmp_path / "shipped"))
    assert (result["days"], result["compiled"]) == (DAYS, [])


OPEN = "import belvedere; belvedere.open().close()"
FEW = re.compile(r"^MODULES = \([^)]*\)", re.MULTILINE)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone that knows of two modules with kernels, so that compiling all of them does not take long."""
    made = Clone(tmp_path_factory.mktemp("small"))
    path = made.directory / "belvedere" / "engine" / "state" / "kernel_cache.py"
    path.write_text(FEW.sub('MODULES = ("expr.calendar", "expr.casts.scan")', path.read_text()))
    return made


def test_opening_a_database_compiles_first_and_says_so_once(small: Clone, tmp_path: Path) -> None:
    racing = [small.start(tmp_path, script=OPEN), small.start(tmp_path, script=OPEN)]
    lines = [line for process in racing for line in process.communicate(timeout=300)[1].splitlines()]
    assert [process.returncode for process in racing] == [0, 0]
    assert [line.split(",")[0] for line in lines] == ["compiling kernels"]  # the other one waited
    assert small.start(tmp_path, script=OPEN).communicate(timeout=300)[1] == ""
    result = small.run(tmp_path)
    assert (result["days"], result["compiled"]) == (DAYS, [])


def test_warm_fills_a_directory_that_an_image_ships(small: Clone, tmp_path: Path) -> None:
    name = next(iter(baselines.of_machine(Cpu.host().triple.partition("-")[0])))
    command = f"from belvedere.cli.main import cli; cli(['warm', '--directory', {str(tmp_path)!r}, '--cpu', {name!r}])"
    process = small.start("/dev/null/no", script=command)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and out.splitlines()[-1] == f"kernels are in {tmp_path}"
    shipped = {"XDG_CACHE_HOME": "/dev/null/no", "BELVEDERE_KERNELS": str(tmp_path)}
    assert small.start("/dev/null/no", script=OPEN, **shipped).communicate(timeout=300)[1] == ""
    result = small.run("/dev/null/no", **shipped)
    assert (result["days"], result["compiled"]) == (DAYS, [])


def test_arrays_of_any_origin_are_given_to_kernels_in_one_form() -> None:
    numbers = np.arange(6, dtype=np.int64)
    odd = np.frombuffer(b"x" + numbers.tobytes(), np.int64, 6, 1)
    fixed = numbers.copy()
    fixed.flags.writeable = False
    assert not odd.flags.aligned and not odd.flags.writeable
    for array in (numbers[::2], odd, fixed, fixed[:0], np.frombuffer(b"", np.int64)):
        assert numba.typeof(jit.plain(array)) == numba.typeof(numbers)
        assert jit.plain(array).tolist() == array.tolist()


def test_a_cpu_runs_code_for_those_that_can_do_less() -> None:
    v3 = Cpu("x86_64-unknown-linux-gnu", "x86-64-v3", ",".join(f"+{f}" for f in baselines.X86["x86-64-v3"]))
    v2 = Cpu(v3.triple, "x86-64-v2", ",".join(f"+{f}" for f in baselines.X86["x86-64-v2"]))
    modern = Cpu(v3.triple, "sapphirerapids", f"{v3.features},+avx512f,-sse4a")
    without = Cpu(v3.triple, "modern", v3.features.replace("+fma", "-fma"))
    assert modern.runs(modern) and modern.runs(v3) and modern.runs(v2) and v3.runs(v2)
    assert not v2.runs(v3) and not without.runs(v3) and without.runs(v2)
    assert not v3.runs(modern)  # nobody knows what its name implies
    assert not modern.runs(Cpu("aarch64-unknown-linux-gnu", "x86-64-v2", v2.features))


def test_directories_that_were_not_used_for_longest_are_removed(tmp_path: Path) -> None:
    for age, name in enumerate("abcde"):
        (tmp_path / name / "cpu").mkdir(parents=True)
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    kernel_cache.prune(tmp_path, keep=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def modules() -> Iterator[tuple[str, Any]]:
    """Every module of the engine that defines compiled functions."""
    for file in sorted((PACKAGE / "engine").rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE / "engine").with_suffix("").parts)
        if "jit import" in (text := file.read_text()) or "wide import" in text or "numba" in text:
            module = __import__(f"belvedere.engine.{name}", fromlist=["_"])
            if any(
                isinstance(v, Dispatcher) and v.py_func.__module__ == module.__name__ for v in vars(module).values()
            ):
                yield name, module


def test_every_module_with_compiled_functions_is_listed() -> None:
    listed = {*kernel_cache.MODULES, *kernel_cache.HELPERS}
    found = dict(modules())
    assert set(found) <= listed
    assert {name for name, module in found.items() if any(_kernels(module))} == set(kernel_cache.MODULES)
    assert all(kernel.declared for module in found.values() for kernel in _kernels(module))


def _kernels(module: Any) -> Iterator[jit.Kernel]:
    return (v for v in vars(module).values() if isinstance(v, jit.Kernel) and v.py_func.__module__ == module.__name__)


def test_compiled_functions_use_nothing_from_modules_that_are_not_listed() -> None:
    """Else a change there would not be noticed: the names of files on disk know only the listed sources."""
    listed = {f"belvedere.engine.{name}" for name in (*kernel_cache.MODULES, *kernel_cache.HELPERS)}
    for name, module in modules():
        tree = ast.parse(Path(module.__file__).read_text())
        origin = {
            alias.asname or alias.name: (node.module or "", f"{node.module}.{alias.name}")
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for value in list(vars(module).values()):
            if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__:
                for used in value.py_func.__code__.co_names:
                    if used in origin and origin[used][0].startswith("belvedere"):
                        assert listed & set(origin[used]), f"{name}.{value.py_func.__name__} uses {used}"


def test_the_usual_kernels_are_all_compiled_by_the_first_start() -> None:
    assert all(kernel.kept(declared) for kernel, declared in warm.kernels()) or kernel_cache.places().shipped
