"""The `.test` format: parsing, rendering, and the state that a file's steps lead to (see README.md beside this file).

Used by the runner (`test_views.py`) and by the Spark recorder, which lives in an environment of its own: so nothing of
the package under test is imported here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle.model import Base, canonical, from_json
from tests.oracle.values import text

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.test"))
WRITES = ("put", "delete", "write")
CHECKS = ("expect", "quarantine")
_DIRECTIVE = re.compile(r"(statement|put|delete|write|expect|quarantine|error)\b\s*(.*)$")
_VIEW = re.compile(
    r"\s*create\s+(or\s+replace\s+)?materialized\s+view\s+(?:if\s+not\s+exists\s+)?(\w+)\s+as\s+(.*?);?\s*$",
    re.I | re.S,
)
_ADD = re.compile(
    r"\s*alter\s+table\s+(\w+)\s+add\s+columns?\s+\(?(\w+)\s+([^)]*(?:\([^)]*\))?)\)?\s*;?\s*$", re.I | re.S
)
_INSERT = re.compile(r"\s*insert\s+into\s+(\w+)\s*(?:\(([^)]*)\))?\s*values\s*(.*?);?\s*$", re.I | re.S)
_DELETE = re.compile(r"\s*delete\s+from\s+(\w+)\s+where\s+\w+\s*(?:=|in)\s*(.*?);?\s*$", re.I | re.S)
_DROP = re.compile(r"\s*drop\s+(materialized\s+view|table)\s+(?:if\s+exists\s+)?(\w+)\s*;?\s*$", re.I)


@dataclass
class Block:
    """One step or check: directive, its arguments, body lines, the line (from 1) on which it starts."""

    kind: str
    args: list[str]
    body: list[str]
    line: int

    @property
    def target(self) -> str:
        """The table or view it is about."""
        return self.args[0]

    @property
    def ts(self) -> int | None:
        """An explicit cell timestamp, `ts=N`."""
        return next((int(a[3:]) for a in self.args if a.startswith("ts=")), None)

    @property
    def sql(self) -> str:
        return "\n".join(self.body)


@dataclass
class File:
    """A parsed test file. `options` are its `# key: value` lines."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)


def parse(path: Path) -> File:
    """Read a `.test` file."""
    file = File(path)
    current: Block | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            current = None
        elif current is not None:
            current.body.append(line)
        elif line.startswith("#"):
            option = re.match(r"#\s*(spark-[\w-]+):\s*(.*)$", line)
            if option:
                file.options[option.group(1)] = option.group(2).strip()
        else:
            found = _DIRECTIVE.match(line)
            if found is None:
                raise ValueError(f"{path.name}:{number}: expected a directive, found {line!r}")
            current = Block(found.group(1), found.group(2).split(), [], number)
            file.blocks.append(current)
    return file


def changes(block: Block, base: Base) -> tuple[list[dict[str, Any]], list[bool]]:
    """Rows of a put, delete or write block as Python values, and which of them are deletes."""
    columns = base.tables[block.target].columns
    rows, deletes = [], []
    for line in block.body:
        delete = block.kind == "delete"
        if block.kind == "write":
            delete, line = line[0] == "-", line[1:]
        values = json.loads(line)
        rows.append({name: from_json(value, columns[name]) for name, value in values.items()})
        deletes.append(delete)
    return rows, deletes


@dataclass
class State:
    """What exists after some steps of a file: base tables (the naive model) and views with their SQL, in order."""

    base: Base = field(default_factory=Base)
    views: dict[str, str] = field(default_factory=dict)

    def apply(self, block: Block) -> None:
        """Carry out a step (checks and refused statements change nothing)."""
        if block.kind in WRITES:
            rows, deletes = changes(block, self.base)
            self.base.write(block.target, rows, deletes, block.ts)
        elif block.kind == "statement":
            self._statement(block.sql)

    def _statement(self, sql: str) -> None:
        if view := _VIEW.match(sql):
            self.views[view.group(2)] = view.group(3)
        elif added := _ADD.match(sql):
            self.base.tables[added.group(1)].add_column(added.group(2), canonical(added.group(3)))
        elif dropped := _DROP.match(sql):
            (self.base.tables if dropped.group(1).lower() == "table" else self.views).pop(dropped.group(2), None)
        elif inserted := _INSERT.match(sql):
            table = self.base.tables[inserted.group(1)]
            named = inserted.group(2)
            names = [n.strip() for n in named.split(",")] if named else list(table.columns)
            values = _literals(inserted.group(3))
            rows = [dict(zip(names, row, strict=True)) for row in values]
            self.base.write(table.name, rows, False, None)
        elif deleted := _DELETE.match(sql):
            table = self.base.tables[deleted.group(1)]
            (key,) = table.key
            (values,) = _literals(deleted.group(2))
            keys = values if isinstance(values, tuple) else (values,)
            self.base.write(table.name, [{key: k} for k in keys], True, None)
        else:
            self.base.create(sql)


def _literals(text: str) -> list[Any]:
    """SQL literals (numbers, plain strings, NULL, booleans) as Python ones."""
    for word, value in (("null", "None"), ("true", "True"), ("false", "False")):
        text = re.sub(rf"\b{word}\b", value, text, flags=re.I)
    return list(ast.literal_eval(f"[{text}]"))


def steps(file: File) -> Iterator[tuple[Block, list[Block]]]:
    """Every step with the checks that follow it."""
    pending: tuple[Block, list[Block]] | None = None
    for block in file.blocks:
        if block.kind in CHECKS:
            if pending is None:
                raise ValueError(f"{file.path.name}:{block.line}: a check before the first step")
            pending[1].append(block)
            continue
        if pending is not None:
            yield pending
        pending = (block, [])
    if pending is not None:
        yield pending


def render(names: list[str], types: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    """A result as the lines of an `expect` body: header with types, then sorted rows."""
    header = " | ".join(f"{n}:{t}" for n, t in zip(names, types, strict=True))
    return [header, *sorted(" | ".join(text(v, t) for v, t in zip(row, types, strict=True)) for row in rows)]


def spark_only() -> dict[str, str]:
    """File stems whose rows DuckDB does not compute as Spark does, with the reason."""
    lines = (HERE / "spark_only.txt").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): reason.strip() for name, reason in pairs}


SPARK_ONLY = spark_only()
