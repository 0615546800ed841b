"""Base tables of the served store: logs by range, rows that follow from them, lineage, what a restart leaves."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.served import tables
from belvedere.backend.served.base import ServedBaseTables
from belvedere.backend.served.base_service import BaseClient, BaseService
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.backend.served.tables import VersionedTables
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError
from belvedere.model import chunks
from belvedere.model.base_keys import decode_key, encode_keys
from belvedere.protocol.exactly_once import START, ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, Column, decimal
from tests.backend.served import base_child
from tests.backend.served.base_changes import ORDERS, Change, Model, changes_of, keys_of, random_change, rows_of, take
from tests.backend.served.test_directory import child

ALL = InputPiece(ChunkId(WriterId("w"), 1), SourceId("s"), START, Seq(2**62))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    made = LmdbStore(tmp_path / "store", nodes=("n0", "n1"), collect_pause=0.0)
    yield made
    made.close()


def key(number: int) -> bytes:
    return encode_keys(keys_of(number), "t")[0]


def put(base: ServedBaseTables, *changes: Change, own_clock: bool = True) -> dict[SourceId, Seq]:
    return base.put("orders", changes_of(changes), own_clock=own_clock)


def rows(base: ServedBaseTables) -> list[dict[str, Any]]:
    return rows_of(base, base.table("orders"))


def logs(base: ServedBaseTables) -> dict[SourceId, list[tuple[Seq, bytes]]]:
    return {info.id: base.read_log(info.id, START, 1 << 30, 1 << 30) for info in base.sources()}


# --- rows


def test_puts_and_deletes(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    put(base, Change(1, {"a": 1, "b": "x"}), Change(-2, {"a": 2}))
    put(base, Change(1, {"b": "y"}), Change(3, {}))
    assert rows(base) == [
        {"id": -2, "a": 2, "b": None},
        {"id": 1, "a": 1, "b": "y"},
        {"id": 3, "a": None, "b": None},
    ]
    put(base, Change(1, None), Change(3, {"a": None, "b": ""}))
    assert rows(base) == [{"id": -2, "a": 2, "b": None}, {"id": 3, "a": None, "b": ""}]


def test_within_a_call_the_later_change_of_a_key_wins(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    put(base, Change(1, {"a": 1}), Change(1, None), Change(2, {"a": 1}), Change(2, {"a": 2}))
    assert rows(base) == [{"id": 2, "a": 2, "b": None}]
    put(base, Change(1, {"a": 1}), Change(2, None), Change(2, {"b": "new"}), Change(1, {"b": "both"}))
    assert rows(base) == [{"id": 1, "a": 1, "b": "both"}, {"id": 2, "a": None, "b": "new"}]


@pytest.mark.parametrize("seed", range(8))
def test_what_the_logs_hold_has_the_naive_meaning(store: LmdbStore, seed: int) -> None:
    """Timestamps in any order, ties included."""
    rng, model, base = random.Random(seed), Model(), store.base
    base.create_table(ORDERS, [key(-5), key(7)])
    for _ in range(40):
        batch = [replace(random_change(rng), ts=rng.randrange(50)) for _ in range(rng.randrange(6))]
        put(base, *batch, own_clock=False)
        for change in batch:
            model.apply(change)
    assert rows(base) == model.rows()


def test_a_big_put_of_two_ranges_is_one_entry_in_each(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS, [key(5_000)])
    written = put(base, *(Change(n, {"a": n, "b": "v" * (n % 50)}) for n in range(10_000)))
    assert len(written) == 2 and len(set(written.values())) == 1
    found = rows(base)
    assert [row["id"] for row in found] == list(range(10_000)) and found[777]["b"] == "v" * 27
    assert base.put("orders", changes_of([])) == {}


def test_what_does_not_fit_is_refused(store: LmdbStore) -> None:
    base = store.base
    with pytest.raises(CatalogError, match="no base table 'orders'; there is nothing yet"):
        put(base, Change(1, {}))
    base.create_table(ORDERS)
    wrong = changes_of([Change(1, {})])
    wrong.columns = (Vec(STRING, pa.array(["1"])), *wrong.columns[1:])
    with pytest.raises(DataError, match="column 'id' of base table 'orders' is bigint, values are string"):
        base.put("orders", wrong)
    null = changes_of([Change(1, {})])
    null.columns = (Vec(BIGINT, np.array([1]), np.zeros(1, np.uint8)), *null.columns[1:])
    with pytest.raises(DataError, match="a key of base table 'orders' holds NULL"):
        base.put("orders", null)
    assert rows(base) == [] and all(not entries for entries in logs(base).values())
    long = TableDef("long", (Column("k", STRING, False),), ("k",))
    base.create_table(long)
    assert base.put("long", replace_columns(long, pa.array(["x" * 6000, "y"])))  # no limit that a user meets


def replace_columns(table: TableDef, *arrays: pa.Array):
    found = changes_of([Change(0, {})] * len(arrays[0]), TableDef("x", (), ()))
    columns = tuple(Vec.from_arrow(array, column.type) for array, column in zip(arrays, table.columns, strict=True))
    return replace(found, columns=columns, present=(None,) * len(columns))


# --- definitions


def test_definitions_can_be_repeated_and_survive(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    base = store.base
    base.create_table(ORDERS, [key(10)])
    base.create_table(ORDERS)
    with pytest.raises(CatalogError, match="exists already"):
        base.create_table(replace(ORDERS, columns=ORDERS.columns[:2]))
    put(base, Change(1, {"a": 1}))
    more = [Column("c", STRING)]
    base.add_columns("orders", more)
    base.add_columns("orders", more)
    with pytest.raises(CatalogError, match="has a column 'c' of type string already"):
        base.add_columns("orders", [Column("c", BIGINT)])
    put(base, Change(2, {"a": 2}))
    wider = base.table("orders")
    base.put("orders", changes_of([Change(1, {"c": "new"})], wider))
    expected = [{"id": 1, "a": 1, "b": None, "c": "new"}, {"id": 2, "a": 2, "b": None, "c": None}]
    assert rows(base) == expected
    before = base.sources()
    store.close()
    again = LmdbStore(tmp_path)
    assert again.base.tables() == {"orders": wider} and again.base.sources() == before == again.sources()
    assert rows(again.base) == expected
    again.close()


def test_a_dropped_table_ends_its_sources_and_its_name_is_free(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS, [key(0)])
    put(base, Change(5, {"a": 1}))
    base.drop_table("orders")
    base.drop_table("orders")
    ended = base.sources()
    assert sorted(info.last for info in ended) == [START, 1]
    base.create_table(ORDERS)
    assert len(base.sources()) == 3
    put(base, Change(6, {"a": 1}))
    base.forget_sources([info.id for info in base.sources()])
    (left,) = base.sources()
    assert left.last is None and [row["id"] for row in rows(base)] == [6]
    with store.environment.reading() as txn:
        assert txn.stat(store.environment.db["base_log"])["entries"] == 1


# --- clocks and seqs


def test_the_clock_and_seqs_only_grow_whatever_the_wall_clock_says(tmp_path: Path) -> None:
    now = [1_000_000]
    seen: list[int] = []
    written: list[int] = []

    def write(store: LmdbStore, *changes: Change) -> None:
        (seq,) = store.base.put("orders", changes_of(changes)).values()
        written.append(seq)
        (source,) = store.base.sources()
        (_, payload) = store.base.read_log(source.id, Seq(seq - 1), 1, 1)[0]
        ((_, found),) = chunks.decode(payload, ALL, {"orders": ORDERS})
        seen.extend(found.ts.tolist())

    for life in range(3):
        store = LmdbStore(tmp_path, clock=lambda: now[0])
        store.base.create_table(ORDERS)
        write(store, Change(1, {"a": life}))
        now[0] -= 700
        write(store, Change(1, None), Change(1, {"a": life}), Change(2, {}))
        write(store, Change(1, {"a": life}))
        now[0] += 300
        store.close()
    assert seen == sorted(set(seen)) and written == sorted(set(written))


def test_seqs_of_a_source_have_gaps(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS, [key(0)])
    lower, upper = (info.id for info in sorted(base.sources(), key=lambda info: info.id))
    assert put(base, Change(-1, {})) == {lower: 1}
    assert put(base, Change(1, {})) == {upper: 2}
    assert put(base, Change(-1, {}), Change(1, {})) == {lower: 3, upper: 3}
    assert put(base, Change(-1, {})) == {lower: 4}
    assert {s: [seq for seq, _ in found] for s, found in logs(base).items()} == {lower: [1, 3, 4], upper: [2, 3]}


# --- lineage


def test_split_merge_and_move(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    (parent,) = base.sources()
    assert parent.parents == frozenset() and parent.last is None
    for n in range(10):
        put(base, Change(n, {"a": n}))
    take(store, store.base)
    lower, upper = base.split(parent.id)
    listed = {info.id: info for info in base.sources()}
    assert listed[parent.id].last == 10 and listed[lower].parents == listed[upper].parents == {parent.id}
    assert put(base, Change(4, {}), Change(5, {})) == {lower: 11, upper: 11}
    with pytest.raises(CatalogError, match=f"source '{parent.id}' has ended at seq 10; open are"):
        base.split(parent.id)
    base.move(upper, "n1")
    assert {info.id: info for info in base.sources()}[upper].node == "n1"
    with pytest.raises(CatalogError, match="no node 'n7'; there are n0, n1"):
        base.move(upper, "n7")
    daughter = base.merge(upper, lower)
    listed = {info.id: info for info in base.sources()}
    assert listed[daughter].parents == {lower, upper} and listed[lower].last == listed[upper].last == 11
    assert put(base, Change(4, {}), Change(5, {})) == {daughter: 12}
    assert len(rows(base)) == 10
    base.forget_sources([parent.id, daughter, SourceId("nobody")])
    assert {info.id for info in base.sources()} == {lower, upper, daughter}


def test_splits_that_leave_a_daughter_without_keys_are_refused(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS, [key(0), key(10)])
    first, second, third = (info.id for info in sorted(base.sources(), key=lambda info: info.id))
    for source, at in ((second, key(0)), (second, key(10)), (second, key(11)), (second, None)):
        with pytest.raises(CatalogError, match="cannot be split there"):
            base.split(source, at)
    with pytest.raises(CatalogError, match="no neighbours"):
        base.merge(first, third)
    with pytest.raises(CatalogError, match="no neighbours"):
        base.merge(first, first)
    assert len(base.sources()) == 3


def test_a_source_that_ends_empty_says_so(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    (parent,) = base.sources()
    base.split(parent.id, key(5))
    assert {info.id: info.last for info in base.sources()}[parent.id] == START


def test_a_source_whose_log_is_trimmed_remembers_where_it_ended(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    (parent,) = base.sources()
    for n in range(3):
        put(base, Change(n, {}))
    base.acknowledge({parent.id: Seq(3), SourceId("nobody"): Seq(1)})
    base.acknowledge({parent.id: Seq(1)})
    assert logs(base) == {parent.id: []} and base.acknowledged(parent.id) == 3
    base.split(parent.id, key(1))
    assert {info.id: info.last for info in base.sources()}[parent.id] == 3


def test_sources_of_nodes_that_are_gone_find_another(tmp_path: Path) -> None:
    first = LmdbStore(tmp_path, nodes=("a", "b", "c"))
    first.base.create_table(ORDERS, [key(n) for n in range(5)])
    assert sorted(info.node for info in first.sources()) == ["a", "a", "b", "b", "c", "c"]
    first.close()
    second = LmdbStore(tmp_path, nodes=("c", "d"))
    assert sorted(info.node for info in second.sources()) == ["c", "c", "c", "d", "d", "d"]
    second.close()


def test_logs_are_read_in_pieces(store: LmdbStore) -> None:
    base = store.base
    base.create_table(ORDERS)
    (source,) = (info.id for info in base.sources())
    for n in range(10):
        put(base, Change(n, {"b": "x" * 1000}))
    (_, entry) = base.read_log(source, START, 0, 99)[0]
    assert [seq for seq, _ in base.read_log(source, START, 0, 99)] == [1]
    assert [seq for seq, _ in base.read_log(source, Seq(4), 3 * len(entry), 99)] == [5, 6, 7]
    assert [seq for seq, _ in base.read_log(source, Seq(4), 1 << 30, 2)] == [5, 6]
    assert base.read_log(source, Seq(10), 1 << 30, 99) == [] == base.read_log(SourceId("nobody"), START, 1, 1)


# --- keys


DAY, NEXT = date(1969, 12, 31), date(2024, 2, 29)
KEYS: list[tuple[list[Column], list[tuple[Any, ...]]]] = [
    ([Column("k", BIGINT)], [(-(2**63),), (-1,), (0,), (1,), (255,), (256,), (2**63 - 1,)]),
    ([Column("k", INT)], [(-(2**31),), (-1,), (0,), (7,), (2**31 - 1,)]),
    ([Column("k", DOUBLE)], [(float("-inf"),), (-1.5,), (-1e-300,), (0.0,), (2.0,), (float("inf"),), (np.nan,)]),
    ([Column("k", STRING)], [("",), ("\0",), ("\0\0",), ("\0a",), ("a",), ("a\0",), ("a\0b",), ("aa",), ("é",)]),
    ([Column("k", BINARY)], [(b"",), (b"\0",), (b"\0\xff",), (b"\1",), (b"\xff",), (b"\xff\xff",)]),
    ([Column("k", BOOLEAN)], [(False,), (True,)]),
    ([Column("k", STRING), Column("n", BIGINT)], [("a", 5), ("a", 6), ("a\0", -9), ("ab", -10), ("b", -11)]),
    ([Column("n", DATE), Column("k", STRING)], [(DAY, "z"), (NEXT, ""), (NEXT, "a"), (date(2024, 3, 1), "")]),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "values"), KEYS, ids=lambda found: str(found)[:40])
def test_encoded_keys_sort_as_their_values(columns: list[Column], values: list[tuple[Any, ...]]) -> None:
    vecs = [
        Vec.from_arrow(pa.array([row[i] for row in values], column.type.arrow), column.type)
        for i, column in enumerate(columns)
    ]
    encoded = encode_keys(vecs, "t")
    assert encoded == sorted(set(encoded))
    if len(columns) > 1:
        firsts = encode_keys(vecs[:1], "t")
        assert all(whole.startswith(first) for whole, first in zip(encoded, firsts, strict=True))


@pytest.mark.parametrize("precision", [10, 30])
def test_encoded_decimals_sort(precision: int) -> None:
    numbers = [-(10 ** (precision - 1)), -1, 0, 1, 2**29, 10 ** (precision - 1)]
    type = decimal(precision, 0)
    vec = Vec.from_arrow(pa.array([Decimal(n) for n in numbers], type.arrow), type)
    encoded = encode_keys([vec], "t")
    assert encoded == sorted(set(encoded))


def test_zeros_and_nans_are_one_key() -> None:
    odd = np.array([np.nan, -np.nan, 0.0, -0.0])
    a, b, c, d = encode_keys([Vec(DOUBLE, odd)], "t")
    assert a == b and c == d


# --- over Flight


def test_base_tables_over_flight(store: LmdbStore) -> None:
    server = StoreServer([StoreService(store), BaseService(store.base)])
    client, reader = BaseClient(server.address), FlightStore(server.address)
    client.create_table(ORDERS, [key(100)])
    assert client.tables() == {"orders": ORDERS}
    written = client.put(ORDERS, changes_of([Change(n, {"a": n, "b": "é"}) for n in range(200)]))
    assert len(written) == 2 and client.put(ORDERS, changes_of([])) == {}
    client.put(ORDERS, changes_of([Change(3, None), Change(4, {"a": None})]))
    client.put(ORDERS, changes_of([Change(5, {"a": -1}, ts=1)]), own_clock=False)
    found = rows(store.base)
    assert len(found) == 199 and [row for row in found if 2 <= row["id"] < 6] == [
        {"id": 2, "a": 2, "b": "é"},
        {"id": 4, "a": None, "b": "é"},
        {"id": 5, "a": 5, "b": "é"},
    ]
    client.add_columns("orders", [Column("c", STRING)])
    narrow = client.put(ORDERS, changes_of([Change(1, {"a": 1})]))
    first = min(narrow)
    lower, upper = client.split(first, key(50))
    client.move(upper, "n1")
    merged = client.merge(lower, upper)
    listed = {info.id: info for info in reader.sources()}
    assert listed[merged].parents == {lower, upper} and listed[upper].node == "n1" and listed[first].last is not None
    reader.forget_sources([first])
    assert first not in {info.id for info in reader.sources()}
    with pytest.raises(CatalogError, match="no base table 'nobody'; there is orders"):
        client.put(replace(ORDERS, name="nobody"), changes_of([Change(1, {})]))
    odd = replace(ORDERS, columns=(*ORDERS.columns[:2], Column("odd", STRING)))
    with pytest.raises(DataError, match="base table 'orders' has no column odd"):
        client.put(odd, changes_of([Change(1, {"odd": "x"})], odd))
    client.drop_table("orders")
    assert client.tables() == {}
    client.close()
    reader.close()
    server.close()


@pytest.mark.parametrize("life", range(3))
def test_calls_that_were_acknowledged_survive_a_kill(tmp_path: Path, life: int) -> None:
    process = child("base_child", str(tmp_path), "1")
    assert process.stdout is not None
    acknowledged = dict.fromkeys(range(base_child.THREADS), 0)
    for count, line in enumerate(process.stdout, 1):
        thread, number = json.loads(line)
        acknowledged[thread] = number
        if count == 20 + 30 * life:
            process.kill()
    process.wait()
    process.stdout.close()
    store = LmdbStore(tmp_path)
    found = {row["id"]: row for row in rows(store.base)}
    for thread, last in acknowledged.items():
        there = found[thread]["a"]
        assert last <= there <= last + 1
        model = Model()
        for number in range(1, there + 1):
            for change in base_child.call(thread, number):
                model.apply(replace(change, ts=number))
        assert [row for key, row in found.items() if key % base_child.THREADS == thread] == model.rows()
    put(store.base, Change(1000, {"a": 1}))
    assert rows(store.base)[-1]["id"] == 1000
    store.close()


# --- the middle of a range


@pytest.mark.parametrize("merge_rows", [1, 10**6])
def test_a_range_is_split_in_the_middle_of_the_rows_that_the_pool_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge_rows: int
) -> None:
    """In memory or in the tree, though many more keys than it looks at or keeps at a time; and nobody waits for it."""
    monkeypatch.setattr(tables, "_PIECE_ROWS", 16)
    monkeypatch.setattr(tables, "_SAMPLE_KEYS", 16)
    store = LmdbStore(tmp_path / "store", collect_pause=0.0, merge_rows=merge_rows)
    base = store.base
    base.create_table(ORDERS)
    put(base, *(Change(number, {"a": 1}) for number in range(200)))
    (source,) = [info.id for info in base.sources()]
    with pytest.raises(CatalogError, match=f"'{source}' cannot be split there: the pool has none of its rows yet"):
        base.split(source)
    take(store, store.base)
    middle, waited = VersionedTables.middle, []

    def busy(*arguments: Any) -> bytes | None:
        writer = threading.Thread(target=put, args=(base, Change(1000, {"a": 1})), daemon=True)
        writer.start()
        writer.join(20.0)
        waited.append(writer.is_alive())
        return middle(*arguments)

    monkeypatch.setattr(VersionedTables, "middle", busy)
    _, upper = base.split(source)
    at = base.open_ranges("orders")[1].start
    assert waited == [False] and key(80) <= at <= key(120)
    base.split(upper)
    assert key(135) <= base.open_ranges("orders")[2].start <= key(180)
    store.close()


def test_keys_are_decoded_again() -> None:
    types = (BIGINT, STRING, INT, DOUBLE, BOOLEAN, decimal(38, 3), DATE, BINARY, decimal(9, 2))
    rows = [
        [-5, "a\0b", 7, -2.5, True, Decimal("-1.250"), date(1969, 12, 31), b"\0\xff\0", Decimal("10115.00")],
        [
            2**63 - 1,
            "",
            -(2**31),
            float("inf"),
            False,
            Decimal("9" * 35 + ".123"),
            date(2024, 2, 29),
            b"",
            Decimal("0.01"),
        ],
    ]
    for row in rows:
        vecs = [Vec.from_arrow(pa.array([value], type.arrow), type) for value, type in zip(row, types, strict=True)]
        encoded = encode_keys(vecs, "t")[0]
        assert decode_key(encoded, types) == row
        assert decode_key(encode_keys(vecs[:3], "t")[0], types) == row[:3]
    with pytest.raises(DataError, match=r"a key ends within column .* \(bigint\)"):
        decode_key(b"\1bc", types)
    with pytest.raises(DataError, match=r"a key ends within column .* \(string\)"):
        decode_key(b"\1bc", (STRING,))
    with pytest.raises(DataError, match="begins with a byte that is neither 00 nor 01"):
        decode_key(b"abc", (STRING,))
