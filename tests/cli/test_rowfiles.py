"""Files of rows: chunks, line numbers, NULLs, and everything that can be broken."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from belvedere.cli import rowfiles
from belvedere.cli.rowfiles import FileOptions, Problem
from belvedere.errors import DataError
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, STRING, Column, decimal

ORDERS = TableDef(
    "orders", (Column("id", BIGINT, False), Column("customer", STRING), Column("total", decimal(12, 2))), ("id",)
)


def rows(path: Path, options: FileOptions = FileOptions()) -> tuple[list[dict[str, object]], list[Problem]]:  # noqa: B008
    found: list[dict[str, object]] = []
    problems: list[Problem] = []
    for chunk in rowfiles.read(path, rowfiles.format_of(path), ORDERS, options):
        found += chunk.rows if isinstance(chunk.rows, list) else chunk.rows.to_pylist()
        problems += chunk.problems
    return found, problems


def test_csv_columns_are_matched_by_name_and_empty_is_null(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufeffTOTAL,id,customer\n9.50,1,\n,2,Ada\n")
    assert rows(path) == (
        [
            {"total": Decimal("9.50"), "id": 1, "customer": None},
            {"total": None, "id": 2, "customer": "Ada"},
        ],
        [],
    )


def test_broken_csv_rows_are_named_by_their_physical_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b"id,customer,total\n"
        b'1,"two\nlines",1.00\n'  # lines 2 and 3
        b"x,Ada,1.00\n"  # line 4
        b"\n"
        b"2,Ada\n"  # line 6
        b",Ada,1.00\n"  # line 7
        b"3,A\xff,1.00\n"  # line 8
        b"4,Ada,1.005\n"  # line 9
        b"5,Ada,2.00\n"
    )
    found, problems = rows(path)
    assert [row["id"] for row in found] == [1, 5]
    assert problems == [
        Problem(4, "column id: 'x' is not a bigint"),
        Problem(6, "2 fields, the header has 3"),
        Problem(7, "key column id is NULL"),
        Problem(8, "column customer: the text is not valid UTF-8"),
        Problem(9, "column total: '1.005' has more than 2 decimal places, decimal(12,2) keeps 2"),
    ]


def test_a_quote_that_nothing_closes_is_reported_where_it_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,customer,total\n1,Ada,1.00\n2,"Bao,1.00\n3,Chi,1.00\n')
    found, problems = rows(path)
    assert [row["id"] for row in found] == [1]
    assert [p.line for p in problems] == [3]


def test_an_unknown_csv_column_stops_before_anything_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,colour\n1,red\n")
    with pytest.raises(DataError, match="table orders has no column 'colour'; it has id, customer, total"):
        rows(path)
    assert rows(path, FileOptions(ignore_extra=True)) == ([{"id": 1}], [])


def test_a_csv_without_the_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("customer\nAda\n")
    with pytest.raises(DataError, match="the key of table orders needs column 'id'"):
        rows(path)


def test_chunks_have_the_size_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id\n" + "".join(f"{i}\n" for i in range(25)))
    sizes = [len(c) for c in rowfiles.read(path, "csv", ORDERS, FileOptions(chunk_rows=10))]
    assert sizes == [10, 10, 5]


def test_an_empty_csv_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("")
    assert rows(path) == ([], [])


def test_json_lines_keep_missing_apart_from_null(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "total": 9.10}\n\n{"id": 2, "customer": null}\n')
    found, problems = rows(path)
    assert problems == []
    assert found == [{"id": 1, "total": Decimal("9.10")}, {"id": 2, "customer": None}]


def test_broken_json_lines_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = ['{"id": 1}', '{"id": 2', "[3]", '{"customer": "Ada"}', '{"id": 5, "x": 1}', '{"id": "six"}', '{"id": 7}']
    path.write_text("\n".join(lines))
    found, problems = rows(path)
    assert found == [{"id": 1}, {"id": 7}]
    assert [p.line for p in problems] == [2, 3, 4, 5, 6]
    assert problems[2].reason == "key column id is missing"


def test_parquet_rows_are_cast_and_named_by_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": pa.array([1, None, 3], pa.int32()), "total": [Decimal("1.0"), None, None]}), path)
    found, problems = rows(path)
    assert found == [{"id": 1, "total": Decimal("1.00")}, {"id": 3, "total": None}]
    assert problems == [Problem(2, "key column id is NULL")]


def test_what_is_not_parquet_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("id\n1\n")
    with pytest.raises(DataError, match="is not a Parquet file"):
        rows(path)


def test_packed_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"id": 1}).encode()))
    assert rows(path) == ([{"id": 1}], [])


def test_a_name_that_says_nothing_needs_a_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="say --format csv, jsonl or parquet"):
        rowfiles.format_of(tmp_path / "rows.data")
