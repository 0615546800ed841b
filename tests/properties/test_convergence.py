"""The same changes in any order, some of them again and again, give the same views (timestamps distinct per change)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import belvedere
from tests.oracle.clock import clock
from tests.oracle.values import same_bag, table_rows
from tests.properties.case import View, generate, write
from tests.properties.histories import Write

HISTORIES = 60
CHUNK = 10


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_order_and_repetition_do_not_matter(first: int) -> None:
    for seed in range(first, first + CHUNK):
        case = generate(seed)
        views = {s.name: s.sql.spark for s in case.steps if isinstance(s, View)}
        changes = [
            replace(s, rows=(row,), deletes=(delete,), ts=None)
            for s in case.steps
            if isinstance(s, Write)
            for row, delete in zip(s.rows, s.deletes, strict=True)
        ]
        stamped = [replace(c, ts=1000 + 7 * i) for i, c in enumerate(changes)]
        wanted = _outcome(case.tables, views, stamped)
        rng = Random(seed)
        again = stamped + rng.sample(stamped, len(stamped) // 3)
        rng.shuffle(again)
        found = _outcome(case.tables, views, again)
        for name in views:
            difference = same_bag(found[name], wanted[name], exact=True)
            assert difference is None, f"seed {seed}, view {name} = {views[name]}: {difference}"


def _outcome(tables: Any, views: dict[str, str], changes: list[Write]) -> dict[str, list[tuple[Any, ...]]]:
    """The final rows of every view."""
    with belvedere.open(clock=clock()) as db:
        for table in tables:
            db.execute(table.ddl())
        for name, sql in views.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        token = None
        for change in changes:
            token = write(db, change)
        db.wait(token)
        return {name: table_rows(db.scan(name)) for name in views}
