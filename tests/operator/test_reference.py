"""The reference page of the operator names everything that exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from belvedere_operator import __main__ as process
from belvedere_operator import names
from belvedere_operator.metrics import Metrics
from belvedere_operator.plugin.main import cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "operator.md").read_text()


def test_every_option_of_the_operator_is_on_the_page() -> None:
    given = vars(process.options([]))
    assert len(given) > 15
    missing = [name for name in given if f"`--{name.replace('_', '-')}`" not in PAGE]
    assert not missing
    on_page = set(re.findall(r"^\| (`--.*?) \|", PAGE, re.MULTILINE))
    named = {name for row in on_page for name in re.findall(r"`--([a-z-]+)`", row)}
    assert named == {name.replace("_", "-") for name in given}


def test_options_are_variables_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELVEDERE_OPERATOR_WATCH", "a, b")
    monkeypatch.setenv("BELVEDERE_OPERATOR_HTTPS_PORT", "9443")
    given = process.options(["--external-metrics", "false"])
    settings = process.settings_of(given)
    assert (settings.watched, given.https_port, settings.metrics_provider) == (("a", "b"), 9443, False)


def test_every_command_of_the_plugin_is_on_the_page() -> None:
    commands = PAGE.split("## kubectl belvedere", 1)[1]
    for name, command in cli.commands.items():
        assert f"| `{name}" in commands
        for parameter in command.params:
            for option in (one for one in parameter.opts if one.startswith("--") and one not in ("--file", "--output")):
                assert option in commands, f"{name} {option}"
    for parameter in cli.params:
        assert isinstance(parameter, click.Option)
        assert any(f"`{option}" in commands for option in parameter.opts), parameter.name


def test_every_metric_is_on_the_page() -> None:
    exported = {family.name for family in Metrics().registry.collect() if family.name.startswith("belvedere_")}
    named = {name.removesuffix("_total") for name in re.findall(r"`(belvedere_operator_\w+)`", PAGE)}
    assert named == exported


def test_every_label_and_annotation_is_on_the_page() -> None:
    for name in (
        names.PAUSED,
        names.POOL_LABEL,
        names.ROLE_LABEL,
        names.VIEW_LABEL,
        names.MADE_ON_DEMAND,
        names.ZOOKEEPER_PATH,
        names.FINALIZER,
    ):
        assert f"`{name}" in PAGE
