"""The reference pages name everything that exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from belvedere import errors
from belvedere.cli.main import COMMANDS, cli
from belvedere.sql import functions

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


ROOT = REFERENCE.parents[1]


def test_files_that_pages_name_exist() -> None:
    for page, base in (("architecture.md", ROOT / "viewserver" / "belvedere"), ("guarantees.md", ROOT)):
        named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/)|tests(?:/[a-z_]+)+)`", (ROOT / "docs" / page).read_text())
        assert named, f"{page} names no files"
        missing = [name for name in named if not (base / name).exists() and not (ROOT / name).exists()]
        assert not missing, f"{page} names {', '.join(missing)}"


def test_tests_that_the_guarantees_name_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text()))
    known = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert not [name for name in named if f"def {name}(" not in known]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_and_option_is_in_the_reference(name: str) -> None:
    page = (REFERENCE / "cli.md").read_text()
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert f"`{name}" in page
    for parameter in command.params:
        for option in parameter.opts:
            assert not option.startswith("--") or option in page, f"{name} {option} is not in cli.md"


def test_every_error_is_in_the_reference() -> None:
    page = (REFERENCE / "errors.md").read_text()
    for name, found in inspect.getmembers(errors, inspect.isclass):
        if issubclass(found, errors.BelvedereError):
            assert f"`{name}`" in page or f".{name}`" in page, f"{name} is not in errors.md"


def test_every_function_is_in_the_reference() -> None:
    page = (REFERENCE / "sql.md").read_text()
    missing = [name for name in [*functions.names(), *sorted(functions.AGGREGATES)] if f"`{name}" not in page]
    assert not missing, f"not in sql.md: {', '.join(missing)}"
