"""Sums of doubles through a view are exact: bit for bit `math.fsum` of the rows that are left."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest

import belvedere
from belvedere.embedded.database import Database

GROUPS = 4


def _double(rng: Random) -> float:
    """Any finite double, more often one that hurts: subnormal, huge, tiny, nearly equal to another, a negation."""
    kind = rng.randrange(6)
    if kind == 0:
        while True:
            (value,) = struct.unpack("<d", rng.randbytes(8))
            if math.isfinite(value) and abs(value) < 1e305:  # so that no sum of a few hundred overflows
                return float(value)
    if kind == 1:
        return rng.choice([1.0, -1.0]) * 2.0 ** rng.randint(-1074, 1000)
    if kind == 2:
        return rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300)
    if kind == 3:
        return rng.choice([1e16, -1e16, 1.0, 1e-16, 0.1, -0.1, 5e-324, -5e-324, 0.0, -0.0, 1e300, -1e300])
    if kind == 4:
        return float(rng.randint(-(2**53), 2**53))
    return rng.uniform(-1, 1)


def _bits(value: float | None) -> bytes | None:
    return None if value is None else struct.pack("<d", value + 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_sum_equals_fsum_of_what_is_left(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    rows: dict[int, tuple[int, float | None]] = {}
    with belvedere.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x DOUBLE)")
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT g, sum(x) AS s, avg(x) AS a, count(x) AS n FROM t GROUP BY g")
        db.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(x) AS s FROM t")
        for _ in range(25):
            changed: list[dict[str, Any]] = []
            for _ in range(rng.randint(1, 40)):
                key = rng.randint(0, 150)
                value = None if rng.random() < 0.05 else _double(rng)
                if rng.random() < 0.3 and rows:
                    # The negation of a row that is there: sums that cancel to (almost) nothing.
                    other = rng.choice(list(rows.values()))[1]
                    value = None if other is None else -other
                rows[key] = (rng.randrange(GROUPS), value)
                changed.append({"id": key, "g": rows[key][0], "x": value})
            db.put("t", changed)
            gone = rng.sample(sorted(rows), min(len(rows), rng.randint(1, 25)))
            for key in gone:
                del rows[key]
            db.wait(db.delete("t", gone))
            _compare(db, rows)


def _compare(db: Database, rows: dict[int, tuple[int, float | None]]) -> None:
    groups: dict[int, list[float]] = {}
    for group, value in rows.values():
        groups.setdefault(group, [])
        if value is not None:
            groups[group].append(value)
    found = {row["g"]: row for row in db.scan("s").to_pylist()}
    assert found.keys() == groups.keys()
    for group, values in groups.items():
        wanted = math.fsum(values) if values else None
        assert _bits(found[group]["s"]) == _bits(wanted), (group, values)
        assert found[group]["n"] == len(values)
        if values:
            assert math.isclose(found[group]["a"], math.fsum(values) / len(values), rel_tol=1e-15, abs_tol=1e-323)
    everything = [v for _, v in rows.values() if v is not None]
    (total,) = db.scan("total").to_pylist()
    assert _bits(total["s"]) == _bits(math.fsum(everything) if everything else None)


def test_infinities_and_nan_are_counted_apart(tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE)")
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT sum(x) AS s FROM t")

        def put(key: int, value: float) -> float:
            db.wait(db.put("t", [{"id": key, "x": value}]))
            return float(db.scan("s").to_pylist()[0]["s"])

        assert put(1, 1.0) == 1.0
        assert put(2, math.inf) == math.inf
        assert math.isnan(put(3, -math.inf))
        assert put(2, 1e308) == -math.inf
        assert math.isnan(put(3, math.nan))
        assert put(3, 1e308) == math.inf  # the exact sum rounds beyond the largest double
        assert put(3, -1e308) == 1.0


def test_one_survives_twenty_orders_of_magnitude(tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE)")
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT sum(x) AS s FROM t")
        db.put("t", [{"id": 1, "x": 1.0}, {"id": 2, "x": 1e20}, {"id": 3, "x": 1e40}])
        db.wait(db.delete("t", [2, 3]))
        assert db.scan("s").to_pylist() == [{"s": 1.0}]
