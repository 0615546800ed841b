"""Breaks of what docs/guarantees.md promises: at least one per guarantee and per claim."""

from __future__ import annotations

from tests.teeth.breaks import Break

BREAKS = [
    Break(
        name="backlog without a limit",
        claim="6 isolation: writes wait at the configured backlog",
        file="viewserver/belvedere/store/embedded/commit.py",
        find="self.rows < self._backlog_rows and self.bytes < self._backlog_bytes)",
        instead="True)",
        noticed_by=("tests/store/test_commit.py::test_the_backlog_makes_writers_wait_until_the_engine_has_caught_up",),
    ),
]
