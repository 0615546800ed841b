"""Make a failing case small: drop views, writes, rows and cells as long as it still fails the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.oracle.duck import Oracle
from tests.properties.case import Case, Check, NotComputable, View, attempt
from tests.properties.histories import Write


def shrink(case: Case, oracle: Oracle, attempts: int = 600) -> Case:
    """A smaller case that still raises the same type of error."""
    first = attempt(case, oracle)
    if first is None:
        return case
    kind = type(first)
    progress = True
    while progress and attempts > 0:
        progress = False
        for smaller in _candidates(case):
            attempts -= 1
            if attempts <= 0:
                break
            try:
                error = attempt(smaller, oracle)
            except NotComputable:
                continue
            if isinstance(error, kind):
                case, progress = smaller, True
                break
    return case


def _candidates(case: Case) -> Iterator[Case]:
    steps = list(case.steps)
    for i in range(len(steps) - 1, -1, -1):
        step = steps[i]
        if isinstance(step, View) and any(isinstance(s, View) and step.name in s.sql.spark for s in steps[i + 1 :]):
            continue
        if isinstance(step, Check) and sum(isinstance(s, Check) for s in steps) == 1:
            continue
        yield replace(case, steps=tuple(steps[:i] + steps[i + 1 :]))
    for i, step in enumerate(steps):
        if isinstance(step, Write) and len(step.rows) > 1:
            for j in range(len(step.rows)):
                smaller = replace(
                    step, rows=step.rows[:j] + step.rows[j + 1 :], deletes=step.deletes[:j] + step.deletes[j + 1 :]
                )
                yield replace(case, steps=(*steps[:i], smaller, *steps[i + 1 :]))
    used = " ".join(s.sql.spark for s in steps if isinstance(s, View))
    for table in case.tables:
        if f"{table.name} " not in used and not any(isinstance(s, Write) and s.table == table.name for s in steps):
            yield replace(case, tables=tuple(t for t in case.tables if t != table))
