"""SQL names of scalar functions, what they accept, and the `Call` that each is bound to.

The calls themselves, with their types after coercion, are in `belvedere.sql.registry`. Units are constants in lower
case: year quarter month week day hour minute second millisecond microsecond.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from belvedere.sql import decimals
from belvedere.sql.coercion import INTEGERS, Mismatch, as_decimal, boolean, can_cast, cast, common, is_number
from belvedere.sql.expr import Call, Expr, Literal
from belvedere.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Kind,
    Type,
)

MAX_INT = 2**31 - 1
MAX_BYTES = 16 << 20
"""The longest value that repeat, lpad and rpad make; more is an ARGUMENT error, not an exhausted memory."""
Rule = Callable[[Sequence[Expr]], Expr]


@dataclass(frozen=True, slots=True)
class Function:
    """A SQL function: how many arguments it takes (most None: any number) and how it is bound."""

    least: int
    most: int | None
    rule: Rule


def call(name: str, *args: Expr, type: Type) -> Call:
    return Call(name, args, type)


def implicit(expr: Expr, target: Type, name: str, argument: int) -> Expr:
    """An argument as the type a function wants: what Spark converts by itself in ANSI mode."""
    a, b = expr.type.kind, target.kind
    fits = (
        a is b
        or a is Kind.NULL
        or b is Kind.STRING
        or (a is Kind.STRING and b is not Kind.BINARY)
        or (a in (Kind.INT, Kind.BIGINT, Kind.DECIMAL) and b is Kind.DOUBLE)
        or (a is Kind.INT and b is Kind.BIGINT)
        or (a in INTEGERS and b is Kind.INT and isinstance(expr, Literal))
        or {a, b} == {Kind.DATE, Kind.TIMESTAMP}
    )
    if not fits:
        raise Mismatch(
            f"argument {argument + 1} of {name} must be {target}, found {expr.type}",
            f"cast(… as {target})" if can_cast(expr.type, target) else None,
            argument,
        )
    return cast(expr, target)


def arithmetic(operator: str, left: Expr, right: Expr) -> Expr:
    """add, sub, mul, div, mod, pmod over numbers."""
    left, right = _numbers(operator, left, right)
    kinds = (left.type.kind, right.type.kind)
    if Kind.DOUBLE in kinds or (operator == "div" and Kind.DECIMAL not in kinds):
        return call(operator, cast(left, DOUBLE), cast(right, DOUBLE), type=DOUBLE)
    if Kind.DECIMAL in kinds:
        left, right = as_decimal(left), as_decimal(right)
        return call(operator, left, right, type=decimals.arithmetic(operator, left.type, right.type))
    result = BIGINT if Kind.BIGINT in kinds else INT
    return call(operator, cast(left, result), cast(right, result), type=result)


def _numbers(operator: str, left: Expr, right: Expr) -> tuple[Expr, Expr]:
    # A string next to a number becomes bigint or double; two strings are a mistake.
    sides = [left, right]
    for i, side in enumerate(sides):
        other = sides[1 - i].type
        if side.type.kind is Kind.NULL:
            sides[i] = cast(side, other if is_number(other) else DOUBLE)
        elif side.type.kind is Kind.STRING and is_number(other):
            sides[i] = cast(side, BIGINT if other.kind in INTEGERS else DOUBLE)
    for i, side in enumerate(sides):
        if not is_number(side.type):
            hint = "cast it to a number" if side.type.kind in (Kind.STRING, Kind.BOOLEAN) else None
            if side.type.kind in (Kind.DATE, Kind.TIMESTAMP):
                hint = "dates take intervals and days: d + interval '1' day, datediff(a, b)"
            raise Mismatch(f"arithmetic needs numbers, found {side.type}", hint, i)
    return sides[0], sides[1]


def intdiv(left: Expr, right: Expr) -> Expr:
    """`a DIV b`: whole quotient of integers, always bigint."""
    left, right = _numbers("intdiv", left, right)
    for i, side in enumerate((left, right)):
        if side.type.kind not in INTEGERS:
            raise Mismatch(f"div needs integers, found {side.type}", "cast(… as bigint), or divide with /", i)
    return call("intdiv", cast(left, BIGINT), cast(right, BIGINT), type=BIGINT)


def negate(arg: Expr) -> Expr:
    """-x; constants at once, so that -2147483648 is an int although 2147483648 is not."""
    if isinstance(arg, Literal) and isinstance(arg.value, int | float | Decimal) and is_number(arg.type):
        # Unary minus would round a decimal to the 28 digits of Python's context.
        value = arg.value.copy_negate() if isinstance(arg.value, Decimal) else -arg.value
        if value == -(2**31) and arg.type.kind is Kind.BIGINT:
            return Literal(value, INT)
        if value == -(2**63) and arg.type.kind is Kind.DECIMAL and arg.type.scale == 0:
            return Literal(int(value), BIGINT)
        if not (arg.type.kind in INTEGERS and value in (2**31, 2**63)):
            return Literal(value, arg.type)
    arg = _number(arg, "-")
    return call("neg", arg, type=arg.type)


def integer_literal(value: int) -> Literal:
    """An integer constant in the narrowest type Spark would give it."""
    if -(2**31) <= value < 2**31:
        return Literal(value, INT)
    if -(2**63) <= value < 2**63:
        return Literal(value, BIGINT)
    return Literal(Decimal(value), decimals.of_literal(value))


def compare(operator: str, left: Expr, right: Expr) -> Expr:
    """A comparison of two values brought to one type."""
    _, (left, right) = common((left, right), "the comparison", narrow=True)
    return call(operator, left, right, type=BOOLEAN)


def _number(arg: Expr, name: str) -> Expr:
    if arg.type.kind in (Kind.STRING, Kind.NULL):
        return cast(arg, DOUBLE)
    if not is_number(arg.type):
        raise Mismatch(f"{name} needs a number, found {arg.type}", None, 0)
    return arg


def _typed(name: str, types: Sequence[Type], result: Type, sql: str | None = None) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        bound = [implicit(a, t, sql or name, i) for i, (a, t) in enumerate(zip(args, types, strict=False))]
        return Call(name, tuple(bound), result)

    return rule


def _constant(args: Sequence[Expr], position: int, name: str) -> Literal:
    arg = args[position]
    if not isinstance(arg, Literal) or arg.value is None:
        raise Mismatch(f"argument {position + 1} of {name} must be a constant", None, position)
    return arg


def _text_or_bytes(arg: Expr, name: str) -> Expr:
    """Of the functions over strings, few keep BINARY in Spark; the others see the bytes as UTF-8."""
    return arg if arg.type == BINARY else implicit(arg, STRING, name, 0)


def _substring(args: Sequence[Expr]) -> Expr:
    text = _text_or_bytes(args[0], "substring")
    start = implicit(args[1], INT, "substring", 1)
    length = implicit(args[2], INT, "substring", 2) if len(args) > 2 else Literal(MAX_INT, INT)
    return call("substring", text, start, length, type=text.type)


def _left(args: Sequence[Expr]) -> Expr:
    return _substring([args[0], Literal(1, INT), args[1]])


def _right(args: Sequence[Expr]) -> Expr:
    # Other than left, right gives a string also for BINARY, as in Spark.
    text, count = implicit(args[0], STRING, "right", 0), implicit(args[1], INT, "right", 1)
    if isinstance(count, Literal) and isinstance(count.value, int):
        if count.value <= 0:
            return _substring([text, Literal(1, INT), Literal(0, INT)])
        return _substring([text, Literal(-count.value, INT)])
    none = _substring([text, Literal(1, INT), Literal(0, INT)])
    return call("case", compare("le", count, Literal(0, INT)), none, _substring([text, negate(count)]), type=STRING)


def _concat(args: Sequence[Expr]) -> Expr:
    if all(a.type == BINARY for a in args):
        return Call("concat", tuple(args), BINARY)
    return Call("concat", tuple(implicit(a, STRING, "concat", i) for i, a in enumerate(args)), STRING)


def _trim(name: str) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        if len(args) == 1:
            return call(name, implicit(args[0], STRING, name, 0), type=STRING)
        # As in Spark, the characters come first: ltrim(characters, string).
        chars, text = implicit(args[0], STRING, name, 0), implicit(args[1], STRING, name, 1)
        return call(f"{name}_chars", text, chars, type=STRING)

    return rule


def _btrim(args: Sequence[Expr]) -> Expr:
    return _trim("trim")(args if len(args) == 1 else [args[1], args[0]])  # here the string comes first, as in Spark


def _length(args: Sequence[Expr]) -> Expr:
    return call("length", _text_or_bytes(args[0], "length"), type=INT)


def _reverse(args: Sequence[Expr]) -> Expr:
    arg = _text_or_bytes(args[0], "reverse")
    return call("reverse", arg, type=arg.type)


def _part(name: str, sql: str) -> Rule:
    """A test whether one contains the other: of bytes if one is BINARY, which need not be UTF-8."""

    def rule(args: Sequence[Expr]) -> Expr:
        if not any(a.type == BINARY for a in args):
            return _typed(name, (STRING, STRING), BOOLEAN, sql)(args)
        texts = [a if a.type == BINARY else implicit(a, STRING, sql, i) for i, a in enumerate(args)]
        return Call(name, tuple(cast(t, BINARY) for t in texts), BOOLEAN)

    return rule


def _pad(name: str) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        bytes_ = args[0].type == BINARY
        default = Literal(b"\0", BINARY) if bytes_ else Literal(" ", STRING)
        pad = args[2] if len(args) > 2 else default
        type_ = BINARY if bytes_ and pad.type == BINARY else STRING
        return _typed(name, (type_, INT, type_), type_)([args[0], args[1], pad])

    return rule


def _locate(args: Sequence[Expr]) -> Expr:
    return _typed("instr", (STRING, STRING), INT)([args[1], args[0]])


def _round(args: Sequence[Expr]) -> Expr:
    arg = _number(args[0], "round")
    digits = 0
    if len(args) > 1:
        constant = _constant(args, 1, "round")
        if not isinstance(constant.value, int) or constant.type.kind is not Kind.INT:
            raise Mismatch("argument 2 of round must be a whole constant", None, 1)
        digits = constant.value
    if arg.type.kind in INTEGERS and digits >= 0:
        return arg
    result = decimals.round_type(arg.type, digits) if arg.type.kind is Kind.DECIMAL else arg.type
    return call("round", arg, Literal(digits, INT), type=result)


def _whole(name: str) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        arg = _number(args[0], name)
        if arg.type.kind in INTEGERS:
            return cast(arg, BIGINT)
        if arg.type.kind is Kind.DOUBLE:
            return call(name, arg, type=BIGINT)
        return arg if arg.type.scale == 0 else call(name, arg, type=decimals.whole_type(arg.type))

    return rule


def _abs(args: Sequence[Expr]) -> Expr:
    arg = _number(args[0], "abs")
    return call("abs", arg, type=arg.type)


def _pick(name: str) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        kinds = [a.type.kind for a in args]
        if Kind.BINARY in kinds and Kind.STRING in kinds:
            other = kinds.index(Kind.STRING if kinds[0] is Kind.BINARY else Kind.BINARY)
            raise Mismatch(f"{name} mixes binary and string", "cast one of them: cast(… as binary)", other)
        type_, bound = common(args, name)
        return Call(name, tuple(bound), type_)

    return rule


def _coalesce(args: Sequence[Expr]) -> Expr:
    type_, bound = common(args, "coalesce")
    return bound[0] if len(bound) == 1 else Call("coalesce", tuple(bound), type_)


def _nullif(args: Sequence[Expr]) -> Expr:
    # The result keeps the type of the first argument; only the comparison widens.
    result = args[0].type
    type_, (left, right) = common(args, "nullif", narrow=True)
    if type_ == result:
        return call("nullif", left, right, type=type_)
    return call("case", call("eq", left, right, type=BOOLEAN), Literal(None, result), args[0], type=result)


def condition(test: Expr, yes: Expr, no: Expr) -> Expr:
    """if(c, a, b) as a case."""
    type_, (yes, no) = common((yes, no), "if")
    return call("case", boolean(test, "the condition of if"), yes, no, type=type_)


def _is_nan(args: Sequence[Expr]) -> Expr:
    arg = implicit(args[0], DOUBLE, "isnan", 0)
    same = call("null_safe_eq", arg, Literal(float("nan"), DOUBLE), type=BOOLEAN)
    return same


def _date_shift(name: str) -> Rule:
    def rule(args: Sequence[Expr]) -> Expr:
        days = args[1]
        if days.type.kind is Kind.BIGINT and not isinstance(days, Literal):
            raise Mismatch(f"argument 2 of {name} must be int, found bigint", "cast(… as int)", 1)
        return _typed(name, (DATE, INT), DATE)(args)

    return rule


_TRUNC_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
}
_TS_UNITS = {
    **_TRUNC_UNITS,
    **dict.fromkeys(("day", "dd"), "day"),
    **{u: u for u in ("hour", "minute", "second", "millisecond", "microsecond")},
}


def _unit(args: Sequence[Expr], position: int, name: str, units: dict[str, str]) -> Literal:
    text = _constant(args, position, name).value
    unit = units.get(str(text).lower())
    if unit is None:
        raise Mismatch(f"{name} knows no unit {text!r}", "units: " + ", ".join(sorted(set(units.values()))), position)
    return Literal(unit, STRING)


def _trunc(args: Sequence[Expr]) -> Expr:
    unit = _unit(args, 1, "trunc", _TRUNC_UNITS)
    return call("trunc", implicit(args[0], DATE, "trunc", 0), unit, type=DATE)


def _date_trunc(args: Sequence[Expr]) -> Expr:
    unit = _unit(args, 0, "date_trunc", _TS_UNITS)
    return call("date_trunc", unit, implicit(args[1], TIMESTAMP, "date_trunc", 1), type=TIMESTAMP)


_PARTS = {
    **{u: (u, DATE) for u in ("year", "quarter", "month", "day")},
    **dict.fromkeys(("years", "yr", "y"), ("year", DATE)),
    **dict.fromkeys(("months", "mon"), ("month", DATE)),
    **dict.fromkeys(("days", "d", "dayofmonth"), ("day", DATE)),
    **dict.fromkeys(("week", "weeks", "w", "weekofyear"), ("weekofyear", DATE)),
    **dict.fromkeys(("dayofweek", "dow"), ("dayofweek", DATE)),
    **dict.fromkeys(("doy", "dayofyear"), ("dayofyear", DATE)),
    **dict.fromkeys(("hour", "hours", "h"), ("hour", TIMESTAMP)),
    **dict.fromkeys(("minute", "minutes", "min", "m"), ("minute", TIMESTAMP)),
}


def extract(unit: str, arg: Expr) -> Expr:
    """EXTRACT(unit FROM x)."""
    found = _PARTS.get(unit.lower())
    if found is None:
        hint = "use second(ts) for whole seconds" if unit.lower() in ("second", "seconds", "s") else None
        known = ", ".join(sorted({name for name, _ in _PARTS.values()}))
        raise Mismatch(f"extract knows no unit {unit.lower()!r}", hint or f"units: {known}")
    name, wanted = found
    return call(name, implicit(arg, wanted, f"extract({unit.lower()})", 0), type=INT)


def _date_part(args: Sequence[Expr]) -> Expr:
    return extract(str(_constant(args, 0, "date_part").value), args[1])


def _weekday(args: Sequence[Expr]) -> Expr:
    # Monday is 0, while dayofweek counts from Sunday = 1.
    day = call("dayofweek", implicit(args[0], DATE, "weekday", 0), type=INT)
    return call("mod", call("add", day, Literal(5, INT), type=INT), Literal(7, INT), type=INT)


def explicit_cast(arg: Expr, target: Type, name: str = "cast") -> Expr:
    """CAST(x AS t), TRY_CAST(x AS t), and the functions named after types."""
    if not can_cast(arg.type, target):
        hint = None
        if Kind.BINARY in (arg.type.kind, target.kind):
            hint = f"through a string: cast(cast(… as string) as {target})"
        raise Mismatch(f"cannot cast {arg.type} to {target}", hint, 0)
    folded = cast(arg, target)
    if name == "cast" or isinstance(folded, Literal) or folded == arg:
        return folded
    return Call(name, (arg,), target)


def _parsed(target: Type) -> Function:
    """to_date and to_timestamp: other than a cast, they read BINARY as a string."""
    return Function(1, 1, lambda a: explicit_cast(cast(a[0], STRING) if a[0].type == BINARY else a[0], target))


def _to_type(target: Type) -> Function:
    return Function(1, 1, lambda args: explicit_cast(args[0], target))


def _same(name: str, *types: Type, result: Type, least: int | None = None) -> Function:
    return Function(least if least is not None else len(types), len(types), _typed(name, types, result))


_TABLE: dict[str, Function] = {
    "abs": Function(1, 1, _abs),
    "mod": Function(2, 2, lambda a: arithmetic("mod", a[0], a[1])),
    "pmod": Function(2, 2, lambda a: arithmetic("pmod", a[0], a[1])),
    "negative": Function(1, 1, lambda a: negate(a[0])),
    "round": Function(1, 2, _round),
    "floor": Function(1, 1, _whole("floor")),
    "ceil": Function(1, 1, _whole("ceil")),
    "greatest": Function(2, None, _pick("greatest")),
    "least": Function(2, None, _pick("least")),
    "sign": _same("sign", DOUBLE, result=DOUBLE),
    "sqrt": _same("sqrt", DOUBLE, result=DOUBLE),
    "exp": _same("exp", DOUBLE, result=DOUBLE),
    "ln": _same("ln", DOUBLE, result=DOUBLE),
    "power": _same("power", DOUBLE, DOUBLE, result=DOUBLE),
    "isnull": Function(1, 1, lambda a: call("is_null", a[0], type=BOOLEAN)),
    "isnotnull": Function(1, 1, lambda a: call("is_not_null", a[0], type=BOOLEAN)),
    "isnan": Function(1, 1, _is_nan),
    "coalesce": Function(1, None, _coalesce),
    "nvl": Function(2, 2, _coalesce),
    "nvl2": Function(3, 3, lambda a: condition(call("is_not_null", a[0], type=BOOLEAN), a[1], a[2])),
    "nullif": Function(2, 2, _nullif),
    "if": Function(3, 3, lambda a: condition(a[0], a[1], a[2])),
    "concat": Function(1, None, _concat),
    "substring": Function(2, 3, _substring),
    "left": Function(2, 2, _left),
    "right": Function(2, 2, _right),
    **{n: _same(n, STRING, result=STRING) for n in ("upper", "lower", "initcap")},
    "reverse": Function(1, 1, _reverse),
    **{n: Function(1, 2, _trim(n)) for n in ("trim", "ltrim", "rtrim")},
    "btrim": Function(1, 2, _btrim),
    "length": Function(1, 1, _length),
    "replace": Function(2, 3, lambda a: _typed("replace", (STRING,) * 3, STRING)([*a, Literal("", STRING)][:3])),
    "startswith": Function(2, 2, _part("starts_with", "startswith")),
    "endswith": Function(2, 2, _part("ends_with", "endswith")),
    "contains": Function(2, 2, _part("contains", "contains")),
    "lpad": Function(2, 3, _pad("lpad")),
    "rpad": Function(2, 3, _pad("rpad")),
    "repeat": _same("repeat", STRING, INT, result=STRING),
    "instr": _same("instr", STRING, STRING, result=INT),
    "locate": Function(2, 2, _locate),
    **{n: _same(n, DATE, result=INT) for n in ("year", "month", "day", "quarter")},
    **{n: _same(n, DATE, result=INT) for n in ("dayofweek", "dayofyear", "weekofyear")},
    **{n: _same(n, TIMESTAMP, result=INT) for n in ("hour", "minute", "second")},
    "weekday": Function(1, 1, _weekday),
    "date_part": Function(2, 2, _date_part),
    "date_add": Function(2, 2, _date_shift("date_add")),
    "date_sub": Function(2, 2, _date_shift("date_sub")),
    "datediff": _same("datediff", DATE, DATE, result=INT),
    "add_months": _same("add_months", DATE, INT, result=DATE),
    "last_day": _same("last_day", DATE, result=DATE),
    "trunc": Function(2, 2, _trunc),
    "date_trunc": Function(2, 2, _date_trunc),
    "to_date": _parsed(DATE),
    "to_timestamp": _parsed(TIMESTAMP),
    **{t.kind.value: _to_type(t) for t in (BOOLEAN, INT, BIGINT, DOUBLE, STRING, BINARY, DATE, TIMESTAMP)},
}

_ALIASES = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "pow": "power",
    "log": "ln",
    "signum": "sign",
    "ifnull": "nvl",
    "iff": "if",
    "dateadd": "date_add",
    "date_diff": "datediff",
    "dayofmonth": "day",
    "week": "weekofyear",
    "datepart": "date_part",
    "position": "locate",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "bool": "boolean",
}

NONDETERMINISTIC = frozenset(
    "now current_date current_timestamp current_time localtimestamp curdate getdate sysdate rand random randn uuid "
    "shuffle monotonically_increasing_id spark_partition_id input_file_name unix_timestamp current_user user "
    "session_user current_role current_datetime current_timezone".split()
)
"""Functions whose value is not decided by the rows of a view."""

AGGREGATES = frozenset("count sum min max avg mean count_if any_value bool_and every bool_or some any".split())
OTHER_AGGREGATES = frozenset(
    "first first_value last last_value collect_list collect_set stddev stddev_pop stddev_samp std variance var_pop "
    "var_samp percentile percentile_approx approx_percentile approx_count_distinct median mode max_by min_by array_agg "
    "string_agg listagg corr covar_pop covar_samp skewness kurtosis grouping grouping_id bit_and bit_or bit_xor".split()
)
WINDOW_ONLY = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead nth_value".split())


_ARRAYS = "arrays, maps and structs are not supported: use one row for each value"
INSTEAD = {
    **dict.fromkeys("explode explode_outer posexplode posexplode_outer inline stack unnest flatten".split(), _ARRAYS),
    **dict.fromkeys("array map struct named_struct split size array_contains element_at map_keys".split(), _ARRAYS),
    **dict.fromkeys(
        "regexp regexp_like regexp_replace regexp_extract regexp_count rlike".split(),
        "regular expressions are not supported: use LIKE, replace, startswith, endswith or contains",
    ),
    **dict.fromkeys(
        "get_json_object from_json to_json json_tuple parse_json".split(),
        "JSON is not supported: write the fields you need into columns of their own",
    ),
    **dict.fromkeys("date_format format_string printf to_char".split(), "build the text with concat, lpad and year(d)"),
    **dict.fromkeys(
        "from_unixtime to_unix_timestamp from_utc_timestamp to_utc_timestamp convert_timezone".split(),
        "timestamps are UTC: add or subtract an interval",
    ),
    "concat_ws": "a || ',' || b",
    "decode": "CASE x WHEN … THEN … END",
    "ilike": "lower(x) LIKE 'pattern'",
}
"""Functions that people ask for, and what to write instead."""


def find(name: str) -> Function | None:
    """The function of that SQL name, in any case."""
    name = name.lower()
    return _TABLE.get(_ALIASES.get(name, name))


def names() -> list[str]:
    """Every SQL name of a scalar function, aliases included (for completion)."""
    return sorted([*_TABLE, *_ALIASES])


def suggestions(name: str) -> list[str]:
    """Known functions whose names look alike."""
    known = [k for k in (*names(), *AGGREGATES) if k[:1] == name[:1].lower()]  # people misspell the end of a name
    return difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.75)
