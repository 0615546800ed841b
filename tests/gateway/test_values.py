"""Values in JSON: nothing is lost on the way out and back in, whatever the type."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere import types
from belvedere.errors import BadRequest, DataError
from belvedere.gateway import values
from belvedere.types import Column, Type

VALUES: dict[Type, st.SearchStrategy[Any]] = {
    types.BOOLEAN: st.booleans(),
    types.INT: st.integers(-(2**31), 2**31 - 1),
    types.BIGINT: st.integers(-(2**63), 2**63 - 1),
    types.DOUBLE: st.floats(allow_nan=True),
    types.decimal(12, 2): st.decimals(-(10**9), 10**9, places=2),
    types.decimal(38, 38): st.decimals(-1, 1, places=38).filter(lambda d: abs(d) < 1),
    types.STRING: st.text(),
    types.BINARY: st.binary(),
    types.DATE: st.dates(),
    types.TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def back(kind: Type, value: Any) -> Any:
    """What `put` makes of a value of JSON."""
    from belvedere.model.rows import fit

    return fit(values.from_json(value, Column("v", kind), "table t"), kind)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_values_come_back_as_they_went(data: st.DataObject) -> None:
    for kind, strategy in VALUES.items():
        found = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=5))
        table = pa.table({"v": pa.array(found, kind.arrow)})
        by_column = [row["v"] for row in json.loads(values.dumps(values.rows(table)))]
        by_row = [json.loads(values.dumps(values.row({"v": value})))["v"] for value in found]
        assert by_column == by_row, kind
        assert all(same(back(kind, shown), value) for shown, value in zip(by_column, found, strict=True)), kind


def test_values_look_as_the_page_says() -> None:
    shown = values.dumps(
        values.row(
            {
                "safe": 2**53 - 1,
                "big": -(2**53),
                "double": 0.1,
                "zero": -0.0,
                "nan": math.nan,
                "up": math.inf,
                "down": -math.inf,
                "decimal": Decimal("9.50"),
                "small": Decimal("1E-10"),
                "binary": b"\xff\x00",
                "date": date(2024, 2, 29),
                "noon": datetime(2024, 2, 29, 12, tzinfo=UTC),
                "micro": datetime(2024, 2, 29, 12, 0, 0, 6, tzinfo=UTC),
                "null": None,
            }
        )
    )
    assert shown.decode() == (
        '{"safe":9007199254740991,"big":"-9007199254740992","double":0.1,"zero":-0.0,"nan":"NaN","up":"Infinity",'
        '"down":"-Infinity","decimal":"9.50","small":"0.0000000001","binary":"/wA=","date":"2024-02-29",'
        '"noon":"2024-02-29T12:00:00Z","micro":"2024-02-29T12:00:00.000006Z","null":null}'
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (types.BIGINT, "1_000"),
        (types.BIGINT, " 1"),
        (types.BIGINT, "٣"),
        (types.BIGINT, 1e300),
        (types.BIGINT, 2.0**60),
        (types.DOUBLE, "nan"),
        (types.DOUBLE, "1_0"),
        (types.DOUBLE, "1e400"),
        (types.DOUBLE, "-1e400"),
        (types.decimal(38, 2), "1e"),
        (types.decimal(38, 2), "Infinity"),
        (types.decimal(38, 2), 1e20),
        (types.BINARY, "a b="),
        (types.BINARY, "YQ"),
        (types.BINARY, "é"),
        (types.BINARY, 5),
        (types.DATE, "2024-2-3"),
        (types.DATE, "20240203"),
    ],
)
def test_forms_that_are_none_are_refused(kind: Type, value: Any) -> None:
    with pytest.raises(DataError, match="does not fit"):
        values.from_json(value, Column("v", kind), "table t")


def test_keys_are_values_arrays_or_objects() -> None:
    columns = [Column("city", types.STRING), Column("id", types.BINARY)]
    raw = base64.b64encode(b"x").decode()
    assert values.key(["Oslo", raw], columns, "key") == ("Oslo", b"x")
    assert values.key({"ID": raw}, columns, "key") == {"ID": b"x"}
    assert values.key("Oslo", columns, "key") == ("Oslo",)
    with pytest.raises(BadRequest, match="given twice"):
        values.key({"id": raw, "ID": raw}, columns, "key")


def test_json_that_is_none_says_so() -> None:
    for text in ("", "{", "NaN", "[1,]", "\ud800", '"\\ud800"', "[" * 100_000, "1 2"):
        with pytest.raises(BadRequest, match=r"no JSON|nested"):
            values.loads(text.encode(errors="surrogatepass"), "the body")


def test_integers_are_numbers_as_far_as_a_double_has_them_all() -> None:
    """Of rows as `get` gives them, and of columns whose least or greatest value decides."""
    told = {values.SAFE: values.SAFE, values.SAFE + 1: "9007199254740992", -values.SAFE: -values.SAFE}
    told[-values.SAFE - 1] = "-9007199254740992"
    for value, shown in told.items():
        assert values.row({"a": value}) == {"a": shown}
        assert values.rows(pa.table({"a": pa.array([0, value], pa.int64())})) == [{"a": 0}, {"a": shown}]
