from __future__ import annotations

import pytest

from belvedere.simulate import __main__ as command
from belvedere.simulate import bugs


def test_histories_that_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "0 wrong" in out and "2/2 histories" in err


def test_a_wrong_history_comes_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    bug = "plan not durable before work"
    assert command.main(["--seeds", "3", "--jobs", "1", "--bug", bug, "--failures", "1"]) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("seed ") and "plan" in first
    seed = first.split()[1].rstrip(":")
    assert second.strip() == f"replay: python -m belvedere.simulate --first {seed} --seeds 1 --trace --bug '{bug}'"
    assert command.main(["--first", seed, "--seeds", "1", "--trace", "--bug", bug]) == 1
    trace = capsys.readouterr().out
    assert "coordinator-1.1" in trace and "▶ WriteDocument" in trace and "◀ " in trace
    assert trace.splitlines()[-1] == first


def test_a_trace_of_a_history_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "1", "--trace", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 500 and "nothing wrong" in lines[-1]


def test_unknown_bugs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--bug", "gremlins"])
    told = capsys.readouterr().err
    assert all(bug in told for bug in bugs.BUGS)
