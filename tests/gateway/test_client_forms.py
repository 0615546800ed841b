"""Rows and keys as the client and the gateway write them: each reads what the other wrote, whatever the values are."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from belvedere.engine.delta import Changes
from belvedere.errors import Incompatible
from belvedere.gateway import formats, values
from belvedere.gateway.client.bodies import write_body
from belvedere.gateway.client.forms import dumps, table_of, to_json
from belvedere.model.rows import GivenRows
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, decimal

SCHEMA = tuple(
    Column(f"c{n}", type)
    for n, type in enumerate(
        [BOOLEAN, INT, BIGINT, DOUBLE, decimal(12, 2), decimal(38, 10), STRING, BINARY, DATE, TIMESTAMP]
    )
)
_MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda t: t.replace(tzinfo=UTC))
VALUES = [
    st.booleans(),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-2)),
    st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -10))),
    st.text(),
    st.binary(),
    st.dates(),
    _MOMENTS,
]
ROW = st.tuples(*[st.none() | one for one in VALUES])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return np.float64(left).tobytes() == np.float64(right).tobytes() or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [pa.array([row[n] for row in rows], column.type.arrow) for n, column in enumerate(SCHEMA)]
    return pa.Table.from_arrays(arrays, [column.name for column in SCHEMA])


@given(st.lists(ROW, max_size=5))
def test_the_client_reads_what_the_gateway_writes(rows: list[tuple[Any, ...]]) -> None:
    sent = json.loads(values.dumps(values.rows(table(rows))))
    found = table_of(sent, SCHEMA)
    assert found.schema == pa.schema([pa.field(c.name, c.type.arrow) for c in SCHEMA])
    for row, got in zip(rows, found.to_pylist(), strict=True):
        assert all(same(a, b) for a, b in zip(row, got.values(), strict=True)), (row, got)


@given(ROW)
def test_the_gateway_reads_what_the_client_writes(row: tuple[Any, ...]) -> None:
    sent = values.loads(dumps({c.name: to_json(v) for c, v in zip(SCHEMA, row, strict=True)}), "the row")
    read = values.RowReader(SCHEMA, "table 't'").row(sent, "row 0")
    definition = TableDef("t", (*SCHEMA, Column("id", INT)), ("id",))
    changes = GivenRows(definition).puts([{**read, "id": 1}])
    assert changes is not None
    got = [vec.to_arrow()[0].as_py() for vec in changes.columns[:-1]]
    assert all(same(a, b) for a, b in zip(row, got, strict=True)), (row, got)


def test_rows_that_are_not_of_their_columns_are_said_to_be_the_gateways_fault() -> None:
    for rows in ([{}], [{"c": "x"}], [{"c": [1]}]):
        with pytest.raises(Incompatible, match="not of their columns"):
            table_of(rows, (Column("c", BIGINT),))


TABLE = TableDef("t", (Column("id", INT), Column("_ts", BIGINT), Column("s", STRING)), ("id",))


def changes_of(rows: Any, deletes: list[bool] | None = None, ts: Any = None) -> Changes:
    reader = GivenRows(TABLE)
    found = reader.puts(rows) if deletes is None else reader.mixed(rows, np.array(deletes))
    assert found is not None
    if ts is not None:
        found.ts = np.array(ts, np.int64)
    return found


def test_rows_of_the_same_columns_travel_as_arrow() -> None:
    sent = write_body(TABLE, changes_of([{"id": 1, "s": "a"}, {"id": 2, "s": None}]), own_clock=True)
    assert (sent.route, sent.query) == ("rows", [])
    assert formats.read_arrow(sent.body).to_pylist() == [{"id": 1, "s": "a"}, {"id": 2, "s": None}]


def test_a_missing_column_is_no_null() -> None:
    sent = write_body(TABLE, changes_of([{"id": 1, "s": None}, {"id": 2, "_ts": 3}]), own_clock=True)
    assert sent.media_type == "application/json"
    assert json.loads(sent.body) == [{"id": 1, "s": None}, {"id": 2, "_ts": 3}]


def test_puts_and_deletes_keep_their_order_and_their_timestamps() -> None:
    rows = [{"id": 1, "s": "a"}, {"id": 1, "s": "b"}]
    sent = write_body(TABLE, changes_of(rows, [False, True], [5, 6]), own_clock=False)
    assert (sent.route, sent.query) == ("changes", [("deletes", "_deletes"), ("ts_column", "__ts")])
    assert formats.read_arrow(sent.body).to_pydict() == {
        "id": [1, 1], "s": ["a", "b"], "_deletes": [False, True], "__ts": [5, 6],
    }  # fmt: skip
    sent = write_body(TABLE, changes_of([{"id": 1, "s": "a"}, {"id": 2}], [False, True], [5, 5]), own_clock=False)
    assert json.loads(sent.body) == [{"put": {"id": 1, "s": "a", "__ts": 5}}, {"delete": {"id": 2, "__ts": 5}}]
    assert sent.query == [("ts_column", "__ts")]


def test_deletes_travel_as_keys() -> None:
    changes = GivenRows(TABLE).deletes([1, 2])
    assert changes is not None
    sent = write_body(TABLE, changes, own_clock=True)
    assert sent.route == "deletes" and formats.read_arrow(sent.body).to_pylist() == [{"id": 1}, {"id": 2}]


def test_dates_of_every_form() -> None:
    assert to_json(datetime(2024, 2, 29, 12)) == "2024-02-29T12:00:00Z"
    assert to_json(date(1, 1, 1)) == "0001-01-01"
