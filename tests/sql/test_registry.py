"""Every entry of the registry of functions, tried: it has a kernel, its Spark form is bound to it, what cannot fail
does not, NULLs come where it says, and DuckDB computes the same."""

from __future__ import annotations

import functools
import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from belvedere.engine.expr import evaluate_all
from belvedere.engine.expr.functions import _MODULES, FUNCTIONS
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.vec import Status
from belvedere.model.recompute_failing import tried_sql
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.coercion import can_cast
from belvedere.sql.duckdb_expr import expression
from belvedere.sql.duckdb_forms import type_name
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.sql.query import Project
from belvedere.sql.registry import SCALARS, Nulls, Scalar, nulls_of
from belvedere.sql.spark_expr import spark_expression
from belvedere.types import INT, STRING, Column, Kind, Type, decimal

KINDS = {kind.value: Type(kind) for kind in Kind if kind is not Kind.DECIMAL} | {"decimal": decimal(12, 2)}
CONSTANTS = {
    "round": (-2, -1, 0, 2),
    "trunc": ("year", "quarter", "month", "week"),
    "date_trunc": ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"),
    "like": ("\\", "!"),
}
EXTREMES: dict[Kind, list[Any]] = {
    Kind.BOOLEAN: [True, False],
    Kind.INT: [0, 1, -1, 7, 2**31 - 1, -(2**31)],
    Kind.BIGINT: [0, 1, -1, 7, 2**63 - 1, -(2**63)],
    Kind.DOUBLE: [0.0, -0.0, 1.5, -2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan],
    Kind.STRING: ["", "a", " ab ", "aBc dE", "äöü ß", "日本語", "a%b_c", "x\\y", "\U0001f600", "\t"],
    Kind.BINARY: [b"", b"\0", b"ab", b"\xff\xfe", bytes(range(9))],
    Kind.DATE: [date(1, 1, 1), date(1969, 12, 31), date(2000, 2, 29), date(2021, 1, 3), date(9999, 12, 31)],
    Kind.TIMESTAMP: [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(2024, 2, 29, 13, 14, 15, 678_901, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ],
}
ROWS = 120


def extremes(type: Type) -> list[Any]:
    if type.kind is not Kind.DECIMAL:
        return EXTREMES[type.kind]
    most = 10**type.precision - 1
    # scaleb would round to the 28 digits of Python's context
    return [
        Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -type.scale)) for n in (0, 1, -1, 125, -125, most, -most)
    ]


def random_value(type: Type, rng: random.Random) -> Any:
    match type.kind:
        case Kind.BOOLEAN:
            return rng.random() < 0.5
        case Kind.INT | Kind.BIGINT:
            return rng.choice([rng.randint(-20, 20), rng.randint(-(2**30), 2**30)])
        case Kind.DOUBLE:
            return rng.choice([rng.uniform(-10, 10), rng.uniform(-1, 1) * 10.0 ** rng.randint(-300, 300)])
        case Kind.DECIMAL:
            return Decimal(rng.randint(-(10**5) + 1, 10**5 - 1)).scaleb(-type.scale)
        case Kind.STRING:
            return "".join(rng.choice("ab AB%_é語") for _ in range(rng.randrange(6)))
        case Kind.BINARY:
            return rng.randbytes(rng.randrange(5))
        case Kind.DATE:
            return date(1, 1, 1) + timedelta(days=rng.randrange(3_652_058))
    return datetime(1, 1, 2, tzinfo=UTC) + timedelta(microseconds=rng.randrange(3_652_057 * 86_400_000_000))


def values_for(types: Sequence[Type], rng: random.Random) -> list[tuple[Any, ...]]:
    """Combinations of extremes, of random values, and of NULLs."""
    out = [
        tuple(
            rng.choice(extremes(t)) if rng.random() < 0.5 else random_value(t, rng) if rng.random() < 0.8 else None
            for t in types
        )
        for _ in range(ROWS)
    ]
    if len(types) <= 2:
        out += itertools.islice(itertools.product(*(extremes(t) for t in types)), 200)
    return out


def calls(scalar: Scalar) -> Iterator[tuple[Call, tuple[Type, ...]]]:
    """Calls of the function with columns for arguments, one for each overload and constant."""
    if scalar.name in ("cast", "try_cast"):
        kinds = [*KINDS.values(), decimal(38, 10), decimal(20, 0), decimal(5, 4)]
        for source, target in itertools.product(kinds, kinds):
            if source != target and Kind.NULL not in (source.kind, target.kind) and can_cast(source, target):
                yield Call(scalar.name, (ColumnRef(0, source, "c0"),), target), (source,)
        return
    for signature in scalar.signatures:
        arguments, result = signature.split(" -> ")
        arguments = re.sub(r"\((.*?)\)\.\.\.", r"\1, \1", arguments)
        arguments = re.sub(r"(\w+)\.\.\.", r"\1, \1", arguments)
        names = arguments.split(", ")
        types = tuple(KINDS[name] for name in names if not name.startswith("constant "))
        for constant in CONSTANTS.get(scalar.name, (None,)):
            columns = iter(ColumnRef(i, t, f"c{i}") for i, t in enumerate(types))
            args = tuple(
                Literal(constant, INT if name == "constant int" else STRING)
                if name.startswith("constant ")
                else next(columns)
                for name in names
            )
            yield Call(scalar.name, args, KINDS[result]), types


def bound(call: Call, types: Sequence[Type]) -> Any:
    """What the Spark form is, read by our own front end: our dialect is Spark's."""
    table = TableDef("t", (Column("k", INT), *(Column(f"c{i}", t) for i, t in enumerate(types))), ("k",))
    text = spark_expression(call, [f"c{i}" for i in range(len(types))])
    query = bind_query(f"SELECT {text} AS x FROM t", Catalog({"t": table}))
    assert isinstance(query, Project)
    return query.exprs[0]


ALL = [(scalar, call, types) for scalar in SCALARS.values() for call, types in calls(scalar)]
NAMED = [
    pytest.param(*one, id=f"{one[0].name}({', '.join(map(str, one[2]))})->{one[1].type} {i}")
    for i, one in enumerate(ALL)
]
OURS = {"ts_add_micros", "ts_add_months"}
"""Calls that the binder makes of intervals. Spark has functions for them that our dialect has not, as for `reverse` of
bytes."""
WHOLE_ROUND = {Kind.INT, Kind.BIGINT}


def test_every_function_has_one_kernel_and_every_kernel_an_entry() -> None:
    assert FUNCTIONS.keys() == SCALARS.keys()
    assert {name for module in _MODULES.values() for name in module} == SCALARS.keys()
    assert sum(map(len, _MODULES.values())) == len(SCALARS), "a kernel is in one module"
    assert all(scalar.name == name for name, scalar in SCALARS.items())


@pytest.mark.parametrize(("scalar", "call", "types"), NAMED)
def test_the_spark_form_is_bound_to_the_function(scalar: Scalar, call: Call, types: tuple[Type, ...]) -> None:
    if scalar.name in OURS or (scalar.name == "reverse" and types[0].kind is Kind.BINARY):
        return
    if scalar.name == "round" and types[0].kind in WHOLE_ROUND and call.args[1].value >= 0:  # type: ignore[union-attr]
        return  # a whole number rounded to digits behind the point is itself
    found = bound(call, types)
    assert isinstance(found, Call) and found.name == scalar.name, spark_expression(call, ["c0", "c1", "c2", "c3", "c4"])
    assert found.type.kind is call.type.kind
    strip = [ColumnRef(a.index - 1, a.type, a.name) if isinstance(a, ColumnRef) else a for a in found.args]
    assert tuple(strip) == call.args


@functools.cache
def computed(scalar: Scalar, call: Call, types: tuple[Type, ...]) -> tuple[Call, list[tuple[Any, ...]], list[Any]]:
    """The call with the type of its result as bound, rows, and what the kernel makes of them."""
    rng = random.Random(f"{scalar.name} {[str(t) for t in types]} {call.type}")
    if call.type.kind is Kind.DECIMAL and scalar.name not in ("cast", "try_cast"):
        call = Call(call.name, call.args, bound(call, types).type)
    rows = values_for(types, rng)
    columns = [vec_of([row[i] for row in rows], t) for i, t in enumerate(types)]
    return call, rows, to_pylist(evaluate_all((call,), columns, len(rows))[0])


@pytest.mark.parametrize(("scalar", "call", "types"), NAMED)
def test_what_cannot_fail_does_not_and_nulls_come_as_said(scalar: Scalar, call: Call, types: tuple[Type, ...]) -> None:
    call, rows, results = computed(scalar, call, types)
    fails = scalar.fails(call)
    for row, result in zip(rows, results, strict=True):
        if isinstance(result, Status):
            assert fails, (row, result)
            continue
        missing = [value is None for value in row]
        match nulls_of(call):
            case Nulls.STRICT:
                assert (result is None) == any(missing), (row, result)
            case Nulls.SOME:
                assert result is not None or any(missing), (row, result)
            case Nulls.ALL:
                assert (result is None) == all(missing), (row, result)
            case Nulls.NEVER:
                assert result is not None, row


@pytest.mark.parametrize("name", [name for name, scalar in SCALARS.items() if scalar.fails is not SCALARS["eq"].fails])
def test_what_is_said_to_fail_does(name: str) -> None:
    tried = [computed(*one)[2] for one in ALL if one[0].name == name]
    assert any(isinstance(result, Status) for results in tried for result in results)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-14)
    if isinstance(ours, datetime) and isinstance(theirs, datetime):
        return ours.replace(tzinfo=None) == theirs.replace(tzinfo=None)
    return bool(ours == theirs)


def known_difference(call: Call, row: tuple[Any, ...]) -> bool:
    """Edges that docs/reference/python.md names: casts from and to strings, case of special letters."""
    kinds = {call.args[0].type.kind, call.type.kind}
    if call.name in ("cast", "try_cast"):
        return Kind.STRING in kinds and Kind.BINARY not in kinds
    return call.name in ("upper", "initcap") and "ß" in str(row)


@pytest.mark.parametrize(("scalar", "call", "types"), NAMED)
def test_duckdb_computes_what_the_kernel_computes(scalar: Scalar, call: Call, types: tuple[Type, ...]) -> None:
    """Errors included, asked for as verification does."""
    call, rows, results = computed(scalar, call, types)
    table = pa.table({f"c{i}": pa.array([row[i] for row in rows], t.arrow) for i, t in enumerate(types)})
    schema = ", ".join(f"CAST(c{i} AS {type_name(t)}) AS c{i}" for i, t in enumerate(types))
    tried = tried_sql(expression(call, [f"c{i}" for i in range(len(types))]))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", table)
        found = connection.sql(f"SELECT {tried} AS x FROM (SELECT {schema} FROM t)").to_arrow_table()["x"].to_pylist()
    wrong = []
    for row, ours, theirs in zip(rows, results, found, strict=True):
        agree = theirs is None if isinstance(ours, Status) else theirs is not None and same(ours, theirs["v"])
        if not agree and not known_difference(call, row):
            wrong.append((row, "kernel", ours, "duckdb", theirs))
    assert not wrong, wrong[:5]
