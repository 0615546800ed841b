"""Columns may have any name, also those that our own files use for their bookkeeping."""

from __future__ import annotations

from pathlib import Path

import belvedere


def test_columns_named_like_our_own_survive_mixed_writes_and_restarts(tmp_path: Path) -> None:
    names = ["d", "ts", "p:d", "w", "#ts", "#dead", "lo", "column"]
    with belvedere.open(tmp_path / "db", snapshot=False) as db:
        db.execute(f"CREATE TABLE t (k BIGINT PRIMARY KEY, {', '.join(f'`{n}` INT' for n in names)})")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
        rows = [{"k": 1}, {"k": 2, "d": None, "ts": 5, "w": 6}, {"k": 3, **{n: i for i, n in enumerate(names)}}]
        db.wait(db.write("t", rows, deletes=[True, False, False]))
        db.wait(db.put("t", [{"k": 2, "p:d": 7}], ts=2**60))
        expected = [
            {"k": 2, **dict.fromkeys(names), "ts": 5, "w": 6, "p:d": 7},
            {"k": 3, **{n: i for i, n in enumerate(names)}},
        ]
        assert db.scan("v").to_pylist() == expected
    with belvedere.open(tmp_path / "db") as db:
        assert db.scan("v").to_pylist() == expected
    with belvedere.open(tmp_path / "db") as db:
        assert db.scan("v").to_pylist() == expected
