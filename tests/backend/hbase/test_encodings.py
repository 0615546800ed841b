"""Each encoding of cells and row keys, against the bytes that HBase's own classes write, and what cannot be read."""

from __future__ import annotations

import io
import json
import math
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.backend.hbase.cell_values import read_columns
from belvedere.backend.hbase.local.jars import find_classes, missing_tool
from belvedere.backend.hbase.row_keys import KeyPart, RowKeyReader, row_keys
from belvedere.engine.vec import Status, Vec
from belvedere.errors import CatalogError, DataError, StoreUnavailable
from belvedere.local.java import java_command
from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import Encoding, Origin, RowKey, StoredColumn
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, Type, decimal

E = Encoding
Encode = Callable[[str, Sequence[Any]], list[bytes]]


@pytest.fixture(scope="module")
def java() -> Iterator[Encode]:
    """HBase's `Bytes` and `OrderedBytes`, in a process that lives as long as these tests."""
    lacking = missing_tool()
    if lacking is not None:
        pytest.skip(lacking)
    try:
        classes = find_classes()
    except StoreUnavailable as missing:
        pytest.skip(str(missing))
    command = [java_command() or "", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}/*"]
    process = subprocess.Popen(
        [*command, str(Path(__file__).parent / "java" / "Encode.java")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None

    def encode(kind: str, values: Sequence[Any]) -> list[bytes]:
        assert process.stdin is not None and process.stdout is not None
        out = []
        for value in values:
            print(kind, value, file=process.stdin, flush=True)
            out.append(bytes.fromhex(process.stdout.readline()))
        return out

    yield encode
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdout.close()


def block(values: Sequence[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes that hold them with something between, and where they are."""
    at, size, data = [], [], b"#"
    for value in values:
        at.append(-1 if value is None else len(data))
        size.append(len(value or b""))
        data += (value or b"") + b"#"
    return np.frombuffer(data, np.uint8).copy(), np.array(at, np.int64), np.array(size, np.int64)


def shown(vec: Vec) -> list[Any]:
    """Values; the code in place of an error."""
    codes = np.ones(len(vec), np.uint8) if vec.status is None else vec.status
    return [
        None if code == Status.NULL else value if code == Status.VALUE else Status(code)
        for value, code in zip(vec.to_arrow().to_pylist(), codes.tolist(), strict=True)
    ]


def read(encoding: Encoding, type: Type, *values: bytes | None) -> list[Any]:
    (vec,) = read_columns(*block(values), [(StoredColumn(encoding, "f", "q"), type)])
    return shown(vec)


UNREADABLE = Status.UNREADABLE
whole = st.integers
FIXED: list[tuple[Encoding, Type, st.SearchStrategy[Any]]] = [
    (E.SHORT, INT, whole(-(2**15), 2**15 - 1)),
    (E.SHORT, BIGINT, whole(-(2**15), 2**15 - 1)),
    (E.INT, INT, whole(-(2**31), 2**31 - 1)),
    (E.INT, BIGINT, whole(-(2**31), 2**31 - 1)),
    (E.LONG, BIGINT, whole(-(2**63), 2**63 - 1)),
    (E.DOUBLE, DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
    (E.FLOAT, DOUBLE, st.floats(width=32, allow_nan=False, allow_infinity=False)),
    (E.BOOLEAN, BOOLEAN, st.booleans()),
]


@pytest.mark.parametrize(("encoding", "type", "values"), FIXED, ids=lambda x: str(x) if isinstance(x, E) else "")
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_numbers_as_hbase_writes_them(
    java: Encode, encoding: Encoding, type: Type, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(values, min_size=1, max_size=20))
    cells = java(encoding.value, [str(value).lower() for value in wanted])
    assert repr(read(encoding, type, None, *cells, cells[0] + b"\0", b"")) == repr(
        [None, *wanted, UNREADABLE, UNREADABLE]
    )


decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal(-(10**30)), max_value=Decimal(10**30))


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(decimals, min_size=1, max_size=20), scale=st.integers(0, 8))
def test_big_decimals_of_any_scale_are_rounded_as_cast_does(java: Encode, numbers: list[Decimal], scale: int) -> None:
    cells = java("decimal", numbers)
    for type in (decimal(12, min(scale, 4)), decimal(38, scale)):
        unit = Decimal(1).scaleb(-type.scale)
        wanted: list[Any] = []
        for number, cell in zip(numbers, cells, strict=True):
            if len(cell) > 4 + 16:
                wanted.append(UNREADABLE)
                continue
            rounded = _rounded(number, unit)
            fits = abs(rounded) < Decimal(10) ** (type.precision - type.scale)
            wanted.append(rounded if fits else Status.OVERFLOW)
        assert read(E.DECIMAL, type, None, *cells) == [None, *wanted]


def _rounded(number: Decimal, unit: Decimal) -> Decimal:
    import decimal as d

    with d.localcontext(d.Context(prec=120)):
        return number.quantize(unit, d.ROUND_HALF_UP)


def test_decimals_that_are_none() -> None:
    scale = b"\0\0\0\2"
    assert read(E.DECIMAL, decimal(5, 2), b"", scale, scale + b"\x01" * 17, scale + b"\x7f") == [
        UNREADABLE, UNREADABLE, UNREADABLE, Decimal("1.27"),
    ]  # fmt: skip
    assert read(E.DECIMAL, decimal(5, 2), b"\x7f\xff\xff\xff\x01", b"\x80\0\0\0\x01")[0] == Decimal("0.00")


def test_moments_and_days() -> None:
    day, moment = date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    long = lambda n: n.to_bytes(8, "big", signed=True)  # noqa: E731
    millis = int(moment.timestamp() * 1000)
    assert read(E.MILLIS, TIMESTAMP, long(millis), long(2**62), None, b"") == [
        moment, Status.OVERFLOW, None, UNREADABLE,
    ]  # fmt: skip
    assert read(E.MICROS, TIMESTAMP, long(millis * 1000), long(-(2**63))) == [moment, Status.OVERFLOW]
    days = (day - date(1970, 1, 1)).days
    assert read(E.INT, DATE, days.to_bytes(4, "big"), b"\x7f\xff\xff\xff") == [day, Status.OVERFLOW]


def test_texts_and_bytes() -> None:
    assert read(E.TEXT, STRING, "Tromsø".encode(), b"", b"\xff", None) == ["Tromsø", "", UNREADABLE, None]
    assert read(E.RAW, BINARY, b"\0\xff", b"", None) == [b"\0\xff", b"", None]
    assert read(E.TEXT, BIGINT, b"12", b"x") == [12, Status.CAST]


# --- members of JSON and Avro


def members(encoding: Encoding, cells: Sequence[bytes | None], *wanted: tuple[str, Type], schema: str = "") -> Any:
    columns = [
        (StoredColumn(encoding, "f", "q", member=tuple(path.split(".")) if path else (), schema=schema), type)
        for path, type in wanted
    ]
    return [shown(vec) for vec in read_columns(*block(cells), columns)]


def test_members_of_json() -> None:
    cells = [
        b'{"id": 9007199254740993, "price": 0.1, "open": true, "place": {"city": "Oslo"}, "day": "2026-01-02"}',
        b'{"id": null, "place": null}',
        b'{"id": "7", "price": "0.1", "open": 1, "place": "Oslo", "day": 3}',
        b'{"id": 1e3, "price": NaN}',
        b'{"id": 12',
        None,
        b"[]",
        b'{"id": 1.5, "price": 1e400, "open": false, "place": {"city": "\\ud800"}, "day": "soon"}',
    ]
    id, price, open, city, day = members(
        E.JSON,
        cells,
        ("id", BIGINT),
        ("price", decimal(6, 2)),
        ("open", BOOLEAN),
        ("place.city", STRING),
        ("day", DATE),
    )
    assert id == [9007199254740993, None, UNREADABLE, UNREADABLE, UNREADABLE, None, UNREADABLE, UNREADABLE]
    assert price[:3] == [Decimal("0.10"), None, UNREADABLE] and price[7] in (Status.OVERFLOW, Status.CAST)
    assert open == [True, None, UNREADABLE, UNREADABLE, UNREADABLE, None, UNREADABLE, False]
    assert city == ["Oslo", None, UNREADABLE, UNREADABLE, UNREADABLE, None, UNREADABLE, UNREADABLE]
    assert day == [date(2026, 1, 2), None, UNREADABLE, UNREADABLE, UNREADABLE, None, UNREADABLE, Status.CAST]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | whole(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(json_values, min_size=1, max_size=10))
def test_whole_values_of_json(values: list[Any]) -> None:
    cells = [json.dumps(value).encode() for value in values]
    number, text, flag = members(E.JSON, cells, ("", BIGINT), ("", STRING), ("", BOOLEAN))

    def want(value: Any, fits: bool) -> Any:
        return None if value is None else value if fits else UNREADABLE

    assert flag == [want(v, isinstance(v, bool)) for v in values]
    assert text == [want(v, isinstance(v, str) and _is_sound(v)) for v in values]
    integral = [v for v in values if not isinstance(v, float)]
    kept = [n for n, v in zip(number, values, strict=True) if not isinstance(v, float)]
    assert kept == [want(v, isinstance(v, int) and not isinstance(v, bool)) for v in integral]


def _is_sound(text: str) -> bool:
    return text.encode("utf-8", "replace").decode() == text


def test_depth_without_end_is_an_error_of_the_cell() -> None:
    (found,) = members(E.JSON, [b"[" * 200_000, b"1", b"9" * 5000], ("", BIGINT))
    assert found == [UNREADABLE, 1, UNREADABLE]


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "photo", "type": "bytes"},
        {"name": "ratio", "type": "double"},
        {"name": "open", "type": "boolean"},
        {"name": "buyer", "type": {"type": "record", "name": "Buyer", "fields": [{"name": "name", "type": "string"}]}},
    ],
}
ORDERS = st.fixed_dictionaries(
    {
        "id": whole(-(2**63), 2**63 - 1),
        "city": st.none() | st.text(),
        "price": st.decimals(-(10**6), 10**6, places=2),
        "at": st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
            lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
        ),
        "day": st.dates(date(1900, 1, 1)),
        "photo": st.binary(),
        "ratio": st.floats(allow_nan=False),
        "open": st.booleans(),
        "buyer": st.fixed_dictionaries({"name": st.text()}),
    }
)
WANTED: list[tuple[str, Type]] = [
    ("id", BIGINT), ("city", STRING), ("price", decimal(12, 2)), ("at", TIMESTAMP), ("day", DATE), ("photo", BINARY),
    ("ratio", DOUBLE), ("open", BOOLEAN), ("buyer.name", STRING),
]  # fmt: skip


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@given(st.lists(ORDERS, min_size=1, max_size=5))
def test_members_of_avro(orders: list[dict[str, Any]]) -> None:
    cells = [avro(ORDER, order) for order in orders]
    found = members(E.AVRO, [*cells, None, cells[0] + b"\0", b""], *WANTED, schema=json.dumps(ORDER))
    for (path, _), column in zip(WANTED, found, strict=True):
        wanted = [order["buyer"]["name"] if path == "buyer.name" else order[path] for order in orders]
        assert column == [*wanted, None, UNREADABLE, UNREADABLE], path


def test_a_schema_that_is_none_of_avro() -> None:
    with pytest.raises(DataError, match="a schema that Avro cannot read"):
        members(E.AVRO, [b""], ("", BIGINT), schema='{"type": "nonsense"}')


# --- row keys


Part = tuple[Type, Encoding, int | None]


def definition(parts: Sequence[Part], **form: Any) -> TableDef:
    names = [f"k{i}" for i in range(len(parts))]
    columns = tuple(Column(name, type, False) for name, (type, _, _) in zip(names, parts, strict=True))
    stored = tuple(StoredColumn(encoding, width=width) for _, encoding, width in parts)
    return TableDef("t", columns, tuple(names), origin=Origin("t", stored, row_key=RowKey(**form)))


def keys(cells: Sequence[bytes], *parts: Part, **form: Any) -> tuple[list[tuple[Any, ...] | None], list[str]]:
    """The values of each key, None if it cannot be read, and the reasons of those."""
    stored = [StoredColumn(encoding, width=width) for _, encoding, width in parts]
    reader = RowKeyReader(
        Origin("t", tuple(stored), row_key=RowKey(**form)),
        [KeyPart(f"k{i}", type, stored[i]) for i, (type, _, _) in enumerate(parts)],
    )
    columns, sound = reader.read(*block(cells))
    if sound.all() and not form.keys() & {"skip", "skip_to"}:
        assert row_keys(definition(parts, **form), columns) == list(cells), "the inverse"
    rows = list(zip(*(shown(vec) for vec in columns), strict=True))
    reasons = [reader.reason(cell) for cell, fine in zip(cells, sound.tolist(), strict=True) if not fine]
    return [row if fine else None for row, fine in zip(rows, sound.tolist(), strict=True)], reasons


text = st.text(st.characters(exclude_characters="\0|", exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(text, whole(-(2**31), 2**31 - 1), whole(-(2**63), 2**63 - 1)), min_size=1, max_size=10))
def test_ordered_tuples_as_hbase_writes_them(java: Encode, rows: list[tuple[str, int, int]]) -> None:
    texts, ints, longs = zip(*rows, strict=True)
    doubles = [float(n) / 8 + 0.5 for n in ints]
    cells = [
        b"".join(parts)
        for parts in zip(
            java("ordered-text", [t.encode().hex() for t in texts]), java("ordered-int", ints),
            java("ordered-long", longs), java("ordered-double", doubles), strict=True,
        )
    ]  # fmt: skip
    parts: list[Part] = [(STRING, E.ORDERED, None), (INT, E.ORDERED, None), (BIGINT, E.ORDERED, None)]
    found, reasons = keys(cells, *parts, (DOUBLE, E.ORDERED, None))
    assert found == [(*row, double) for row, double in zip(rows, doubles, strict=True)] and reasons == []
    _, reasons = keys([cells[0] + b"x", cells[0][:-1], b""], *parts, (DOUBLE, E.ORDERED, None))
    assert reasons == [
        "bytes follow its last column, 'k3'",
        "column 'k3' (double) cannot be read as ordered",
        "column 'k0' (string) cannot be read as ordered",
    ]


@given(st.lists(st.tuples(text, whole(-(10**6), 10**6), st.binary(max_size=4)), min_size=1, max_size=10))
def test_delimited_keys(rows: list[tuple[str, int, bytes]]) -> None:
    for mark in ("|", "\0", "::"):
        mine = [row for row in rows if mark not in row[0]]
        cells = [mark.encode().join([t.encode(), str(n).encode(), b]) for t, n, b in mine]
        parts: list[Part] = [(STRING, E.TEXT, None), (BIGINT, E.TEXT, None), (BINARY, E.RAW, None)]
        assert keys(cells, *parts, delimiter=mark) == (mine, [])


def test_keys_of_fixed_parts_salts_and_hashes() -> None:
    parts: list[Part] = [(STRING, E.TEXT, 4), (BIGINT, E.TEXT, 6), (BIGINT, E.LONG, None)]
    long = b"\0" * 7 + b"\5"
    fine = [b"ab" + bytes(2) + b"000007" + long, b"abcd123456" + long]
    assert keys(fine, *parts) == ([("ab", 7, 5), ("abcd", 123456, 5)], [])
    assert keys([b"xyz" + cell for cell in fine], *parts, skip=3) == ([("ab", 7, 5), ("abcd", 123456, 5)], [])
    assert keys([b"17_" + cell for cell in fine], *parts, skip_to="_") == ([("ab", 7, 5), ("abcd", 123456, 5)], [])
    assert keys([b"17"], (STRING, E.TEXT, None), skip=3) == ([None], ["it has fewer than 3 bytes"])
    assert keys([b"17"], (STRING, E.TEXT, None), skip_to="_") == ([None], ["it has no '_' to skip to"])
    assert keys([b"", b"5_"], (STRING, E.TEXT, None), skip_to="_") == ([None, ("",)], ["it has no '_' to skip to"])


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ((BIGINT, E.TEXT, None), b"007"),
        ((BIGINT, E.TEXT, None), b" 7"),
        ((BIGINT, E.TEXT, None), b""),
        ((BIGINT, E.TEXT, 4), b"7   "),
        ((decimal(5, 2), E.TEXT, None), b"1.5"),
        ((DATE, E.TEXT, None), b"2026-1-2"),
        ((BOOLEAN, E.TEXT, None), b"yes"),
        ((BOOLEAN, E.BOOLEAN, None), b"\x01"),
        ((DOUBLE, E.DOUBLE, None), b"\x80" + bytes(7)),
        ((DOUBLE, E.DOUBLE, None), bytes.fromhex("7ff8000000000001")),
        ((INT, E.INT, None), bytes(5)),
        ((INT, E.INT, None), bytes(3)),
        ((STRING, E.TEXT, None), b"\xff"),
        ((STRING, E.TEXT, 3), b"ab"),
        ((DOUBLE, E.ORDERED, None), b"\x31\x7f" + b"\xff" * 7),
    ],
)
def test_what_could_be_written_in_another_way_is_no_key(part: Part, key: bytes) -> None:
    """Else two rows of HBase would be one."""
    found, (reason,) = keys([key], part)
    assert found == [None] and reason.startswith(("column 'k0'", "bytes follow"))


def test_row_keys_behind_a_salt_cannot_be_made() -> None:
    with pytest.raises(CatalogError, match="because its row keys begin with what is skipped"):
        row_keys(definition([(INT, E.INT, None)], skip=1), [])


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=30, unique=True))
def test_no_two_row_keys_are_one_key(cells: list[bytes]) -> None:
    for parts, form in (
        ([(BIGINT, E.TEXT, None)], {}),
        ([(DOUBLE, E.DOUBLE, None)], {}),
        ([(STRING, E.TEXT, 2), (BOOLEAN, E.BOOLEAN, None), (STRING, E.TEXT, None)], {}),
        ([(STRING, E.TEXT, None), (STRING, E.TEXT, None)], {"delimiter": "\0"}),
        ([(STRING, E.TEXT, None), (INT, E.INT, None)], {"delimiter": "\0"}),
    ):
        found, _ = keys(cells, *parts, **form)  # type: ignore[arg-type]
        read = [row for row in found if row is not None]
        assert len(set(read)) == len(read)


def test_doubles_that_are_no_numbers_are_cells() -> None:
    assert math.isnan(read(E.DOUBLE, DOUBLE, bytes.fromhex("7ff8000000000001"))[0])
