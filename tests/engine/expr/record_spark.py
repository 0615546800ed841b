"""Records what Spark (ANSI mode, UTC) answers for a table of expressions into spark_recorded.json.

    python tests/engine/expr/record_spark.py        with pyspark >= 4 and Java 17

The test replays the file, so neither is needed to run it. Run this again after adding cases.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

Arg = tuple[str, str | None]
Case = tuple[str, str, tuple[Arg, ...]]
"""Our function, Spark's SQL with {0} for arguments, the arguments as (type, text)."""

INTS = ["0", "1", "-1", "7", "-7", "2147483647", "-2147483648", None]
LONGS = ["0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "4294967296", None]
DOUBLES = ["0.0", "-0.0", "1.5", "-2.5", "1e300", "NaN", "Infinity", "-Infinity", None]
D122 = ["0.00", "1.25", "-1.25", "9999999999.99", "-9999999999.99", "0.05", None]
D3818 = ["0", "1.5", "-99999999999999999999.999999999999999999", "0.000000000000000001", "123.456", None]
D102 = ["0.00", "3.00", "-0.07", "99999999.99", None]
STRINGS = ["", "a", "Hello World", "äöü ß", "日本語テキスト", "  x  ", "a%b_c", "x\x00y", "\t tab", None]
BINARY = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "mod": "{0} % {1}", "pmod": "pmod({0}, {1})"}
COMPARE = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "null_safe_eq": "<=>"}


def cases() -> list[Case]:
    out: list[Case] = []

    def table(name: str, sql: str, *columns: tuple[str, list[Any]], all: bool = True) -> None:
        rows = itertools.product(*(v for _, v in columns)) if all else zip(*(v for _, v in columns), strict=True)
        for row in rows:
            out.append((name, sql, tuple((t, v) for (t, _), v in zip(columns, row, strict=True))))

    for name, sql in BINARY.items():
        for t, v in (("int", INTS), ("bigint", LONGS), ("double", DOUBLES)):
            table(name, sql, (t, v), (t, v[1::2] + v[2:3] if name != "pmod" else v[:5]))
        for a, b in (("decimal(12,2)", D122), ("decimal(38,18)", D3818)), (("decimal(38,18)", D3818),) * 2:
            table(name, sql, a, b)
        table(name, sql, ("decimal(12,2)", D122), ("decimal(10,2)", D102))
    for a, b in (
        (("decimal(12,2)", D122), ("decimal(10,2)", D102)),
        (("decimal(38,18)", D3818), ("decimal(12,2)", D122)),
        (("decimal(12,2)", D122), ("decimal(38,18)", D3818)),
        (("double", DOUBLES), ("double", DOUBLES)),
    ):
        table("div", "{0} / {1}", a, b)
    table("intdiv", "{0} div {1}", ("bigint", LONGS), ("bigint", LONGS))
    for name, sql in (("neg", "-{0}"), ("abs", "abs({0})")):
        for t, v in (("int", INTS), ("bigint", LONGS), ("double", DOUBLES), ("decimal(12,2)", D122)):
            table(name, sql, (t, v))
    for name, op in COMPARE.items():
        table(name, f"{{0}} {op} {{1}}", ("double", DOUBLES), ("double", DOUBLES))
        table(name, f"{{0}} {op} {{1}}", ("string", STRINGS[:6] + [None]), ("string", STRINGS[:6] + [None]))
        table(name, f"{{0}} {op} {{1}}", ("boolean", ["true", "false", None]), ("boolean", ["true", "false", None]))
    for name in ("upper", "lower", "trim", "ltrim", "rtrim", "length", "reverse", "initcap"):
        words = [*STRINGS, "sTRASSE straße", "ǆ ΑΣ", "one-two three_four\tfive  six", "ﬁsh"]
        table(name, f"{name}({{0}})", ("string", words))
    positions = ["0", "1", "2", "-1", "-3", "-20", "20", "2147483647", "-2147483648", None]
    table(
        "substring",
        "substring({0}, {1}, {2})",
        ("string", STRINGS[:6]),
        ("int", positions),
        ("int", ["0", "2", "-1", "100", "2147483647"]),
    )
    table("concat", "concat({0}, {1})", ("string", STRINGS), ("string", ["", "é", None]))
    for name, sql in (
        ("starts_with", "startswith({0}, {1})"),
        ("ends_with", "endswith({0}, {1})"),
        ("contains", "contains({0}, {1})"),
        ("instr", "instr({0}, {1})"),
    ):
        table(name, sql, ("string", STRINGS), ("string", ["", "o", "ß", "語", "\x00", "x", None]))
    table(
        "replace",
        "replace({0}, {1}, {2})",
        ("string", STRINGS),
        ("string", ["", "l", "ö", "x"]),
        ("string", ["", "LL", "語"]),
    )
    for name in ("lpad", "rpad"):
        table(
            name,
            f"{name}({{0}}, {{1}}, {{2}})",
            ("string", STRINGS[:5]),
            ("int", ["-1", "0", "2", "14"]),
            ("string", ["", "xy", "é"]),
        )
    table("repeat", "repeat({0}, {1})", ("string", STRINGS[:5]), ("int", ["-1", "0", "3", None]))
    for name, sql in (
        ("trim_chars", "trim(BOTH {1} FROM {0})"),
        ("ltrim_chars", "trim(LEADING {1} FROM {0})"),
        ("rtrim_chars", "trim(TRAILING {1} FROM {0})"),
    ):
        table(name, sql, ("string", ["xxaxx", "äöxä", "", "abc"]), ("string", ["x", "äx", "", "cba"]))
    patterns = [
        "",
        "%",
        "a%",
        "%World",
        "%lo W%",
        "_",
        "H_llo%",
        "a\\%b\\_c",
        "äö_ %",
        "___",
        "%テ%",
        "a%b_c",
        "%%",
        "x_y",
        "Hello World",
        None,
    ]
    table("like", "{0} LIKE {1}", ("string", STRINGS), ("string", patterns))
    table("like", "{0} LIKE {1}", ("string", ["a\\b", "a\nb"]), ("string", ["a\\\\b", "a\\b", "a\\", "a_b", "a%"]))
    numbers = [
        "0.5",
        "1.5",
        "2.5",
        "-0.5",
        "-2.5",
        "1.005",
        "2.675",
        "1234567.891",
        "1e20",
        "NaN",
        "Infinity",
        "-0.4",
        "5e-324",
        "123.45500000001",
    ]
    for scale in ("0", "1", "2", "-2", "5"):
        table("round", "round({0}, " + scale + ")", ("double", numbers), ("int", [scale]))
        table("round", "round({0}, " + scale + ")", ("decimal(12,2)", D122), ("int", [scale]))
        table("round", "round({0}, " + scale + ")", ("decimal(38,18)", D3818), ("int", [scale]))
        table("round", "round({0}, " + scale + ")", ("int", INTS + ["150", "-150"]), ("int", [scale]))
    for name in ("floor", "ceil"):
        table(name, f"{name}({{0}})", ("double", DOUBLES + ["1e19", "-0.5"]))
        table(name, f"{name}({{0}})", ("decimal(12,2)", D122))
        table(name, f"{name}({{0}})", ("decimal(38,18)", D3818))
    for name in ("greatest", "least"):
        table(
            name,
            f"{name}({{0}}, {{1}}, {{2}})",
            ("double", DOUBLES),
            ("double", DOUBLES[::3] + [None]),
            ("double", ["1.0", None]),
        )
        table(name, f"{name}({{0}}, {{1}})", ("string", STRINGS[:5] + [None]), ("string", ["b", None]))
    for name in ("sign", "sqrt", "exp", "ln"):
        table(name, f"{name}({{0}})", ("double", [*DOUBLES, "2.0", "0.25"]))
    table("power", "power({0}, {1})", ("double", DOUBLES), ("double", DOUBLES))
    dates = [
        "0001-01-01",
        "1582-10-15",
        "1900-02-28",
        "1969-12-31",
        "1970-01-01",
        "2000-02-29",
        "2021-01-03",
        "2024-12-30",
        "9999-12-31",
        None,
    ]
    for name in ("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekofyear", "last_day"):
        table(name, f"{name}({{0}})", ("date", dates))
    table("date_add", "date_add({0}, {1})", ("date", dates[3:7]), ("int", ["0", "-1", "366", None]))
    table("date_sub", "date_sub({0}, {1})", ("date", dates[3:7]), ("int", ["0", "-1", "366", None]))
    table("datediff", "datediff({0}, {1})", ("date", dates), ("date", dates[3:6]))
    table(
        "add_months",
        "add_months({0}, {1})",
        ("date", ["2024-01-31", "2023-03-31", "2024-02-29", "1970-01-01"]),
        ("int", ["0", "1", "-1", "12", "-13", "11"]),
    )
    for unit in ("year", "quarter", "month", "week"):
        table("trunc", "trunc({0}, {1})", ("date", dates), ("string", [unit]))
    stamps = [
        "0002-01-01 00:00:00",
        "1969-12-31 23:59:59.999999",
        "1970-01-01 00:00:00",
        "2024-02-29 13:14:15.678901",
        "9999-12-31 23:59:59.5",
        None,
    ]
    for name in ("hour", "minute", "second"):
        table(name, f"{name}({{0}})", ("timestamp", stamps))
    for unit in (
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "minute",
        "second",
        "millisecond",
        "microsecond",
        "nope",
    ):
        table("date_trunc", "date_trunc({0}, {1})", ("string", [unit]), ("timestamp", stamps))
    texts: dict[str, list[str]] = {
        "int": [
            "1",
            " 1 ",
            "+5",
            "-0",
            "",
            "1.0",
            "1e3",
            "2147483648",
            "-2147483648",
            "\t12\n",
            "1 2",
            "0x1",
            "１",
            "00012",
            "+",
            "1L",
        ],
        "bigint": [
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            " 000000000000000000001",
            "x",
            "1.",
        ],
        "double": [
            "1",
            "1.",
            ".5",
            "-.5e3",
            "1e400",
            "1e-400",
            "inf",
            "-Infinity",
            "+inf",
            "nan",
            "NaN",
            "1d",
            "1F",
            "0x1p3",
            "",
            " ",
            "1_0",
            "-nan",
            "1e",
            "3.14 ",
            "infinit",
            "123456789012345678901234567890",
        ],
        "boolean": ["t", "TRUE", "yes", "Y", "1", "f", "False", "no", "n", "0", " true ", "2", "", "on", "tru"],
        "decimal(5,2)": [
            "1",
            "1.005",
            "1.004999",
            "-1.005",
            "999.994",
            "999.995",
            "1e2",
            "1E-2",
            "1e-30",
            "",
            ".5",
            "5.",
            " 7 ",
            "abc",
            "1e40",
            "99999",
            "+1",
        ],
        "decimal(38,10)": [
            "12345678901234567890.12345678905",
            "1e27",
            "1e28",
            "-0.00000000005",
            "0.00000000004",
            "1e38",
            "1e-50",
        ],
        "date": [
            "2024-02-29",
            "2024-2-9",
            "2024",
            "2024-02",
            "2023-02-29",
            "2024-02-29 ",
            "2024-02-29T12",
            "2024-02-29 xyz",
            "2024-02-29x",
            "0001-01-01",
            "24-01-01",
            "2024/01/01",
            "",
            "20240101",
            "2024-13-01",
            "2024-00-10",
        ],
        "timestamp": [
            "2024-02-29 12:13:14",
            "2024-02-29T12:13:14.5Z",
            "2024-02-29 12:13",
            "2024-02-29 1:2:3",
            "2024-02-29",
            "2024",
            "2024-02",
            "2024-02-29 12:13:14.123456789",
            "2024-02-29 12:13:14+01:00",
            "2024-02-29 12:13:14 +01:00",
            "2024-02-29 12:13:14UTC",
            "2024-02-29 12:13:14 Europe/Berlin",
            "2024-02-29 12:13:14+1:0",
            "2024-02-29 12:13:14-0800",
            "2024-02-29 12:13:14+19:00",
            "2024-02-29 24:00:00",
            "2024-02-29 12:60:00",
            "2024-02-30 00:00:00",
            "",
            "2024-02-29 12",
            "2024-02-29T",
            "2024-02-29 12:13:14.",
            "2024-03-31 02:30:00 Europe/Berlin",
            "2024-10-27 02:30:00 Europe/Berlin",
            "2024-02-29 12:13:14 nowhere",
            " 2024-02-29 12:13:14 ",
            "2024-02-29 12:13:14+05",
            "2024-02-29 12:13:14 GMT+2",
        ],
        "binary": ["", "abc", "äß"],
    }
    for target, spellings in texts.items():
        table("cast", "CAST({0} AS " + target + ")", ("string", [*spellings, None]))
        table("try_cast", "TRY_CAST({0} AS " + target + ")", ("string", spellings[::3]))
    reals = [
        *DOUBLES,
        "2147483647.9",
        "2147483648.0",
        "-2147483648.9",
        "-2147483649.0",
        "9.223372036854775807e18",
        "9.3e18",
        "0.1",
        "1e7",
        "9999999.0",
        "1e-3",
        "9.99e-4",
        "123456.789",
        "1.005",
        "5e-324",
        "1.7976931348623157e308",
        "100.0",
        "1e21",
        "2.5e-3",
        "1.0E10",
        "999.995",
        "-1e18",
    ]
    for target in ("int", "bigint", "boolean", "string", "decimal(5,2)", "decimal(38,10)", "decimal(18,18)"):
        table("cast", "CAST({0} AS " + target + ")", ("double", reals))
    for target in (
        "int",
        "bigint",
        "double",
        "boolean",
        "string",
        "decimal(5,2)",
        "decimal(38,10)",
        "decimal(10,0)",
        "timestamp",
    ):
        table("cast", "CAST({0} AS " + target + ")", ("int", [v for v in INTS if target != "int"]))
        if target != "bigint":
            table(
                "cast",
                "CAST({0} AS " + target + ")",
                ("bigint", [v for v in LONGS if target != "timestamp" or v is None or len(v) < 12]),
            )
        table(
            "cast",
            "CAST({0} AS " + target + ")",
            ("decimal(12,2)", D122[:3] + D122[5:] if target == "timestamp" else [*D122, "1.99", "-1.99"]),
        )
        table(
            "cast",
            "CAST({0} AS " + target + ")",
            ("decimal(38,18)", [v for v in D3818 if target != "timestamp" or v is None or len(v) < 30]),
        )
    for target in ("int", "bigint", "double", "string", "decimal(5,2)", "decimal(38,10)"):
        table("cast", "CAST({0} AS " + target + ")", ("boolean", ["true", "false", None]))
    for target in ("string", "date", "bigint", "double", "decimal(20,6)", "int"):
        table("cast", "CAST({0} AS " + target + ")", ("timestamp", stamps))
    table(
        "cast",
        "CAST({0} AS timestamp)",
        ("double", ["0.0", "1.5", "-1.5", "1e9", "0.0000019", "-0.0000019", "NaN", "Infinity"]),
    )
    table("cast", "CAST({0} AS string)", ("date", dates))
    table("cast", "CAST({0} AS timestamp)", ("date", dates))
    table("coalesce", "coalesce({0}, {1}, {2})", ("int", ["1", None]), ("int", ["2", None]), ("int", ["3", None]))
    table("nullif", "nullif({0}, {1})", ("int", ["1", "2", None]), ("int", ["1", None]))
    table("nullif", "nullif({0}, {1})", ("double", DOUBLES), ("double", ["NaN", "0.0"]))
    table("in", "{0} IN ({1}, {2})", ("int", ["1", "2", None]), ("int", ["1", None]), ("int", ["3", None]))
    for name in ("and", "or"):
        table(name, "{0} " + name + " {1}", ("boolean", ["true", "false", None]), ("boolean", ["true", "false", None]))
    return out


def literal(type: str, text: str | None) -> str:
    if text is None:
        return f"CAST(NULL AS {type})"
    quoted = "'" + "".join(c if c.isascii() and c.isalnum() else f"\\u{ord(c):04x}" for c in text) + "'"
    return quoted if type == "string" else f"CAST({quoted} AS {type})"


_CODES = {
    "DIVIDE_BY_ZERO": "DIVISION",
    "REMAINDER_BY_ZERO": "DIVISION",
    "ARITHMETIC_OVERFLOW": "OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW": "OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE": "OVERFLOW",
    "CAST_OVERFLOW": "OVERFLOW",
    "CAST_INVALID_INPUT": "CAST",
}


def encode(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def answer(batch: list[Case]) -> list[tuple[Any, str | None]]:
        """(Spark's type, value or !error) of each case; a batch that fails is halved until the culprit stands alone."""
        columns = [f"{c[1].format(*(literal(*a) for a in c[2]))} AS c{i}" for i, c in enumerate(batch)]
        try:
            frame = spark.sql("SELECT " + ", ".join(columns))
            row = frame.collect()[0]
        except (PySparkException, ValueError) as error:
            if len(batch) > 1:
                half = len(batch) // 2
                return answer(batch[:half]) + answer(batch[half:])
            if isinstance(error, ValueError):
                return [(None, None)]  # a year that Python cannot hold: nothing to compare with
            name = (error.getCondition() or "").split(".")[0]
            try:
                type = frame.schema[0].dataType.simpleString()
            except (UnboundLocalError, PySparkException):
                type = None
            return [(type, "!" + _CODES.get(name, name))]
        return [(frame.schema[i].dataType.simpleString(), encode(v)) for i, v in enumerate(row)]

    records = []
    everything = cases()
    for start in range(0, len(everything), 16):
        batch = everything[start : start + 16]
        for case, (type, result) in zip(batch, answer(batch), strict=True):
            records.append([case[0], type, [list(a) for a in case[2]], result])
        if start % 512 == 0:
            save(records)
    save(records)


def save(records: list[Any]) -> None:
    lines = ",\n".join(json.dumps(r, ensure_ascii=True) for r in records)
    Path(__file__).with_name("spark_recorded.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
