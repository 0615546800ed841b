"""The breaks still fit the code, and the runner tells a break that is noticed from one that is not."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tests.teeth import __main__ as command
from tests.teeth import runner as running
from tests.teeth.breaks import ROOT, Break, Rotten, all_breaks, described, missing_checks, suite


@pytest.mark.parametrize("broken", all_breaks(), ids=lambda b: b.name)
def test_a_break_still_applies(broken: Break) -> None:
    broken.mutated()


def test_the_tests_that_breaks_name_exist() -> None:
    assert list(missing_checks(all_breaks())) == []


ROWS = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| **")]


def _named(row: str) -> list[str]:
    """The tests that a row of docs/guarantees.md names, and the simulator, as breaks name them."""
    found = ["lint-imports"] if "`make check`" in row else []
    for file, inner in re.findall(r"`(tests/[\w/.]+)`((?: \([^()]*(?:\([^()]*\)[^()]*)*\))?)", row):
        found += [f"{file}::{name}" for name in re.findall(r"`(test_\w+)`", inner)] or [file]
    return found + ["simulate"] * ("the simulator" in row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.sub(r"\W+", "-", row[4:40]))
def test_each_test_that_a_guarantee_names_must_notice_a_break(row: str) -> None:
    """Of a whole file or folder, some test in it."""
    checks = [described(check) for broken in all_breaks() for check in broken.noticed_by]
    named = _named(row)
    assert named, "a row names tests"
    for name in named:
        whole_file = name.partition("::")[0]
        assert any(c == whole_file or re.match(rf"{re.escape(name)}(::|/| |$)", c) for c in checks), name


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with a guarantee, a test that shows it, and one that does not."""
    root = tmp_path / "checkout"
    files = {
        "viewserver/product.py": "LIMIT = 3\n\n\ndef limited(n):\n    return min(n, LIMIT)\n",
        "tests/test_teeth.py": """
            import product
            def test_shows():
                assert product.limited(9) == 3
            def test_shows_nothing():
                assert product.limited(1) == 1
            def test_fails_anyway():
                raise AssertionError("anyway")
            """,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(running.tempfile, "tempdir", str(tmp_path / "temporary"))
    return root


SHOWS, SHOWS_NOTHING = "tests/test_teeth.py::test_shows", "tests/test_teeth.py::test_shows_nothing"


def _break(
    find: str = "min(n, LIMIT)", instead: str = "n", noticed_by: tuple[str, ...] = (SHOWS,), **rest: str
) -> Break:
    return Break("no limit", "a limit", "viewserver/product.py", find, instead, noticed_by, **rest)  # type: ignore[arg-type]


def test_a_break_is_noticed_or_not_and_the_checkout_stays_as_it_is(checkout: Path) -> None:
    product = (checkout / "viewserver/product.py").read_text()
    breaks = [
        _break(noticed_by=(SHOWS, SHOWS_NOTHING)),
        _break(noticed_by=(SHOWS,)),
        _break(noticed_by=(SHOWS_NOTHING,)),
        _break(noticed_by=(SHOWS_NOTHING,), equivalent="for the sake of the test"),
        _break(noticed_by=("tests/test_teeth.py::test_missing",)),
    ]
    with running.copies(1, checkout) as free:
        runner = running.Runner(breaks, timeout=60)
        half, good, missed, equivalent, unasked = runner.run(free)
        (failing,) = runner.failing_without(free[0])
    assert failing.check == "tests/test_teeth.py::test_missing" and failing.outcome == "error"
    assert [r.good for r in (half, good, missed, equivalent, unasked)] == [False, True, False, True, False]
    assert [a.check for a in half.unnoticed] == [SHOWS_NOTHING], "each that is named must notice"
    assert half.suites == good.suites == ["unit tests"] and missed.suites == unasked.suites == []
    assert unasked.answers[0].outcome == "error", "a test that cannot be run has noticed nothing"
    assert "assert 9 == 3" in good.answers[0].how
    assert json.loads(json.dumps(missed.as_json()))["noticed by"] == ["nothing"]
    assert (checkout / "viewserver/product.py").read_text() == product


def test_tests_that_fail_anyway_notice_nothing(checkout: Path) -> None:
    with running.copies(1, checkout) as free:
        breaks = [_break(noticed_by=("tests/test_teeth.py::test_fails_anyway", SHOWS))]
        failing = running.Runner(breaks, timeout=60).failing_without(free[0])
    assert [(a.check, a.outcome) for a in failing] == [("tests/test_teeth.py::test_fails_anyway", "noticed")]


def test_two_runs_never_share_a_copy(checkout: Path) -> None:
    with running.copies(1, checkout) as first, running.copies(2, checkout) as others:
        assert len({copy.tree for copy in (*first, *others)}) == 3
    with running.copies(1, checkout) as again:
        assert again[0].tree == first[0].tree, "no run leaves another copy behind"


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (_break(find="max(n, LIMIT)"), "has its text 0 times"),
        (_break(find="LIMIT"), "has its text 2 times"),
        (_break(instead="min(n, LIMIT)"), "changes nothing"),
        (_break(instead="min(n"), "does not compile"),
        (Break("b", "c", "viewserver/gone.py", "x", "y", ()), "there is no file"),
    ],
)
def test_a_break_that_has_rotted_says_so(checkout: Path, broken: Break, why: str) -> None:
    with pytest.raises(Rotten, match=why):
        broken.mutated(checkout)


def test_checks_that_do_not_exist_are_named(checkout: Path) -> None:
    breaks = [
        _break(noticed_by=("tests/test_teeth.py::test_gone", "tests/gone.py", SHOWS, "tests/test_teeth.py")),
        _break(noticed_by=()),
        _break(noticed_by=(), equivalent="it is"),
    ]
    told = list(missing_checks(breaks, checkout))
    assert [t.partition(": ")[2] or t for t in told] == [
        "tests/test_teeth.py has no test_gone",
        "there is no tests/gone.py",
        "break 'no limit' names nobody who must notice, nor why nobody can",
    ]


def test_suites() -> None:
    checks = (range(9), "tests/simulator/test_histories.py", "tests/embedded", "lint-imports --no-logo")
    assert [suite(check) for check in checks] == ["simulator", "simulator", "unit tests", "other"]


def test_names_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "backlog without"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "backlog without a limit"
    assert command.main(["no such break"]) == 2
    assert "no break is named like no such break" in capsys.readouterr().err


@pytest.mark.long
def test_one_break_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "teeth.json"
    assert command.main(["backlog without a limit", "--json", str(out)]) == 0
    (report,) = json.loads(out.read_text())
    assert report["noticed by"] == ["unit tests"] and report["checks"][0]["outcome"] == "noticed"
    assert "1 breaks: noticed 0 by simulator, 1 by unit tests" in capsys.readouterr().out
