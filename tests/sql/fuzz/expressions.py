"""Random scalar expressions as SQL text: mostly of the wanted type, sometimes of any other."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from belvedere.sql import functions

FAMILIES = ("boolean", "int", "bigint", "double", "decimal", "string", "binary", "date", "timestamp")
NAMES = [*functions.names(), *sorted(functions.AGGREGATES), *sorted(functions.OTHER_AGGREGATES | functions.WINDOW_ONLY)]
"""Every function, also those that are refused."""

_INTS = "0 1 2 -1 7 10 100 2147483647 -2147483648 2147483648".split()
_LONGS = [*_INTS, "9223372036854775807", "-9223372036854775808", "3000000000", "1L"]
_TEXTS = [
    "",
    " ",
    "a",
    "ab",
    "%",
    "_",
    "a%b\\\\",
    "ä",
    "日本",
    "1",
    "-1.5",
    "NaN",
    "1e400",
    "true",
    "2024-02-30",
    "it''s",
]
LITERALS: dict[str, Sequence[str]] = {
    "boolean": ("true", "false", "null"),
    "int": _INTS,
    "bigint": _LONGS,
    "double": ("0e0", "-0e0", "1.5e0", "1e300", "1e400", "-1e400", "cast('NaN' AS DOUBLE)", "1D", "1e-400"),
    "decimal": ("0.0", "1.50", "-0.00", "12345678901234567890.123", "." + "1" * 38, "2.5BD", "1.", ".5"),
    "string": [*(f"'{text}'" for text in _TEXTS), '"x"', "'a' 'b'", "r'\\d'", "'\\n'", "'\\u00e4'"],
    "binary": ("x''", "x'00'", "X'ff61'", "cast('a' AS BINARY)"),
    "date": ("date '2024-02-29'", "date '0001-01-01'", "date '9999-12-31'", "cast('x' AS DATE)"),
    "timestamp": (
        "timestamp '2024-02-29 12:30:00.123456'",
        "timestamp '2024-01-01T00:00:00+01:00'",
        "timestamp '9999-12-31 23:59:59.999999'",
    ),
}
"""Constants of each family."""
WRONG = (
    "99999999999999999999", "9" * 38, "9" * 39, "0." + "0" * 39 + "1", "x'616'", "x'zz'", "date '2024-02-30'",
    "timestamp 'x'", "timestamp '0001-01-01 00:00:00 +18:00'", "date 'x'", "1e999999999", "int 'x'", "interval 'x'",
    "'", "1BD", "1S", "1Y", "1F", "boolean 'x'", "decimal '1'", "timestamp_ntz '2024-01-01'",
    "-99999999999999999999", "0x1F", "1__0", "1e", "b'01'", "$$x$$",
)  # fmt: skip
"""Constants that nobody should write."""

_INTERVALS = (
    "interval '1' day", "interval 2 months", "interval '1-2' year to month", "interval '-3' hours",
    "interval 1.5 second", "interval '3' week", "interval 1 year",
)  # fmt: skip
_WRONG_INTERVALS = (
    "interval '99999999999' day", "interval 'x' week", "interval '1' fortnight", "interval '1e9' years",
    "interval 1 day 2 hours", "interval '1e999999' second", "interval 'NaN' hour", "interval 'Infinity' day",
    "interval '1' ", "interval c0 day",
)  # fmt: skip
_UNITS = ("'year'", "'month'", "'week'", "'quarter'", "'MM'")
_WRONG_UNITS = ("'century'", "s", "null", "1", "'hour'", "x'61'", "id")
_PARTS = ("year", "month", "day", "week", "dow", "doy", "hour", "minute")
_WRONG_PARTS = ("second", "century", "'year'", "x", "1", "null")

TEMPLATES: dict[str, Sequence[str]] = {
    "boolean": (
        "{any} = {same}", "{any} <> {same}", "{any} < {same}", "{any} >= {same}", "{any} <=> {same}",
        "not {boolean}", "{boolean} and {boolean}", "{boolean} or {boolean}", "{any} is null", "{any} is not null",
        "{boolean} is true", "{any} in ({same}, {same})", "{any} not in ({same})", "{any} between {same} and {same}",
        "{string} like {string}", "{string} not like {string} escape '!'", "isnan({double})",
        "startswith({string}, {string})", "contains({binary}, {binary})", "{any} is distinct from {same}",
        "{boolean} is not false", "({boolean})",
    ),
    "int": (
        "{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} % {int}", "-{int}", "abs({int})",
        "length({string})", "length({binary})", "year({date})", "datediff({date}, {date})",
        "instr({string}, {string})", "extract({part} from {date})", "position({string} in {string})",
        "pmod({int}, {int})", "cast({number} as int)", "cast({string} as int)", "hour({timestamp})",
        "weekday({date})", "locate({string}, {string})", "int({string})", "dayofweek({date})",
        "try_cast({string} as int)", "date_part({unit}, {date})",
    ),
    "bigint": (
        "{bigint} + {int}", "{int} div {int}", "floor({double})", "cast({number} as bigint)",
        "cast({string} as bigint)", "ceil({decimal})", "-{bigint}",
    ),
    "double": (
        "{double} + {double}", "{double} / {int}", "{int} / {int}", "sqrt({double})", "power({double}, {int})",
        "ln({double})", "round({double}, 2)", "cast({number} as double)", "cast({string} as double)",
        "sign({decimal})", "exp({double})", "{double} % {double}", "-{double}", "abs({double})", "double({string})",
    ),
    "decimal": (
        "{decimal} + {decimal}", "{decimal} * {decimal}", "{decimal} / {decimal}", "{decimal} % {int}",
        "round({decimal}, 1)", "cast({number} as decimal(12,2))", "cast({string} as decimal(12,2))",
        "cast({number} as decimal(38,18))", "cast({string} as decimal(38,18))", "-{decimal}", "round({decimal}, -2)",
        "ceil({decimal})", "abs({decimal})", "pmod({decimal}, {decimal})",
    ),
    "string": (
        "{string} || {string}", "concat({string}, {any})", "upper({string})", "substring({string}, {int}, {int})",
        "substring({string} from {int} for {int})", "left({string}, {int})", "right({string}, {int})",
        "trim({string})", "trim(both {string} from {string})", "replace({string}, {string}, {string})",
        "lpad({string}, 5, {string})", "rpad({string}, {int})", "repeat({string}, 3)", "reverse({string})",
        "initcap({string})", "cast({any} as string)", "ltrim({string}, {string})", "btrim({string})",
        "string({any})", "left({any}, 2)", "lower({any})",
    ),
    "binary": (
        "{binary} || {binary}", "concat({binary}, {binary})", "substring({binary}, {int}, 2)", "left({binary}, 2)",
        "right({binary}, {int})", "lpad({binary}, 4, {binary})", "rpad({binary}, 4)", "cast({string} as binary)",
        "reverse({binary})", "trim({binary})", "repeat({binary}, 2)", "upper({binary})",
    ),
    "date": (
        "{date} + {int}", "{date} - {int}", "date_add({date}, {int})", "add_months({date}, {int})",
        "last_day({date})", "trunc({date}, {unit})", "cast({timestamp} as date)", "cast({string} as date)",
        "{date} + {interval}", "to_date({string})", "date_sub({date}, {bigint})",
    ),
    "timestamp": (
        "{timestamp} + {interval}", "{date} - {interval}", "date_trunc({unit}, {timestamp})",
        "cast({date} as timestamp)", "cast({string} as timestamp)", "to_timestamp({string})",
        "{interval} + {timestamp}", "cast({double} as timestamp)",
    ),
}  # fmt: skip
ANY = (
    "case when {boolean} then {same} else {same} end", "case {any} when {any} then {same} end",
    "coalesce({same}, {same})", "nullif({same}, {same})", "if({boolean}, {same}, {same})",
    "greatest({same}, {same})", "least({same}, {same})", "({same})", "nvl({same}, {same})",
    "nvl2({any}, {same}, {same})", "try_cast({string} as {type})", "try_cast({any} as {type})", "{any}::{type}",
)  # fmt: skip
AGGREGATES = (
    "count(*)", "count({any})", "count(distinct {any})", "sum({number})", "avg({number})", "min({any})",
    "max({any})", "sum(distinct {number})", "count(*) filter (where {boolean})",
    "min({any}) filter (where {boolean})", "count_if({boolean})", "bool_and({boolean})", "any_value({any})",
    "sum({any})", "avg({any})", "count({any}, {any})", "median({any})", "every({any})",
)  # fmt: skip
ODD = (
    "*", "t1.*", "row_number() over (order by {any})", "sum({int}) over ()", "(select {any})", "exists (select 1)",
    "?", ":p", "@v", "{any}[0]", "{any}.x", "array({any})", "map({any}, {any})", "struct({any})", "x -> x",
    "current_date", "now()", "rand()", "{any} in (select 1)", "({any}, {any})", "{any} = any (select 1)",
    "interval '1' day", "{any} rlike {string}", "~{int}", "{any} ilike {string}", "{any} & {any}", "{any} is json",
    "explode({any})", "null", "+{any}", "not null", "{any} collate x", "unknown_function({any})",
    "cast({any} as {type} format 'x')", "extract(day from {any})", "{any} at time zone 'UTC'",
)  # fmt: skip
TYPES = (
    "boolean",
    "int",
    "bigint",
    "double",
    "decimal(10,2)",
    "decimal(38,0)",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
)
WRONG_TYPES = (
    "float", "smallint", "varchar(3)", "array<int>", "map<int,string>", "struct<a:int>", "decimal(0,0)",
    "interval day", "void", "x", "decimal(39,1)", "decimal(5,6)", "decimal(x)", "decimal(1,2,3)",
)  # fmt: skip


class Expressions:
    """Expressions over columns given as (text, family). `wild`: how often a type or a form is not the wanted one."""

    def __init__(self, rng: Random, columns: Sequence[tuple[str, str]], wild: float) -> None:
        self.rng, self.columns, self.wild = rng, columns, wild

    def any(self, depth: int = 2) -> str:
        return self.of(self.rng.choice(FAMILIES), depth)

    def of(self, family: str, depth: int = 2) -> str:
        """An expression that should be of this family."""
        rng = self.rng
        if rng.random() < self.wild:
            family = rng.choice(FAMILIES)
        if rng.random() < self.wild / 2:
            return self.fill(rng.choice(ODD), family, depth - 1)
        if rng.random() < self.wild / 2:
            return rng.choice(WRONG)
        if rng.random() < self.wild / 2:
            args = ", ".join(self.any(depth - 1) for _ in range(rng.randint(0, 4)))
            return f"{rng.choice(NAMES)}({args})"
        if depth <= 0 or rng.random() < 0.35:
            fitting = [text for text, found in self.columns if found == family]
            if fitting and rng.random() < 0.75:
                return rng.choice(fitting)
            return rng.choice(LITERALS[family])
        return self.fill(rng.choice(ANY if rng.random() < 0.2 else TEMPLATES[family]), family, depth - 1)

    def aggregate(self, depth: int = 1) -> str:
        return self.fill(self.rng.choice(AGGREGATES), "int", depth)

    def fill(self, template: str, family: str, depth: int) -> str:
        """The template with expressions in its holes; {any} and {same} agree if the family of {same} is free."""
        rng = self.rng
        same = family
        if "{any}" in template and template not in ANY:
            same = rng.choice(FAMILIES)
        out, rest = "", template
        while "{" in rest:
            before, _, tail = rest.partition("{")
            hole, _, rest = tail.partition("}")
            out += before + self._hole(hole, same, depth)
        return out + rest

    def _or(self, right: Sequence[str], wrong: Sequence[str]) -> str:
        return self.rng.choice(wrong if self.rng.random() < 2 * self.wild else right)

    def _hole(self, hole: str, same: str, depth: int) -> str:
        rng = self.rng
        match hole:
            case "any" | "same":
                return self._apart(self.of(same, depth))
            case "number":
                return self._apart(self.of(rng.choice(("int", "bigint", "double", "decimal")), depth))
            case "interval":
                return self._or(_INTERVALS, _WRONG_INTERVALS)
            case "unit":
                return self._or(_UNITS, _WRONG_UNITS)
            case "part":
                return self._or(_PARTS, _WRONG_PARTS)
            case "type":
                return self._or(TYPES, WRONG_TYPES)
        return self._apart(self.of(hole, depth))

    def _apart(self, text: str) -> str:
        """Mostly in parentheses where it needs them."""
        return f"({text})" if " " in text and self.rng.random() < 0.9 else text
