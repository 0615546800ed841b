"""Replays thousands of expressions whose results were recorded from Spark (see record_spark.py)."""

from __future__ import annotations

import collections
import json
import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from belvedere import types
from belvedere.engine.expr import evaluate_all
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.vec import Status
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.types import Kind, Type

RECORDS = json.loads(Path(__file__).with_name("spark_recorded.json").read_text())
CONSTANT = {"round": (1,), "date_trunc": (0,), "trunc": (1,)}
"""Arguments that must be literals."""


def type_of(text: str) -> Type:
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return types.decimal(int(found[1]), int(found[2]))
    return Type(Kind(text))


def value_of(type: Type, text: str | None) -> Any:
    if text is None:
        return None
    parsers: dict[Kind, Any] = {
        Kind.BOOLEAN: lambda s: s.lower() == "true",
        Kind.INT: int,
        Kind.BIGINT: int,
        Kind.DOUBLE: float,
        Kind.DECIMAL: lambda s: Decimal(s).quantize(Decimal(1).scaleb(-type.scale)) if len(s) < 25 else Decimal(s),
        Kind.DATE: date.fromisoformat,
        Kind.TIMESTAMP: lambda s: datetime.fromisoformat(s).replace(tzinfo=UTC),
        Kind.BINARY: bytes.fromhex,
        Kind.STRING: str,
    }
    return parsers[type.kind](text)


def same(got: Any, want: Any) -> bool:
    if isinstance(want, float) and isinstance(got, float):
        if math.isnan(want):
            return math.isnan(got)
        # Java's exp, log and pow may differ from the C library's in the last place.
        if got == 0 and want == 0:
            return math.copysign(1, got) == math.copysign(1, want)
        return math.isclose(got, want, rel_tol=1e-15)
    return bool(got == want) and type(got) is type(want)


GROUPS: dict[str, list[Any]] = collections.defaultdict(list)
for _name, _result, _args, _value in RECORDS:
    if _result is not None:
        _signature = f"{_name}({','.join(t for t, _ in _args)})->{_result}"
        if _name in CONSTANT:
            _signature += " " + ",".join(str(_args[i][1]) for i in CONSTANT[_name])
        GROUPS[_signature].append((_name, _result, _args, _value))


@pytest.mark.parametrize("signature", sorted(GROUPS))
def test_results_are_those_of_spark(signature: str) -> None:
    rows = GROUPS[signature]
    name, result = rows[0][0], type_of(rows[0][1])
    columns = []
    arg_types = [type_of(t) for t, _ in rows[0][2]]
    for i, type in enumerate(arg_types):
        columns.append(vec_of([value_of(type, args[i][1]) for _, _, args, _ in rows], type))
    wants = [
        value.removeprefix("!") if isinstance(value, str) and value.startswith("!") else value_of(result, value)
        for *_, value in rows
    ]
    failed = [isinstance(value, str) and value.startswith("!") for *_, value in rows]
    constant = CONSTANT.get(name, ())
    refs: list[Expr] = [
        Literal(value_of(t, rows[0][2][i][1]), t) if i in constant else ColumnRef(i, t) for i, t in enumerate(arg_types)
    ]
    together = to_pylist(evaluate_all((Call(name, tuple(refs), result),), columns, len(rows))[0])
    problems = []
    for row, (got, want, bad) in enumerate(zip(together, wants, failed, strict=True)):
        literals = tuple(Literal(value_of(t, rows[row][2][i][1]), t) for i, t in enumerate(arg_types))
        mixed = (*(ColumnRef(i, t) for i, t in enumerate(arg_types[:-1])), literals[-1])
        alone = [c.slice(row, row + 1) for c in columns]
        variants = [got, to_pylist(evaluate_all((Call(name, literals, result),), alone, 1)[0])[0]]
        if 0 not in constant:
            variants.append(to_pylist(evaluate_all((Call(name, mixed, result),), alone, 1)[0])[0])
        for variant in variants:
            if bad:
                good = isinstance(variant, Status) and (want not in Status.__members__ or variant.name == want)
            else:
                good = same(variant, want)
            if not good:
                problems.append((rows[row][2], "want", want, "got", variants))
                break
    assert not problems
