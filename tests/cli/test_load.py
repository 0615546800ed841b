"""`belvedere load`: what is loaded, what is reported, and that --strict writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Shop

BROKEN = "id,customer,total\n1,7,1.00\nx,7,1.00\n2,7,oops\n3,7\n4,8,2.00\n"


def count(shop: Shop) -> int:
    (row,) = shop.json("sql", "-c", "SELECT count(*) AS n FROM orders")
    return int(row["n"])


def test_a_csv_is_loaded_in_chunks(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,customer,total\n" + "".join(f"{i},{i % 3},1.50\n" for i in range(1000)))
    (report,) = shop.json("load", "orders", str(path), "--chunk", "300")
    assert (report["rows"], report["broken"]) == (1000, 0)
    assert shop.json("get", "spend", "1") == [{"customer": 1, "n": 333, "total": "499.50"}]


def test_broken_rows_are_reported_and_the_rest_is_loaded(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(BROKEN)
    result = shop.run("load", "orders", str(path), "--errors", str(tmp_path / "errors.jsonl"), code=3)
    assert result.stderr.splitlines() == [
        "line 3: column id: 'x' is not a bigint",
        "line 4: column total: 'oops' is not a decimal(12,2)",
        "line 5: 2 fields, the header has 3",
    ]
    assert "orders: 2 rows loaded" in result.stdout
    assert count(shop) == 2
    assert [json.loads(line)["line"] for line in (tmp_path / "errors.jsonl").read_text().splitlines()] == [3, 4, 5]


def test_strict_writes_nothing_when_a_row_is_broken(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(BROKEN)
    (report,) = shop.json("load", "orders", str(path), "--strict", "--chunk", "1", code=1)
    assert report["rows"] == 0
    assert [p["line"] for p in report["problems"]] == [3, 4, 5]
    assert count(shop) == 0


def test_a_value_that_only_the_database_refuses_is_found_too(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belvedere.model.rows.MAX_VALUE_BYTES", 10)
    shop.run("sql", "-c", "CREATE TABLE notes (id INT PRIMARY KEY, text STRING)")
    path = tmp_path / "notes.csv"
    path.write_text("id,text\n1,short\n2,much longer than that\n3,fine\n")
    (report,) = shop.json("load", "notes", str(path), "--strict", code=1)
    assert (report["rows"], [p["line"] for p in report["problems"]]) == (0, [3])
    (report,) = shop.json("load", "notes", str(path), code=3)
    assert (report["rows"], [p["line"] for p in report["problems"]]) == (2, [3])


def test_strict_loads_a_file_that_is_whole(shop: Shop) -> None:
    shop.run("load", "orders", "-", "--format", "csv", "--strict", input="id,customer,total\n1,7,1.00\n")
    assert count(shop) == 1


def test_json_lines_from_stdin(shop: Shop) -> None:
    shop.run("load", "orders", "-", "--format", "jsonl", input='{"id": 1, "customer": 7}\n{"id": 2, "total": "3"}\n')
    assert shop.json("scan", "spend") == [
        {"customer": None, "n": 1, "total": "3.00"},
        {"customer": 7, "n": 1, "total": None},
    ]


def test_parquet(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"id": list(range(50)), "customer": [7] * 50, "total": [1] * 50}), path)
    shop.run("load", "orders", str(path))
    assert shop.json("get", "spend", "7") == [{"customer": 7, "n": 50, "total": "50.00"}]


def test_loading_twice_is_harmless(shop: Shop, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("id,customer,total\n1,7,1.00\n")
    shop.run("load", "orders", str(path))
    shop.run("load", "orders", str(path))
    assert shop.json("get", "spend", "7") == [{"customer": 7, "n": 1, "total": "1.00"}]


def test_the_rate_is_shown(shop: Shop) -> None:
    assert "rows/s" in shop.run("load", "orders", "-", "--format", "csv", input="id\n1\n").stdout
