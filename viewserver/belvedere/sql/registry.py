"""The registry of scalar functions: every `Call` that the binder makes, the planner moves and the engine evaluates.

One entry says all that is known of a function but how its columns are computed: argument and result types, which
module of `belvedere.engine.expr` has the kernel, the same in DuckDB's SQL (verification, ad-hoc queries) and in Spark's
(batch jobs), whether it can fail, and what it makes of NULL. Nothing else lists functions by these properties.
`tests/sql/test_registry.py` tries every entry: its types, that what cannot fail does not, NULLs, and that kernel and
DuckDB agree.

SQL names, which are more (`nvl`, `if`, `left`, …), and how they are bound to these calls: `belvedere.sql.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from belvedere.sql import duckdb_forms as duckdb
from belvedere.sql.expr import Call, Expr, walk
from belvedere.types import Kind, Type

Form: TypeAlias = str | Callable[[Call, list[str]], str]
"""SQL of another engine, made from the texts of the arguments: {0}, {1}, …, {args} for all of them, {rest} for all but
the first, {type} for the name of the result's type."""


class Nulls(Enum):
    """When the result is NULL (where nothing fails)."""

    STRICT = "exactly where an argument is NULL"
    SOME = "nowhere but where an argument is NULL"
    ALL = "exactly where all arguments are NULL"
    NEVER = "nowhere"
    MORE = "also where no argument is NULL"


@dataclass(frozen=True, slots=True)
class Scalar:
    """`signatures`: types of arguments -> result, one for each overload. `X...` stands for one or more of them; a
    `constant` is known when a view is created. `fails`: whether a call (of certain types, with certain constants) can
    give an error for arguments that are none. `lazy`: whether it may ignore an argument that failed."""

    name: str
    signatures: tuple[str, ...]
    kernel: str
    duckdb: Form
    spark: Form
    fails: Callable[[Call], bool]
    nulls: Nulls = Nulls.STRICT
    lazy: bool = False
    infix: str | None = None
    """The operator that it is written with in SQL."""


def filled(form: Form, call: Call, args: list[str], type: str) -> str:
    """The SQL text of a call."""
    if not isinstance(form, str):
        return form(call, args)
    return form.format(*args, args=", ".join(args), rest=", ".join(args[1:]), type=type)


def nulls_of(call: Call) -> Nulls:
    """When the call is NULL."""
    if call.name == "cast" and call.args[0].type.kind is Kind.DOUBLE and call.type.kind is Kind.DECIMAL:
        return Nulls.MORE  # NaN and infinities are NULL, as in Spark
    return SCALARS[call.name].nulls


def fallible(expr: Expr) -> bool:
    """Whether evaluation over error-free columns can give an error."""
    return any(isinstance(e, Call) and SCALARS[e.name].fails(e) for e in walk(expr))


# ---------------------------------------------------------------------- whether a call can fail


def _never(call: Call) -> bool:
    return False


def _may(call: Call) -> bool:
    return True


def _unless_double(call: Call) -> bool:
    """Doubles become infinite where other numbers overflow."""
    return call.type.kind is not Kind.DOUBLE


def _only_double(call: Call) -> bool:
    return call.args[0].type.kind is Kind.DOUBLE


_RANK = {Kind.INT: 0, Kind.BIGINT: 1, Kind.DOUBLE: 3}


def _cast_fails(call: Call) -> bool:
    return not _widens(call.args[0].type, call.type)


def _widens(source: Type, target: Type) -> bool:
    """Casts that cannot fail: to the same or a wider type, to a string, or from one to bytes."""
    if source == target or source.kind is Kind.NULL:
        return True
    if target.kind is Kind.STRING:
        return source.kind is not Kind.BINARY  # bytes may not be UTF-8
    if source.kind in _RANK and target.kind in _RANK:
        return _RANK[source.kind] <= _RANK[target.kind]
    if target.kind is Kind.DECIMAL:
        whole = target.precision - target.scale
        if source.kind is Kind.DECIMAL:
            return source.precision - source.scale <= whole and source.scale <= target.scale
        return (source.kind is Kind.INT and whole >= 10) or (source.kind is Kind.BIGINT and whole >= 19)
    if source.kind is Kind.DECIMAL:
        return target.kind is Kind.DOUBLE
    return (source.kind, target.kind) in (
        (Kind.DATE, Kind.TIMESTAMP),
        (Kind.TIMESTAMP, Kind.DATE),
        (Kind.STRING, Kind.BINARY),
    )


# ---------------------------------------------------------------------- forms


def _joined(word: str) -> Form:
    return lambda call, args: "(" + f" {word} ".join(args) + ")"


def _spark_reverse(call: Call, args: list[str]) -> str:
    """Of bytes, Spark makes a string that may not be UTF-8."""
    if call.type.kind is Kind.STRING:
        return f"reverse({args[0]})"
    return f"unhex(array_join(reverse(regexp_extract_all(hex({args[0]}), '(..)')), ''))"


def _of(types: str, *patterns: str) -> tuple[str, ...]:
    """Overloads: each pattern with each of the types for T."""
    return tuple(pattern.replace("T", type_) for pattern in patterns for type_ in types.split())


_NUMBERS = "int bigint double decimal"
_ALL = "boolean int bigint double decimal string binary date timestamp"
_TEXTS = "string binary"


def _entry(
    name: str,
    signatures: str | tuple[str, ...],
    kernel: str,
    fails: Callable[[Call], bool] = _never,
    *,
    duckdb: Form = "",
    spark: Form = "",
    nulls: Nulls = Nulls.STRICT,
    lazy: bool = False,
    infix: str | None = None,
) -> Scalar:
    """An entry whose forms are those of a function of its name, or of an operator, unless they are given."""
    plain = f"{name}({{args}})" if infix is None else f"({{0}} {infix} {{1}})"
    each = (signatures,) if isinstance(signatures, str) else signatures
    return Scalar(name, each, kernel, duckdb or plain, spark or plain, fails, nulls, lazy, infix)


def _part_of_date(name: str, shift: str = "") -> Scalar:
    return _entry(name, "date -> int", "dates", duckdb=f"CAST({name}({{0}}){shift} AS INTEGER)")


def _part_of_day(name: str) -> Scalar:
    return _entry(name, "timestamp -> int", "dates", duckdb=f"CAST({name}({{0}}) AS INTEGER)")


def _trims(name: str, words: str) -> tuple[Scalar, Scalar]:
    chars = f"CASE WHEN {{1}} = '' THEN {{0}} ELSE {name}({{0}}, {{1}}) END"
    return (
        _entry(name, "string -> string", "strings", duckdb=f"{name}({{0}}, ' ')"),
        _entry(
            f"{name}_chars",
            "string, string -> string",
            "strings",
            duckdb=chars,
            spark=f"trim({words} {{1}} FROM {{0}})",
        ),
    )


# fmt: off
_ENTRIES: Sequence[Scalar] = (
    # numbers
    *(_entry(name, _of(_NUMBERS, "T, T -> T"), "arithmetic", _unless_double, duckdb=duckdb.arithmetic_sql, infix=sign)
      for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))),
    _entry("div", _of("double decimal", "T, T -> T"), "arithmetic", _may, duckdb=duckdb.arithmetic_sql, infix="/"),
    _entry("intdiv", "bigint, bigint -> bigint", "arithmetic", _may, duckdb=duckdb.arithmetic_sql, infix="div"),
    _entry("mod", _of(_NUMBERS, "T, T -> T"), "arithmetic", _may, duckdb=duckdb.arithmetic_sql, infix="%"),
    _entry("pmod", _of(_NUMBERS, "T, T -> T"), "arithmetic", _may, duckdb=duckdb.arithmetic_sql),
    _entry("neg", _of(_NUMBERS, "T -> T"), "arithmetic", _unless_double, duckdb="(-{0})", spark="(-{0})"),
    _entry("abs", _of(_NUMBERS, "T -> T"), "arithmetic", _unless_double),
    _entry("round", _of(_NUMBERS, "T, constant int -> T"), "numeric", _unless_double, duckdb=duckdb.round_sql),
    *(_entry(name, ("double -> bigint", "decimal -> decimal"), "numeric", _only_double, duckdb=duckdb.whole_sql)
      for name in ("floor", "ceil")),
    *(_entry(name, _of(_ALL, "T, T... -> T"), "numeric", nulls=Nulls.ALL) for name in ("greatest", "least")),
    _entry("sign", "double -> double", "numeric",
           duckdb="CASE WHEN isnan({0}) THEN {0} ELSE CAST(sign({0}) AS DOUBLE) END"),
    _entry("sqrt", "double -> double", "numeric",
           duckdb="CASE WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({0}) END"),
    _entry("exp", "double -> double", "numeric"),
    _entry("ln", "double -> double", "numeric", duckdb="CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END",
           nulls=Nulls.MORE),
    _entry("power", "double, double -> double", "numeric"),
    # comparison and logic
    *(_entry(name, _of(_ALL, "T, T -> boolean"), "compare", infix=sign)
      for name, sign in (("eq", "="), ("ne", "<>"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))),
    _entry("null_safe_eq", _of(_ALL, "T, T -> boolean"), "compare", duckdb="({0} IS NOT DISTINCT FROM {1})",
           nulls=Nulls.NEVER, infix="<=>"),
    *(_entry(name, "boolean, boolean... -> boolean", "logic", duckdb=_joined(name.upper()), spark=_joined(name),
             nulls=Nulls.SOME, lazy=True, infix=name)
      for name in ("and", "or")),
    _entry("not", "boolean -> boolean", "logic", duckdb="(NOT {0})", spark="(NOT {0})"),
    _entry("is_null", _of(_ALL, "T -> boolean"), "logic", duckdb="({0} IS NULL)", spark="({0} IS NULL)",
           nulls=Nulls.NEVER),
    _entry("is_not_null", _of(_ALL, "T -> boolean"), "logic", duckdb="({0} IS NOT NULL)", spark="({0} IS NOT NULL)",
           nulls=Nulls.NEVER),
    _entry("is_true", "boolean -> boolean", "logic", duckdb="coalesce({0}, false)", spark="({0} IS TRUE)",
           nulls=Nulls.NEVER),
    # choice
    _entry("case", _of(_ALL, "(boolean, T)..., T -> T"), "conditional", duckdb=duckdb.case_sql, spark=duckdb.case_sql,
           nulls=Nulls.MORE, lazy=True),
    _entry("coalesce", _of(_ALL, "T, T... -> T"), "conditional", nulls=Nulls.ALL, lazy=True),
    _entry("nullif", _of(_ALL, "T, T -> T"), "conditional", duckdb="CASE WHEN {0} = {1} THEN NULL ELSE {0} END",
           nulls=Nulls.MORE),
    _entry("in", _of(_ALL, "T, T... -> boolean"), "conditional", duckdb="({0} IN ({rest}))", spark="({0} IN ({rest}))",
           nulls=Nulls.SOME),
    # strings and bytes
    *(_entry(name, "string -> string", "strings") for name in ("upper", "lower")),
    _entry("initcap", "string -> string", "strings", duckdb=duckdb.initcap_sql),
    *_trims("trim", "BOTH"), *_trims("ltrim", "LEADING"), *_trims("rtrim", "TRAILING"),
    _entry("concat", _of(_TEXTS, "T, T... -> T"), "strings", duckdb=_joined("||")),
    _entry("substring", _of(_TEXTS, "T, int, int -> T"), "strings", duckdb=duckdb.substring_sql),
    _entry("replace", "string, string, string -> string", "strings"),
    _entry("reverse", _of(_TEXTS, "T -> T"), "strings", duckdb=duckdb.reverse_sql, spark=_spark_reverse),
    *(_entry(name, _of(_TEXTS, "T, int, T -> T"), "strings", _may, duckdb=duckdb.pad_sql) for name in ("lpad", "rpad")),
    _entry("repeat", "string, int -> string", "strings", _may, duckdb=duckdb.repeat_sql),
    _entry("length", _of(_TEXTS, "T -> int"), "strings", duckdb=duckdb.length_sql),
    _entry("instr", "string, string -> int", "strings", duckdb="CAST(instr({0}, {1}) AS INTEGER)"),
    *(_entry(name, _of(_TEXTS, "T, T -> boolean"), "strings", duckdb=duckdb.part_sql,
             spark=name.replace("_", "") + "({args})")
      for name in ("starts_with", "ends_with", "contains")),
    _entry("like", "string, string, constant string -> boolean", "like", duckdb.like_fails,
           duckdb=duckdb.like_sql, spark="({0} LIKE {1} ESCAPE {2})"),
    # dates and timestamps
    *(_part_of_date(name) for name in ("year", "month", "day", "quarter", "dayofyear", "weekofyear")),
    _part_of_date("dayofweek", " + 1"),
    *(_part_of_day(name) for name in ("hour", "minute", "second")),
    _entry("date_add", "date, int -> date", "dates", _may, duckdb=duckdb.shifted("({0} + {1})")),
    _entry("date_sub", "date, int -> date", "dates", _may, duckdb=duckdb.shifted("({0} - {1})")),
    _entry("datediff", "date, date -> int", "dates", duckdb="CAST({0} - {1} AS INTEGER)"),
    _entry("add_months", "date, int -> date", "dates", _may,
           duckdb=duckdb.shifted("CAST({0} + to_months({1}) AS DATE)")),
    _entry("last_day", "date -> date", "dates"),
    _entry("trunc", "date, constant string -> date", "dates", duckdb="CAST(date_trunc({1}, {0}) AS DATE)"),
    _entry("date_trunc", "constant string, timestamp -> timestamp", "dates",
           duckdb="CAST(date_trunc({0}, {1}) AS TIMESTAMP)"),
    _entry("ts_add_micros", "timestamp, bigint -> timestamp", "dates", _may,
           duckdb=duckdb.shifted("({0} + to_microseconds({1}))"),
           spark="timestampadd(MICROSECOND, {1}, {0})"),
    _entry("ts_add_months", "timestamp, int -> timestamp", "dates", _may,
           duckdb=duckdb.shifted("({0} + to_months({1}))"),
           spark="timestampadd(MONTH, {1}, {0})"),
    # casts
    _entry("cast", "any -> any", "casts.cast", _cast_fails, duckdb=duckdb.cast_call_sql, spark="cast({0} as {type})"),
    _entry("try_cast", "any -> any", "casts.cast", duckdb=duckdb.cast_call_sql, spark="try_cast({0} as {type})",
           nulls=Nulls.MORE),
)
# fmt: on
SCALARS = {entry.name: entry for entry in _ENTRIES}
