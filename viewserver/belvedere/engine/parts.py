"""A computation of everything at once, cut into parts that need nothing of each other but rows.

A view group that is computed from all rows of its leaves, with no state before, does not need one shard that holds all
of it from the first stage to the last. For each stage there is a *part*: the steps that what leaves after this stage
is made of, and those whose state or rows are complete in it; on some buckets at a time. What a part needs of others
are the rows that were sent to its buckets in the stages before. So parts can run one after the other with little
memory, or at the same time on many machines, with a shuffle between stages. Every state table and view is written by
one part; steps that two parts need are run by both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from belvedere.engine.graph import Grouped
from belvedere.engine.stages import GroupLayout, Run, StageKind, StageLayout
from belvedere.plan import nodes
from belvedere.plan.table_names import quarantine_table, view_table

StepId = tuple[int, int]
"""Number of a view group, and of a step of it."""
EdgeId = tuple[int, int]
"""Number of a view group, and of a way between servers in it."""


@dataclass(frozen=True)
class Part:
    """`steps`: what runs. `takes`: of which edges it needs rows, with the stage in which they arrive. `sends`: on which
    edges rows leave, after its stage. `owners`: the names that the tables begin with which it writes."""

    stage: int
    steps: frozenset[StepId]
    takes: frozenset[EdgeId]
    sends: frozenset[EdgeId]
    owners: frozenset[str]

    def writes(self, table: str) -> bool:
        """Whether a table is this part's to write; pages of a big group lie beside it."""
        return table.partition(" pages ")[0] in self.owners


def parts_of(layout: StageLayout, groups: Collection[int]) -> list[Part]:
    """The parts that compute these view groups, in the order of their stages. Views of other groups are leaves."""
    chosen = {one.view_group.number: one for one in layout.view_groups if one.view_group.number in groups}
    found = []
    for stage in range(layout.stages):
        sends = {(n, run.edge): (n, source) for n, one in chosen.items() for source, run in one.sends[stage]}
        owners: set[str] = set()
        wanted = set(sends.values())
        for number, one in chosen.items():
            for tables, changing in _complete_in(one, stage):
                owners |= tables
                wanted |= {(number, at) for at in changing}
        if wanted:
            steps, takes = _needed(layout, chosen, wanted)
            found.append(Part(stage, steps, takes, frozenset(sends), frozenset(owners)))
    return found


def _complete_in(one: GroupLayout, stage: int) -> list[tuple[set[str], set[int]]]:
    """The tables of a view group that are complete when this stage has run, and the steps that change them."""
    runs = {run.at: run for stage_runs in one.stages for run in stage_runs}
    found = []
    for at, view in one.views:
        if one.stage[view] == stage:
            found.append(({view_table(view), quarantine_table(view)}, {at}))
    for run in one.groups:
        changing = _changing(runs, run.at)
        if max(one.stage[runs[at].step] for at in changing) == stage:
            found.append(({one.names[run.step]}, changing))
    return found


def _changing(runs: dict[int, Run], groups: int) -> set[int]:
    """Steps that change what is kept of these groups: aggregates and sides of joins hang on them, and a join counts
    partners in the rows of its sides."""
    found = {groups}
    for run in runs.values():
        if groups in run.feeds and isinstance(run.step, (nodes.PreAggregationNode, Grouped, nodes.ReverseJoinNode)):
            found.add(run.at)
    joins = {run.at for run in runs.values() if isinstance(run.step, nodes.JoinNode) and found & set(run.feeds)}
    return found | joins


def _needed(
    layout: StageLayout, chosen: dict[int, GroupLayout], wanted: set[StepId]
) -> tuple[frozenset[StepId], frozenset[EdgeId]]:
    """These steps and all that they take rows from, as far as rows lie in the same place; and the edges before that."""
    runs = {(n, run.at): run for n, one in chosen.items() for runs in one.stages for run in runs}
    steps: set[StepId] = set()
    takes: set[EdgeId] = set()
    waiting = list(wanted)
    while waiting:
        step = waiting.pop()
        if step in steps:
            continue
        steps.add(step)
        number, run = step[0], runs[step]
        if run.kind is StageKind.MOVED:
            takes.add((number, run.edge))
        elif run.kind is StageKind.SOURCE:
            if isinstance(run.step, nodes.ViewNode):
                owner = layout.owners[run.step]
                if owner[0] in chosen:
                    waiting.append(owner)
        else:
            waiting += [(number, at) for at in run.feeds]
    return frozenset(steps), frozenset(takes)
