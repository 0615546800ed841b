"""What a bound expression gives, as two texts of Spark SQL: its value, and whether it fails.

Spark has no TRY for any expression, but `try_to_binary` is NULL where the computation of its argument fails, whatever
is in it: so `failing` asks of an expression's text whether it can be computed. AND and OR are taken apart, since ours
are decided by either side (a row whose one side fails is not lost where the other decides), and so is what is lazy over
values that failed below.
"""

from __future__ import annotations

from dataclasses import dataclass

from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, columns, walk
from belvedere.sql.registry import SCALARS, fallible
from belvedere.sql.spark_expr import spark_expression

NEVER = "false"


@dataclass(frozen=True)
class Outcome:
    """`value`: NULL where it failed, and it never fails itself. `fails`: never NULL."""

    value: str
    fails: str


def outcome(expr: Expr, width: int) -> Outcome:
    """Of an expression over columns t.c0, t.c1, … with their failures t.f0, …"""
    if isinstance(expr, ColumnRef):
        return Outcome(f"t.c{expr.index}", f"t.f{expr.index}")
    if isinstance(expr, Literal):
        return Outcome(spark_expression(expr, []), NEVER)
    assert isinstance(expr, Call)
    if expr.name in ("and", "or"):
        return _logic(expr, width)
    if expr.name == "case":
        return _case(expr, width)
    if expr.name == "coalesce":
        return _coalesce(expr, width)
    inside = [part for part in walk(expr) if isinstance(part, Call)]
    names = {part.name for part in inside}
    if not names & {"and", "or"} and not any(SCALARS[n].lazy for n in names):
        text = spark_expression(expr, [f"t.c{i}" for i in range(width)])
        inherited = [f"t.f{i}" for i in sorted(columns(expr))]
        return _tried(text, inherited, fallible(expr))
    args = [outcome(arg, width) for arg in expr.args]
    # constants stay as they are: some functions take nothing else
    refs = tuple(a if isinstance(a, Literal) else ColumnRef(i, a.type) for i, a in enumerate(expr.args))
    text = spark_expression(Call(expr.name, refs, expr.type), [f"({a.value})" for a in args])
    return _tried(text, [a.fails for a in args], SCALARS[expr.name].fails(expr))


def _tried(text: str, inherited: list[str], may_fail: bool) -> Outcome:
    conditions = [c for c in inherited if c != NEVER]
    if may_fail:
        conditions.append(failing(text))
    if not conditions:
        return Outcome(text, NEVER)
    fails = "(" + " OR ".join(conditions) + ")"
    return Outcome(f"CASE WHEN {fails} THEN NULL ELSE {text} END", fails)


def failing(text: str) -> str:
    """Whether the text cannot be computed. The value goes into a string, so that no optimiser finds it unneeded."""
    return f"(try_to_binary(concat('v', coalesce(cast({text} AS string), '')), 'utf-8') IS NULL)"


def _logic(expr: Call, width: int) -> Outcome:
    decides = "false" if expr.name == "and" else "true"
    arms = [outcome(arg, width) for arg in expr.args]
    decided = " OR ".join(f"(NOT ({a.fails}) AND coalesce({a.value} = {decides}, false))" for a in arms)
    failed = " OR ".join(f"({a.fails})" for a in arms)
    value = f" {expr.name} ".join(f"({a.value})" for a in arms)
    return Outcome(f"CASE WHEN {decided} THEN {decides} ELSE {value} END", f"(NOT ({decided}) AND ({failed}))")


def _case(expr: Call, width: int) -> Outcome:
    """CASE: conditions and values in turn, then what is left."""
    parts = [outcome(arg, width) for arg in expr.args]
    arms = list(zip(parts[:-1:2], parts[1::2], strict=True))
    otherwise = parts[-1]
    fails = "".join(f" WHEN {c.fails} THEN true WHEN {c.value} THEN {v.fails}" for c, v in arms)
    value = "".join(f" WHEN {c.value} THEN {v.value}" for c, v in arms)
    fails = f"(CASE{fails} ELSE {otherwise.fails} END)"
    return Outcome(f"CASE WHEN {fails} THEN NULL{value} ELSE {otherwise.value} END", fails)


def _coalesce(expr: Call, width: int) -> Outcome:
    parts = [outcome(arg, width) for arg in expr.args]
    fails = "".join(f" WHEN {p.fails} THEN true WHEN ({p.value}) IS NOT NULL THEN false" for p in parts)
    fails = f"(CASE{fails} ELSE false END)"
    value = ", ".join(p.value for p in parts)
    return Outcome(f"CASE WHEN {fails} THEN NULL ELSE coalesce({value}) END", fails)
