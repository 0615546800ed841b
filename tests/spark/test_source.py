"""`format("belvedere")`: types to the last bit, keys that reach the reads, options that are refused by name."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds

import belvedere
from belvedere.embedded.database import Database
from belvedere.errors import DataError, EpochExpired
from belvedere.spark.source.data_source import BelvedereSource

COLUMNS = (
    "id BIGINT PRIMARY KEY, i INT, d DOUBLE, p DECIMAL(12,2), w DECIMAL(38,10), s STRING, b BINARY, day DATE, "
    "t TIMESTAMP, o BOOLEAN"
)
ROWS = 3000


def row(i: int) -> dict[str, Any]:
    special = {1: math.nan, 2: math.inf, 3: -0.0, 4: 5e-324}
    return {
        "id": i,
        "i": -(2**31) if i == 0 else i % 7,
        "d": special.get(i, i / 3),
        "p": Decimal(i) / 4,
        "w": Decimal("-9999999999999999999999999999.9999999999") if i == 5 else Decimal(i),
        "s": "" if i == 6 else f"é\u0000{i}",
        "b": b"\x00\xff%d" % i,
        "day": dt.date(1, 1, 1) if i == 7 else dt.date(2024, 2, 29),
        "t": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        "o": bool(i % 2),
    }


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Database]]:
    path = tmp_path_factory.mktemp("source") / "a.bv"
    with belvedere.open(path, retention=3600) as db:
        db.execute(f"CREATE TABLE kinds ({COLUMNS})")
        db.execute("CREATE TABLE pairs (a INT, b STRING, v INT, PRIMARY KEY (a, b))")
        db.execute("CREATE MATERIALIZED VIEW per AS SELECT a, b, v FROM pairs")
        db.execute("CREATE MATERIALIZED VIEW broken AS SELECT id, 1 / (id - 8) AS q FROM kinds")
        db.put("kinds", [row(i) for i in range(20)] + [{"id": 20}])
        pairs = {"a": [i % 30 for i in range(ROWS)], "b": [f"k{i // 30:03}" for i in range(ROWS)], "v": range(ROWS)}
        db.wait(db.put("pairs", pa.table({k: pa.array(list(v)) for k, v in pairs.items()})))
        yield str(path), db


def read(spark: SparkSession, path: str, relation: str, **options: Any) -> Any:
    return spark.read.format("belvedere").option("database", path).options(**options).load(relation)


def test_every_type_arrives_exactly(spark: SparkSession, shop: tuple[str, Database]) -> None:
    path, db = shop
    frame = read(spark, path, "kinds")
    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        (c.name, str(c.type)) for c in db.catalog.tables["kinds"].columns
    ]
    assert str(frame.toArrow().sort_by("id").to_pylist()) == str(db.scan("kinds").to_pylist())


def test_a_view_its_quarantine_and_columns_that_a_schema_chooses(
    spark: SparkSession, shop: tuple[str, Database]
) -> None:
    path, _ = shop
    assert read(spark, path, "broken").count() == 20
    (failed,) = read(spark, path, "broken", content="quarantine").collect()
    assert failed.asDict() == {"id": 8, "q": None, "reason": "column q: division by zero"}
    some = spark.read.format("belvedere").schema("v int, a int").option("database", path).load("pairs")
    assert some.columns == ["v", "a"] and some.agg({"v": "sum"}).collect()[0][0] == sum(range(ROWS))


def ranges_read(path: str, relation: str, filters: list[ds.Filter], **options: str) -> tuple[int, int]:
    """How many rows are read, and how many parts there are."""
    from pyspark import SparkFiles

    source = BelvedereSource({"database": path, "path": relation, "pushdown": "true", **options})
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(filters)) == filters, "Spark has to evaluate them all"
    assert SparkFiles.getRootDirectory()
    parts = list(reader.partitions())
    return sum(batch.num_rows for part in parts for batch in reader.read(part)), len(parts)


@pytest.mark.parametrize("relation", ["pairs", "per"])
def test_filters_of_the_key_reach_the_reads(spark: SparkSession, shop: tuple[str, Database], relation: str) -> None:
    path, _ = shop
    a, b, v = ("a",), ("b",), ("v",)
    every = ROWS
    for filters, expected in (
        ([], every),
        ([ds.EqualTo(v, 3)], every),  # not of the key
        ([ds.EqualTo(b, "k001")], every),  # not how the key begins
        ([ds.EqualTo(a, 4)], 100),
        ([ds.EqualTo(a, 4), ds.EqualTo(b, "k007")], 1),
        ([ds.EqualTo(a, 4), ds.GreaterThan(b, "k007")], 92),
        ([ds.EqualTo(a, 4), ds.GreaterThanOrEqual(b, "k007"), ds.LessThan(b, "k010")], 3),
        ([ds.EqualTo(a, 4), ds.LessThanOrEqual(b, "k007")], 8),
        ([ds.EqualTo(a, 4), ds.StringStartsWith(b, "k01")], 10),
        ([ds.GreaterThan(a, 27)], 200),
        ([ds.GreaterThanOrEqual(a, 28), ds.LessThanOrEqual(a, 28)], 100),
        ([ds.IsNull(a)], 0),
        ([ds.EqualTo(a, 4), ds.EqualTo(a, 5)], 0),
        ([ds.EqualTo(a, 1 << 40)], every),  # it does not fit the column
        ([ds.Not(ds.EqualTo(a, 4))], every),
    ):
        assert ranges_read(path, relation, filters)[0] == expected, filters
    assert ranges_read(path, "per", [ds.In(a, (3, 5, 3)), ds.EqualTo(b, "k001")])[0] == 2


def test_what_spark_filters_is_right_and_pushed(spark: SparkSession, shop: tuple[str, Database]) -> None:
    path, _ = shop
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = read(spark, path, "per", pushdown=True)
    assert frame.where("a = 4 AND b = 'k003'").collect() == [(4, "k003", 94)]
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    # frames that several queries use have to be without: Spark would give the second one what the first one's left
    frame = read(spark, path, "per")
    assert frame.where("a = 4 AND b LIKE 'k01%' AND v > 400").count() == 6
    assert frame.where("a IN (1, 2) AND NOT b = 'k000'").count() == 198
    assert frame.where("a > 28 OR v = 0").count() == 101
    assert frame.where("a IS NULL").count() == 0


def test_options_name_a_range_of_keys(spark: SparkSession, shop: tuple[str, Database]) -> None:
    path, _ = shop
    for options, expected in (
        ({"prefix": "[4]"}, 100),
        ({"prefix": '[4, "k007"]'}, 1),
        ({"start": "[28]"}, 200),
        ({"start": "[28]", "stop": '[28, "k003"]'}, 3),
        ({"stop": "[0]"}, 0),
        ({"prefix": "[null]"}, 0),
    ):
        for relation in ("per", "pairs"):
            assert ranges_read(path, relation, [ds.GreaterThan(("a",), 100)], **options)[0] == expected, options
    assert read(spark, path, "pairs", start="[29]").where("v > 2000").count() == 34
    for options, message in (
        ({"prefix": "4"}, "is a JSON array"),
        ({"prefix": "[4]", "stop": "[5]"}, "name two ranges"),
        ({"prefix": '["x"]'}, "does not fit"),
        ({"prefix": '[1, "a", 2]'}, "3 were given"),
        ({"pushdown": "yes"}, "true or false"),
    ):
        with pytest.raises(DataError, match=message):
            ranges_read(path, "per", [], **options)


def test_parts_are_so_many_as_wanted(spark: SparkSession, tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "b.bv") as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.wait(db.put("t", pa.table({"id": range(200_000)})))
        rows, parts = ranges_read(str(tmp_path / "b.bv"), "t", [], partitions="3")
        assert (rows, parts) == (200_000, 3)
        frame = read(spark, str(tmp_path / "b.bv"), "t", partitions=3)
        assert frame.rdd.getNumPartitions() == 3 and frame.selectExpr("sum(id)").collect()[0][0] == 19999900000
        db.execute("CREATE TABLE empty (id BIGINT PRIMARY KEY)")
        assert read(spark, str(tmp_path / "b.bv"), "empty").collect() == []


def test_an_older_epoch_of_a_view_is_read_as_of(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "c.bv")
    with belvedere.open(path) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x FROM t")
        db.wait(db.put("t", [{"id": 1, "x": 1}]))
        with db.snapshot() as held:
            db.wait(db.put("t", [{"id": 1, "x": 2}, {"id": 2, "x": 2}]))
            assert [r.x for r in read(spark, path, "v", asOf=held.epoch).collect()] == [1]
            assert sorted(r.x for r in read(spark, path, "v").collect()) == [2, 2]
            with pytest.raises(Exception, match="keeps older epochs of views only"):
                read(spark, path, "t", asOf=held.epoch).collect()


def test_what_does_not_fit_is_refused_by_name(spark: SparkSession, shop: tuple[str, Database]) -> None:
    path, _ = shop
    good = {"database": path, "path": "per"}
    for options, message in (
        ({"path": "per"}, "needs the option 'database'"),
        ({"database": path}, "needs a table or view"),
        ({**good, "colour": "red"}, "no option 'colour'"),
        ({**good, "asOf": "now"}, "option 'asOf' is a whole number"),
        ({**good, "partitions": "0"}, "option 'partitions' is a whole number, 1 or more"),
        ({**good, "content": "rubbish"}, "one of rows, delta"),
        ({**good, "content": "state"}, "in the memory of its writing process"),
        ({"database": path, "path": "pairs", "content": "quarantine"}, "are of views only"),
        ({**good, "database": "https://shop"}, "cannot be read by Spark"),
    ):
        with pytest.raises(DataError, match=message):
            BelvedereSource(options).schema()
    source = BelvedereSource(good)
    schema = source.schema()
    with pytest.raises(DataError, match=r"column 'v' of 'per' is int, not string; cast it"):
        source.reader(type(schema)().add("v", "string"))
    with pytest.raises(DataError, match="has no column 'z'"):
        source.reader(type(schema)().add("z", "string"))
    with pytest.raises(EpochExpired):
        ranges_read(path, "per", [], asOf="5")
