"""Check the expected rows of `.test` files against Spark itself, or record them (`--write`).

Runs in an environment with pyspark and pyarrow (not that of the package). Every `expect` and `quarantine` block is
computed from the naive model of the base tables at that step, with the view's own SQL text: Spark's dialect is ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException  # type: ignore[import-not-found]  # lives in its own environment
from pyspark.sql import DataFrame, SparkSession  # type: ignore[import-not-found]

from tests.oracle.model import Table
from tests.oracle.values import text
from tests.views.format import Block, File, State, parse, render, steps

REASONS = {
    "DIVIDE_BY_ZERO": "division by zero",
    "REMAINDER_BY_ZERO": "division by zero",
    "ARITHMETIC_OVERFLOW": "value out of range",
    "BINARY_ARITHMETIC_OVERFLOW": "value out of range",
    "NUMERIC_VALUE_OUT_OF_RANGE": "value out of range",
    "CAST_OVERFLOW": "value out of range",
    "DATETIME_OVERFLOW": "value out of range",
    "CAST_INVALID_INPUT": "cast of a value that does not fit",
}
"""Spark's error classes (without subclass) as the reasons of our quarantine."""


class Failed(Exception):
    """A query that Spark refused to finish, with our name for the reason."""


def session() -> SparkSession:
    """A small local Spark with ANSI on and UTC."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").appName("record")
    settings = {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Recorder:
    """Answers the checks of one file, step by step."""

    def __init__(self, spark: SparkSession, file: File) -> None:
        self.spark, self.file, self.state = spark, file, State()

    def answer(self, check: Block) -> list[str]:
        """The body that a check should have according to Spark."""
        sql = self.state.views[check.target]
        if check.kind == "expect" and not self._has_quarantine():
            self._tables({})
            return _lines(*self._collect(sql))
        names, types, rows, failed = self._parts(sql)
        if check.kind == "expect":
            return _lines(names, types, rows)
        columns, _ = self._partition()
        header = " | ".join([*columns, "reason"])
        return [header, *sorted(" | ".join([*key, reason]) for key, reason in failed)]

    def _has_quarantine(self) -> bool:
        """Whether the file's queries are to be asked part by part."""
        return "spark-partition" in self.file.options or any(b.kind == "quarantine" for b in self.file.blocks)

    def _partition(self) -> tuple[list[str], Table]:
        """Columns and table by whose values a query is run part by part."""
        option = self.file.options.get("spark-partition")
        if option is None:
            (table,) = self.state.base.tables.values()
            return list(table.key), table
        name, columns = option.split()
        return columns.split(","), self.state.base.tables[name]

    def _parts(self, sql: str) -> tuple[list[str], list[str], list[tuple[Any, ...]], list[tuple[list[str], str]]]:
        columns, table = self._partition()
        positions = [list(table.columns).index(c) for c in columns]
        kinds = [table.columns[c] for c in columns]
        parts: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for row in table.live():
            key = tuple(text(row[p], k) for p, k in zip(positions, kinds, strict=True))
            parts.setdefault(key, []).append(row)
        self._tables({table.name: []})
        names, types, _ = self._collect(sql, schema_only=True)
        rows: list[tuple[Any, ...]] = []
        failed = []
        for key, part in parts.items():
            self._tables({table.name: part})
            try:
                rows += self._collect(sql)[2]
            except Failed as reason:
                failed.append((list(key), str(reason)))
        return names, types, rows, failed

    def _tables(self, instead: dict[str, list[tuple[Any, ...]]]) -> None:
        for table in self.state.base.tables.values():
            schema = ", ".join(f"{name} {type}" for name, type in table.columns.items())
            rows = [
                tuple(bytearray(v) if isinstance(v, bytes) else v for v in row)
                for row in instead.get(table.name, list(table.live()))
            ]
            self.spark.createDataFrame(rows, schema).createOrReplaceTempView(table.name)
        for name, sql in self.state.views.items():
            self._define(name, sql)

    def _define(self, name: str, sql: str) -> None:
        self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {sql}")

    def _collect(self, sql: str, schema_only: bool = False) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
        try:
            frame: DataFrame = self.spark.sql(sql)
            names = [f.name for f in frame.schema.fields]
            types = [f.dataType.simpleString() for f in frame.schema.fields]
            rows = [] if schema_only else [tuple(row) for row in frame.collect()]
        except PySparkException as error:
            condition = (error.getCondition() or "").split(".")[0]
            raise Failed(REASONS.get(condition, f"spark: {condition} {error}")) from None
        return names, types, rows


def _lines(names: list[str], types: list[str], rows: list[tuple[Any, ...]]) -> list[str]:
    return render(names, types, rows)


def untyped(lines: list[str]) -> list[str]:
    """The header without types, for files that do not give them."""
    return [" | ".join(c.split(":")[0] for c in lines[0].split(" | ")), *lines[1:]]


def process(spark: SparkSession, path: Path, write: bool) -> list[str]:
    """Differences of one file; with `write`, the file is brought in line instead."""
    file = parse(path)
    if "spark-skip" in file.options:
        return []
    recorder = Recorder(spark, file)
    problems, answers = [], {}
    for step, checks in steps(file):
        recorder.state.apply(step)
        for check in checks:
            try:
                wanted = recorder.answer(check)
            except (Failed, PySparkException) as error:
                problems.append(f"{path.name}:{check.line}: {error}".replace("\n", " ")[:400])
                continue
            given = [check.body[0], *sorted(check.body[1:])] if check.body else []
            if check.kind == "expect" and given and ":" not in given[0]:
                wanted = untyped(wanted)
            if given != wanted:
                answers[check.line] = wanted
                if not write or given:
                    problems.append(f"{path.name}:{check.line}: has {given}, Spark says {wanted}")
    for name in [*recorder.state.views, *recorder.state.base.tables]:
        spark.catalog.dropTempView(name)
    if write and answers:
        _rewrite(path, answers)
    return problems


def _rewrite(path: Path, answers: dict[int, list[str]]) -> None:
    out: list[str] = []
    skipping = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if skipping and line.strip():
            continue
        skipping = False
        out.append(line)
        if number in answers:
            out += answers[number]
            skipping = True
    path.write_text("\n".join(out) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="write Spark's rows into the files")
    options = parser.parse_args()
    files = options.files or sorted(Path(__file__).parent.glob("*.test"))
    spark = session()
    problems = []
    start = time.monotonic()
    for path in files:
        try:
            found = process(spark, path, options.write)
        except Exception as error:
            raise RuntimeError(f"while reading {path}") from error
        problems += found
        for problem in found:
            print(problem, flush=True)
    print(f"{len(files)} files, {len(problems)} differences, {time.monotonic() - start:.0f} s")
    spark.stop()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
