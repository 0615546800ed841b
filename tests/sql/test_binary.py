"""BINARY in every function that takes a string, against results recorded from Spark (see record_binary.py).

Where Spark keeps BINARY, so do we, byte for byte. Where it makes a STRING of bytes that are not UTF-8, the row goes to
quarantine: our strings are UTF-8 (docs/sql.md). It never becomes another value."""

from __future__ import annotations

import json
from typing import Any

import pytest

import belvedere
from belvedere.errors import SqlError
from tests.sql.record_binary import FILE, ROWS, UTF8, expressions

RECORDS = json.loads(FILE.read_text())
ACCEPTED = [r for r in RECORDS if r[1] is not None]
REFUSED = [r for r in RECORDS if r[1] is None]
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, b BINARY, c BINARY, s STRING, n INT)"
EVERY_ROW = ("length", "char", "len", "startswith", "endswith", "contains")
"""Functions whose result is no BINARY and yet follows from the bytes, whatever they are."""


def text(value: Any) -> str | None:
    """A value in the form of the records."""
    if value is None or isinstance(value, str):
        return None if value is None else value.encode().hex()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix("+00:00")


def filled() -> belvedere.Database:
    database = belvedere.open()
    database.execute(TABLE)
    rows = [
        {"id": i, "b": bytes.fromhex(b), "c": None if c is None else bytes.fromhex(c), "s": s, "n": n}
        for i, (b, c, s, n) in enumerate(ROWS)
    ]
    database.wait(database.put("t", rows))
    return database


def test_every_expression_is_recorded() -> None:
    assert [r[0] for r in RECORDS] == expressions()


def test_views_show_what_spark_shows() -> None:
    wrong = []
    with filled() as database:
        for number in range(0, len(ACCEPTED), 10):
            batch = ACCEPTED[number : number + 10]
            for i, (sql, _, _) in enumerate(batch):
                database.execute(f"CREATE MATERIALIZED VIEW v{i} AS SELECT id, {sql} AS r FROM t")
            for i, (sql, type, values) in enumerate(batch):
                shown = {row["id"]: text(row["r"]) for row in database.scan(f"v{i}").to_pylist()}
                exact = type == "binary" or sql.startswith(EVERY_ROW)
                for row, value in enumerate(values):
                    fails = None if sql.startswith("try_cast") else "!"
                    may_fail = value == "!" or not (exact or row in UTF8)
                    if shown.get(row, "!") not in (value, *([fails] if may_fail else [])):
                        wrong.append((sql, row, value, shown.get(row, "!")))
                found = str(database.catalog.views[f"v{i}"].columns[1].type)
                if found != type:
                    wrong.append((sql, "type", type, found))
                if not (report := database.verify(f"v{i}")).ok and report.complete:
                    wrong.append((sql, "verify", report.problem, report.missing))
                database.execute(f"DROP MATERIALIZED VIEW v{i}")
    assert not wrong


def test_queries_answer_what_spark_answers() -> None:
    wrong = []
    with filled() as database:
        for sql, type, values in ACCEPTED:
            expected = {
                row: value
                for row, value in enumerate(values)
                if value != "!" and (type == "binary" or row in UTF8)  # a row that fails would fail the query
            }
            if expected:
                rows = ", ".join(map(str, expected))
                found = database.execute(f"SELECT id, {sql} AS r FROM t WHERE id IN ({rows})").to_pylist()
                shown = {row["id"]: text(row["r"]) for row in found}
                wrong += [(sql, row, value, shown.get(row)) for row, value in expected.items() if shown[row] != value]
    assert not wrong


@pytest.mark.parametrize("sql", [r[0] for r in REFUSED])
def test_what_spark_refuses_is_refused(sql: str) -> None:
    with belvedere.open() as database:
        database.execute(TABLE)
        with pytest.raises(SqlError) as caught:
            database.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, {sql} AS r FROM t")
        assert caught.value.line == 1
