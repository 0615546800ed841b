"""The README says nothing that the pages behind it do not."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    return README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_every_number_of_the_readme_is_in_the_benchmarks() -> None:
    known = set(re.findall(r"\d[\d.,]*\d|\d", (ROOT / "docs" / "benchmarks.md").read_text()))
    rows = [
        line.strip("| ").split(" | ") for line in section("What was measured").splitlines() if line.startswith("| ")
    ]
    measured = {number for row in rows[1:] for number in re.findall(r"\d[\d.,]*\d|\d", row[1])}
    assert len(measured) > 15
    assert measured <= known


def test_the_readme_compares_with_its_peers_and_says_what_is_missing() -> None:
    peers = section("Compared with others")
    assert all(f"[{name}]" in peers for name in ("Materialize", "RisingWave", "Feldera", "Flink", "Phoenix"))
    parts = section("What exists, and what does not").splitlines()
    assert all(any(word in line for line in parts) for word in ("HBase", "Spark", "Kubernetes", "HTTP"))
    empty = {folder.parent.name for folder in (ROOT / "viewserver/belvedere").glob("*/__init__.py") if alone(folder)}
    planned = [line.lower() for line in parts if line.endswith("| planned |")]
    assert planned and all(any(name in line for line in planned) for name in empty), "what is empty is planned"


def alone(file: Path) -> bool:
    """Whether the folder has no other module."""
    return list(file.parent.glob("**/*.py")) == [file]


def test_the_readme_begins_with_how_to_install() -> None:
    first = README.split("```")[1]
    assert "pip install" in first and "make demo" in first
