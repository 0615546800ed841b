"""What a break is, and how it is planted.

A break is data: it can be listed, and every run of the tests checks that it still applies. Its text must be in the file
exactly once. A break that has rotted says so, instead of passing for one that nobody noticed.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Check = str | range
"""Who is asked: tests (`tests/a.py`, `tests/a.py::test_b`), histories of the simulator (a range of seeds), or else a
command of the environment (`lint-imports`)."""


HISTORIES = range(100)
"""Of the simulator, as many as a rule may need to show; it stops at the first that goes wrong."""


class Rotten(Exception):
    """The break does not fit the code any more."""


@dataclass(frozen=True)
class Break:
    """`instead` takes the place of `find` in `file`. Each of `noticed_by` must fail then; each of `tried` is reported.

    `equivalent` says why nothing can notice: the break changes no behaviour. `hangs`: the tests fail by not ending.
    """

    name: str
    claim: str
    file: str
    find: str
    instead: str
    noticed_by: tuple[Check, ...]
    tried: tuple[Check, ...] = ()
    equivalent: str = ""
    hangs: bool = False

    @property
    def checks(self) -> tuple[Check, ...]:
        return (*self.noticed_by, *self.tried)

    def mutated(self, root: Path = ROOT) -> str:
        """The text of the file with the break in it."""
        path = root / self.file
        if not path.is_file():
            raise Rotten(f"break '{self.name}': there is no file {self.file}")
        text = path.read_text()
        times = text.count(self.find)
        if times != 1:
            raise Rotten(f"break '{self.name}': {self.file} has its text {times} times, wanted once:\n{self.find}")
        if self.find == self.instead:
            raise Rotten(f"break '{self.name}' changes nothing")
        mutated = text.replace(self.find, self.instead)
        if path.suffix == ".py":
            try:
                compile(mutated, self.file, "exec", dont_inherit=True)
            except SyntaxError as error:
                raise Rotten(f"break '{self.name}': {self.file} does not compile with it: {error}") from error
        return mutated


def suite(check: Check) -> str:
    if isinstance(check, range) or check.startswith("tests/simulator"):
        return "simulator"
    return "unit tests" if check.startswith("tests/") else "other"


def described(check: Check) -> str:
    return f"simulate {check.start}..{check.stop - 1}" if isinstance(check, range) else check


def all_breaks() -> list[Break]:
    package = importlib.import_module("tests.teeth")
    modules = sorted(info.name for info in pkgutil.iter_modules(package.__path__))
    imported = [
        importlib.import_module(f"tests.teeth.{name}")
        for name in modules
        if not name.startswith(("test_", "__")) and name not in ("breaks", "runner", "results")
    ]
    breaks = [b for module in imported for b in module.BREAKS]
    names = [b.name for b in breaks]
    for name in names:
        if names.count(name) > 1:
            raise Rotten(f"two breaks are named '{name}'")
    return breaks


def missing_checks(breaks: Iterable[Break], root: Path = ROOT) -> Iterator[str]:
    """Tests that are named and do not exist, as sentences. By their source: nothing is imported."""
    for b in breaks:
        if not b.noticed_by and not b.equivalent:
            yield f"break '{b.name}' names nobody who must notice, nor why nobody can"
        for check in b.checks:
            if isinstance(check, str) and check.startswith("tests/"):
                file, *inner = check.partition("[")[0].split("::")
                if not (root / file).exists():
                    yield f"break '{b.name}': there is no {file}"
                elif inner and inner[-1] not in _functions(root / file):
                    yield f"break '{b.name}': {file} has no {inner[-1]}"


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
