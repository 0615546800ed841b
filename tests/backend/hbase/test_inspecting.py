"""Manifests that are proposed for tables of a real HBase work as they are."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import happybase
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.inspecting import Guess, guess, guess_key, inspect, members
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.cli.main import main
from belvedere.errors import CatalogError
from belvedere.sql.origin import Encoding, RowKey
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.followed_pool import FollowingPool
from tests.backend.hbase.server import unique
from tests.cluster.real import until

E = Encoding


def packed(form: str, *values: Any) -> list[bytes]:
    return [struct.pack(form, value) for value in values]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([b"1", b"-20", b"0"], Guess(E.TEXT, BIGINT)),
        ([b"1.5", b"20", b"-0.25"], Guess(E.TEXT, decimal(20, 2))),
        ([b"2026-01-02"], Guess(E.TEXT, DATE)),
        ([b"2026-01-02 03:04:05"], Guess(E.TEXT, TIMESTAMP)),
        ([b"true", b"false"], Guess(E.TEXT, BOOLEAN)),
        ([b"Oslo", "Tromsø".encode(), b""], Guess(E.TEXT, STRING)),
        ([b"007", b"008"], Guess(E.TEXT, STRING)),
        (packed(">q", 7, -3, 2**40), Guess(E.LONG, BIGINT)),
        (packed(">q", 1_750_000_000_000), Guess(E.MILLIS, TIMESTAMP)),
        (packed(">d", 1.5, -2e6, 0.0), Guess(E.DOUBLE, DOUBLE)),
        (packed(">i", 7, -3), Guess(E.INT, INT)),
        (packed(">f", 1.5, 20.0), Guess(E.FLOAT, DOUBLE)),
        (packed(">h", 7, -3), Guess(E.SHORT, INT)),
        ([b"\0", b"\xff"], Guess(E.BOOLEAN, BOOLEAN)),
        ([b"\0\0\0\2\x04\xe2", b"\0\0\0\0\x01"], Guess(E.DECIMAL, decimal(38, 2))),
        ([b"\0\xff\xfe", b"x"], Guess(E.RAW, BINARY)),
        ([], Guess(E.RAW, BINARY)),
    ],
)
def test_cells(values: list[bytes], wanted: Guess) -> None:
    assert guess(values) == wanted


@given(st.lists(st.binary(max_size=20), max_size=10), st.lists(st.binary(max_size=20), min_size=1, max_size=10))
def test_whatever_bytes_there_are_something_reads_them(cells: list[bytes], keys: list[bytes]) -> None:
    guess(cells)
    members(cells)
    assert guess_key(keys)[1]


def test_members_of_json_that_are_values() -> None:
    cells = [b'{"id": 7, "place": {"city": "Oslo"}, "name": "a", "price": 1.5, "tags": []}', b'{"id": 8, "price": 2}']
    assert members(cells) == [
        Guess(E.JSON, BIGINT, "id"), Guess(E.JSON, STRING, "name"), Guess(E.JSON, DOUBLE, "price"),
    ]  # fmt: skip
    assert members([b"7"]) == [] and members([b"{"]) == []


def test_row_keys() -> None:
    def shown(*keys: bytes) -> tuple[RowKey, list[tuple[str, str]]]:
        form, parts = guess_key(keys)
        return form, [(stored.encoding.value, str(type)) for stored, type in parts]

    assert shown(b"a|7|x", b"b|10|y-z") == (
        RowKey(delimiter="|"),
        [("text", "string"), ("text", "bigint"), ("text", "string")],
    )
    assert shown(b"order-1", b"order") == (RowKey(), [("text", "string")])
    assert shown(b"1", b"22") == (RowKey(), [("text", "bigint")])
    assert shown(b"01", b"22") == (RowKey(), [("text", "string")])
    assert shown(*packed(">q", 1, 2**40)) == (RowKey(), [("long", "bigint")])
    assert shown(b"\x34ab\0\x2c" + bytes(8)) == (RowKey(), [("ordered", "string"), ("ordered", "bigint")])
    assert shown(b"\xff\0\1") == (RowKey(), [("raw", "binary")])


@pytest.fixture(scope="module")
def visits(hbase: LocalHBase, users: UserTables) -> str:
    name = TableName("default", unique("Visits"))
    quiet = {"hbase.hstore.compaction.min": "1000"}
    users.create(TableDescriptor(name, (Family("d"), Family("n")), configuration=quiet), [b"d"])
    connection = happybase.Connection(*hbase.thrift, timeout=60_000)
    table = connection.table(name.name)
    moment = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    for number in range(40):
        row = f"{'abcdefgh'[number % 8]}|{number}".encode()
        table.put(
            row,
            {
                b"d:city": b"Oslo",
                b"d:doc": json.dumps({"zip": number, "who": {"name": "x"}, "open": True}).encode(),
                b"d:total": f"{number}.50".encode(),
                b"n:hits": struct.pack(">q", number),
                b"n:at": struct.pack(">q", moment + number),
                b"n:\xff\0": b"not a name",
            },
        )
    connection.close()
    return name.name


def test_a_proposed_manifest_is_applied_and_reads_the_table(hbase: LocalHBase, visits: str) -> None:
    url = f"hbase://{hbase.zookeeper}/nowhere"
    done = CliRunner().invoke(main, ["inspect", "hbase", visits, "--store", url])
    assert done.exit_code == 0, done.output
    manifest = yaml.safe_load(done.output)
    spec = manifest["spec"]
    assert spec["hbase"] == {"table": visits, "setReplicationScope": True, "rowKey": {"delimiter": "|"}}
    assert {c["name"]: (c["type"], c.get("cell"), c["encoding"], c.get("member")) for c in spec["columns"]} == {
        "key1": ("string", None, "text", None),
        "key2": ("bigint", None, "text", None),
        "city": ("string", "d:city", "text", None),
        "zip": ("bigint", "d:doc", "json", "zip"),
        "open": ("boolean", "d:doc", "json", "open"),
        "total": ("decimal(20,2)", "d:total", "text", None),
        "at": ("timestamp", "n:at", "millis", None),
        "hits": ("bigint", "n:hits", "long", None),
    }
    assert "# 40 rows of 2 regions were read" in done.output and "Left out: cells n:\\xFF\\x00" in done.output
    pool = FollowingPool(hbase, unique("peer"))
    try:
        pool.whole()
        name = manifest["metadata"]["name"].replace("-", "_")
        view = f"""---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {{name: whole}}
spec:
  query: SELECT key2, key1, city, zip, open, total, hits, year(at) AS y FROM {name}
"""
        pool.apply(done.output + view)
        until(lambda: len(pool.view("whole")) == 40, 60.0, "all rows")
        assert sorted(pool.view("whole"))[7][:5] == (7, "h", "Oslo", 7, True)
        assert {row[-1] for row in pool.view("whole")} == {2026}
    finally:
        pool.close()


def test_tables_that_tell_nothing(client: HBase, users: UserTables) -> None:
    name = TableName("default", unique("empty"))
    users.create(TableDescriptor(name, (Family("f", {"TTL": "100"}),)))
    with pytest.raises(CatalogError, match="has no rows, so nothing tells what is in it"):
        inspect(client, name.name, 10)
    with pytest.raises(CatalogError, match=f"there is no hbase table '{name.name}x'; there is {name.name}"):
        inspect(client, name.name + "x", 10)
