"""Records what Spark (ANSI mode, UTC) makes of BINARY in every function that takes a string, into spark_binary.json.

    python tests/sql/record_binary.py        with pyspark >= 4 and Java 17

One record per expression: [sql, type, [value of each row]], or [sql, null, error] where Spark refuses it. Values are
texts; those of strings and binaries are the hex digits of their bytes, since strings of Spark need not be UTF-8. "!" is
a row that fails.
The test replays the file, so neither is needed to run it. Run this again after adding expressions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("spark_binary.json")
ROWS = (
    ("61ff62", "20ff", "ab", 2),
    ("2061622020", "6162", " ", 1),
    ("", "20", "", 0),
    ("c3", "a4", "x", -1),
    ("c3a4c3b6", None, "ö", 3),
    ("323032342d30312d3032", "2d", "2024", 5),
)
"""Columns b BINARY, c BINARY, s STRING, n INT; the first and the fourth row are not UTF-8."""
UTF8 = (1, 2, 4, 5)

EXPRESSIONS = """
b || c | b || s | s || b | b || n | n || b | b || c || s | s || b || c | b || (c || s) | concat(b) | concat(b, c)
concat(b, s) | concat(b, c, b) | concat(c, b, s, n) | concat(b, null) | b || null | substring(b, 1, 2)
substring(b, 2) | substring(b, -1) | substring(b, 0, 2) | substring(b, -2, 1) | substring(b, n, n)
substring(b, -7, 4) | substring(b, n) | substring(b from 2 for 1) | substr(b, 2) | substring(s, b, 1)
substring(b, 2, -1) | left(b, 2) | left(b, 0) | left(b, -1) | left(b, n) | left(s, b) | right(b, 2) | right(b, 0)
right(b, n) | right(s, b) | upper(b) | ucase(b) | lower(b) | lcase(b) | initcap(b) | reverse(b) | reverse(b || c)
trim(b) | ltrim(b) | rtrim(b) | btrim(b) | trim(both ' ' from b) | trim(leading c from b) | trim(trailing s from b)
trim(both b from s) | ltrim(' ', b) | ltrim(c, b) | rtrim(b, s) | trim(' ', b) | length(b) | length(b || c)
char_length(b) | character_length(b) | len(b) | replace(b, 'a') | replace(b, 'a', 'b') | replace(b, s, c)
replace(s, b, s) | replace(b, b, b) | startswith(b, c) | startswith(b, x'61') | startswith(b, x'') | startswith(b, s)
startswith(s, b) | startswith(b, ' ') | endswith(b, c) | endswith(b, x'62') | endswith(b, s) | endswith(s, b)
endswith(b, x'') | contains(b, c) | contains(b, x'ff') | contains(b, x'1f') | contains(b, x'') | contains(b, s)
contains(s, b) | contains(b, n) | lpad(b, 5) | lpad(b, 5, c) | lpad(b, 6, c) | lpad(b, 5, s) | lpad(b, n)
lpad(b, n, c) | lpad(b, 2) | lpad(b, 0, c) | lpad(b, -1, c) | lpad(b, 5, x'') | lpad(s, 5, c) | lpad(s, 5, b)
lpad(b, 5, 'xy') | lpad(s, b) | lpad(b, b) | rpad(b, 5) | rpad(b, 5, c) | rpad(b, 6, c) | rpad(b, 5, s) | rpad(b, n)
rpad(b, n, c) | rpad(b, 2) | rpad(b, 0, c) | rpad(b, -1, c) | rpad(b, 5, x'') | rpad(s, 5, c) | rpad(s, 5, b)
rpad(b, 5, 'xy') | repeat(b, 2) | repeat(b, n) | repeat(b, 0) | repeat(s, b) | instr(b, c) | instr(b, 'a')
instr(s, b) | locate('a', b) | locate(c, b) | position('a' in b) | b like '%a%' | b like c | s like b
b not like '_%' | b = s | b = c | b <> s | b < c | b >= s | b <=> s | b <=> c | b in (c, s) | s in (b) | b in (c)
b between c and b | case when n > 1 then b else s end | case b when s then 1 else 2 end | coalesce(c, s)
coalesce(s, c) | coalesce(c, b) | nullif(b, s) | nullif(s, b) | nullif(b, c) | if(n > 1, b, s) | nvl(c, s)
nvl2(c, b, s) | greatest(b, c) | least(b, c) | greatest(b, s) | least(s, b) | cast(b as string) | string(b)
try_cast(c as string) | cast(s as binary) | binary(s) | cast(n as binary) | cast(cast(n as bigint) as binary)
cast(true as binary) | cast(1.5 as binary) | cast(1e0 as binary) | cast(date '2024-01-01' as binary)
cast(timestamp '2024-01-01' as binary) | binary(n) | try_cast(n as binary) | cast(b as int) | cast(b as bigint)
cast(b as double) | cast(b as decimal(10,2)) | cast(b as boolean) | cast(b as date) | cast(b as timestamp) | int(b)
date(b) | to_date(b) | to_timestamp(b) | year(b) | month(b) | day(b) | quarter(b) | hour(b) | minute(b) | second(b)
dayofweek(b) | dayofyear(b) | weekofyear(b) | weekday(b) | last_day(b) | datediff(b, b) | date_add(b, 1)
date_sub(b, 1) | add_months(b, 1) | date_trunc('year', b) | trunc(b, 'year') | extract(year from b)
b + interval '1' day | b + 1 | 1 - b | b * n | b / 2 | b % 2 | b div 2 | -b | abs(b) | sign(b) | sqrt(b) | exp(b)
ln(b) | power(b, 2) | round(b) | floor(b) | ceil(b) | mod(b, 2) | pmod(b, 2) | isnan(b) | not b | b and true
b is true | b is null | isnull(b) | isnotnull(b) | b is distinct from c
"""


def expressions() -> list[str]:
    return [e.strip() for line in EXPRESSIONS.strip().splitlines() for e in line.split(" | ")]


def _bytes(digits: str | None) -> str:
    return "cast(null as binary)" if digits is None else f"x'{digits}'"


def main() -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    rows = ", ".join(f"({i}, x'{b}', {_bytes(c)}, '{s}', {n})" for i, (b, c, s, n) in enumerate(ROWS))
    spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, b, c, s, n)").createOrReplaceTempView("t")

    def value(sql: str, type: str, row: int) -> str | None:
        shown = f"hex({sql})" if type == "binary" else f"hex(cast({sql} as binary))"
        shown = shown if type in ("binary", "string") else f"cast({sql} as string)"
        try:
            found = spark.sql(f"SELECT {shown} AS r FROM t WHERE id = {row}").collect()[0][0]
        except PySparkException:
            return "!"
        return found.lower() if type in ("binary", "string") and found is not None else found

    records: list[list[Any]] = []
    for sql in expressions():
        try:
            type = spark.sql(f"SELECT {sql} AS r FROM t").schema[0].dataType.simpleString()
        except PySparkException as error:
            records.append([sql, None, error.getCondition()])
            continue
        records.append([sql, type, [value(sql, type, row) for row in range(len(ROWS))]])
    FILE.write_text("[\n" + ",\n".join(json.dumps(r) for r in records) + "\n]\n")


if __name__ == "__main__":
    main()
