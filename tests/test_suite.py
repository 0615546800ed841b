"""Failures of `make test` are tried once more, and hide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import suite

# Fails in its first run, as a test does that cannot bear a busy machine.
ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range({count}))
def test_once(n):
    seen = Path(__file__).with_name(f"seen-{{n}}")
    known = seen.exists()
    seen.touch()
    assert known or not {fails}
"""


def run_all(where: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    (where / "test_here.py").write_text(text)
    (where / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(where)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    codes = [suite.run(suite.Part(""), ["--cache-clear"])]
    return suite.verdict(codes, where, [], "")


def test_a_test_that_fails_once_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_all(tmp_path, ONCE.format(count=suite.MOST, fails=True), monkeypatch) == suite.FINE
    said = capfd.readouterr().out
    assert "failed beside others and passed alone" in said and said.rstrip().endswith("test_here.py::test_once[2]")


def test_what_fails_twice_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_all(tmp_path, "def test_wrong():\n    assert False\n", monkeypatch) == suite.FAILED


def test_many_failures_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_all(tmp_path, ONCE.format(count=suite.MOST + 1, fails=True), monkeypatch) == suite.FAILED
    assert "once more" not in capfd.readouterr().out


def test_what_cannot_be_collected_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_all(tmp_path, "import nothing_of_this_name\n", monkeypatch) not in (suite.FINE, suite.NOTHING_TO_RUN)


def test_passing_tests_pass_without_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_all(tmp_path, "def test_right():\n    pass\n", monkeypatch) == suite.FINE
    assert "once more" not in capfd.readouterr().out


def test_every_test_is_in_one_part() -> None:
    first, second = suite.parts("not long")
    assert first.marks == "(not long) and not kubernetes and not spark"
    assert second.marks == "(not long) and (kubernetes or spark)"
