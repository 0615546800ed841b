"""Deterministic replay: the state after an epoch is a function of the log, to the last bit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import belvedere

VIEWS = {
    "sums": "SELECT g, count(*) AS n, sum(x) AS s, avg(x) AS a, min(s) AS m, count(DISTINCT s) AS d FROM t GROUP BY g",
    "pairs": "SELECT a.id, b.id AS other, a.x * b.x AS p FROM t a JOIN t b ON a.g = b.g AND a.id < b.id",
    "top": "SELECT sum(s) AS s, avg(a) AS a FROM sums",
    "fails": "SELECT id, 100 div (g - 3) AS r FROM t",
}


def write(path: Path, rng: random.Random) -> None:
    """A history with DDL in it; nothing but its log is kept."""
    with belvedere.open(path, snapshot=False) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x DOUBLE, s STRING)")
        names = list(VIEWS)
        for step in range(60):
            if step % 12 == 3 and names:
                name = names.pop(0)
                db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
            if step == 50:
                db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW sums AS {VIEWS['sums']} HAVING count(*) > 1")
            keys = [rng.randrange(80) for _ in range(rng.choice([1, 5, 30]))]
            if rng.random() < 0.3:
                db.delete("t", keys)
            else:
                rows = [{"id": k, "g": rng.randrange(6), "s": f"{k % 7}"} for k in keys]
                for row in rows:
                    row["x"] = rng.uniform(-1, 1) * 10.0 ** rng.randint(-20, 20)
                db.put("t", rows)
            # two timestamps for many rows: the order of the log decides, in one epoch or in several
            for _ in range(rng.randrange(3)):
                tied = {rng.randrange(100, 110): rng.uniform(-1, 1) for _ in range(4)}
                db.put("t", [{"id": k, "g": k % 6, "x": x} for k, x in tied.items()], ts=rng.randint(5, 6))


def contents(path: Path, **options: object) -> dict[str, bytes]:
    """Every table and view, and what is in quarantine, as bytes."""
    out = {}
    with belvedere.open(path, snapshot=False, **options) as db:
        assert db.status()["recovery"]["records"] > 60
        for name in (*db.catalog.tables, *db.catalog.views):
            parts = [db.scan(name)]
            if name in db.catalog.views:
                parts.append(db.quarantine(name).sort_by("id") if name == "fails" else db.quarantine(name))
            for number, table in enumerate(parts):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table.combine_chunks())
                out[f"{name} {number}"] = sink.getvalue().to_pybytes()
        out["epoch"] = str(db.epoch).encode()
    return out


@pytest.mark.parametrize("seed", range(3))
def test_the_same_log_gives_the_same_bytes_however_it_is_replayed(tmp_path, seed):
    write(tmp_path / "original", random.Random(seed))
    found = []
    for number, options in enumerate([{}, {"epoch_rows": 1, "threads": 1}, {"epoch_rows": 64, "build_rows": 7}]):
        copy = tmp_path / str(number)
        shutil.copytree(tmp_path / "original", copy)
        if number:
            shutil.rmtree(copy / "changelog")  # views and their history are made again
        found.append(contents(copy, **options))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 1 + 1 + 2 * len(VIEWS)
