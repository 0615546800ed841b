"""Keyed tables against dicts: random deltas, growth, reuse of slots, strings that come and go, dump and load."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Delta
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.hashing import NIL, combine, constant_id, hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.table import Table
from belvedere.engine.vec import Status, Vec
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Type, decimal

TYPES: list[Type] = [BIGINT, STRING, decimal(38, 2), BOOLEAN, DATE, DOUBLE, INT, TIMESTAMP, decimal(9, 3), BINARY]
Row = tuple[object, ...]


def column(type: Type, values: list[object]) -> Vec:
    return Vec.from_arrow(pa.array(values, type.arrow), type)


def random_row(rng: np.random.Generator, key: int) -> Row:
    def maybe(value: object) -> object:
        return None if rng.random() < 0.1 else value

    return (
        key,
        maybe("ä" * int(rng.integers(0, 60))),
        maybe(Decimal(int(rng.integers(-(10**15), 10**15)) * 10**20).scaleb(-2)),
        maybe(bool(rng.integers(0, 2))),
        maybe(datetime.date.fromordinal(int(rng.integers(1, 800000)))),
        maybe(float(rng.normal())),
        maybe(int(rng.integers(-(2**31), 2**31))),
        maybe(datetime.datetime.fromtimestamp(int(rng.integers(-(10**9), 10**9)), datetime.UTC)),
        maybe(Decimal(int(rng.integers(-(10**9) + 1, 10**9))).scaleb(-3)),
        maybe(rng.bytes(int(rng.integers(0, 40)))),
    )


def delta_of(rows: list[tuple[int, Row]]) -> Delta:
    columns = tuple(column(t, [row[i] for _, row in rows]) for i, t in enumerate(TYPES))
    return Delta(columns, np.array([w for w, _ in rows], np.int8), hash_rows(columns[:1], len(rows)))


def contents(table: Table) -> dict[object, Row]:
    rows = zip(*(c.to_arrow().to_pylist() for c in table.rows().columns), strict=True)
    return {row[0]: row for row in rows}


@pytest.mark.parametrize("seed", range(4))
def test_a_table_holds_what_a_dict_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, model = Table(TYPES), dict[int, Row]()
    for step in range(30):
        changes: list[tuple[int, Row]] = []
        for key in rng.choice(400 + 20 * step, int(rng.integers(1, 300)), replace=False).tolist():
            if key in model:
                changes.append((-1, model[key]))
            if key not in model or rng.random() < 0.6:
                changes.append((+1, random_row(rng, key)))
        rng.shuffle(changes)
        slots = table.apply(delta_of(changes))
        for weight, row in changes:
            if weight < 0 and not any(w > 0 and r[0] == row[0] for w, r in changes):
                del model[row[0]]  # type: ignore[arg-type]
        model |= {row[0]: row for weight, row in changes if weight > 0}  # type: ignore[misc]
        assert (slots >= 0).all()
        assert len(table) == len(model)
        assert contents(table) == model
        if rng.random() < 0.7:
            table.end_epoch()
        if step % 10 == 9:
            loaded = Table(TYPES)
            loaded.load(table.dump())
            assert contents(loaded) == model
            table = loaded
    keys = column(BIGINT, [*model, 10**6])
    for id, key in zip(hash_rows([keys], len(keys)), [*model, 10**6], strict=True):
        assert table.get(id) == model.get(key)


def test_removed_rows_stay_readable_until_the_epoch_ends() -> None:
    table = Table([BIGINT, STRING])
    columns = (column(BIGINT, [1, 2]), column(STRING, ["one", "two"]))
    ids = hash_rows(columns[:1], 2)
    table.apply(Delta(columns, np.ones(2, np.int8), ids))
    slots = table.apply(Delta(columns, -np.ones(2, np.int8), ids))
    other = (column(BIGINT, [3]), column(STRING, ["three"]))
    new = table.apply(Delta(other, np.ones(1, np.int8), hash_rows(other[:1], 1)))
    assert new[0] not in slots
    assert table.columns.gather(slots)[1].to_arrow().to_pylist() == ["one", "two"]
    assert table.slots().tolist() == new.tolist()
    table.end_epoch()
    fourth = (column(BIGINT, [4]), column(STRING, ["four"]))
    assert table.apply(Delta(fourth, np.ones(1, np.int8), hash_rows(fourth[:1], 1)))[0] in slots


def test_row_errors_travel_with_their_rows() -> None:
    table = Table([BIGINT])
    columns = (column(BIGINT, [1, 2]),)
    ids = hash_rows(columns, 2)
    table.apply(Delta(columns, np.ones(2, np.int8), ids))
    assert table.rows().error is None
    table.apply(Delta(columns, np.ones(2, np.int8), ids, np.array([1, Status.DIVISION], np.uint8)))
    rows = table.rows()
    assert rows.error is not None
    assert rows.error.tolist() == [1, Status.DIVISION]
    table.apply(Delta(columns, np.ones(2, np.int8), ids))
    assert table.rows().error is None


def test_small_tables_stay_small() -> None:
    table = Table(TYPES)
    table.apply(delta_of([(1, random_row(np.random.default_rng(0), k)) for k in range(10)]))
    assert table.nbytes() < 50_000


def test_arenas_are_compacted_and_take_huge_strings() -> None:
    columns = Columns([STRING])
    model: dict[int, str] = {}
    rng = np.random.default_rng(1)
    for step in range(60):
        slots = rng.choice(300, 100, replace=False).astype(np.int32)
        texts = [chr(97 + step % 26) * int(rng.integers(0, 400)) for _ in slots]
        if step in (20, 40):
            texts[5] = "h" * (9 << 20)
        columns.scatter(slots, [column(STRING, list(texts))])
        model |= dict(zip(slots.tolist(), texts, strict=True))
        gone = rng.choice(300, 5, replace=False).astype(np.int32)
        columns.release(gone)
        model |= dict.fromkeys(gone.tolist(), "")
        if step == 45:
            huge = np.array([s for s in model if len(model[s]) > 1 << 20], np.int32)
            columns.release(huge)
            model |= dict.fromkeys(huge.tolist(), "")
        known = np.array(list(model), np.int32)
        assert columns.gather(known)[0].to_arrow().to_pylist() == list(model.values())
        assert [columns.row(s)[0] for s in known[:5]] == list(model.values())[:5]
    assert columns.nbytes() < 1_000_000
    assert columns.plain_bytes(300) == 300 * 8 + sum(map(len, model.values()))


def test_skipped_and_repeated_slots() -> None:
    columns = Columns([BIGINT, STRING])
    columns.scatter(np.array([2, -1, 2], np.int32), [column(BIGINT, [1, 2, 3]), column(STRING, ["a", "b", None])])
    columns.add(decimal(30, 0))
    columns.scatter(np.array([2], np.int32), [column(decimal(30, 0), [Decimal(10**25)])], [2])
    assert columns.row(2) == (3, None, Decimal(10**25))


@pytest.mark.parametrize("seed", range(3))
def test_index_against_a_dict(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, model = HashIndex(), dict[int, int]()
    held: set[int] = set()
    for _ in range(60):
        keys = rng.integers(0, 3000, int(rng.integers(1, 500)))
        ids = hash_rows([Vec(BIGINT, keys)], len(keys))
        action = rng.integers(0, 4)
        if action < 2:
            slots, fresh = index.insert(ids)
            for key, slot, new in zip(keys.tolist(), slots.tolist(), fresh.tolist(), strict=True):
                assert new == (key not in model)
                assert model.setdefault(key, slot) == slot
                assert not (new and slot in held)
            assert len(set(model.values())) == len(model)
        elif action == 2:
            unique = np.unique(keys)
            slots = index.remove(hash_rows([Vec(BIGINT, unique)], len(unique)))
            gone = [model.pop(key, -1) for key in unique.tolist()]
            assert slots.tolist() == gone
            held |= set(gone)
        else:
            index.end_epoch()
            held.clear()
        assert index.find(ids).tolist() == [model.get(k, -1) for k in keys.tolist()]
        assert sorted(index.slots().tolist()) == sorted(model.values())
        index_2 = HashIndex.load(index.dump())
        assert index_2.find(ids).tolist() == index.find(ids).tolist()
        assert len(index_2) == len(model) == len(index)


def test_equal_fingerprints_are_told_apart() -> None:
    ids = np.array([[7 << 32, i] for i in range(40)], np.uint64)
    index = HashIndex()
    slots, _ = index.insert(ids)
    assert len(set(slots.tolist())) == 40
    index.remove(ids[::2])
    assert (index.find(ids)[::2] == -1).all()
    assert index.find(ids)[1::2].tolist() == slots[1::2].tolist()


def test_hashes_follow_sql_equality() -> None:
    def ids(type: Type, values: list[object]) -> list[list[int]]:
        return hash_rows([column(type, values)], len(values)).tolist()  # type: ignore[no-any-return]

    assert ids(INT, [-1, 5, None]) == ids(BIGINT, [-1, 5, None])
    double = hash_rows([Vec(DOUBLE, np.array([0.0, -0.0, np.nan, -np.nan, 1.0]))], 5).tolist()
    assert double[0] == double[1]
    assert double[2] == double[3]
    assert double[0] != double[4]
    texts = ["", "a", "b", "ab", "ba", "abc", "abcd", "abcde", "x" * 16, "x" * 17, "x" * 32, "x" * 33, None]
    assert len({tuple(i) for i in ids(STRING, list(texts))}) == len(texts)
    assert ids(STRING, ["ab"]) == ids(BINARY, [b"ab"])
    sliced = Vec(STRING, pa.array(["p", *texts[:12]])).slice(1, 13)
    assert hash_rows([sliced], 12).tolist() == ids(STRING, list(texts[:12]))
    pair = [column(STRING, ["a", "b"]), column(STRING, ["b", "a"])]
    assert len({tuple(i) for i in hash_rows(pair, 2).tolist()}) == 2
    a, b = hash_rows(pair[:1], 2), hash_rows(pair[1:], 2)
    assert combine(a, b).tolist() != combine(b, a).tolist()
    assert combine(a, NIL).tolist() == combine(a, np.tile(NIL, (2, 1))).tolist()
    assert constant_id(0).tolist() != constant_id(1).tolist()
    assert len({tuple(i) for i in hash_rows([], 3).tolist()}) == 1


def test_hashes_never_change() -> None:
    """Snapshots hold them."""
    columns = [column(BIGINT, [1, None]), column(STRING, ["a string of some length", "s"]), column(DOUBLE, [1.5, -2.0])]
    assert hash_rows(columns, 2).tolist() == GOLDEN


GOLDEN = [[4055354804219802000, 10415135844430458989], [13569594338771581288, 14358153355295869095]]


def test_hash_bits_are_even() -> None:
    ids = hash_rows([Vec(BIGINT, np.arange(1 << 16))], 1 << 16)
    texts = hash_rows([Vec(STRING, pa.array([f"key-{i}" for i in range(1 << 16)]))], 1 << 16)
    for words in (ids[:, 0], ids[:, 1], texts[:, 0], texts[:, 1], combine(ids, ids)[:, 0]):
        for bit in range(64):
            ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
            assert abs(ones - 32768) < 700
        assert len(np.unique(words >> np.uint64(32))) > 65000


@pytest.mark.parametrize("skew", ["even", "low", "high", "equal"])
def test_index_grows_in_place_whatever_the_ids(skew: str) -> None:
    rng = np.random.default_rng(3)
    ids = rng.integers(0, 1 << 63, (30_000, 2), np.uint64)
    if skew == "equal":
        ids = ids[:2000]
        ids[:, 0] = np.uint64(0xFFFFFFFF00000000)
    elif skew != "even":
        ids[:, 0] >>= np.uint64(9)
        if skew == "high":
            ids[:, 0] = ~ids[:, 0]
    index = HashIndex()
    for start in range(0, len(ids), 700):
        assert index.insert(ids[start : start + 700])[1].all()
        known = index.find(ids[: start + 700])
        assert known.tolist() == list(range(min(start + 700, len(ids))))
