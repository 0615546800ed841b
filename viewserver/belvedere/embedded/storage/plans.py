"""Plans as JSON, for snapshots: state belongs to the plan that made it, and a plan depends on its past.

What a view shares depends on what was maintained when it was planned, so planning the same views again after a drop,
or one by one instead of together, may give another plan, and state would have to be rebuilt. The plan in force is
stored instead: a list of nodes, each after those below it, which refer to each other by number.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from belvedere.errors import Damaged
from belvedere.plan import nodes
from belvedere.sql import expr
from belvedere.sql.query import JoinKind
from belvedere.types import Column, Kind, Type

_NODES = {nodes.kind_of(c): c for c in nodes.Node.__args__}
_VALUES: dict[str, Any] = {
    "aggregate": nodes.AggregateTerm,
    "call": expr.Call,
    "column": Column,
    "literal": expr.Literal,
    "ref": expr.ColumnRef,
    "type": Type,
}
_ENUMS: dict[str, type[enum.Enum]] = {"identity": nodes.Identity, "join": JoinKind, "kind": Kind}
_SCALARS: dict[str, tuple[type, Any, Any]] = {
    "float": (float, float.hex, float.fromhex),
    "decimal": (Decimal, str, Decimal),
    "timestamp": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}
_NAMES: dict[type, str] = {c: name for name, c in (_VALUES | _ENUMS).items()}


def plan_json(views: Sequence[nodes.ViewNode]) -> dict[str, Any]:
    """The nodes of these views, and which of them are the views."""
    numbers: dict[nodes.Node, int] = {}
    out: list[Any] = []
    for node in nodes.topological(nodes.Plan(tuple(views))):
        out.append([nodes.kind_of(type(node)), *(_write(getattr(node, f.name), numbers) for f in fields(node))])
        numbers[node] = len(numbers)
    return {"nodes": out, "views": [numbers[v] for v in views]}


def plan_of(value: dict[str, Any]) -> tuple[nodes.ViewNode, ...]:
    """The reverse; Damaged if this program does not know such nodes."""
    known: list[Any] = []
    try:
        for name, *parts in value["nodes"]:
            known.append(_NODES[name](*(_read(p, known) for p in parts)))
        return tuple(known[i] for i in value["views"])
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError) as error:
        raise Damaged(f"the snapshot has a plan that this program cannot read: {error!r}") from error


def _write(value: Any, numbers: dict[nodes.Node, int]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        return [_write(v, numbers) for v in value]
    if type(value) in nodes.Node.__args__:
        return {"node": numbers[value]}
    name = _NAMES.get(type(value))
    if isinstance(value, enum.Enum) and name is not None:
        return {name: value.value}
    if is_dataclass(value) and name is not None:
        return {name: [_write(getattr(value, f.name), numbers) for f in fields(value)]}
    for name, (kind, write, _) in _SCALARS.items():
        if isinstance(value, kind):
            return {name: write(value)}
    raise AssertionError(f"a plan holds {value!r}, which has no form in a snapshot")


def _read(value: Any, known: list[Any]) -> Any:
    if isinstance(value, list):
        return tuple(_read(v, known) for v in value)
    if not isinstance(value, dict):
        return value
    ((name, inner),) = value.items()
    if name == "node":
        return known[inner]
    if name in _ENUMS:
        return _ENUMS[name](inner)
    if name in _SCALARS:
        return _SCALARS[name][2](inner)
    return _VALUES[name](*(_read(v, known) for v in inner))
