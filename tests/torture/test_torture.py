"""The torture test, short: every kind of fault once or twice. `make torture` runs it for as long as one likes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.torture.run import Settings, Torture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_views_are_exact_while_processes_are_killed_paused_and_scaled(tmp_path: Path) -> None:
    torture = Torture(tmp_path, Settings(seed=5, storm_seconds=25.0, singles=0, rate=9.0))
    torture.run()
    report = torture.report
    assert len(report["storm"]["faults"]) >= 5
    assert report["samples_judged"] == report["samples"] > 0
    assert report["commits"] > 0 and report["writes"] > 0
    shutil.rmtree(tmp_path, ignore_errors=True)  # kept where something was wrong
