"""`repair`, `verify --state` and `--base`, and how far builds are, on the command line."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import belvedere
from belvedere.cli import progress
from belvedere.cli.progress import BuildLines
from belvedere.errors import Closed
from tests.cli.conftest import Shop
from tests.embedded import damage


def plant(shop: Shop) -> None:
    with belvedere.open(shop.path) as db:
        assert damage.corrupt_row(db, "spend")
        db.wait(db.put("orders", [{"id": 4, "customer": 9, "total": "3.00"}]))  # so that a snapshot is taken


def test_what_verify_finds_repair_mends(filled: Shop) -> None:
    assert filled.json("verify", "--state")[0]["subject"] == "state"
    assert "state of view spend" in filled.run("verify", "--state", "spend").stdout
    assert "table orders: 3 rows" in filled.run("verify", "--base").stdout
    plant(filled)
    filled.run("verify", code=3)
    told = filled.run("repair", "spend", "--dry-run", code=3).stdout
    assert "2 rows would be replaced" in told and "  different view spend " in told and "changelog spend" in told
    filled.run("verify", code=3)
    assert "2 rows mended" in filled.run("repair", "spend").stdout
    assert filled.json("verify")[0]["ok"] is True
    assert filled.json("repair", "spend")[0] == {
        **filled.json("repair", "spend", "--dry-run")[0], "dry_run": False, "found": 0, "ok": True, "mended": 0,
    }  # fmt: skip


def test_a_repair_of_keys_and_of_everything(filled: Shop) -> None:
    plant(filled)
    (found,) = [row for row in filled.json("repair", "spend", "--dry-run", code=3)[0]["rows"] if "view" in row["table"]]
    assert found["problem"] == "different"
    told = filled.run("repair", "spend", "--key", "7", "--key", "8", "--dry-run", code=3).stdout
    assert "different view spend" in told and "2 rows would be replaced" in told
    assert "nothing to repair" in filled.run("repair", "spend", "--start", "9", "--dry-run").stdout
    assert "0 rows mended" in filled.run("repair", "spend", "--prefix", "9").stdout
    assert filled.json("repair", "spend", "--all")[0]["rebuilt"] == ["spend"]
    filled.run("verify")


def test_options_that_do_not_go_together_are_refused(filled: Shop) -> None:
    assert "the key of one view" in filled.run("repair", "spend", "other", "--key", "1", code=2).stderr
    assert "two verifications" in filled.run("verify", "--state", "--base", code=2).stderr
    assert "not for --engine spark" in filled.run("verify", "--state", "--engine", "spark", code=2).stderr
    assert "no table or view" in filled.run("repair", "nothing", code=1).stderr


def test_lines_of_builds_tell_share_and_time() -> None:
    now = [0.0]
    lines = BuildLines(lambda: now[0])
    build = {"views": ["a", "b"], "done": 1000, "total": 10_000}
    assert list(lines.of([build])) == ["building a, b: 10%, 1,000 of 10,000"]
    assert list(lines.of([{**build, "done": 1050}])) == []
    now[0] = 4.0
    assert list(lines.of([{**build, "done": 3000}])) == ["building a, b: 30%, 3,000 of 10,000, about 14 s left"]
    assert list(lines.of([])) == []


def test_lines_come_while_a_statement_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.001)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.001)
    asked = threading.Event()

    class Building:
        def __init__(self) -> None:
            self.times = 0

        def status(self) -> dict[str, Any]:
            self.times += 1
            if self.times > 2:
                asked.set()
                raise Closed("it is over")
            return {"builds": [{"views": ["v"], "done": self.times, "total": 4}]}

    with progress.of_builds(Building()):
        assert asked.wait(30)
    assert capsys.readouterr().err.splitlines()[0] == "building v: 25%, 1 of 4"
    with progress.of_builds(Building(), quiet=True):
        pass
