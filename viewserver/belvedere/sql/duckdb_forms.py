"""What functions are in DuckDB's SQL where a template will not do: every cast, rounding and edge case of Spark spelled
out where DuckDB can follow. Which function has which form is in `belvedere.sql.registry`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal

from belvedere.sql.expr import Call, Expr, Literal
from belvedere.sql.functions import MAX_BYTES
from belvedere.types import TIMESTAMP, Kind, Type, decimal

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
    if a is Kind.TIMESTAMP and b in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL):
        return _seconds(f"epoch_us({text})", target, word)
    if b is Kind.TIMESTAMP and a in (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL):
        return _timestamp(text, source, word)
    if a is Kind.DOUBLE and b is Kind.DECIMAL:
        return _double_to_decimal(text, target, word)
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


def _double_to_decimal(text: str, target: Type, word: str) -> str:
    """Through the digits that the double is written with, as in Spark; NaN and infinities are NULL."""
    name = type_name(target)
    # DuckDB does not notice that 1e30 has more digits than the type
    beyond = "NULL" if word == "TRY_CAST" else f"CAST(error('too large') AS {name})"
    return (
        f"CASE WHEN NOT isfinite({text}) THEN NULL "
        f"WHEN abs({text}) >= 1e{target.precision - target.scale} THEN {beyond} "
        f"ELSE {word}(CAST({text} AS VARCHAR) AS {name}) END"
    )


def _seconds(micros: str, target: Type, word: str) -> str:
    """Seconds since 1970: whole ones, rounded down, for integers."""
    if target.kind is Kind.DOUBLE:
        return f"({micros} / 1e6)"
    if target.kind is Kind.DECIMAL:
        return f"{word}({unscaled_to_decimal(micros, decimal(38, 6))} AS {type_name(target)})"
    down = f"{micros} - ({micros} % 1000000 + 1000000) % 1000000"
    return f"{word}(({down}) // 1000000 AS {type_name(target)})"


def _timestamp(text: str, source: Type, word: str) -> str:
    """From seconds since 1970; microseconds toward zero."""
    wide = "DOUBLE" if source.kind is Kind.DOUBLE else f"DECIMAL(38,{source.scale})"
    micros = f"CAST(trunc(CAST({text} AS {wide}) * 1000000) AS BIGINT)"
    made = _in_calendar(f"make_timestamp({micros})", TIMESTAMP)
    return made if word == "CAST" else f"TRY({made})"


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
        # of two decimals of up to 18 digits DuckDB makes one of 18 digits, and gives up where the product has more
        return f"CAST((CAST({a} AS DECIMAL(38,{left.scale})) * {b}) AS {target})"
    # a / b at scale s is unscaled(a) * 10^(s - s1 + s2) / unscaled(b)
    power = call.type.scale - left.scale + right.scale
    numerator, denominator = unscaled(a, left), unscaled(b, right)
    if power >= 0:
        numerator = f"{numerator} * CAST({10**power} AS HUGEINT)"
    else:
        denominator = f"{denominator} * CAST({10**-power} AS HUGEINT)"
    return divide_exact(numerator, denominator, call.type)


def arithmetic_sql(call: Call, args: list[str]) -> str:
    a, b = args
    if call.name in ("mod", "pmod"):
        return _remainder(call, a, b)
    if call.name == "intdiv":
        return _unless_zero(f"{a} // {b}", call, a, b)
    if call.type.kind is Kind.DECIMAL:
        return _decimal_arithmetic(call, a, b)
    if call.name == "div":
        return _unless_zero(f"{a} / {b}", call, a, b)
    return f"({a} {_OPERATORS[call.name]} {b})"


_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


def _unless_zero(text: str, call: Call, a: str, b: str) -> str:
    """DuckDB divides by zero without an error; NULL / 0 is NULL here as well."""
    fails = f"CAST(error('division by zero') AS {type_name(call.type)})"
    return f"CASE WHEN {b} = 0 AND {a} IS NOT NULL THEN {fails} ELSE {text} END"


def _remainder(call: Call, a: str, b: str) -> str:
    left, right, divisor = a, b, b
    if call.type.kind is Kind.DECIMAL:
        wide = f"DECIMAL(38,{max(arg.type.scale for arg in call.args)})"
        left = f"CAST({a} AS {wide})"
        right = divisor = f"CAST({b} AS {wide})"
    elif call.type.kind is not Kind.DOUBLE:
        right = f"CASE WHEN {b} = -1 THEN 1 ELSE {b} END"  # the least number % -1 is an overflow in DuckDB
    rest = f"({left} % {right})"
    if call.name == "pmod":
        total = f"({rest} + {divisor})"
        if call.type.kind in (Kind.INT, Kind.BIGINT):  # as in Java, the sum goes round at the end of its range
            bits = 32 if call.type.kind is Kind.INT else 64
            wide = f"(CAST({rest} AS HUGEINT) + {divisor})"
            total = f"(CASE WHEN {wide} < {-(2 ** (bits - 1))} THEN {wide} + {2**bits} ELSE {wide} END)"
        rest = f"CASE WHEN {rest} < 0 THEN {total} % {divisor} ELSE {rest} END"
    return _unless_zero(f"CAST({rest} AS {type_name(call.type)})", call, a, b)


def case_sql(call: Call, args: list[str]) -> str:
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


def substring_sql(call: Call, args: list[str]) -> str:
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


def pad_sql(call: Call, args: list[str]) -> str:
    text, length, pad = args
    size = f"least({_at_least_zero(length, call.args[1])}, {MAX_BYTES})"
    bytes_ = call.type.kind is Kind.BINARY
    if bytes_:
        text, pad, size = f"hex({text})", f"hex({pad})", f"CAST(2 * {size} AS INTEGER)"
    padded = f"CASE WHEN {pad} = '' THEN left({text}, {size}) ELSE {call.name}({text}, {size}, {pad}) END"
    padded = f"from_hex({padded})" if bytes_ else padded
    none = f"{text} IS NULL OR {pad} IS NULL OR {length} IS NULL"
    return f"CASE WHEN {none} THEN NULL WHEN {length} > {MAX_BYTES} THEN {_too_long(call)} ELSE {padded} END"


def _too_long(call: Call) -> str:
    return f"CAST(error('the result of {call.name} is too long') AS {type_name(call.type)})"


def repeat_sql(call: Call, args: list[str]) -> str:
    # The number is cut inside as well: DuckDB computes constants before it knows which branch is taken.
    text, times = args
    most = f"({MAX_BYTES} // greatest(length({text}), 1))"
    cut = f"repeat({text}, greatest(least({times}, {most}), 0))"
    none = f"{text} IS NULL OR {times} IS NULL"
    return f"CASE WHEN {none} THEN NULL WHEN {times} > {most} AND {text} <> '' THEN {_too_long(call)} ELSE {cut} END"


def reverse_sql(call: Call, args: list[str]) -> str:
    if call.type.kind is Kind.BINARY:
        return f"from_hex(array_to_string(list_reverse(regexp_extract_all(hex({args[0]}), '..')), ''))"
    return f"reverse({args[0]})"


def part_sql(call: Call, args: list[str]) -> str:
    whole, part = args
    if call.args[0].type.kind is not Kind.BINARY:
        return f"{call.name}({whole}, {part})"
    if call.name == "contains":  # at the beginning of a byte
        return f"regexp_matches(hex({whole}), '^(..)*' || hex({part}))"
    return f"{call.name}(hex({whole}), hex({part}))"


def round_sql(call: Call, args: list[str]) -> str:
    source = call.args[0].type
    if source.kind is Kind.DECIMAL:
        digits = call.args[1]
        assert isinstance(digits, Literal) and isinstance(digits.value, int)
        if digits.value >= 0:
            return f"CAST({args[0]} AS {type_name(call.type)})"
        return f"CAST(round(CAST({args[0]} AS DECIMAL(38,{source.scale})), {digits.value}) AS {type_name(call.type)})"
    return f"CAST(round({args[0]}, {args[1]}) AS {type_name(call.type)})"


def initcap_sql(call: Call, args: list[str]) -> str:
    # Words are separated by single spaces, as in Spark.
    return (
        f"array_to_string(list_transform(string_split({args[0]}, ' '), "
        "lambda w: upper(left(w, 1)) || lower(substring(w, 2))), ' ')"
    )


def length_sql(call: Call, args: list[str]) -> str:
    measure = "octet_length" if call.args[0].type.kind is Kind.BINARY else "length"
    return f"CAST({measure}({args[0]}) AS INTEGER)"


def cast_call_sql(call: Call, args: list[str]) -> str:
    return cast_sql(args[0], call.args[0].type, call.type, call.name.upper())


def whole_sql(call: Call, args: list[str]) -> str:
    """floor and ceil; NaN becomes 0, as in Spark."""
    rounded = f"CAST({call.name}({args[0]}) AS {type_name(call.type)})"
    return (
        rounded if call.args[0].type.kind is Kind.DECIMAL else f"CASE WHEN isnan({args[0]}) THEN 0 ELSE {rounded} END"
    )


def like_sql(call: Call, args: list[str]) -> str:
    """DuckDB takes an escape before any character; here it stands before %, _ or itself."""
    text, pattern, escape = args
    plain = f"({text} LIKE {pattern} ESCAPE {escape})"
    if not like_fails(call):
        return plain
    assert isinstance(call.args[2], Literal)
    e = re.escape(str(call.args[2].value))
    valid = f"regexp_matches({pattern}, {string(f'^([^{e}]|{e}[%_{e}])*$')})"
    fails = "CAST(error('a pattern that misuses its escape') AS BOOLEAN)"
    return f"CASE WHEN {text} IS NOT NULL AND NOT {valid} THEN {fails} ELSE {plain} END"


def like_fails(call: Call) -> bool:
    """Whether the pattern may have an escape before nothing special."""
    pattern, escape = call.args[1:]
    if not (isinstance(pattern, Literal) and isinstance(escape, Literal)):
        return True
    return str(escape.value) in str(pattern.value)


def shifted(form: str) -> Callable[[Call, list[str]], str]:
    """A date or timestamp that is computed, and fails outside the years 1 to 9999: DuckDB knows more."""
    return lambda call, args: _in_calendar(form.format(*args), call.type)


_CALENDAR = {
    Kind.DATE: ("0001-01-01", "9999-12-31"),
    Kind.TIMESTAMP: ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
}


def _in_calendar(text: str, type: Type) -> str:
    # The text stands once: what is repeated DuckDB takes out of TRY, and fails there.
    name, (first, last) = type_name(type), _CALENDAR[type.kind]
    fails = f"CAST(error('outside the calendar') AS {name})"
    checked = f"CASE WHEN v NOT BETWEEN {name} '{first}' AND {name} '{last}' THEN {fails} ELSE v END"
    return f"list_transform([{text}], lambda v: {checked})[1]"
