"""Zones of a view group, their names and what they hold, for people who look at figures: which part of which view is
large or busy.

A zone is a part of a stage in which rows lie under one key: steps that feed each other without a move between them.

    orders                  a zone that begins at base tables is called after the first of them
    revenue by region       one that rows are moved to: after a view that it serves, and the key
    revenue by row          the same, for the rows of the view itself
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from belvedere.engine.arrangement import Arrangement
from belvedere.engine.exchange import Held
from belvedere.engine.graph import weight
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.reverse_join import ReverseJoinOperator
from belvedere.engine.stages import GroupLayout, Moved, Step
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.plan import nodes


def table_bytes(table: DeltaTable) -> float:
    """Bytes of a table, as far as rows that are held use them."""
    return table.nbytes() * table.size / max(1, table.limit)


def held_by_zone(
    tables: Mapping[str, DeltaTable], operators: Mapping[int, Sequence[Any]], zones: Mapping[int, Mapping[int, str]]
) -> dict[str, Held]:
    """The state of each zone. `operators`: of each view group those of its steps, `zones`: their names."""
    found = {name: Held(table.size, int(table_bytes(table))) for name, table in tables.items()}
    for number, steps in operators.items():
        for at, operator in enumerate(steps):
            if isinstance(operator, (Arrangement, ReverseJoinOperator, PreAggregationOperator)):
                held = found.setdefault(zones[number][at], Held())
                held.rows += len(operator.index) if isinstance(operator, Arrangement) else 0
                held.bytes += int(weight(operator))
    return found


def zone_names(one: GroupLayout) -> dict[int, str]:
    """The zone of every step, by its number."""
    home: dict[Step, Step] = {step: step for step in one.stage}

    def root(step: Step) -> Step:
        while home[step] != step:
            step = home[step]
        return step

    for step, below in one.feeds.items():
        for fed in below:
            if not isinstance(step, Moved) and one.stage[fed] == one.stage[step]:
                home[root(step)] = root(fed)
    serves = {run.at: run.views for stage in one.stages for run in stage}
    names: dict[Step, str] = {}
    for step in one.stage:  # inputs come first, so the step that a zone begins with names it
        names.setdefault(root(step), _name(step, serves[one.at[step]]))
    return {at: names[root(step)] for step, at in one.at.items()}


def _name(step: Step, views: tuple[str, ...]) -> str:
    if isinstance(step, nodes.DeltaNode):
        return step.table
    if isinstance(step, nodes.ViewNode):
        return f"{step.name} by row"
    view = views[0] if views else "nobody"
    if not isinstance(step, Moved):
        return view
    if step.by is None:
        return f"{view} by row"
    return f"{view} by {', '.join(step.input.schema[i].name for i in step.by) or 'nothing'}"
