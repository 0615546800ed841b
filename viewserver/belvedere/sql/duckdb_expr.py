"""Bound expressions as DuckDB SQL: every cast, rounding and edge case of Spark spelled out where DuckDB can follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal

from belvedere.sql import functions
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.types import Kind, Type

Columns = Sequence[str]
"""DuckDB text of each input column."""

_NAMES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INTEGER",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BINARY: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.NULL: "INTEGER",
}


def type_name(type: Type) -> str:
    """The DuckDB name of a type."""
    return f"DECIMAL({type.precision},{type.scale})" if type.kind is Kind.DECIMAL else _NAMES[type.kind]


def quote(name: str) -> str:
    """A quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def string(text: str) -> str:
    """A string constant."""
    return "'" + text.replace("'", "''") + "'"


def literal(value: object, type: Type) -> str:
    """A typed constant."""
    name = type_name(type)
    if value is None:
        return f"CAST(NULL AS {name})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value) if math.isfinite(value) else str(value)
        return f"CAST({string(text)} AS DOUBLE)"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, bytes):
        return f"from_hex({string(value.hex())})"
    if isinstance(value, datetime):
        return f"TIMESTAMP {string(value.strftime('%Y-%m-%d %H:%M:%S.%f'))}"
    if isinstance(value, date):
        return f"DATE {string(value.isoformat())}"
    if isinstance(value, Decimal):
        return f"CAST({string(format(value, 'f'))} AS {name})"
    return f"CAST({value} AS {name})"


def cast_sql(text: str, source: Type, target: Type, word: str = "CAST") -> str:
    """A cast with Spark's rounding: towards zero into integers, half away from zero into decimals."""
    name = type_name(target)
    a, b = source.kind, target.kind
    if a is b and a is not Kind.DECIMAL:
        return text
    if b in (Kind.INT, Kind.BIGINT) and a in (Kind.DOUBLE, Kind.DECIMAL):
        return f"{word}(trunc({text}) AS {name})"
    if b in (Kind.INT, Kind.BIGINT) and a is Kind.TIMESTAMP:
        return f"{word}(floor(epoch_us({text}) / 1000000) AS {name})"
    if a is Kind.TIMESTAMP and b is Kind.STRING:
        trimmed = f"regexp_replace(strftime({text}, '%Y-%m-%d %H:%M:%S.%f'), '\\.?0+$', '')"
        return f"CASE WHEN epoch_us({text}) % 1000000 = 0 THEN strftime({text}, '%Y-%m-%d %H:%M:%S') ELSE {trimmed} END"
    if a is Kind.STRING and b is not Kind.BINARY:
        return f"{word}(trim({text}, ' ') AS {name})"
    if a is Kind.STRING and b is Kind.BINARY:
        return f"encode({text})"
    if a is Kind.BINARY and b is Kind.STRING:
        return f"decode({text})" if word == "CAST" else f"TRY(decode({text}))"
    if b is Kind.BOOLEAN:
        return f"({text} <> 0)"
    if a is Kind.BOOLEAN and b is Kind.DECIMAL:
        return f"{word}(CAST({text} AS INTEGER) AS {name})"
    return f"{word}({text} AS {name})"


def divide_exact(numerator: str, denominator: str, target: Type) -> str:
    """Quotient of two whole numbers (HUGEINT), already scaled to the target, rounded half up (away from zero)."""
    return (
        f"list_transform([{{'n': CAST({numerator} AS HUGEINT), 'd': CAST({denominator} AS HUGEINT)}}], lambda q: "
        f"CASE WHEN q.d = 0 AND q.n IS NOT NULL THEN CAST(error('division by zero') AS {type_name(target)}) ELSE "
        + unscaled_to_decimal(
            "(CASE WHEN (q.n < 0) <> (q.d < 0) THEN -1 ELSE 1 END) * ((2 * abs(q.n) + abs(q.d)) // (2 * abs(q.d)))",
            target,
        )
        + " END)[1]"
    )


def unscaled(text: str, type: Type) -> str:
    """The digits of a decimal as a whole number."""
    if type.scale == 0:
        return f"CAST({text} AS HUGEINT)"
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def unscaled_to_decimal(text: str, type: Type) -> str:
    """A whole number as the digits of a decimal."""
    name = type_name(type)
    if type.scale == 0:
        return f"CAST({text} AS {name})"
    # Through text: a multiplication by 10^-scale would not fit 38 digits.
    width = type.scale + 1
    digits = f"lpad(v.d, CAST(greatest({width}, length(v.d)) AS INTEGER), '0')"
    sign = "CASE WHEN v.n < 0 THEN '-' ELSE '' END"
    parts = f"{sign} || left({digits}, -{type.scale}) || '.' || right({digits}, {type.scale})"
    inner = f"list_transform([{text}], lambda n: {{'n': n, 'd': replace(CAST(n AS VARCHAR), '-', '')}})"
    return f"list_transform({inner}, lambda v: CAST({parts} AS {name}))[1]"


def _decimal_arithmetic(call: Call, a: str, b: str) -> str:
    left, right = call.args[0].type, call.args[1].type
    target = type_name(call.type)
    if call.name in ("add", "sub"):
        sign = "+" if call.name == "add" else "-"
        wide = f"DECIMAL(38,{max(left.scale, right.scale)})"
        return f"CAST((CAST({a} AS {wide}) {sign} CAST({b} AS {wide})) AS {target})"
    if call.name == "mul":
        if left.scale + right.scale > 38:
            return f"CAST(CAST({a} AS DOUBLE) * CAST({b} AS DOUBLE) AS {target})"
        return f"CAST(({a} * {b}) AS {target})"
    if call.name == "div":
        # a / b at scale s is unscaled(a) * 10^(s - s1 + s2) / unscaled(b)
        power = call.type.scale - left.scale + right.scale
        numerator, denominator = unscaled(a, left), unscaled(b, right)
        if power >= 0:
            numerator = f"{numerator} * CAST({10**power} AS HUGEINT)"
        else:
            denominator = f"{denominator} * CAST({10**-power} AS HUGEINT)"
        return divide_exact(numerator, denominator, call.type)
    wide = f"DECIMAL(38,{max(left.scale, right.scale)})"
    rest = f"(CAST({a} AS {wide}) % CAST({b} AS {wide}))"
    if call.name == "pmod":
        rest = f"CASE WHEN {rest} < 0 THEN ({rest} + {b}) % {b} ELSE {rest} END"
    return f"CAST({rest} AS {target})"


def _arithmetic(call: Call, args: list[str]) -> str:
    a, b = args
    if call.type.kind is Kind.DECIMAL:
        return _decimal_arithmetic(call, a, b)
    zero = f"{b} = 0 AND {a} IS NOT NULL"  # NULL / 0 is NULL, no error
    if call.name == "div":
        return f"CASE WHEN {zero} THEN CAST(error('division by zero') AS DOUBLE) ELSE {a} / {b} END"
    if call.name == "mod" and call.type.kind is Kind.DOUBLE:
        return f"CASE WHEN {zero} THEN CAST(error('division by zero') AS DOUBLE) ELSE {a} % {b} END"
    if call.name == "pmod":
        return f"CASE WHEN {a} % {b} < 0 THEN ({a} % {b} + {b}) % {b} ELSE {a} % {b} END"
    return f"({a} {_OPERATORS[call.name]} {b})"


def _case(call: Call, args: list[str]) -> str:
    whens = " ".join(f"WHEN {w} THEN {t}" for w, t in zip(args[0:-1:2], args[1:-1:2], strict=True))
    return f"CASE {whens} ELSE {args[-1]} END"


def _at_least_zero(text: str, expr: Expr) -> str:
    """A length; NULL stays NULL, which DuckDB's greatest would skip."""
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return f"CAST({max(expr.value, 0)} AS {type_name(expr.type)})"
    return f"CASE WHEN {text} < 0 THEN 0 ELSE {text} END"


def _binary_substring(text: str, start: str, length: str) -> str:
    # DuckDB has no substring of a BLOB: two hexadecimal digits are a byte.
    size = f"octet_length({text})"
    first = f"(CASE WHEN {start} > 0 THEN {start} - 1 WHEN {start} < 0 THEN {size} + {start} ELSE 0 END)"
    stop = f"({first} + CAST({length} AS BIGINT))"
    digits = f"substring(hex({text}), 2 * greatest({first}, 0) + 1, 2 * greatest({stop} - greatest({first}, 0), 0))"
    return f"CASE WHEN {start} IS NULL OR {length} IS NULL THEN NULL ELSE from_hex({digits}) END"


def _substring(call: Call, args: list[str]) -> str:
    text, start, length = args
    if call.type.kind is Kind.BINARY:
        return _binary_substring(text, start, length)
    position = call.args[1]
    if isinstance(position, Literal) and isinstance(position.value, int) and position.value >= 0:
        return f"substring({text}, {max(position.value, 1)}, {_at_least_zero(length, call.args[2])})"
    first = f"(CASE WHEN {start} > 0 THEN {start} - 1 WHEN {start} < 0 THEN length({text}) + {start} ELSE 0 END)"
    stop = f"({first} + CAST({length} AS BIGINT))"
    part = f"substring({text}, greatest({first}, 0) + 1, greatest({stop} - greatest({first}, 0), 0))"
    return f"CASE WHEN {start} IS NULL OR {length} IS NULL THEN NULL ELSE {part} END"


def _pad(call: Call, args: list[str]) -> str:
    text, length, pad = args
    size = f"least({_at_least_zero(length, call.args[1])}, {functions.MAX_BYTES})"
    bytes_ = call.type.kind is Kind.BINARY
    if bytes_:
        text, pad, size = f"hex({text})", f"hex({pad})", f"CAST(2 * {size} AS INTEGER)"
    padded = f"CASE WHEN {pad} = '' THEN left({text}, {size}) ELSE {call.name}({text}, {size}, {pad}) END"
    padded = f"from_hex({padded})" if bytes_ else padded
    return (
        f"CASE WHEN {length} > {functions.MAX_BYTES} THEN {_too_long(call)} WHEN {length} IS NOT NULL THEN {padded} END"
    )


def _too_long(call: Call) -> str:
    return f"CAST(error('the result of {call.name} is too long') AS {type_name(call.type)})"


def _repeat(call: Call, args: list[str]) -> str:
    # The number is cut inside as well: DuckDB computes constants before it knows which branch is taken.
    text, times = args
    most = f"({functions.MAX_BYTES} // greatest(length({text}), 1))"
    cut = f"repeat({text}, greatest(least({times}, {most}), 0))"
    return f"CASE WHEN {times} > {most} THEN {_too_long(call)} WHEN {times} IS NOT NULL THEN {cut} END"


def _reverse(call: Call, args: list[str]) -> str:
    if call.type.kind is Kind.BINARY:
        return f"from_hex(array_to_string(list_reverse(regexp_extract_all(hex({args[0]}), '..')), ''))"
    return f"reverse({args[0]})"


def _part(call: Call, args: list[str]) -> str:
    whole, part = args
    if call.args[0].type.kind is not Kind.BINARY:
        return f"{call.name}({whole}, {part})"
    if call.name == "contains":  # at the beginning of a byte
        return f"regexp_matches(hex({whole}), '^(..)*' || hex({part}))"
    return f"{call.name}(hex({whole}), hex({part}))"


def _round(call: Call, args: list[str]) -> str:
    source = call.args[0].type
    if source.kind is Kind.DECIMAL:
        digits = call.args[1]
        assert isinstance(digits, Literal) and isinstance(digits.value, int)
        if digits.value >= 0:
            return f"CAST({args[0]} AS {type_name(call.type)})"
        return f"CAST(round(CAST({args[0]} AS DECIMAL(38,{source.scale})), {digits.value}) AS {type_name(call.type)})"
    return f"CAST(round({args[0]}, {args[1]}) AS {type_name(call.type)})"


def _initcap(call: Call, args: list[str]) -> str:
    # Words are separated by single spaces, as in Spark.
    return (
        f"array_to_string(list_transform(string_split({args[0]}, ' '), "
        "lambda w: upper(left(w, 1)) || lower(substring(w, 2))), ' ')"
    )


def _in(call: Call, args: list[str]) -> str:
    return f"({args[0]} IN ({', '.join(args[1:])}))"


def _like(call: Call, args: list[str]) -> str:
    return f"({args[0]} LIKE {args[1]} ESCAPE {args[2]})"


_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "mod": "%",
    "intdiv": "//",
    "eq": "=",
    "ne": "<>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "null_safe_eq": "IS NOT DISTINCT FROM",
}

_TEMPLATES = {
    **{name: f"({{0}} {sign} {{1}})" for name, sign in _OPERATORS.items() if name not in ("add", "sub", "mul", "mod")},
    "neg": "(-{0})",
    "abs": "abs({0})",
    "not": "(NOT {0})",
    "is_null": "({0} IS NULL)",
    "is_not_null": "({0} IS NOT NULL)",
    "is_true": "coalesce({0}, false)",
    "nullif": "CASE WHEN {0} = {1} THEN NULL ELSE {0} END",
    "upper": "upper({0})",
    "lower": "lower({0})",
    "trim": "trim({0}, ' ')",
    "ltrim": "ltrim({0}, ' ')",
    "rtrim": "rtrim({0}, ' ')",
    "trim_chars": "CASE WHEN {1} = '' THEN {0} ELSE trim({0}, {1}) END",
    "ltrim_chars": "CASE WHEN {1} = '' THEN {0} ELSE ltrim({0}, {1}) END",
    "rtrim_chars": "CASE WHEN {1} = '' THEN {0} ELSE rtrim({0}, {1}) END",
    "replace": "replace({0}, {1}, {2})",
    "instr": "CAST(instr({0}, {1}) AS INTEGER)",
    "sign": "CAST(sign({0}) AS DOUBLE)",
    "sqrt": "CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({0}) END",
    "exp": "exp({0})",
    "ln": "CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END",
    "power": "power({0}, {1})",
    "year": "CAST(year({0}) AS INTEGER)",
    "month": "CAST(month({0}) AS INTEGER)",
    "day": "CAST(day({0}) AS INTEGER)",
    "quarter": "CAST(quarter({0}) AS INTEGER)",
    "dayofweek": "CAST(dayofweek({0}) + 1 AS INTEGER)",
    "dayofyear": "CAST(dayofyear({0}) AS INTEGER)",
    "weekofyear": "CAST(weekofyear({0}) AS INTEGER)",
    "hour": "CAST(hour({0}) AS INTEGER)",
    "minute": "CAST(minute({0}) AS INTEGER)",
    "second": "CAST(second({0}) AS INTEGER)",
    "date_add": "({0} + {1})",
    "date_sub": "({0} - {1})",
    "datediff": "CAST({0} - {1} AS INTEGER)",
    "add_months": "CAST({0} + to_months({1}) AS DATE)",
    "last_day": "last_day({0})",
    "trunc": "CAST(date_trunc({1}, {0}) AS DATE)",
    "date_trunc": "CAST(date_trunc({0}, {1}) AS TIMESTAMP)",
    "ts_add_micros": "({0} + to_microseconds({1}))",
    "ts_add_months": "({0} + to_months({1}))",
}

_SPECIAL: dict[str, Callable[[Call, list[str]], str]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "mod", "pmod"), _arithmetic),
    "case": _case,
    "substring": _substring,
    "lpad": _pad,
    "rpad": _pad,
    "repeat": _repeat,
    "reverse": _reverse,
    **dict.fromkeys(("starts_with", "ends_with", "contains"), _part),
    "round": _round,
    "initcap": _initcap,
    "in": _in,
    "like": _like,
    "and": lambda call, args: "(" + " AND ".join(args) + ")",
    "or": lambda call, args: "(" + " OR ".join(args) + ")",
    "coalesce": lambda call, args: f"coalesce({', '.join(args)})",
    "concat": lambda call, args: "(" + " || ".join(args) + ")",
    "greatest": lambda call, args: f"greatest({', '.join(args)})",
    "least": lambda call, args: f"least({', '.join(args)})",
    "floor": lambda call, args: f"CAST(floor({args[0]}) AS {type_name(call.type)})",
    "ceil": lambda call, args: f"CAST(ceil({args[0]}) AS {type_name(call.type)})",
    "length": lambda call, args: (
        f"CAST({'octet_length' if call.args[0].type.kind is Kind.BINARY else 'length'}({args[0]}) AS INTEGER)"
    ),
    "cast": lambda call, args: cast_sql(args[0], call.args[0].type, call.type),
    "try_cast": lambda call, args: cast_sql(args[0], call.args[0].type, call.type, "TRY_CAST"),
}


def expression(expr: Expr, columns: Columns) -> str:
    """DuckDB text of an expression over the given input columns."""
    if isinstance(expr, ColumnRef):
        return columns[expr.index]
    if isinstance(expr, Literal):
        return literal(expr.value, expr.type)
    args = [expression(a, columns) for a in expr.args]
    special = _SPECIAL.get(expr.name)
    if special is not None:
        return special(expr, args)
    return _TEMPLATES[expr.name].format(*args)
