"""`get`, `lookup` and `scan` in key order, against sorting in Python: at any epoch, under writes, after reopening."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date
from functools import cmp_to_key
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.embedded.reader import Reader
from belvedere.embedded.storage import ordered
from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError, EpochExpired
from belvedere.model.describe import ViewShape
from belvedere.model.ranges import KeyRange, beginning_with
from belvedere.types import BIGINT, Column
from tests.model.test_keys import compare

Row = dict[str, Any]
Key = tuple[Any, ...]

CITIES = ["", "Oslo", "Os", "Oslo\0", "Zürich", "\0", None, "a" * 20, "a" * 20 + "b"]
LEVELS = [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, None]
DAYS = [date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 28)]
TABLE = "CREATE TABLE events (day DATE, id BIGINT, city STRING, level DOUBLE, n BIGINT, PRIMARY KEY (day, id))"
VIEW = """
    CREATE MATERIALIZED VIEW levels AS
    SELECT city, level, count(*) AS n, sum(n) AS total FROM events GROUP BY city, level
"""
VIEW_KEY, TABLE_KEY = ("city", "level"), ("day", "id")


def normal(value: Any) -> Any:
    """One object for values that SQL holds equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class Model:
    """The base table as a dict, and what follows from it."""

    def __init__(self) -> None:
        self.base: dict[Key, Row] = {}
        self.states: dict[int, list[Row]] = {}

    def view(self) -> list[Row]:
        groups: dict[Key, Row] = {}
        for row in self.base.values():
            group = groups.setdefault(
                (normal(row["city"]), normal(row["level"])),
                {"city": row["city"], "level": row["level"], "n": 0, "total": 0},
            )
            group["n"] += 1
            group["total"] += row["n"]
        return list(groups.values())


def expected(rows: list[Row], key: tuple[str, ...], read: Row) -> list[Row]:
    """What a read should give, found by sorting and looking at every row."""
    in_order = sorted(rows, key=cmp_to_key(lambda a, b: compare(_key(a, key), _key(b, key))))
    if "prefix" in read:
        in_order = [r for r in in_order if compare(_key(r, key)[: len(read["prefix"])], read["prefix"]) == 0]
    for bound, keep in (("start", lambda c: c >= 0), ("stop", lambda c: c < 0)):
        if read.get(bound) is not None:
            values = read[bound]
            in_order = [r for r in in_order if keep(compare(_key(r, key)[: len(values)], values))]
    if read["reverse"]:
        in_order.reverse()
    columns = read["columns"] or list(rows[0] if rows else ())
    return [{c: normal(r[c]) for c in columns} for r in in_order[: read["limit"]]]


def _key(row: Row, key: tuple[str, ...]) -> Key:
    return tuple(row[c] for c in key)


def perform(db: Any, relation: str, read: Row, **more: Any) -> list[Row]:
    options = {"limit": read["limit"], "reverse": read["reverse"], "columns": read["columns"], **more}
    if "prefix" in read:
        table = db.lookup(relation, *read["prefix"], **options)
    else:
        table = db.scan(relation, start=read["start"], stop=read["stop"], **options)
    return [{k: normal(v) for k, v in row.items()} for row in table.to_pylist()]


def random_read(random: Random, key: tuple[str, ...], columns: list[str]) -> Row:
    domains: dict[str, list[Any]] = {
        "city": [*CITIES, "Bern"], "level": [*LEVELS, 7.0], "day": [*DAYS, date(1970, 1, 2)], "id": list(range(25)),
    }  # fmt: skip

    def some(least: int) -> Key:
        return tuple(random.choice(domains[c]) for c in key[: random.randint(least, len(key))])

    read: Row = {
        "limit": random.choice([None, None, 0, 1, 3, 50]),
        "reverse": random.random() < 0.4,
        "columns": random.choice([None, None, random.sample(columns, random.randint(1, len(columns)))]),
    }
    if random.random() < 0.5:
        return {**read, "prefix": some(1)}
    start, stop = (random.choice([None, some(1)]) for _ in range(2))
    if start is not None and stop is not None and compare(start, stop) > 0:
        start, stop = stop, start
    if start is not None and stop is not None and compare(start, stop) == 0 and len(start) > len(stop):
        start, stop = stop, start  # a longer key comes after what it begins with
    return {**read, "start": start, "stop": stop}


def write(db: Database, model: Model, random: Random) -> None:
    rows, gone = [], []
    for _ in range(random.choice([1, 3, 30])):
        key = (random.choice(DAYS), random.randrange(25))
        if key in model.base and random.random() < 0.5:
            gone.append(key)
        else:
            rows.append(
                {
                    "day": key[0], "id": key[1], "city": random.choice(CITIES), "level": random.choice(LEVELS),
                    "n": random.randrange(9),
                }
            )  # fmt: skip
    for row in rows:
        model.base[row["day"], row["id"]] = row
    token = db.put("events", rows) if rows else None
    if gone:
        for key in gone:
            model.base.pop(key, None)
        token = db.delete("events", gone)
    db.wait(token)
    model.states[db.epoch] = model.view()


def check(db: Any, model: Model, random: Random, reads: int = 8) -> None:
    for _ in range(reads):
        read = random_read(random, VIEW_KEY, ["city", "level", "n", "total"])
        assert perform(db, "levels", read) == expected(model.view(), VIEW_KEY, read), read
        epoch = random.choice(sorted(model.states))
        assert perform(db, "levels", read, at=epoch) == expected(model.states[epoch], VIEW_KEY, read), (epoch, read)
        read = random_read(random, TABLE_KEY, ["day", "id", "city", "level", "n"])
        assert perform(db, "events", read) == expected(list(model.base.values()), TABLE_KEY, read), read


@pytest.mark.parametrize("seed", range(4))
def test_reads_in_key_order_equal_sorting_at_every_epoch_and_after_reopening(tmp_path: Path, seed: int) -> None:
    random, model = Random(seed), Model()
    db = belvedere.open(tmp_path / "db")
    db.execute(TABLE)
    db.execute(VIEW)
    reader: Reader | None = None
    for step in range(12):
        write(db, model, random)
        check(db, model, random)
        if step == 5:
            reader = belvedere.open(tmp_path / "db", read_only=True)
        if reader is not None:
            check(reader, model, random, 3)
        if step == 8:
            db.close()
            db = belvedere.open(tmp_path / "db")
    assert reader is not None
    with db.snapshot() as before, reader.snapshot() as seen:
        rows = model.view()
        write(db, model, random)
        for _ in range(5):
            read = random_read(random, VIEW_KEY, ["city", "level", "n", "total"])
            assert perform(before, "levels", read) == perform(seen, "levels", read) == expected(rows, VIEW_KEY, read)
    reader.close()
    db.close()


# ---------------------------------------------------------------------- one view's table


SCHEMA = (Column("k", BIGINT), Column("s", BIGINT), Column("v", BIGINT))
SHAPE = ViewShape("v", 1, SCHEMA, 3, (0, 1))


def delta(rows: list[tuple[int, int, int, int]]) -> Delta:
    """Rows as (weight, k, s, v)."""
    table = np.array(rows, np.int64).reshape(-1, 4)
    columns = tuple(Vec(BIGINT, np.ascontiguousarray(table[:, 1 + i])) for i in range(3))
    return Delta(columns, table[:, 0].astype(np.int8), hash_rows(columns[:2], len(table)))


def rows_of(found: tuple[int, tuple[Vec, ...] | None]) -> list[tuple[int, ...]]:
    assert found[1] is not None
    return list(zip(*(v.data.tolist() for v in found[1]), strict=True))


def random_delta(
    random: Random, rows: dict[tuple[int, int], int], size: int
) -> tuple[Delta, dict[tuple[int, int], int]]:
    after = dict(rows)
    changes = []
    for key in {(random.randrange(30), random.randrange(30)) for _ in range(size)}:
        if key in rows:
            changes.append((-1, *key, rows[key]))
            del after[key]
        if key not in rows or random.random() < 0.6:
            after[key] = random.randrange(100)
            changes.append((1, *key, after[key]))
    return delta(changes), after


@pytest.mark.parametrize("seed", range(3))
def test_an_epoch_in_progress_is_not_seen_in_any_range(seed: int) -> None:
    random = Random(seed)
    committed = 0
    view = ViewTable(SHAPE, lambda: committed)
    rows: dict[tuple[int, int], int] = {}
    deltas: dict[int, Delta] = {}
    states = {0: dict(rows)}

    def check_all() -> None:
        for _ in range(4):
            low = view.codec.encode_one([random.randrange(30)])
            high = view.codec.encode_one([random.randrange(30), random.randrange(30)])
            wanted = random.choice([KeyRange(low, None), KeyRange(low, high), KeyRange(b"", high), beginning_with(low)])
            wanted = KeyRange(wanted.low, wanted.high, random.choice([None, 0, 1, 5]), random.random() < 0.5)
            at = random.randint(0, committed)
            later = [(e, d) for e, d in deltas.items() if at < e <= committed]
            cut = random.randint(0, len(later))
            layers = [view.before(part) for part in (later[:cut], later[cut:]) if part]
            for epoch, found in (
                (committed, view.range(wanted, range(3))),
                (at, view.range(wanted, range(3), (committed, layers))),
            ):
                keys = [k for k in sorted(states[epoch]) if view.codec.encode_one(k) in wanted]
                keys = (keys[::-1] if wanted.reverse else keys)[: wanted.limit]
                assert rows_of(found) == [(*k, states[epoch][k]) for k in keys]
        assert view.range(KeyRange(), range(3), (committed - 1, [])) == (committed, None)

    for epoch in range(1, 16):
        deltas[epoch], rows = random_delta(random, rows, random.choice([1, 4, 200]))
        states[epoch] = rows
        view.begin(epoch, [deltas[epoch]], [])
        check_all()
        committed = epoch
        check_all()
        view.finish()
        check_all()


def test_order_is_built_by_the_first_read_and_not_before() -> None:
    with belvedere.open(":memory:") as db:
        db.execute(TABLE)
        db.execute(VIEW)
        model, random = Model(), Random(1)
        write(db, model, random)
        view = db._views()["levels"]
        db.get("levels", ("Oslo", 1.5))
        assert view.table.order is None
        db.scan("levels", limit=1)
        assert view.table.order is not None


def test_an_order_that_fell_far_behind_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ViewTable(SHAPE, lambda: 9)
    view.apply_now([delta([(1, k, 0, k) for k in range(100)])])
    assert len(rows_of(view.range(KeyRange(), [0]))) == 100
    big = delta([(1, k, 1, k) for k in range(40_000)])
    view.apply_now([big])
    assert view.table.order is None
    found = rows_of(view.range(KeyRange(limit=3, reverse=True), [0, 1]))
    assert found == [(39_999, 1), (39_998, 1), (39_997, 1)]


def test_what_changes_while_the_order_is_built_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ViewTable(SHAPE, lambda: 9)
    view.apply_now([delta([(1, k, 0, k) for k in range(300)])])
    changes = [delta([(-1, k, 0, k), (1, k, 5, k)]) for k in range(0, 300, 7)]
    encode = ordered.OrderedRows.encode

    def slow(self: ordered.OrderedRows, columns: Any, count: int) -> Any:
        if changes and not view.lock.locked():
            change = changes.pop()
            view.apply_now([change])  # the lock is free: writers go on
        return encode(self, columns, count)

    monkeypatch.setattr(ordered, "_PIECE_ROWS", 16)
    monkeypatch.setattr(ordered.OrderedRows, "encode", slow)
    found = rows_of(view.range(KeyRange(), range(3)))
    monkeypatch.undo()
    now = concat_deltas([view.table.rows()])
    assert found == sorted(zip(*(c.data.tolist() for c in now.columns), strict=True))
    assert any(row[1] == 5 for row in found)


# ---------------------------------------------------------------------- under writes


def test_ranges_are_whole_while_rows_come_and_go(tmp_path: Path) -> None:
    """A writer moves money between accounts: in each range read the sum is as it was, and keys are in order."""
    with belvedere.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE accounts (id BIGINT PRIMARY KEY, branch BIGINT, cents BIGINT)")
        db.execute(
            "CREATE MATERIALIZED VIEW held AS SELECT branch, id, sum(cents) AS cents FROM accounts GROUP BY branch, id"
        )
        random = Random(3)
        rows = {i: [i % 5, 100] for i in range(200)}
        db.wait(db.put("accounts", [{"id": i, "branch": b, "cents": c} for i, (b, c) in rows.items()]))
        done = threading.Event()
        failures: list[BaseException] = []

        def read() -> None:
            try:
                while not done.is_set():
                    whole = db.scan("held")
                    assert sum(whole["cents"].to_pylist()) == 20_000
                    keys = list(zip(whole["branch"].to_pylist(), whole["id"].to_pylist(), strict=True))
                    assert keys == sorted(keys) and len(keys) == 200
                    part = db.lookup("held", 2, reverse=True)
                    assert part["id"].to_pylist() == sorted(part["id"].to_pylist(), reverse=True)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(150):
                a, b = random.sample(range(200), 2)
                rows[a][1] -= 7
                rows[b][1] += 7
                rows[a][0], rows[b][0] = random.randrange(5), random.randrange(5)  # other keys in the view
                db.put("accounts", [{"id": i, "branch": rows[i][0], "cents": rows[i][1]} for i in (a, b)])
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert not failures, failures[0]
        last = db.put("accounts", [{"id": 0, "branch": rows[0][0], "cents": rows[0][1]}])
        wanted = sorted((b, i, c) for i, (b, c) in rows.items())
        assert list(zip(*db.scan("held", after=last).to_pydict().values(), strict=True)) == wanted


def test_a_reading_process_looks_up_rows(tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "db") as db:
        model = Model()
        db.execute(TABLE)
        db.execute(VIEW)
        write(db, model, Random(2))
        write(db, model, Random(3))
        script = (
            "import sys, belvedere\n"
            "with belvedere.open(sys.argv[1], read_only=True) as db:\n"
            "    print(db.lookup('levels', 'Oslo', columns=['n']).to_pydict(), end=' ')\n"
            "    print(db.scan('events', limit=2)['id'].to_pylist())\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "db")],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        here = db.lookup("levels", "Oslo", columns=["n"]).to_pydict(), db.scan("events", limit=2)["id"].to_pylist()
        assert done.stdout.strip() == f"{here[0]} {here[1]}"


# ---------------------------------------------------------------------- bad input


@pytest.fixture
def db() -> Iterator[Database]:
    with belvedere.open(":memory:") as database:
        database.execute(TABLE)
        database.execute(VIEW)
        database.wait(database.put("events", [{"day": DAYS[0], "id": 1, "city": "Oslo", "level": 1.5, "n": 1}]))
        yield database


def test_a_partial_key_is_refused_with_a_hint_at_lookup(db: Database) -> None:
    for relation, key in (("levels", "Oslo"), ("events", DAYS[0])):
        with pytest.raises(
            DataError, match=r"2 values are needed, 1 were given; lookup reads all rows whose key begins"
        ):
            db.get(relation, key)
    with pytest.raises(DataError, match="lookup reads all rows"):
        db.get("levels", {"city": "Oslo"})


@pytest.mark.parametrize("relation", ["levels", "events"])
def test_a_prefix_with_too_many_or_no_parts_is_refused(db: Database, relation: str) -> None:
    with pytest.raises(
        DataError, match=rf"the key of \w+ '{relation}' is \(\w+, \w+\): 2 values are needed, 3 were given"
    ):
        db.lookup(relation, None, None, 3)
    with pytest.raises(DataError, match="needs the first value of its key at least; scan reads all"):
        db.lookup(relation)


def test_a_prefix_of_the_wrong_type_is_refused(db: Database) -> None:
    with pytest.raises(DataError, match=r"view 'levels', column 'city' \(string\): 5 does not fit; allowed is text$"):
        db.lookup("levels", 5)
    with pytest.raises(DataError, match=r"column 'level' \(double\): 'high' does not fit; allowed is a number$"):
        db.lookup("levels", "Oslo", "high")
    with pytest.raises(DataError, match=r"table 'events', column 'day' \(date\): 'today' does not fit"):
        db.scan("events", start="today")
    with pytest.raises(DataError, match="is not how it begins"):
        db.lookup("levels", {"level": 1.5})
    with pytest.raises(DataError, match="not town"):
        db.lookup("levels", {"town": "Oslo"})


def test_values_that_fit_their_column_are_taken_in_any_form(db: Database) -> None:
    for prefix in [("Oslo",), ("Oslo", np.float64(1.5)), ({"city": "Oslo", "level": 1.5},), (("Oslo", 1.5),)]:
        assert db.lookup("levels", *prefix).num_rows == 1
    assert db.lookup("levels", "Oslo", 1).num_rows == 0
    assert db.lookup("events", "1969-12-31", 1.0).num_rows == 1


def test_a_range_that_is_upside_down_is_refused(db: Database) -> None:
    with pytest.raises(DataError, match=r"upside down: start 'b' comes after stop 'a'.*reverse"):
        db.scan("levels", start="b", stop="a")
    with pytest.raises(DataError, match="upside down"):
        db.scan("levels", start="b", stop="a", reverse=True)
    assert db.scan("levels", start="Oslo", stop="Oslo").num_rows == 0


def test_columns_and_limits_that_make_no_sense_are_refused(db: Database) -> None:
    with pytest.raises(DataError, match="view 'levels' has no column 'town'; it has city, level, n, total"):
        db.scan("levels", columns=["town"])
    with pytest.raises(DataError, match="twice"):
        db.scan("levels", columns=["city", "CITY"])
    for columns in ([], "city"):
        with pytest.raises(DataError, match="columns is a list of names"):
            db.scan("levels", columns=columns)
    for limit in (-1, True, "3"):
        with pytest.raises(DataError, match="limit is a number of rows"):
            db.lookup("levels", "Oslo", limit=limit)


def test_other_mistakes_have_their_own_errors(db: Database) -> None:
    with pytest.raises(CatalogError):
        db.lookup("nowhere", 1)
    with pytest.raises(EpochExpired, match="base table"):
        db.lookup("events", DAYS[0], at=1)


def test_a_view_without_a_key_has_one_row_to_scan(db: Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW overall AS SELECT count(*) AS n FROM events")
    assert db.scan("overall").to_pylist() == [{"n": 1}]
    assert db.scan("overall", limit=0, reverse=True).num_rows == 0
    with pytest.raises(DataError, match=r"\(\): 0 values are needed, 1 were given"):
        db.lookup("overall", 1)


def test_a_version_that_is_gone_is_read_by_those_who_pinned_it(db: Database) -> None:
    with db.snapshot() as before:
        db.execute("CREATE OR REPLACE MATERIALIZED VIEW levels AS SELECT city, count(*) AS n FROM events GROUP BY city")
        db.wait(db.put("events", [{"day": DAYS[0], "id": 2, "city": "Oslo", "level": 2.0, "n": 1}]))
        assert before.lookup("levels", "Oslo", columns=["level"]).to_pylist() == [{"level": 1.5}]
        assert db.lookup("levels", "Oslo").to_pylist() == [{"city": "Oslo", "n": 2}]


def test_several_keys_are_read_at_one_epoch_in_their_order() -> None:
    with belvedere.open(None) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT id, v FROM t")
        early = db.put("t", [{"id": id, "v": id} for id in range(10)])
        db.wait(early)
        late = db.put("t", {"id": 3, "v": 30})
        db.wait(late)
        expected = [{"id": 3, "v": 30}, None, {"id": 1, "v": 1}, {"id": 3, "v": 30}]
        assert db.get_many("w", [3, 99, 1, (3,)]) == db.get_many("t", [3, 99, 1, {"id": 3}]) == expected
        assert db.get_many("w", [3, 1], at=early.epoch) == [{"id": 3, "v": 3}, {"id": 1, "v": 1}]
        assert db.get_many("w", []) == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("relation", ["t", "w", "hidden"])
def test_pages_follow_each_other_without_gaps_or_repeats(relation: str, reverse: bool) -> None:
    with belvedere.open(None) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT id, v FROM t")
        db.execute("CREATE MATERIALIZED VIEW hidden AS SELECT v FROM t")
        db.wait(db.put("t", [{"id": id, "v": id} for id in range(100)]))
        found, beyond = list[int](), None
        while True:
            page = db.page(relation, limit=7, start=10, stop=90, reverse=reverse, beyond=beyond)
            found += page.rows.column("v").to_pylist()
            if not page.more:
                break
            beyond = page.end(page.rows.num_rows)
        assert found == sorted(range(10, 90), reverse=reverse)
        assert page.rows.schema.names == db.scan(relation, limit=0).schema.names
