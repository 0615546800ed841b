"""The demo ends well: a real kill -9, nothing acknowledged lost, every view verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

VIEWSERVER = Path(__file__).resolve().parents[2] / "viewserver"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(VIEWSERVER), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "belvedere.cli.main", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        timeout=240,
    )


@pytest.mark.slow
def test_the_demo_survives_its_own_crash_and_verifies_every_view(tmp_path: Path) -> None:
    done = run("--json", "demo", "--seconds", "3", "--rate", "3000", "--keep", str(tmp_path / "kept.bv"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["ok"] is True
    assert report["failures"] == []
    assert report["rows"] > 0
    events = "\n".join(report["events"])
    assert "killed with SIGKILL" in events
    assert "nothing acknowledged was lost" in events
    assert events.count("equal a recomputation") == 3


def test_a_command_in_a_process_of_its_own_fails_without_a_traceback(tmp_path: Path) -> None:
    done = run("--db", str(tmp_path / "none.bv"), "get", "spend", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no database at ")
    assert "Traceback" not in done.stderr
