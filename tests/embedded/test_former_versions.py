"""Databases of former versions are opened: their views are computed again from their rows, and a line says so."""

from __future__ import annotations

import logging
import tarfile
from decimal import Decimal
from pathlib import Path

import pytest

import belvedere

FORMER = Path(__file__).with_name("former")


@pytest.mark.parametrize("engine", [1, 2])
def test_a_database_of_a_former_engine_is_opened_and_says_what_is_done(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: int
) -> None:
    with tarfile.open(FORMER / f"engine-{engine}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with caplog.at_level(logging.WARNING), belvedere.open(tmp_path / f"engine-{engine}") as db:
        assert "the state of 4 views was written by another version of belvedere" in caplog.text
        assert db.status()["recovery"] == {"records": 1, "rebuilt": True, "build_rows": 0}
        assert db.verify().ok
        assert [row["id"] for row in db.scan("picked").to_pylist()] == list(range(10, 30))
        assert db.get("per_k", 2) is not None and db.get("per_k", 2)["d"] == Decimal(2 + 9 + 16 + 23)
        assert db.scan("over_views").to_pylist() == [
            {"name": name, "n": n} for name, n in [(None, 8), ("n0", 5), ("n1", 25), ("n2", 4), ("n3", 3), ("n4", 3)]
        ]
        db.wait(db.put("a", [{"id": 1000, "k": 2, "x": 4.0, "d": 1, "s": "z"}]))
        assert db.get("per_k", 2)["n"] == 5
    caplog.clear()
    with caplog.at_level(logging.WARNING), belvedere.open(tmp_path / f"engine-{engine}") as db:
        assert db.status()["recovery"] == {"records": 0, "rebuilt": False, "build_rows": 0}
        assert caplog.text == "" and db.get("per_k", 2)["n"] == 5 and db.verify().ok
