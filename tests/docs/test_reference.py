"""The reference pages name everything that exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from belvedere import errors
from belvedere.cli.main import COMMANDS, cli
from belvedere.sql import functions, manifest, view_pool
from belvedere.sql.catalog import Catalog
from belvedere.sql.statements import CreateTable

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


def test_every_field_of_a_manifest_is_in_the_reference() -> None:
    page = (REFERENCE / "manifests.md").read_text()
    sections = {part.splitlines()[0]: part for part in page.split("\n## ")}
    for title, *tables in (
        ("BaseTable", manifest.TABLE_FIELDS, manifest.TABLE_REFUSED, manifest.COLUMN_FIELDS, manifest.COLUMN_REFUSED),
        ("MaterializedView", manifest.VIEW_FIELDS, manifest.VIEW_REFUSED),
        (
            "ViewPool",
            view_pool.POOL_FIELDS,
            view_pool.KUBERNETES_FIELDS,
            view_pool.AUTOSCALING_FIELDS,
        ),
        ("Names and metadata", manifest.METADATA_FIELDS, manifest.METADATA_REFUSED),
    ):
        named = re.findall(r"`(?:metadata\.|columns\[\]\.)?(\w+)`", sections[title])
        for field in (field for table in tables for field in table):
            assert field in named, f"{field} is not in {title} of manifests.md"


def test_manifests_of_the_reference_are_accepted() -> None:
    text = "---\n".join(re.findall(r"```yaml\n(.*?)```", (REFERENCE / "manifests.md").read_text(), re.DOTALL))
    catalogs, kinds = [Catalog()], []
    for read in manifest.parse_manifests(text, lambda: catalogs[-1]):
        kinds.append(type(read.content).__name__)
        if isinstance(read.content, CreateTable):
            catalogs.append(catalogs[-1].with_table(read.content.table))
    assert kinds == ["CreateTable", "CreateTable", "CreateTable", "CreateView", "ViewPool"]
