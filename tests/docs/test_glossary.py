"""The glossary is in order, and names what exists."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "viewserver" / "belvedere"
PAGE = ROOT / "docs" / "reference" / "glossary.md"
ROW = re.compile(r"^\| \*\*(?P<word>.+)\*\* \| (?P<meaning>.+) \| (?P<where>.+) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    word: str
    meaning: str
    where: str


ENTRIES = [Entry(*found.groups()) for found in ROW.finditer(PAGE.read_text())]


def defined(path: Path) -> set[str]:
    """Classes, functions and constants of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def test_every_row_of_the_glossary_is_read() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| **")]
    assert len(ENTRIES) == len(rows) > 50


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = [entry.word for entry in ENTRIES]
    assert words == sorted(words, key=lambda word: (re.sub(r"[^a-z]", "", word.lower()), word))
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.word)
def test_what_the_glossary_names_is_in_the_code(entry: Entry) -> None:
    for place in entry.where.split("; "):
        file, _, names = place.partition(": ")
        path = PACKAGE / file.strip("`")
        assert file.startswith("`") and path.is_file(), f"{entry.word}: there is no {file}"
        missing = set(re.findall(r"`(\w+)`", names)) - defined(path)
        assert not missing, f"{entry.word}: {file} does not define {', '.join(sorted(missing))}"
