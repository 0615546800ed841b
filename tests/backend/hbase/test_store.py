"""The store in HBase, beyond what every store has to do: it is opened by its URL, HBase's own doings under it change
nothing, history is right at every epoch or refused, and other clients can read its views."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal

import happybase
import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.hbase import documents
from belvedere.backend.hbase import input as input_module
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.layout import pool_tables, state_ids, state_ranges, state_rows, view_table_name
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.opening import HBaseAddress, parse_address
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.store import HBaseStore
from belvedere.backend.hbase.versioned import WriteBatch
from belvedere.backend.hbase.view_encodings import encode_bytes
from belvedere.backend.opening import open_backend, shared_url
from belvedere.backend.seam import RowShape, TableWrite
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.vec import Vec
from belvedere.errors import BelowHorizon, CatalogError, DataError
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.model.stored_rows import view_rows
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.retry import Backoff, Deadline, poll
from belvedere.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, decimal
from tests.backend.conformance.dated import BEGIN, DatedStore, real
from tests.backend.conformance.rows import by_id, ids, read, scan, values, write
from tests.backend.conformance.test_state_tables import Model, compare, step
from tests.backend.hbase.pools import NAMESPACE, make_store
from tests.backend.hbase.server import unique

KINDS = ["hbase-rpc", "hbase-thrift"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, hbase: LocalHBase) -> Iterator[HBaseStore]:
    with ExitStack() as stack:
        yield make_store(request.param, hbase, stack)


# --- opening


def test_a_store_is_opened_by_its_url_and_made_once(hbase: LocalHBase, client: HBase) -> None:
    namespace = unique("opened")
    url = f"hbase://{hbase.zookeeper}/{namespace}"
    gateway = "{}:{}".format(*hbase.thrift)
    first = open_backend(url, pool="tests", base=False)
    second = open_backend(f"{url}?thrift={gateway}&history=60")  # as a client
    try:
        assert first.store.identity() == second.store.identity() == first.within(5.0).identity()
        write(first.store, real(1), {1: b"one"}, logged=True)
        second.within(5.0, None).put_document("name", b"content")
        assert read(second.store, [1]) == [b"one"] and first.store.get_document("name") == b"content"
        assert first.base is None and first.sources.sources() == []
        made = sorted(str(table) for table in client.admin.tables(namespace))
        assert made == sorted(str(table.name) for table, _ in pool_tables(namespace, 60))
        assert len(client.regions.listed(f"{namespace}:_state")) == 16
    finally:
        first.close()
        second.close()
    assert shared_url(url) == url


def test_a_namespace_of_another_pool_is_refused(hbase: LocalHBase, client: HBase) -> None:
    namespace = unique("taken")
    PoolAdmin(client.master, namespace, "another").create_namespace()
    with pytest.raises(CatalogError, match=rf"namespace '{namespace}' of hbase was made by the pool 'another'"):
        open_backend(f"hbase://{hbase.zookeeper}/{namespace}", pool="shop")
    own = f"hbase://{hbase.zookeeper}/{unique('own')}"
    open_backend(own, pool="shop").close()
    with pytest.raises(CatalogError, match=r"of hbase was made by the pool 'shop', and this is the pool 'other'"):
        open_backend(own, pool="other")


def test_urls() -> None:
    assert parse_address("hbase://a,b:2182,c:99/shop") == HBaseAddress("a:99,b:2182,c:99", "shop")
    assert parse_address("hbase://a/s?thrift=t:9090&history=60&znode=/x") == HBaseAddress(
        "a:2181", "s", ("t", 9090), 60, "/x"
    )
    for url, reason in {
        "hbase://": "the quorum and a namespace",
        "hbase://zk": "the quorum and a namespace",
        "hbase://zk/my-pool": "a namespace of letters, digits and _",
        "hbase://zk:x/p": "'zk:x' is no host with a port",
        "hbase://zk/p?thrift=here": "'here' is no host with a port",
        "hbase://zk/p?cells=rpc": "there is no option 'cells'; there are history, state, thrift, znode",
        "hbase://zk/p?history=0": "history is '0'; a number of seconds is needed",
    }.items():
        for opening in (open_backend, shared_url):
            with pytest.raises(DataError, match=reason):
                opening(url)


# --- under flushes, major compactions, and regions that move


class Disturbances:
    """What HBase, or its operators, may do to the tables of a pool at any time."""

    def __init__(self, client: HBase, rng: random.Random, table: str) -> None:
        self._admin, self._rng, self._table = RegionAdmin(client), rng, f"{NAMESPACE}:{table}"
        self._servers = client.admin.servers()

    def one(self) -> str:
        name = self._rng.choice(["flush", "compact", "move"])
        if name == "flush":
            self._admin.flush(self._table)
        elif name == "compact":
            self._admin.major_compact(self._table)
        else:
            for region in self._admin.regions(self._table)[-1:]:  # where the rows of tests are
                other = next(server for server in self._servers if server != region.server)
                self._admin.move(region, other)
        return name


@pytest.mark.parametrize("seed", range(2))
def test_state_is_right_whatever_hbase_does(store: HBaseStore, client: HBase, seed: int) -> None:
    rng, model, bounds = random.Random(seed), Model(), [0, 0]
    hbase_does = Disturbances(client, random.Random(seed), "_state")
    dated, done = DatedStore(store), set()
    for clock in range(1, 50):
        step(rng, dated, model, clock, bounds)  # type: ignore[arg-type]
        if clock % 6 == 0:
            done.add(hbase_does.one())
            compare(rng, dated, model, clock, bounds[0])  # type: ignore[arg-type]
    assert len(done) == 3


@pytest.mark.parametrize("seed", range(2))
def test_history_of_a_view_is_right_at_every_epoch(store: HBaseStore, client: HBase, seed: int) -> None:
    """Far more versions of a row than HBase keeps; flushes, compactions and moves; ranges and reads by id alike."""
    rng, name = random.Random(seed), f"view {unique('sums')} 1"
    state: dict[int, int] = {}
    history: dict[int, dict[int, int]] = {0: {}}
    hbase_does, dated = None, DatedStore(store)
    for epoch in range(1, 41):
        changed = {rng.randrange(12): rng.choice([None, rng.randrange(10**9)]) for _ in range(rng.randrange(1, 5))}
        changed = {key: value for key, value in changed.items() if value != state.get(key)}
        for _ in range(rng.choice([1, 1, 2])):  # an attempt that is repeated writes the same again
            dated.write(epoch, [_view_write(name, changed, state)])
        state = {key: value for key, value in (state | changed).items() if value is not None}
        history[epoch] = state
        if epoch % 10 == 0:
            table = view_table_name(NAMESPACE, name).name
            hbase_does = hbase_does or Disturbances(client, random.Random(seed), table)
            hbase_does.one()
    for epoch, expected in history.items():
        found = _rows(dated.range(name, KeyRange(), epoch + 1))
        assert found == sorted(expected.items())
        keys = list(range(12))
        rows = dated.read(name, _ids(keys), epoch + 1).to_pylist()
        assert dict(zip(keys, rows, strict=True)) == {key: _packed(key, expected.get(key)) for key in keys}
    assert _rows(dated.range(name, KeyRange(limit=2, reverse=True), 41)) == sorted(history[40].items())[::-1][:2]
    assert sum(len(part) for part, _ in dated.scan(name, 0, 1 << 14, 41)) == len(history[40])
    store.drop_tables([name])


def test_history_that_hbase_may_have_forgotten_is_refused(store: HBaseStore) -> None:
    name = f"view {unique('old')} 1"
    long_ago = BEGIN - 7_200_000
    state: dict[int, int] = {}
    for number in range(6):
        store.write(long_ago + number, [_view_write(name, {1: number}, state)])
        state = {1: number}
    assert _rows(store.range(name, KeyRange(), long_ago + 6)) == [(1, 5)]
    assert _rows(store.range(name, KeyRange(), long_ago + 3)) == [(1, 2)]  # it is among the four
    with pytest.raises(BelowHorizon, match=f"below epoch {long_ago + 1} were asked for"):
        _rows(store.range(name, KeyRange(), long_ago + 1))
    with pytest.raises(BelowHorizon):
        store.read(name, _ids([1]), long_ago + 1)
    store.drop_tables([name])


def test_a_late_write_below_a_collected_tombstone_stays_hidden_through_compactions(
    store: HBaseStore, client: HBase
) -> None:
    """By the delete marker: another process may not know of the collection yet."""
    write(store, real(10), {1: b"row", 2: b"row"})
    write(store, real(20), {1: None})
    store.collect(real(40), real(20))
    table = store._tables.get("t")
    assert table is not None
    for _ in range(2):
        RegionAdmin(client).major_compact(f"{NAMESPACE}:_state")
        batch = WriteBatch()
        store._rows.write_state(batch, table, real(10), TableWrite("t", ids(1), values(b"late")))
        store._rows.put(batch)
        assert read(store, [1, 2]) == [None, b"row"] and scan(store) == by_id([(2, b"row")])


# --- views for other clients

TYPES = (
    Column("k", BIGINT, False), Column("_", STRING), Column("i", INT), Column("d", DOUBLE), Column("b", BOOLEAN),
    Column("n", decimal(12, 2)), Column("w", decimal(38, 4)), Column("day", DATE), Column("at", TIMESTAMP),
)  # fmt: skip


def test_other_clients_read_views_with_the_encodings_of_bytes(hbase: LocalHBase) -> None:
    namespace, name = unique("shop"), "view spend 3"
    backend = open_backend(f"hbase://{hbase.zookeeper}/{namespace}", pool="tests", base=False)
    connection = happybase.Connection(*hbase.thrift, timeout=60_000)
    try:
        columns = _columns()
        keys = KeyCodec(TYPES[:1]).encode([columns[0].to_arrow()], 2)
        rows = RowCodec([column.type for column in TYPES]).pack(columns, 2).arrow()
        shape = RowShape(TYPES, (0,))
        backend.store.write(
            real(1), [TableWrite(name, _ids([1, 2]), rows, True, keys, None, shape, pa.nulls(2, pa.binary()))]
        )
        found = connection.table(f"{namespace}:spend.3".encode())
        assert [key for key, _ in found.scan()] == keys.to_pylist()
        row = found.row(keys[0].as_py(), columns=[b"c"], include_timestamp=True)
        assert {stamp for _, stamp in row.values()} == {real(1)}
        value = {qualifier.removeprefix(b"c:"): content for qualifier, (content, _) in row.items()}
        assert struct.unpack(">q", value[b"k"]) == (-5,) and value[b"__"] == "Ærø".encode()
        assert struct.unpack(">i", value[b"i"]) == (-7,) and struct.unpack(">d", value[b"d"]) == (-0.5,)
        assert value[b"b"] == b"\xff" and struct.unpack(">i", value[b"day"]) == (1,)
        assert struct.unpack(">q", value[b"at"]) == (1_000_001,)
        assert value[b"n"] == b"\0\0\0\2\x80" and value[b"w"] == b"\0\0\0\4\0" + b"\xff" * 8
        second = found.row(keys[1].as_py(), columns=[b"c"])
        assert second[b"c:k"] == struct.pack(">q", 6) and second[b"c:i"] == b"" and second[b"c:__"] == b""
        assert second[b"c:_"][:4] == bytes([1, 2, 0b11111110, 0b1])  # a row, two bytes of which columns are NULL
        backend.store.write(
            real(2),
            [TableWrite(name, _ids([2]), pa.nulls(1, pa.binary()), True, keys.slice(1), None, shape, rows.slice(1))],
        )
        assert found.row(keys[1].as_py(), columns=[b"c:_"])[b"c:_"][0] == 0  # gone
        backend.store.collect(real(2), real(2))
        assert found.row(keys[1].as_py(), columns=[b"c"]) == {} and len(list(found.scan(columns=[b"c"]))) == 1
    finally:
        connection.close()
        backend.close()


def _columns() -> tuple[Vec, ...]:
    none = np.array([1, 0], np.uint8)
    wide = np.array([[-1, 0], [0, 0]], np.int64)
    return (
        Vec(BIGINT, np.array([-5, 6])), Vec(STRING, pa.array(["Ærø", ""]), none),
        Vec(INT, np.array([-7, 0], np.int32), none), Vec(DOUBLE, np.array([-0.5, 0]), none),
        Vec(BOOLEAN, np.array([True, False]), none), Vec(decimal(12, 2), np.array([-128, 0]), none),
        Vec(decimal(38, 4), wide, none), Vec(DATE, np.array([1, 0], np.int32), none),
        Vec(TIMESTAMP, np.array([1_000_001, 0]), none),
    )  # fmt: skip


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 255, 256, 10**17, -(10**17), 2**62, -(2**62)])
def test_decimals_are_as_javas_big_integer_writes_them(number: int) -> None:
    (found,) = encode_bytes(Vec(decimal(18, 3), np.array([number]))).to_pylist()
    assert struct.unpack(">i", found[:4]) == (3,)
    assert Decimal(int.from_bytes(found[4:], "big", signed=True)) == number
    assert len(found) == 5 or int.from_bytes(found[5:], "big", signed=True) != number  # none shorter would do


# --- documents


def test_a_document_is_replaced_whatever_the_clocks_say(store: HBaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer whose clock is behind, and one in the millisecond of a removal."""
    store.put_document("a", b"first")
    now = documents.time.time_ns()
    monkeypatch.setattr(documents.time, "time_ns", lambda: now - 10**12)
    store.put_document("a", b"second")
    assert store.get_document("a") == b"second"
    for _ in range(3):
        store.remove_documents(["a"])
        assert store.get_document("a") is None
        store.put_document("a", b"again")
        assert store.get_document("a") == b"again"
    store.put_document("a", b"x" * 2_500_000)
    store.put_document("a", b"short")
    assert store.get_document("a") == b"short" and store.list_documents("") == ["a"]


# --- INPUT


def test_removed_chunks_leave_no_markers_for_long(
    hbase: LocalHBase, client: HBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each removal leaves a delete marker in an index row, over which readers have to step."""
    monkeypatch.setattr(input_module, "_MARKERS", 50)
    namespace = unique("input")
    backend = open_backend(f"hbase://{hbase.zookeeper}/{namespace}", pool="tests", base=False)
    try:
        for number in range(60):
            backend.store.put_chunks([(_chunk(number), b"payload")])
        backend.store.remove_chunks([_chunk(number).id for number in range(55)])
        assert [chunk.id.number for chunk in backend.store.chunks()] == list(range(55, 60))
        cells = RpcCells(client.regions, client.pool)
        everything = Columns("i", (), 1 << 30)

        def stored() -> int:
            return sum(len(piece) for piece in cells.scan(f"{namespace}:_input", b"", None, everything, raw=True))

        assert poll(lambda: stored() == 5, Deadline(120.0), Backoff(0.1, 1.0)), stored()
        assert backend.store.get_chunks([_chunk(59).id]) == [b"payload"]
    finally:
        backend.close()


def _chunk(number: int) -> Chunk:
    return Chunk(ChunkId(WriterId("w"), number), SourceId("s"), Seq(number), Seq(number), 1, 7, 11)


# --- layout


def test_rows_of_a_table_and_a_bucket_stand_together_in_their_order() -> None:
    tag, rng = b"\0tagtagt", np.random.default_rng(1)
    some = rng.integers(0, 2**64, (2000, 2), np.uint64)
    rows = state_rows(tag, some)
    assert (state_ids(rows) == some).all() and (state_ids(rows.slice(100, 5)) == some[100:105]).all()
    order = np.lexsort((some[:, 1], some[:, 0], some[:, 0] % np.uint64(16_384)))
    assert [rows[at].as_py() for at in order.tolist()] == sorted(rows.to_pylist())
    for first, stop in ((0, 16_384), (0, 1), (255, 257), (300, 400), (16_383, 16_384), (7, 7)):
        inside = {row for row in rows.to_pylist() for low, high in state_ranges(tag, first, stop) if low <= row < high}
        bucket = some[:, 0] % np.uint64(16_384)
        assert inside == {rows[at].as_py() for at in np.flatnonzero((bucket >= first) & (bucket < stop)).tolist()}


def test_names_of_views_become_names_that_hbase_allows() -> None:
    odd = [f"view {name} 1" for name in ("_state", "übrig", "a b", "a.b", "a.2eb", "")]
    names = ["view spend 3", "view Spend 3", *odd, "quarantine x 1"]
    found = [view_table_name("n", name).name for name in names]
    assert found[:2] == ["spend.3", "Spend.3"] and len(set(found)) == len(names)
    assert all(name.isascii() and name[0] not in ".-" and " " not in name for name in found)


# --- helpers

SHAPE = RowShape((Column("k", BIGINT), Column("v", BIGINT)), (0,))
_CODEC = RowCodec([BIGINT, BIGINT])


def _ids(keys: list[int]) -> np.ndarray:
    return np.array([(key * 0x9E3779B97F4A7C15 % 2**64, key) for key in keys], np.uint64).reshape(-1, 2)


def _packed(key: int, value: int | None) -> bytes | None:
    if value is None:
        return None
    packed: bytes = _CODEC.pack((Vec(BIGINT, np.array([key])), Vec(BIGINT, np.array([value]))), 1).arrow()[0].as_py()
    return packed


def _view_write(name: str, changed: dict[int, int | None], state: dict[int, int]) -> TableWrite:
    keys = list(changed)
    rows = pa.array([_packed(key, changed[key]) for key in keys], pa.binary())
    before = pa.array([_packed(key, state.get(key)) for key in keys], pa.binary())
    encoded = KeyCodec(SHAPE.schema[:1]).encode([pa.array(keys, pa.int64())], len(keys))
    return TableWrite(name, _ids(keys), rows, True, encoded, None, SHAPE, before)


def _rows(pieces: Iterator[tuple[np.ndarray, pa.BinaryArray]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for part, rows in pieces:
        columns = view_rows(SHAPE.schema, part, rows).columns
        assert (part[:, 1] == columns[0].data.astype(np.uint64)).all()
        found += zip(columns[0].data.tolist(), columns[1].data.tolist(), strict=True)
    return found
