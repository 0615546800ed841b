"""The architecture page and the docstrings name files that exist, in drawings and tables as well."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "viewserver" / "belvedere"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WANTED = {"function", "aggregate", "operator", "backend", "source", "command", "metric", "option", "message"}


def exists(name: str) -> bool:
    return (PACKAGE / name).exists() or (ROOT / name).exists()


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_path_of_a_row_leads_through_files_that_exist() -> None:
    drawing = section("The path of a row").split("```")[1]
    named = re.findall(r"[a-z_]+(?:/[a-z_]+)*(?:\.py|/)", drawing)
    assert {"embedded", "backend", "protocol", "cluster", "engine"} <= {name.split("/")[0] for name in named}
    assert not [name for name in named if not (PACKAGE / name).exists()]
    assert max(map(len, drawing.splitlines())) <= 120


def test_how_to_add_something_names_files_that_exist() -> None:
    rows = [line.split(" | ") for line in section("How to add something").splitlines() if re.match(r"\| an? ", line)]
    assert {word for row in rows for word in row[0].split()} >= WANTED
    for what, _, files in rows:
        named = re.findall(r"`([^`]+)`", files)
        assert len(named) >= 2, f"{what}: names no files"
        missing = [name for name in named if not exists(name)]
        assert not missing, f"{what}: {', '.join(missing)}"


def test_docstrings_name_files_that_exist() -> None:
    known = {path.name for folder in ("viewserver", "tests", "bench") for path in (ROOT / folder).rglob("*.py")}
    missing = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                named = re.findall(r"\b([\w/]+\.py)\b", ast.get_docstring(node) or "")
                missing += [f"{path.relative_to(PACKAGE)}: {name}" for name in named if Path(name).name not in known]
    assert not missing
