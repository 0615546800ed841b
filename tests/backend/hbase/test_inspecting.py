"""Manifests that are proposed for tables of HBase work as they are."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.inspecting import Guess, Sample, guess, guess_key, inspect, manifest, members
from belvedere.backend.hbase.wal import CellDecoder, read_request
from belvedere.errors import CatalogError
from belvedere.sql.catalog import Catalog
from belvedere.sql.manifest import parse_manifests
from belvedere.sql.origin import Encoding, RowKey
from belvedere.sql.statements import CreateTable
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique
from tests.backend.hbase.wal_blocks import PUT, KeyValue, LogEntry, request

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


def test_a_proposed_manifest_reads_all_of_its_sample() -> None:
    """Through the manifest's reader, and the decoder that the log goes through."""
    moment = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    rows: dict[bytes, dict[tuple[str, bytes], bytes]] = {
        f"{'abcdefgh'[number % 8]}|{number}".encode(): {
            ("d", b"City Name"): "Tromsø".encode(),
            ("d", b"doc"): json.dumps({"zip": number, "who": {"name": "x"}, "open": True}).encode(),
            ("d", b"total"): f"{number}.50".encode(),
            ("n", b"hits"): struct.pack(">q", number),
            ("n", b"total"): struct.pack(">q", moment + number),
            ("n", b"\xff\0"): b"not a name",
        }
        for number in range(40)
    }
    cells: dict[tuple[str, bytes], list[bytes]] = {}
    for held in rows.values():
        for name, value in held.items():
            cells.setdefault(name, []).append(value)
    text = manifest(TableName.parse("shop:Visits.2026"), Sample(list(rows), cells, 2), ["a TTL"], scoped=False)
    assert "# 40 rows of 2 regions were read" in text and "Left out: cells n:\\xFF\\x00" in text
    assert "# To look at: a TTL" in text
    (read,) = parse_manifests(text, Catalog)
    assert isinstance(read.content, CreateTable)
    table = read.content.table
    assert table.name == "visits_2026" and table.key == ("key1", "key2") and table.origin is not None
    assert (table.origin.table, table.origin.set_scope) == ("shop:Visits.2026", True)
    assert [(c.name, str(c.type)) for c in table.columns[2:]] == [
        ("city_name", "string"), ("zip", "bigint"), ("open", "boolean"), ("total", "decimal(20,2)"),
        ("hits", "bigint"), ("n_total", "timestamp"),
    ]  # fmt: skip
    keyvalues = [
        KeyValue(row, family.encode(), qualifier, 5, PUT, value)
        for row, held in rows.items()
        for (family, qualifier), value in held.items()
    ]
    decoder = CellDecoder(table)
    (run,) = read_request(*request([LogEntry(b"shop:Visits.2026", b"r", 1, keyvalues)]), lambda _: decoder)
    assert not run.unreadable and len(run.rows.changes) == 40
    found = run.rows.resolve(table)
    assert all(vec.status is None or (vec.status <= 1).all() for vec in found.columns)
    values = [vec.to_arrow().to_pylist()[7] for vec in found.columns]
    assert values[:5] == ["h", 7, "Tromsø", 7, True] and str(values[5]) == "7.50" and values[6] == 7


def test_tables_that_tell_nothing(client: HBase, users: UserTables) -> None:
    name = TableName("default", unique("empty"))
    users.create(TableDescriptor(name, (Family("f", {"TTL": "100"}),)))
    with pytest.raises(CatalogError, match="has no rows, so nothing tells what is in it"):
        inspect(client, name.name, 10)
    with pytest.raises(CatalogError, match=f"there is no hbase table '{name.name}x'; there is {name.name}"):
        inspect(client, name.name + "x", 10)
