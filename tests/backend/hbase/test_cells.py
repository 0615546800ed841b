"""Cells in batches, both ways that they travel: the same tests for our RPC client and for the Thrift gateway."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.keyvalues import PUT, KeyValues, cells_of
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.thrift_cells import ThriftCells
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique

C = Columns("c", (b"_",))
SPLITS = (b"d", b"h", b"p")


@pytest.fixture(params=["rpc", "thrift"])
def cells(request: pytest.FixtureRequest, hbase: LocalHBase, client: HBase) -> Iterator[Cells]:
    made: Cells = RpcCells(client.regions, client.pool) if request.param == "rpc" else ThriftCells(*hbase.thrift)
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared_table(users: UserTables) -> str:
    """Four regions, four versions."""
    name = unique("cells")
    users.create(TableDescriptor(TableName("default", name), (Family("c", {"VERSIONS": "4"}),)), SPLITS)
    return name


@pytest.fixture
def table(shared_table: str) -> str:
    """Tests use rows with a prefix of their own (`named`), as making a table takes half a second."""
    return shared_table


class Rows:
    """Rows of one test: every letter of the four regions, and what no other test has behind it."""

    def __init__(self) -> None:
        self.suffix = unique("").encode()

    def __call__(self, *names: str) -> pa.BinaryArray:
        return pa.array([name.encode() + self.suffix for name in names], pa.binary())


@pytest.fixture
def rows() -> Rows:
    return Rows()


def binary(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def put(cells: Cells, table: str, rows: pa.BinaryArray, stamp: int, value: bytes = b"v") -> None:
    cells.put(table, cells_of(rows, b"c", b"_", stamp, PUT, binary(*[value] * len(rows))))


def listed(found: KeyValues) -> list[tuple[bytes, bytes, int, bytes]]:
    parts = (found.row.to_pylist(), found.qualifier.to_pylist(), found.timestamp.tolist(), found.value.to_pylist())
    return list(zip(*parts, strict=True))


def test_what_was_put_is_read_as_it_was_asked_for(cells: Cells, table: str, rows: Rows) -> None:
    wanted = rows("z", "a", "m", "e", "d", "h", "p")
    cells.put(table, cells_of(wanted, b"c", b"_", 7, PUT, binary(*[b"of " + row for row in wanted.to_pylist()])))
    found = cells.get(table, wanted, C)
    assert listed(found) == [(row, b"_", 7, b"of " + row) for row in wanted.to_pylist()]
    assert found.family.to_pylist() == [b"c"] * 7
    assert listed(cells.get(table, rows("b", "a", "x", "z"), C)) == [
        (row, b"_", 7, b"of " + row) for row in rows("a", "z").to_pylist()
    ]
    assert len(cells.get(table, rows(), C)) == 0 == len(cells.get(table, rows("none"), C))


def test_versions_are_counted_and_bounded(cells: Cells, table: str, rows: Rows) -> None:
    wanted = rows("a", "q")
    for stamp in (30, 10, 20, 10):
        put(cells, table, wanted, stamp, b"%d" % stamp)
    put(cells, table, rows("a"), 40, b"40")
    a, q = wanted.to_pylist()
    assert [one[2] for one in listed(cells.get(table, wanted, C))] == [40, 30]
    assert [one[2] for one in listed(cells.get(table, wanted, Columns("c", (b"_",), below=20)))] == [10, 10]
    deep = Columns("c", (b"_",), versions=3, deep=20)
    assert [(one[0], one[2]) for one in listed(cells.get(table, wanted, deep))] == [
        (a, 40), (a, 30), (a, 20), (q, 30), (q, 20), (q, 10),
    ]  # fmt: skip
    shallow = listed(cells.get(table, wanted, Columns("c", (b"_",), versions=3, deep=35)))
    assert [one[2] for one in shallow if one[0] == a] == [40, 30, 20]  # the other may have one or three


def test_a_row_of_many_columns_and_timestamps(cells: Cells, table: str, rows: Rows) -> None:
    (row,) = rows("k").to_pylist()
    names = [b"a", b"b", b"c:d", b"\xff\x00"]
    stamps = np.array([3, 3, 4, 5])
    many = KeyValues(
        binary(*[row] * 4), binary(*[b"c"] * 4), binary(*names), stamps, np.full(4, PUT, np.uint8),
        binary(b"1", b"", b"3", b"\0"),
    )  # fmt: skip
    cells.put(table, many)
    everything = [(row, b"a", 3, b"1"), (row, b"b", 3, b""), (row, b"c:d", 4, b"3"), (row, b"\xff\x00", 5, b"\0")]
    assert listed(cells.get(table, binary(row), Columns("c"))) == everything
    assert listed(cells.get(table, binary(row), Columns("c", (b"b", b"\xff\x00")))) == [everything[1], everything[3]]
    assert scanned(cells, table, row, row + b"\0", Columns("c", first=2)) == everything[:2]
    cells.delete(table, binary(row), "c", [b"a"], [3])
    cells.delete(table, binary(row), "c", [b"c:d"], [3])  # older than it
    assert listed(cells.get(table, binary(row), Columns("c"))) == everything[1:]
    cells.delete(table, binary(row), "c", None, [4])
    assert listed(cells.get(table, binary(row), Columns("c"))) == everything[3:]


def test_deletes_leave_what_is_newer(cells: Cells, table: str, rows: Rows) -> None:
    wanted = rows("a", "i", "z")
    for stamp in (10, 20):
        put(cells, table, wanted, stamp)
    cells.delete(table, wanted, "c", None, [10, 20, 15])
    a, _, z = wanted.to_pylist()
    left = listed(cells.get(table, wanted, Columns("c")))
    assert [(one[0], one[2]) for one in left] == [(a, 20), (z, 20)]
    put(cells, table, wanted, 15)  # below the marker, or hidden by what is newer
    put(cells, table, wanted.slice(1, 1), 21)
    assert [one[2] for one in listed(cells.get(table, wanted, C))] == [20, 21, 20]
    cells.delete(table, rows(), "c", None, [])


def scanned(cells: Cells, table: str, start: bytes, stop: bytes | None, columns: Columns = C, **more: object) -> list:
    found = []
    for piece in cells.scan(table, start, stop, columns, **more):  # type: ignore[arg-type]
        assert len(piece)
        found += listed(piece)
    return found


@pytest.fixture(scope="module")
def filled(users: UserTables, client_of_module: HBase) -> tuple[str, list[bytes]]:
    """A table of 1,800 rows in four regions, some of which begin with others."""
    name = unique("scanned")
    users.create(TableDescriptor(TableName("default", name), (Family("c"),)), SPLITS)
    keys = sorted(
        {b"%c%03d" % (letter, number) for letter in b"adehpz" for number in range(100)}
        | {b"%c%03d\0" % (letter, number) for letter in b"adehpz" for number in range(100)}
        | {b"%c%03d\xff'" % (letter, number) for letter in b"adehpz" for number in range(100)}
    )
    made = RpcCells(client_of_module.regions, client_of_module.pool)
    made.put(name, cells_of(binary(*keys), b"c", b"_", 5, PUT, binary(*keys)))
    return name, keys


def test_scans_give_rows_in_order_over_all_regions(cells: Cells, filled: tuple[str, list[bytes]]) -> None:
    name, keys = filled
    assert scanned(cells, name, b"", None) == [(key, b"_", 5, key) for key in keys]
    assert [one[0] for one in scanned(cells, name, b"", None, reverse=True)] == keys[::-1]
    assert [one[0] for one in scanned(cells, name, b"", None, keys_only=True)] == keys
    assert scanned(cells, name, b"", None, Columns("c", (b"_",), below=5)) == []


@pytest.mark.parametrize("limit", [None, 0, 1, 7, 1300])
def test_ranges_and_limits(cells: Cells, filled: tuple[str, list[bytes]], limit: int | None) -> None:
    name, keys = filled
    bounds = [b"", b"a", b"a050", b"a050\0", b"a050\xff'", b"d", b"d000", b"h", b"h099\xff'", b"p", b"p1", b"zz", None]
    for at, start in enumerate(bounds[:-1]):
        for stop in bounds[at:]:
            assert start is not None
            wanted = [key for key in keys if start <= key and (stop is None or key < stop)]
            for reverse in (False, True):
                found = scanned(cells, name, start, stop, limit=limit, reverse=reverse)
                expected = (wanted[::-1] if reverse else wanted)[:limit]
                assert [one[0] for one in found] == expected, (start, stop, reverse)


def test_regions_that_move_split_and_merge_are_found_again(
    cells: Cells, users: UserTables, client: HBase, rows: Rows
) -> None:
    name = unique("moving")
    users.create(TableDescriptor(TableName("default", name), (Family("c"),)), [b"m"])
    admin, keys = RegionAdmin(client), binary(*[b"%c%d" % (letter, n) for letter in b"agmt" for n in range(200)])
    put(cells, name, keys, 1)
    lower, upper = admin.regions(name)
    servers = client.admin.servers()
    for region in (lower, upper):
        admin.move(region, next(server for server in servers if server != region.server))
    put(cells, name, keys, 2)
    assert set(cells.get(name, keys, C).timestamp.tolist()) == {2}
    scan = cells.scan(name, b"", None, C)
    first = next(scan)
    daughters = admin.split(admin.regions(name)[0], b"g")
    assert [one.start for one in daughters] == [b"", b"g"]
    assert sum(map(len, scan)) + len(first) == len(keys)
    put(cells, name, keys, 3)
    assert [one[2] for one in scanned(cells, name, b"", None, reverse=True)] == [3] * len(keys)
    admin.major_compact(name)  # daughters refer to files of their parent until then, and cannot be merged
    admin.merge(*admin.regions(name)[:2])
    put(cells, name, keys, 4)
    admin.flush(name)
    assert set(cells.get(name, keys, C).timestamp.tolist()) == {4}
    assert len(scanned(cells, name, b"", None)) == len(keys)


def test_what_hbase_will_never_do_is_said_at_once(cells: Cells, table: str, rows: Rows) -> None:
    with pytest.raises(Refused, match=r"NoSuchColumnFamily"):
        cells.put(table, cells_of(rows("a"), b"nobody", b"_", 1, PUT, binary(b"x")))


def test_big_batches(cells: Cells, table: str, rows: Rows) -> None:
    many = rows(*[f"{letter}{n}" for letter in "adhz" for n in range(5000)])
    values = binary(*[b"%030d" % n for n in range(len(many))])
    cells.put(table, cells_of(many, b"c", b"_", 9, PUT, values))
    order = np.random.default_rng(1).permutation(len(many))
    assert cells.get(table, many.take(pa.array(order)), C).value.equals(values.take(pa.array(order)))
    big = binary(b"x" * 3_000_000, b"y" * 3_000_000, b"z" * 3_000_000, b"w" * 3_000_000)
    cells.put(table, cells_of(rows("a", "e", "i", "q"), b"c", b"_", 9, PUT, big))
    assert cells.get(table, rows("a", "e", "i", "q"), C).value.equals(big)
    pieces = list(cells.scan(table, b"", None, C))
    assert len(pieces) > 4  # of one region at least, and of about so many bytes or rows
    assert len({row for piece in pieces for row in piece.row.to_pylist()}) == sum(map(len, pieces)) >= 20_004
