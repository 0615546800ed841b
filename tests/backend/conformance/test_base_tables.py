"""Base tables that a backend owns: definitions, writes that become entries of logs, key ranges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError, RequestReused
from belvedere.model.base_keys import encode_keys
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, STRING, Column
from tests.backend.conformance.conftest import NODES, Owner
from tests.backend.served.base_changes import ORDERS, Change, changes_of, keys_of, logged, rows_of, take


def key(number: int) -> bytes:
    return encode_keys(keys_of(number), "t")[0]


def put(owner: Owner, *changes: Change, own_clock: bool = True, request: str = "") -> dict[SourceId, Seq]:
    return dict(owner.base.put(ORDERS, changes_of(changes), own_clock=own_clock, request=request))


def test_definitions_can_be_repeated_and_others_are_refused(owner: Owner) -> None:
    base = owner.base
    assert base.tables() == {}
    base.create_table(ORDERS, [key(10)])
    base.create_table(ORDERS)
    assert base.tables() == {"orders": ORDERS} and len(base.ranges("orders")) == 2
    with pytest.raises(CatalogError, match="'orders' exists already, with other columns or another key"):
        base.create_table(replace(ORDERS, columns=ORDERS.columns[:2]))
    with pytest.raises(CatalogError, match="'keyless' needs a primary key"):
        base.create_table(TableDef("keyless", ORDERS.columns, ()))
    wider = replace(ORDERS, columns=(*ORDERS.columns, Column("c", STRING)))
    for _ in range(2):
        base.add_columns("orders", wider.columns[3:])
    assert base.tables() == {"orders": wider}
    with pytest.raises(CatalogError, match="has a column 'c' of type string already"):
        base.add_columns("orders", [Column("c", BIGINT)])
    for _ in range(2):
        base.drop_table("orders")
    assert base.tables() == {}
    with pytest.raises(CatalogError, match="no base table 'orders'; there is nothing yet"):
        put(owner, Change(1, {}))


def test_a_write_is_one_entry_in_each_range_that_it_touches(owner: Owner) -> None:
    owner.base.create_table(ORDERS, [key(0)])
    lower, upper = (range.source for range in owner.base.ranges("orders"))
    written = [
        put(owner, *(Change(number, {"a": number}) for number in numbers)) for numbers in ([-1], [1, 2], [-2, 3])
    ]
    assert [set(one) for one in written] == [{lower}, {upper}, {lower, upper}] and put(owner) == {}
    assert len(set(written[2].values())) == 1
    seqs = [max(one.values()) for one in written]
    assert seqs == sorted(set(seqs)) and seqs[0] > START
    found = {source: [seq for seq, _ in owner.log.read_log(source, START, 1 << 30, 99)] for source in (lower, upper)}
    assert found == {lower: [seqs[0], seqs[2]], upper: [seqs[1], seqs[2]]}
    assert [row["id"] for row in rows_of(owner.log)] == [-2, -1, 1, 2, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize("splits", [[], [0]])
def test_puts_and_deletes_of_one_call_happen_in_their_order(owner: Owner, splits: list[int]) -> None:
    """Each has its own tick of the clock, in one range and in several; the next call comes after all of them."""
    owner.base.create_table(ORDERS, [key(split) for split in splits])
    put(owner, *(Change(number, {"a": number}) for number in (-2, -1, 1, 2)))
    put(owner, Change(-1, None), Change(1, None), Change(-1, {"a": 5}), Change(1, {"a": 6}), Change(2, None))
    put(owner, Change(2, {"b": "again"}))
    found = {row["id"]: (row["a"], row["b"]) for row in rows_of(owner.log)}
    assert found == {-2: (-2, None), -1: (5, None), 1: (6, None), 2: (None, "again")}
    ticks = sorted(int(ts) for changes in logged(owner.log)[-2 - len(splits) : -1] for ts in changes.ts)
    assert ticks == list(range(ticks[0], ticks[0] + 5))
    assert int(logged(owner.log)[-1].ts[0]) > ticks[-1]


def test_columns_that_came_later_are_unchanged_by_who_does_not_know_them(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    owner.base.add_columns("orders", [Column("c", STRING)])
    put(owner, Change(1, {"a": 1}))
    wider = owner.base.tables()["orders"]
    owner.base.put(wider, changes_of([Change(1, {"c": "new"})], wider))
    put(owner, Change(1, {"b": "x"}))
    assert rows_of(owner.log, wider) == [{"id": 1, "a": 1, "b": "x", "c": "new"}]  # type: ignore[arg-type]


def test_timestamps_are_given_or_grow(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    put(owner, Change(1, {"a": 1}, ts=7), Change(2, {"a": 1}, ts=5), own_clock=False)
    for _ in range(3):
        put(owner, Change(1, {"a": 2}))
        put(owner, Change(1, None), Change(1, {"a": 3}), Change(2, {"b": ""}))
    stamps = [changes.ts.tolist() for changes in logged(owner.log)]  # type: ignore[arg-type]
    assert stamps[0] == [7, 5]
    later = [stamp for one in stamps[1:] for stamp in one]
    assert later == sorted(set(later)) and later[0] > 1_700_000_000_000_000


def test_a_request_happens_once(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    first = put(owner, Change(1, {"b": "anna"}), request="one")
    put(owner, Change(1, {"b": "ben"}), request="two")
    assert put(owner, Change(1, {"b": "anna"}), request="one") == first
    assert rows_of(owner.log) == [{"id": 1, "a": None, "b": "ben"}]  # type: ignore[arg-type]
    assert put(owner, Change(2, {})) != put(owner, Change(2, {}))  # without a name a write is another one
    with pytest.raises(DataError, match="more than 64 bytes"):
        put(owner, Change(1, {}), request="x" * 65)


def test_a_request_is_found_by_its_name_and_refused_for_something_else(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    assert owner.base.written("one") is None
    first = put(owner, Change(1, {"b": "anna"}), request="one:digest-a")
    assert dict(owner.base.written("one") or {}) == first
    assert put(owner, Change(1, {"b": "anna"}), request="one:digest-a") == first
    assert put(owner, Change(1, {"b": "anna"}), request="one") == first
    with pytest.raises(RequestReused, match="by the name 'one'"):
        put(owner, Change(1, {"b": "ben"}), request="one:digest-b")
    assert owner.base.written("two") is None and owner.base.written("") is None
    assert rows_of(owner.log, ORDERS) == [{"id": 1, "a": None, "b": "anna"}]  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_whole(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    given = changes_of([Change(1, {"a": 1}), Change(2, {})])
    null = replace(given, columns=(Vec(BIGINT, np.array([1, 2]), np.array([1, 0], np.uint8)), *given.columns[1:]))
    with pytest.raises(DataError, match="a key of base table 'orders' holds NULL"):
        owner.base.put(ORDERS, null)
    other = replace(ORDERS, columns=(ORDERS.columns[0], Column("a", STRING), ORDERS.columns[2]))
    text = replace(given, columns=(given.columns[0], Vec(STRING, pa.array(["x", "y"])), given.columns[2]))
    with pytest.raises(DataError, match="column 'a' of base table 'orders' is bigint, values are string"):
        owner.base.put(other, text)
    assert not logged(owner.log)  # type: ignore[arg-type]


def test_keys_may_be_long(owner: Owner) -> None:
    table = TableDef("long", (Column("k", STRING, False),), ("k",))
    owner.base.create_table(table, [encode_keys([Vec(STRING, pa.array(["x" * 5000]))], "t")[0]])
    changes = replace(
        changes_of([Change(0, {})] * 2, TableDef("x", (), ())),
        columns=(Vec(STRING, pa.array(["x" * 6000, "x" * 4000])),),
        present=(None,),
    )
    assert len(owner.base.put(table, changes)) == 2


def test_ranges_are_split_merged_and_moved(owner: Owner) -> None:
    base = owner.base
    base.create_table(ORDERS)
    (whole,) = base.ranges("orders")
    assert (whole.start, whole.stop) == (b"", None) and whole.node in NODES
    with pytest.raises(CatalogError, match="cannot be split there: the pool has none of its rows yet"):
        base.split(whole.source)
    last = max(put(owner, *(Change(number, {"a": 1}) for number in range(100))).values())
    take(owner.store, owner.log)  # type: ignore[arg-type]
    lower, upper = base.split(whole.source)
    assert [range.start for range in base.ranges("orders")] == [b"", key(50)]
    _, third = base.split(upper, key(75))
    assert [range.stop for range in base.ranges("orders")] == [key(50), key(75), None]
    assert len(put(owner, Change(1, {}), Change(60, {}), Change(80, {}))) == 3
    for at in (key(50), key(51), b""):
        with pytest.raises(CatalogError, match="both daughters need a part of its keys"):
            base.split(lower, at)
    with pytest.raises(CatalogError, match=f"'{whole.source}' has ended at seq {last}"):
        base.split(whole.source, key(60))
    with pytest.raises(CatalogError, match="are no neighbours"):
        base.merge(lower, third)
    with pytest.raises(CatalogError, match="there is no node 'nowhere'; there are n0, n1, n2"):
        base.move(lower, "nowhere")
    base.move(lower, "n2")
    assert base.ranges("orders")[0].node == "n2"
    middle = base.ranges("orders")[1].source
    one = base.merge(middle, lower)
    assert [(range.source, range.stop) for range in base.ranges("orders")] == [(one, key(75)), (third, None)]
    with pytest.raises(CatalogError, match="no base table 'nobody'"):
        base.ranges("nobody")
