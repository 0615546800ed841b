"""Manifests that are proposed for tables of a real HBase work as they are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.inspecting import Guess, guess, guess_key, inspect, members
from belvedere.errors import CatalogError
from belvedere.sql.origin import Encoding, RowKey
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique

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


def test_tables_that_tell_nothing(client: HBase, users: UserTables) -> None:
    name = TableName("default", unique("empty"))
    users.create(TableDescriptor(name, (Family("f", {"TTL": "100"}),)))
    with pytest.raises(CatalogError, match="has no rows, so nothing tells what is in it"):
        inspect(client, name.name, 10)
    with pytest.raises(CatalogError, match=f"there is no hbase table '{name.name}x'; there is {name.name}"):
        inspect(client, name.name + "x", 10)
