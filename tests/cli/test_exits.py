"""Failures end with a sentence and an exit code, never with a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import belvedere
from belvedere import errors
from belvedere.cli import exits
from belvedere.cli.main import cli
from tests.cli.conftest import Shop


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "none.bv")
    for words in (["get", "v", "1"], ["put", "t", "--json", "{}"], ["status"], ["verify"]):
        error = shop.run(*words, code=1).stderr
        assert error.startswith("error: no database at ")
        assert "belvedere apply" in error
    assert not shop.path.exists()


def test_an_unknown_view_lists_what_there_is(shop: Shop) -> None:
    error = shop.run("get", "spent", "1", code=1).stderr
    assert error.startswith("error: ")
    assert "spent" in error
    assert "spend" in error


def test_wrong_usage_is_code_2() -> None:
    assert CliRunner().invoke(cli, ["get"]).exit_code == 2
    assert CliRunner().invoke(cli, ["nonsense"]).exit_code == 2


def test_a_second_writer_is_code_4_and_readers_are_welcome(filled: Shop) -> None:
    db = belvedere.open(filled.path)
    try:
        error = filled.run("put", "orders", "--json", '{"id": 1}', code=4).stderr
        assert error.startswith("error: ")
        assert filled.json("get", "spend", "7") == [{"customer": 7, "n": 2, "total": "10.00"}]
    finally:
        db.close()


def test_something_unexpected_is_one_line_and_says_how_to_learn_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(belvedere, "open", broken)
    error = shop.run("status", code=1).stderr
    assert error == "error: unexpected ZeroDivisionError: boom (run again with BELVEDERE_DEBUG=1 for the traceback)\n"
    monkeypatch.setenv("BELVEDERE_DEBUG", "1")
    assert "Traceback" in shop.run("status", code=1).stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotYet("view spend is 5 ms behind", 5.0), 4),
        (errors.Locked("database x is open"), 4),
        (errors.DataError("no"), 1),
        (errors.EpochExpired("no"), 1),
    ],
)
def test_exit_codes(error: errors.BelvedereError, code: int) -> None:
    assert exits.code_of(error) == code


def test_the_caret_stands_below_the_position() -> None:
    error = errors.SqlError("column 'x' is unknown", line=2, column=3, hint="there is y")
    assert exits.describe(error, "SELECT\n  x FROM t").splitlines() == [
        "error: column 'x' is unknown (line 2, column 3)",
        "    x FROM t",
        "    ^",
        "hint: there is y",
    ]
