"""Encoded keys: the order of bytes is the order of values, and nothing is lost on the way."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from belvedere.errors import DataError
from belvedere.model.keys import KeyCodec, after_prefix
from belvedere.model.long_keys import is_hashed, run_of, seek_key, stored_key
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, Kind, Type, decimal

TYPES = [
    BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP,
    decimal(1, 0), decimal(9, 2), decimal(18, 18), decimal(19, 0), decimal(38, 10), decimal(38, 38),
]  # fmt: skip
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)


def _integers(bits: int) -> some.SearchStrategy[int]:
    return some.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | some.integers(-2, 2)


def values(type: Type) -> some.SearchStrategy[Any]:
    """Values of a type, with those at its edges."""
    match type.kind:
        case Kind.BOOLEAN:
            return some.booleans()
        case Kind.INT:
            return _integers(32)
        case Kind.BIGINT:
            return _integers(64)
        case Kind.DOUBLE:
            return some.floats() | some.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324])
        case Kind.STRING:
            return some.text(max_size=12) | some.text("a\0\x01\x7f\uffff\U0010ffff", max_size=4)
        case Kind.BINARY:
            return some.binary(max_size=12) | some.lists(some.sampled_from([0, 1, 254, 255]), max_size=4).map(bytes)
        case Kind.DATE:
            return some.dates()
        case Kind.TIMESTAMP:
            return some.datetimes(timezones=some.just(UTC))
    most = 10**type.precision - 1
    digits = some.integers(-most, most) | some.sampled_from([0, 1, -1, most, -most])
    return digits.map(lambda n: Decimal(n).scaleb(-type.scale, Context(prec=60)))


def compare_values(a: Any, b: Any) -> int:
    """Spark SQL's ascending order: NULLs first, NaN above every number and equal to itself, text by its bytes."""
    if a is None or b is None:
        return (a is not None) - (b is not None)
    if isinstance(a, float):
        a, b = ((math.isnan(x), 0.0 if math.isnan(x) else x) for x in (a, b))
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    return (a > b) - (a < b)


def compare(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
    return next((c for c in map(compare_values, a, b) if c), 0)


@some.composite
def keyed_rows(draw: some.DrawFn) -> tuple[KeyCodec, list[tuple[Any, ...]]]:
    """A key of one to four columns of any types, and rows, some of which share their first values."""
    types = draw(some.lists(some.sampled_from(TYPES), min_size=1, max_size=4))
    columns = [Column(f"k{i}", type, draw(some.booleans())) for i, type in enumerate(types)]
    pools = []
    for column in columns:
        kind = values(column.type)
        pools.append(draw(some.lists(kind | some.none() if column.nullable else kind, min_size=1, max_size=4)))
    rows = draw(some.lists(some.tuples(*map(some.sampled_from, pools)), min_size=1, max_size=12))
    return KeyCodec(columns), rows


def arrays(codec: KeyCodec, rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], c.type.arrow) for i, c in enumerate(codec.columns)]


@given(keyed_rows())
def test_bytes_sort_as_values_do_and_equal_values_have_equal_bytes(case: tuple[KeyCodec, list[Any]]) -> None:
    codec, rows = case
    for a, b in pairwise(sorted(rows, key=cmp_to_key(compare))):
        order = compare(a, b)
        first, second = codec.encode_one(a), codec.encode_one(b)
        assert (first == second) if order == 0 else first < second


@given(keyed_rows())
def test_columns_are_encoded_as_single_keys_are(case: tuple[KeyCodec, list[Any]]) -> None:
    codec, rows = case
    single = [codec.encode_one(row) for row in rows]
    columns = arrays(codec, rows)
    assert codec.encode(columns, len(rows)).to_pylist() == single
    cut = [a.slice(1) for a in columns]
    assert codec.encode(cut, len(rows) - 1).to_pylist() == single[1:]


@given(keyed_rows())
def test_keys_are_decoded_to_the_values_they_came_from(case: tuple[KeyCodec, list[Any]]) -> None:
    codec, rows = case
    keys = codec.encode(arrays(codec, rows), len(rows))
    decoded = list(zip(*(a.to_pylist() for a in codec.decode(keys)), strict=True))
    assert all(compare(a, b) == 0 for a, b in zip(rows, decoded, strict=True))
    assert [a.type for a in codec.decode(keys)] == [c.type.arrow for c in codec.columns]
    rest = list(zip(*(a.to_pylist() for a in codec.decode(keys.slice(1))), strict=True))
    assert all(compare(a, b) == 0 for a, b in zip(rows[1:], rest, strict=True))
    for row, key in zip(rows, keys.to_pylist(), strict=True):
        assert compare(codec.decode_one(key), row) == 0


@given(keyed_rows(), some.data())
def test_a_prefix_of_columns_is_a_prefix_of_bytes_of_just_those_rows(
    case: tuple[KeyCodec, list[Any]], data: some.DataObject
) -> None:
    codec, rows = case
    width = data.draw(some.integers(1, len(codec.columns)))
    prefix = data.draw(some.sampled_from(rows))[:width]
    encoded = codec.encode_one(prefix)
    firsts = [pa.array([v], c.type.arrow) for v, c in zip(prefix, codec.columns, strict=False)]
    assert codec.encode(firsts, 1).to_pylist() == [encoded]
    assert compare(tuple(a[0].as_py() for a in codec.decode(codec.encode(firsts, 1), width)), prefix) == 0
    assert compare(codec.decode_one(encoded), prefix) == 0
    end = after_prefix(encoded)
    for row in rows:
        key = codec.encode_one(row)
        begins = compare(row[:width], prefix) == 0
        assert key.startswith(encoded) == begins
        assert (encoded <= key and (end is None or key < end)) == begins


@given(some.binary(max_size=6) | some.lists(some.sampled_from([0, 254, 255]), max_size=5).map(bytes), some.binary())
def test_after_a_prefix_comes_the_least_bytes_that_do_not_begin_with_it(prefix: bytes, more: bytes) -> None:
    end = after_prefix(prefix)
    if end is None:
        assert prefix == b"\xff" * len(prefix)
        return
    assert prefix + more < end
    assert end[:-1] == prefix[: len(end) - 1] and end[-1] == prefix[len(end) - 1] + 1


def test_the_form_of_a_key_is_fixed() -> None:
    """Stored keys outlive the program: these bytes never change."""
    codec = KeyCodec([Column("a", INT, False), Column("b", STRING), Column("c", decimal(20, 1)), Column("d", DOUBLE)])
    assert codec.encode_one((-1, "x\0", Decimal("0.5"), -0.0)).hex() == (
        "7fffffff" "01" "7800ff" "0000" "01" "80000000000000000000000000000005" "01" "8000000000000000"
    )  # fmt: skip
    assert codec.encode_one((0, None, None, None)).hex() == "8000000000" + "00" * 17 + "00" * 9
    assert KeyCodec([Column("t", TIMESTAMP, False)]).encode_one(
        (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1),)
    ) == (10**6 + 2**63).to_bytes(8, "big")


def test_a_key_without_columns_is_empty() -> None:
    codec = KeyCodec([])
    assert codec.encode([], 3).to_pylist() == [b""] * 3
    assert codec.encode_one(()) == b""
    assert codec.decode(pa.array([b"", b""], pa.binary())) == []


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (INT, 2**31), (INT, True), (INT, "1"), (BIGINT, -(2**63) - 1), (BOOLEAN, 1), (STRING, b"a"), (STRING, "\ud800"),
        (BINARY, "a"), (DATE, datetime(2024, 1, 1)), (TIMESTAMP, date(2024, 1, 1)), (DOUBLE, 1),
        (decimal(3, 1), Decimal("100")), (decimal(3, 1), Decimal("0.05")), (decimal(3, 1), Decimal("NaN")),
        (decimal(3, 1), 1), (decimal(38, 0), Decimal(10) ** 38),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_its_column_is_named(type: Type, value: Any) -> None:
    codec = KeyCodec([Column("first", INT), Column("second", type)])
    with pytest.raises(DataError, match=r"key column 'second'.*does not fit"):
        codec.encode_one((1, value))


def test_null_in_a_column_that_has_none_is_refused() -> None:
    for type in (INT, STRING):
        codec = KeyCodec([Column("k", type, False)])
        with pytest.raises(DataError, match="'k'"):
            codec.encode_one((None,))
        with pytest.raises(DataError, match="'k' is never NULL"):
            codec.encode([pa.array([None], type.arrow)], 1)


def test_more_values_than_columns_are_refused() -> None:
    with pytest.raises(DataError, match=r"a key has 1 columns \(k\), 2 values were given"):
        KeyCodec([Column("k", INT)]).encode_one((1, 2))


@pytest.mark.parametrize(
    "key",
    [b"\x01", b"\x02\0\0\0\0", b"\x01\x80\0\0\0\x01a", b"\x01\x80\0\0\0\x01a\0\xff", b"\x01\x80\0\0\0\x01\xfe\0\0"],
)
def test_bytes_that_are_no_key_are_refused(key: bytes) -> None:
    codec = KeyCodec([Column("k", INT), Column("t", STRING)])
    with pytest.raises(DataError, match="key"):
        codec.decode_one(key)
    with pytest.raises(DataError, match="key"):
        codec.decode(pa.array([codec.encode_one((1, "")), key], pa.binary()))


def test_bytes_behind_a_key_are_refused() -> None:
    codec = KeyCodec([Column("k", INT)])
    for decode in (codec.decode_one, lambda key: codec.decode(pa.array([key], pa.binary()))):
        with pytest.raises(DataError, match="follow a key"):
            decode(codec.encode_one((1,)) + b"\0")


LIMIT = 24


@given(some.lists(some.lists(some.sampled_from(b"\0\x01a\xff"), max_size=40).map(bytes), min_size=2, max_size=12))
def test_stored_keys_sort_as_keys_but_for_runs_which_stand_together(keys: list[bytes]) -> None:
    by_store = sorted(set(keys), key=lambda key: stored_key(key, LIMIT))
    runs: list[tuple[bytes, list[bytes]]] = []
    for key in by_store:
        stored = stored_key(key, LIMIT)
        assert len(stored) <= LIMIT
        name = run_of(stored) if is_hashed(stored, LIMIT) else stored
        if not (runs and is_hashed(stored, LIMIT) and runs[-1][0] == name and len(name) == LIMIT - 16):
            runs.append((name, []))
        runs[-1][1].append(key)
    assert [key for _, run in runs for key in sorted(run)] == sorted(set(keys))


@given(some.binary(max_size=40), some.binary(max_size=40))
def test_nothing_at_or_above_a_bound_is_stored_before_its_seek_key(key: bytes, bound: bytes) -> None:
    if key >= bound:
        assert stored_key(key, LIMIT) >= seek_key(bound, LIMIT)
    elif stored_key(key, LIMIT) >= seek_key(bound, LIMIT):
        # only keys of the bound's own run are read in vain
        assert is_hashed(stored_key(key, LIMIT), LIMIT)
        assert run_of(stored_key(key, LIMIT)) == seek_key(bound, LIMIT)
