"""What the webhook decides: a verdict from a request, what else there is, and a compiler. Pure but for the compiler.

SQL is compiled by the database, never here: by a dry run of the pool's own gateway, or, while the pool has none, by the
compiler beside the operator, which is told of the tables and views that the query mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from belvedere_operator.decide.items import VIEW, Item, by_item, item_of
from belvedere_operator.decide.ordering import closure, readers
from belvedere_operator.decide.saying import size
from belvedere_operator.gateway import DocumentResult, Forecast

Compile = Callable[[Sequence[Item]], Sequence[DocumentResult]]
"""A dry run: what would become of each. Raises NoCompiler."""


class NoCompiler(Exception):
    """Nobody can compile SQL now."""


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    message: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateBudget:
    """How much state a pool may have, and has."""

    limit: int
    used: int


ALLOWED = Verdict(True)


def of_change(
    new: Mapping[str, Any],
    old: Mapping[str, Any] | None,
    others: Sequence[Item],
    compile: Compile,
    budget: StateBudget | None = None,
) -> Verdict:
    """Of a table or a view that is created or changed; `others`: the tables and views of its pool."""
    item = item_of(new)
    if item.deleting is not None or (old is not None and old.get("spec") == new.get("spec")):
        return ALLOWED
    if item.spec is None:
        return Verdict(False, item.invalid)
    rest = [one for one in others if one.key != item.key and one.deleting is None]
    holder = next((one for one in rest if one.sql_name.lower() == item.sql_name.lower()), None)
    if holder is not None:
        return Verdict(
            False, f"{holder.kind} {holder.name!r} is {item.sql_name!r} in SQL already; give this one another spec.name"
        )
    if old is not None and item_of(old).digest() == item.digest():
        return ALLOWED  # only between Kubernetes and the operator
    below = closure(item, rest)
    above = [one for one in readers(item, rest) if one.key not in {b.key for b in below}] if old is not None else []
    try:
        results = compile([*below, item, *above])
    except NoCompiler as error:
        return Verdict(False, f"the SQL cannot be compiled now, try again later: {error}")
    found = by_item([*below, item, *above], results)
    own = found.get(item.key)
    if own is not None and own.problem is not None:
        if own.problem.missing_relation:
            return Verdict(True, warnings=(f"{own.problem.text}; it waits until that is there",))
        if not any(one.key in found and found[one.key].problem is not None for one in below):
            return Verdict(False, own.problem.text)
        return Verdict(True, warnings=(f"{own.problem.text}; it waits until that is mended",))
    for reader in above:
        result = found.get(reader.key)
        if result is not None and result.problem is not None and reader.status.applied is not None:
            return Verdict(False, f"view {reader.name!r} reads it and would be refused: {result.problem.text}")
    forecast = own.forecast if own is not None else None
    if forecast is None or item.kind != VIEW:
        return ALLOWED
    if budget is not None and budget.used + forecast.bytes > budget.limit:
        text = (
            f"the view would add {size(forecast.bytes)} to the {size(budget.used)} of the views of pool {item.pool!r}"
        )
        return Verdict(False, f"{text}; its stateLimit is {size(budget.limit)}")
    return Verdict(True, warnings=tuple(_costs(item, forecast)))


def _costs(item: Item, forecast: Forecast) -> list[str]:
    if not forecast.zones and not forecast.state:
        return []
    keys = " -> ".join("(" + ", ".join(key) + ")" for key in forecast.zones)
    head = f"cost of {item.sql_name}: {len(forecast.zones)} zones {keys}, {size(forecast.bytes)} of new state"
    tables = [f"{name}: {rows:,} rows, {size(taken)}" for name, rows, taken in forecast.state if rows or taken]
    return [head, *[f"  {text}" for text in tables[:5]]]


def of_deletion(old: Mapping[str, Any], others: Sequence[Item], dependants: Sequence[str]) -> Verdict:
    """Of a table or a view; `dependants`: views that read it, by their names in SQL."""
    gone = {one.sql_name.lower() for one in others if one.deleting is not None}
    left = sorted(name for name in dependants if name.lower() not in gone)
    if not left:
        return ALLOWED
    kind = "view" if old["kind"] == VIEW else "table"
    names = ", ".join(left)
    return Verdict(
        False,
        f"{kind} {old['metadata']['name']!r} is read by {names}; delete {'them' if len(left) > 1 else 'it'} first",
    )


def of_pool_deletion(name: str, others: Sequence[Item]) -> Verdict:
    left = sorted(one.name for one in others if one.deleting is None)
    if not left:
        return ALLOWED
    shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    return Verdict(False, f"pool {name!r} has tables and views: {shown}; delete them first")
