"""`status`, of the writer and of a reading process: the same numbers where both can know them."""

from __future__ import annotations

import belvedere
from belvedere.embedded import reader as reading


def test_a_reader_tells_what_the_writer_tells(tmp_path, monkeypatch):
    with belvedere.open(tmp_path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, 10 div x AS y FROM t")
        db.checkpoint()
        db.put("t", [{"id": i, "x": i} for i in range(100)])
        db.wait(db.delete("t", [5, 6]))
        with belvedere.open(tmp_path, read_only=True) as reader:
            mine, theirs = db.status(), reader.status()
            assert theirs["read_only"] and theirs["age_ms"] >= 0
            for name in ("epoch", "written_epoch", "lag_ms", "views", "snapshot"):
                assert theirs[name] == mine[name] or name == "views", name
            for name in ("rows", "version", "quarantined", "complete", "since"):
                assert theirs["views"]["v"][name] == mine["views"]["v"][name]
            assert theirs["views"]["v"]["quarantined"] == 1 and not theirs["views"]["v"]["complete"]
            assert (theirs["tables"]["t"]["rows"], theirs["tables"]["t"]["tombstones"]) == (98, 2)
            assert mine["tables"]["t"]["rows"] == 98
            assert theirs["log"]["bytes"] > 0 and theirs["history"]["bytes"] > 0
            db.wait(db.put("t", {"id": 1000}))
            assert reader.status()["tables"]["t"]["rows"] == 99
        monkeypatch.setattr(reading, "_COUNTED_BYTES", 0)
        with belvedere.open(tmp_path, read_only=True) as reader:
            assert reader.status()["tables"] == {"t": {}}


def test_a_reader_sees_lag(tmp_path):
    """What is in the log and not yet in the views counts as lag, and the newest record is found in every segment."""
    with belvedere.open(tmp_path, snapshot=False) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x STRING)")
        db.wait(db.put("t", {"id": 1}))
        with belvedere.open(tmp_path, read_only=True) as reader:
            assert reader.status()["lag_ms"] == 0
            held = db._runtime.process
            db._runtime.process = lambda groups: None
            try:
                token = db.put("t", [{"id": i, "x": "x" * 1000} for i in range(3000)])
                found = reader.status()
                assert found["written_epoch"] == token.epoch > found["epoch"]
                assert found["lag_ms"] >= 0 and found["tables"]["t"]["rows"] == 1
            finally:
                db._runtime.process = held
                db._runtime.stop("enough")
