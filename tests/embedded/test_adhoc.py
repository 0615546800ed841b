"""Ad-hoc queries are answered by DuckDB; whatever it raises is an error of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import belvedere
from belvedere.errors import DataError


@pytest.fixture(name="database")
def _database() -> Iterator[belvedere.Database]:
    with belvedere.open() as database:
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, s STRING, d DECIMAL(5,2), b BINARY)")
        database.wait(database.execute("INSERT INTO t VALUES (0, 'x', 1.5, X'ff')"))
        yield database


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 / id", "division by zero"),
        ("d % id", "division by zero"),
        ("1 DIV id", "division by zero"),
        ("cast(s AS INT)", "Could not convert string 'x'"),
        ("id + 2147483647 + 1", "Overflow"),
        ("cast(d * 1000 AS DECIMAL(5,2))", "value is out of range"),
        ("upper(b)", "UTF8"),
        ("rpad(s, 2147483647)", "the result of rpad is too long"),
        ("lpad(b, 2147483647)", "the result of lpad is too long"),
        ("repeat(s, 2147483647)", "the result of repeat is too long"),
        ("repeat('ab', 2147483647)", "the result of repeat is too long"),
    ],
)
def test_a_row_that_cannot_be_computed_fails_the_query(
    database: belvedere.Database, expression: str, reason: str
) -> None:
    with pytest.raises(DataError, match="the query meets a row that cannot be computed") as caught:
        database.execute(f"SELECT {expression} AS x FROM t")
    assert reason in str(caught.value)
    assert "belvedere_" not in str(caught.value)


def test_columns_without_a_type_are_null(database: belvedere.Database) -> None:
    found = database.execute("SELECT null AS x, id FROM t")
    assert found.to_pylist() == [{"x": None, "id": 0}]


def test_a_failed_try_cast_is_null(database: belvedere.Database) -> None:
    found = database.execute("SELECT try_cast(b AS STRING) AS x FROM t")
    assert found.to_pylist() == [{"x": None}]
