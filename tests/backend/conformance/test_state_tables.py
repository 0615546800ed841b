"""Versioned tables: what a read, a scan and the list of changes give, in whatever order versions were written."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend import seam
from belvedere.backend.seam import Store, TableWrite
from belvedere.errors import BelowHorizon, DataError
from tests.backend.conformance.conftest import versions_of
from tests.backend.conformance.dated import real
from tests.backend.conformance.rows import BUCKETS, by_id, changed, collect, id_of, ids, read, scan, values, write


def test_nothing_is_there_before_the_first_write(store: Store) -> None:
    assert read(store, [1, 2]) == [None, None]
    assert scan(store) == {} and changed(store, 0, 100) == {}


def test_a_read_takes_the_newest_version_below(store: Store) -> None:
    write(store, 10, {1: b"a", 2: b"b"})
    write(store, 20, {1: b"c"})
    assert read(store, [1, 2, 3], 10) == [None, None, None]
    assert read(store, [1, 2, 3], 11) == [b"a", b"b", None]
    assert read(store, [2, 1, 1], 20) == [b"b", b"a", b"a"]
    assert read(store, [2, 1, 1], 21) == [b"b", b"c", b"c"]


def test_versions_may_come_in_any_order(store: Store) -> None:
    for epoch in (30, 10, 20):
        write(store, epoch, {1: str(epoch).encode()})
    assert [read(store, [1], below)[0] for below in (10, 11, 21, 31)] == [None, b"10", b"20", b"30"]


def test_who_changed_a_row_last(store: Store) -> None:
    write(store, 10, {1: b"a", 2: b"b", 3: b"c"})
    write(store, 20, {1: b"x", 2: None})
    write(store, 30, {1: b"a"})
    assert [epochs(store, [4, 3, 2, 1, 1], below) for below in (10, 11, 21, 31)] == [
        [0, 0, 0, 0, 0],
        [0, 10, 10, 10, 10],
        [0, 10, 20, 20, 20],
        [0, 10, 20, 30, 30],
    ]
    assert epochs(store, [1], 31, "none of this name") == [0]
    assert epochs(store, [], 31) == []


def epochs(store: Store, numbers: list[int], below: int, table: str = "t") -> list[int]:
    found = store.written_at(table, ids(*numbers), below)
    assert found.dtype == np.int64
    return [int(epoch) for epoch in found]


def test_a_version_that_is_not_kept_is_refused_and_never_taken_for_none(store: Store) -> None:
    for epoch in range(10, 20):
        write(store, epoch, {1: str(epoch).encode()})
    for below in range(10, 21):
        if 20 - below <= versions_of(store):
            assert read(store, [1], below) == [str(below - 1).encode() if below > 10 else None]
            assert scan(store, below=below) == by_id([(1, str(below - 1).encode())] if below > 10 else [])
        else:
            with pytest.raises(BelowHorizon, match=f"'t': versions below epoch {real(below)}"):
                read(store, [1], below)
            with pytest.raises(BelowHorizon):
                scan(store, below=below)


def test_the_same_version_is_replaced(store: Store) -> None:
    write(store, 10, {1: b"old", 2: None, 3: b"x"})
    write(store, 10, {1: b"new", 2: b"row", 3: None})
    write(store, 20, {1: b"later"})
    write(store, 10, {1: b"newest"})
    assert read(store, [1, 2, 3], 11) == [b"newest", b"row", None]
    assert read(store, [1], 21) == [b"later"]
    assert scan(store, below=11) == by_id([(1, b"newest"), (2, b"row")])


def test_a_tombstone_ends_a_row_and_a_later_version_begins_it_again(store: Store) -> None:
    write(store, 10, {1: b"a"})
    write(store, 20, {1: None})
    write(store, 30, {1: b""})
    assert [read(store, [1], below)[0] for below in (11, 20, 21, 30, 31)] == [b"a", b"a", None, None, b""]
    assert scan(store, below=21) == {} and scan(store, below=31) == by_id([(1, b"")])


def test_tables_do_not_mix(store: Store) -> None:
    names = ["t", "t2", "", "t/t", "Ünicode"]
    epoch = 5
    store.write(epoch, [TableWrite(name, ids(1, 2), values(name.encode(), b"x"), True) for name in names])
    for name in names:
        assert read(store, [1], table=name) == [name.encode()]
        assert scan(store, table=name) == by_id([(1, name.encode()), (2, b"x")])
        assert changed(store, 0, 9, table=name) == {epoch: sorted([id_of(1), id_of(2)])}
    store.drop_tables(["t", "nobody"])
    store.drop_tables(["t"])
    assert scan(store) == {} and changed(store, 0, 9) == {} and read(store, [1]) == [None]
    assert scan(store, table="t2") == by_id([(1, b"t2"), (2, b"x")])
    write(store, 6, {1: b"again"})
    assert scan(store) == by_id([(1, b"again")])


def test_a_scan_gives_the_buckets_asked_for(store: Store) -> None:
    numbers = [0, 1, 2, 255, 256, 257, 8191, 16_382, 16_383, BUCKETS, BUCKETS + 1, BUCKETS + 256]
    write(store, 1, {number: str(number).encode() for number in numbers})
    for first, stop in ((0, BUCKETS), (0, 1), (1, 2), (255, 257), (256, 16_383), (16_383, BUCKETS), (5, 5), (300, 400)):
        expected = [(n, str(n).encode()) for n in numbers if first <= n % BUCKETS < stop]
        assert scan(store, first, stop) == by_id(expected)


def test_ids_with_extreme_words(store: Store) -> None:
    edges = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    keys = np.array([(low, high) for low in edges for high in edges], np.uint64)
    store.write(1, [TableWrite("t", keys, pa.array([bytes(k.tobytes()) for k in keys], pa.binary()), True)])
    assert store.read("t", keys, 2).to_pylist() == [k.tobytes() for k in keys]
    assert scan(store) == {(int(a), int(b)): np.array([a, b], np.uint64).tobytes() for a, b in keys}
    assert changed(store, 0, 1) == {1: sorted((int(a), int(b)) for a, b in keys)}


def test_empty_batches(store: Store) -> None:
    store.write(5, [])
    store.write(5, [TableWrite("t", ids(), values(), True)])
    assert len(store.read("t", ids(), 9)) == 0
    assert scan(store) == {} and changed(store, 0, 9) == {}


def test_sliced_and_strided_input(store: Store) -> None:
    """Writers cut their batches without copying them."""
    keys = ids(*range(20))
    content = pa.array([None if n % 5 == 0 else b"v%d" % n for n in range(20)], pa.binary())
    store.write(1, [TableWrite("t", keys[3:11], content.slice(3, 8))])
    store.write(1, [TableWrite("t", keys[12::2], content.take(pa.array(range(12, 20, 2))))])
    expected = [b"v%d" % n if n % 5 and (3 <= n < 11 or (n >= 12 and n % 2 == 0)) else None for n in range(20)]
    assert store.read("t", keys, 2).to_pylist() == expected
    assert store.read("t", keys[::-1], 2).to_pylist() == expected[::-1]


def test_what_does_not_fit_together_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match="table 't': 2 ids and 1 values"):
        store.write(1, [TableWrite("t", ids(1, 2), values(b"a"))])
    with pytest.raises(DataError, match="table 't': ids must be"):
        store.write(1, [TableWrite("t", np.zeros((1, 2), np.int64), values(b"a"))])
    assert scan(store) == {}


def test_changes_of_logged_writes(store: Store) -> None:
    write(store, 10, {3: b"a", 1: None}, logged=True)
    write(store, 30, {2: b"c"}, logged=True)
    write(store, 20, {2: b"b"}, logged=True)
    write(store, 20, {5: b"b"}, logged=False)
    write(store, 20, {4: b"d", 2: b"b"}, logged=True)
    write(store, 20, {2: b"b"}, logged=True)
    assert changed(store, 0, 30) == {
        10: sorted([id_of(1), id_of(3)]),
        20: sorted([id_of(2), id_of(4)]),
        30: [id_of(2)],
    }
    assert list(changed(store, 10, 20)) == [20]
    assert changed(store, 30, 40) == {}


def test_big_batches(store: Store) -> None:
    count = 100_000 if versions_of(store) > 10 else 25_000  # HBase is two processes more, and slower by as much
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 2**64, (count, 2), np.uint64)
    content = pa.array([b"%060d" % n for n in range(count)], pa.binary())
    store.write(7, [TableWrite("t", keys, content, True)])
    order = rng.permutation(count)
    assert store.read("t", keys[order], 8).equals(content.take(pa.array(order)))
    assert store.read("t", keys[order], 7).null_count == count
    found = 0
    for scanned, got in store.scan("t", 100, 8000, 8):
        assert len(scanned) == len(got)
        found += len(got)
    assert found == np.count_nonzero((keys[:, 0] % BUCKETS >= 100) & (keys[:, 0] % BUCKETS < 8000))
    ((epoch, logged),) = store.changed("t", 0, 7)
    assert epoch == 7 and len(logged) == count


def test_values_of_every_size(store: Store) -> None:
    sizes = [0, 1, 59, 511, 512, 2000, 4096, 70_000, 3_000_000]
    write(store, 1, {n: bytes([n]) * size for n, size in enumerate(sizes)})
    assert read(store, range(len(sizes))) == [bytes([n]) * size for n, size in enumerate(sizes)]
    assert scan(store) == by_id((n, bytes([n]) * size) for n, size in enumerate(sizes))


def test_usage_names_the_tables(store: Store) -> None:
    write(store, 1, {1: b"a", 2: b"b"})
    write(store, 1, {1: b"a"}, table="u")
    assert {"t", "u"} <= set(store.usage())


def test_an_answer_ends_where_it_gets_big(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "READ_BYTES", 1000)
    rows = {n: None if n % 7 == 0 else bytes([n % 250]) * (n % 400) for n in range(3000)}
    write(store, 1, rows)
    numbers, found = list(rows), []
    while len(found) < len(numbers):
        piece = store.read_some("t", ids(*numbers[len(found) :]), 2)
        assert len(piece) >= 1 and sum(len(value or b"") for value in piece.to_pylist()) < 1000 + 2 * 400
        found += piece.to_pylist()
    assert found == [rows[n] for n in numbers] == read(store, numbers)
    assert len(store.read_some("t", ids(), 2)) == 0
    assert 1 <= len(store.read_some("nobody", ids(1, 2, 3), 2)) <= 3


# --- collection


def test_collection_keeps_what_can_be_read(store: Store) -> None:
    for epoch in (10, 20, 30, 40):
        write(store, epoch, {1: b"%d" % epoch}, logged=True)
    write(store, 20, {2: b"only"})
    collect(store, 30)
    assert [read(store, [1, 2], below) for below in (31, 41)] == [[b"30", b"only"], [b"40", b"only"]]
    assert list(changed(store, 30, 50)) == [40]


def test_collection_removes_what_may_go(store: Store) -> None:
    for epoch in (10, 20, 30):
        write(store, epoch, {1: b"%d" % epoch, 2: None if epoch == 20 else b"x"}, logged=True)
    before = store.usage()["t"]
    collect(store, 30, 30)
    assert store.usage()["t"] == 2
    assert before > 2 or versions_of(store) < 10  # who keeps a few versions only counts rows
    assert changed(store, 0, 30) == {}
    assert read(store, [1, 2]) == [b"30", b"x"]


def test_a_late_write_below_a_collected_version_is_not_seen(store: Store) -> None:
    for epoch in (10, 20, 30):
        write(store, epoch, {1: b"%d" % epoch})
    collect(store, 30)
    write(store, 10, {1: b"10"})
    assert read(store, [1], 31) == [b"30"] == read(store, [1])
    collect(store, 31)
    assert store.usage()["t"] == 1


def test_a_tombstone_shields_from_late_writes_until_it_may_go(store: Store) -> None:
    write(store, 10, {1: b"row", 2: b"row"})
    write(store, 20, {1: None, 2: None})
    write(store, 30, {2: b"again"})
    collect(store, 40, 19)
    write(store, 10, {1: b"row"})
    assert read(store, [1, 2]) == [None, b"again"] and scan(store) == by_id([(2, b"again")])


def test_a_late_write_revives_nothing_when_the_tombstone_is_gone(store: Store) -> None:
    write(store, 10, {1: b"row"})
    write(store, 20, {1: None})
    collect(store, 40, 20)
    assert scan(store) == {}
    write(store, 10, {1: b"row"}, logged=True)
    write(store, 20, {1: b"row", 2: b"row"}, table="dropped since")
    assert read(store, [1]) == [None] and scan(store) == {} and changed(store, 0, 50) == {}
    assert scan(store, table="dropped since") == {}
    store.collect(5, 5)
    write(store, 15, {1: b"row"})
    write(store, 21, {2: b"row"})
    assert scan(store) == by_id([(2, b"row")])


def test_the_bound_on_late_writes_is_not_above_the_horizon(store: Store) -> None:
    """What is above the horizon may be an epoch that is not committed."""
    collect(store, 15, 20)
    write(store, 15, {1: b"row"})
    write(store, 16, {2: b"row"})
    assert scan(store) == by_id([(2, b"row")])


def test_a_tombstone_above_the_horizon_stays(store: Store) -> None:
    write(store, 10, {1: b"row"})
    write(store, 20, {1: None})
    collect(store, 15, 20)
    assert read(store, [1], 16) == [b"row"] and read(store, [1]) == [None]


def test_collections_may_be_repeated_and_go_back(store: Store) -> None:
    for epoch in (10, 20, 30):
        write(store, epoch, {1: b"%d" % epoch})
    collect(store, 20)
    collect(store, 20)
    store.collect(5, 5)
    assert [read(store, [1], below)[0] for below in (21, 31)] == [b"20", b"30"]


@pytest.mark.parametrize("below", [1, 29, 30])
def test_reads_below_the_horizon_are_refused(store: Store, below: int) -> None:
    """What is left below it looks like an answer: the row of epoch 10 would be missing."""
    for epoch in (10, 20, 30):
        write(store, epoch, {1: b"%d" % epoch})
    assert read(store, [1], 20) == [b"10"]
    collect(store, 30)
    for table in ("t", "no such table"):
        with pytest.raises(BelowHorizon, match=f"{table}.* below epoch {real(below)} .* before {real(30)}"):
            read(store, [1], below, table)
        with pytest.raises(BelowHorizon, match=f"{table}.* below epoch {real(below)} .* before {real(30)}"):
            scan(store, below=below, table=table)
        with pytest.raises(BelowHorizon):
            store.read_some(table, ids(1), below)
    assert read(store, [1], 31) == [b"30"] and scan(store, below=31) == by_id([(1, b"30")])


def test_a_refusal_stays_when_a_collection_goes_back(store: Store) -> None:
    write(store, 10, {1: b"10"})
    collect(store, 30)
    store.collect(5, 5)
    with pytest.raises(BelowHorizon):
        read(store, [1], 11)


# --- random histories


class Model:
    """The naive store: every version of everything."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, dict[int, bytes | None]]] = {"a": {}, "b": {}}
        self.logged: dict[str, dict[int, set[int]]] = {"a": {}, "b": {}}

    def at(self, table: str, number: int, below: int) -> bytes | None:
        versions = self.rows[table].get(number, {})
        return versions[max(v for v in versions if v < below)] if any(v < below for v in versions) else None

    def newer(self, table: str, number: int, below: int) -> int:
        return sum(epoch >= below for epoch in self.rows[table].get(number, {}))


def step(rng: random.Random, store: Store, model: Model, clock: int, bounds: list[int]) -> None:
    """One random write (sometimes one of an older epoch again, as a late writer does) and now and then a collection."""
    table = rng.choice("ab")
    known = [
        (number, epoch, value)
        for number, versions in model.rows[table].items()
        for epoch, value in versions.items()
        if epoch > bounds[1]
    ]
    if known and rng.random() < 0.2:
        number, epoch, value = rng.choice(known)
        write(store, epoch, {number: value}, table, logged=False)
    else:
        count = rng.randrange(12)
        rows = {
            rng.randrange(40) * 1000: None if rng.random() < 0.3 else rng.randbytes(rng.randrange(20))
            for _ in range(count)
        }
        epoch = clock - rng.randrange(3) if clock - 3 > bounds[0] else clock
        write(store, epoch, rows, table, logged=table == "a")
        for number, value in rows.items():
            model.rows[table].setdefault(number, {})[epoch] = value
        if rows and table == "a":
            model.logged[table].setdefault(epoch, set()).update(rows)
    if rng.random() < 0.1:
        bounds[0] = max(bounds[0], clock - 2 - rng.randrange(10))
        bounds[1] = max(bounds[1], bounds[0] - rng.randrange(8))
        store.collect(bounds[0], bounds[1])


def compare(rng: random.Random, store: Store, model: Model, clock: int, horizon: int) -> None:
    below = rng.randint(horizon + 1, clock + 1)
    first = rng.choice((0, 3000))
    for table in "ab":
        kept = [n for n in range(0, 40_000, 1000) if model.newer(table, n, below) <= versions_of(store)]
        numbers = rng.sample(kept, min(15, len(kept)))
        assert read(store, numbers, below, table) == [model.at(table, number, below) for number in numbers]
        live = [number for number in numbers if model.at(table, number, below) is not None]
        newest = [max(epoch for epoch in model.rows[table][number] if epoch < below) for number in live]
        assert epochs(store, live, below, table) == newest
        expected = {
            id_of(number): value
            for number in model.rows[table]
            if number % BUCKETS >= first and (value := model.at(table, number, below)) is not None
        }
        if all(number in kept for number in model.rows[table] if number % BUCKETS >= first):
            assert scan(store, first, BUCKETS, below, table) == expected
        else:
            with suppress(BelowHorizon):  # it may not know, but never says what is wrong
                assert scan(store, first, BUCKETS, below, table) == expected
    assert changed(store, horizon, clock, "a") == {
        epoch: sorted(map(id_of, numbers)) for epoch, numbers in model.logged["a"].items() if epoch > horizon
    }


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_equal_the_naive_store(store: Store, seed: int) -> None:
    rng, model, bounds = random.Random(seed), Model(), [0, 0]
    for clock in range(1, 80):
        step(rng, store, model, clock, bounds)
        if clock % 4 == 0:
            compare(rng, store, model, clock, bounds[0])


@pytest.mark.parametrize(("first", "stop"), [(0, BUCKETS), (3, 90), (17, 18)])
def test_a_scan_of_some_buckets_gives_the_rows_of_these_alone(store: Store, first: int, stop: int) -> None:
    rng = random.Random(first)
    write(store, 10, {number: b"%d" % number for number in range(200)})
    write(store, 20, dict.fromkeys(range(0, 200, 7)))
    for share in (0.0, 0.1, 0.5, 1.0):
        only = np.array([rng.random() < share for _ in range(BUCKETS)])
        only[[0, 17, 89, 199, BUCKETS - 1]] = share > 0  # the edges
        found = {
            id: value
            for ids, content in store.scan("t", first, stop, 30, only)
            for id, value in zip(map(tuple, ids.tolist()), content.to_pylist(), strict=True)
        }
        wanted = [n for n in range(200) if n % 7 and first <= n < stop and only[n]]
        assert found == by_id([(n, b"%d" % n) for n in wanted])
