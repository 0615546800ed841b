from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.seam import TableWrite
from tests.simulator import __main__ as command
from tests.simulator import bugs, runner
from tests.simulator.trace import RECORD, Trace, describe

ROOT = Path(__file__).parents[2]


def test_histories_that_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    assert "0 wrong" in out and "2/2 histories" in err


def test_a_wrong_history_comes_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    bug = "plan not durable before work"
    assert command.main(["--seeds", "3", "--jobs", "1", "--bug", bug, "--failures", "1"]) == 1
    first, second, *shown = capsys.readouterr().out.splitlines()
    assert first.startswith("seed ") and "plan" in first
    seed = first.split()[1].rstrip(":")
    assert second.strip() == f"replay: make simulate SEEDS=1 FIRST={seed} TRACE=1 BUG='{bug}'"
    assert any("▶ WriteDocument" in line for line in shown) and shown[-2] == first, "with its trace, right away"
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


def test_the_command_that_replays_a_history_can_be_pasted() -> None:
    """With what `make` makes of it: interpreter, paths, bug."""
    command = runner.replay_command(7, "no duplicate filter")
    done = subprocess.run([*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if "tests.simulator" in line)
    assert line.split("tests.simulator ")[1].strip() == '--seeds 1 --first 7 --bug "no duplicate filter" --trace'


def test_a_trace_tells_what_was_done_to_the_cluster() -> None:
    told = set()
    for seed in range(12):
        trace = Trace(enabled=True)
        runner.run(seed, trace=trace)
        told |= {(who, what.split()[0]) for _, who, what in trace.lines if who in ("nemesis", "store", "ZooKeeper")}
    assert {("nemesis", "crash"), ("nemesis", "everything"), ("nemesis", "leader")} <= told


def test_the_trace_of_a_cluster_that_does_not_drain_shows_how_it_came_to_that() -> None:
    trace = Trace(enabled=True)
    for number in range(1_000):
        trace.record(number, "someone", f"fault {number}")
    trace.calm(1_000)
    trace.record(1_001, RECORD, "the last change")
    for number in range(1_002, 9_000):
        trace.record(number, "someone", f"waits {number}")
    shown = "\n".join(trace.excerpt(80))
    assert "fault 999" in shown and "the last change" in shown and "waits 8999" in shown and "waits 5000" not in shown
    assert len(shown.splitlines()) < 100


def test_whatever_is_carried_out_can_be_described() -> None:
    write = TableWrite("t", np.zeros((1, 2), np.uint64), pa.array([b"x"], pa.binary()))
    assert "table=t" in describe(write) and "keys={1, 2}" in describe(_Keys(frozenset((2, 1))))


@dataclass
class _Keys:
    keys: frozenset[int]
