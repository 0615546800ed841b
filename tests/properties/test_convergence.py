"""Convergence: what may be delivered in another order, and again, without changing any view.

Cells are merged by timestamp; of equal timestamps a delete beats a put, and of puts the later one of the row's lineage
wins: the one with the later (seq, position). So changes with timestamps of their own, and deletes with the timestamp of
a put, may come in any order and again. Puts of one row with one timestamp have an order, which its lineage keeps; rows
among each other may come in any order, in calls that are cut anywhere, and a lineage may begin again further back.
Tables of several masters settle ties by value: no order of anything counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import belvedere
from tests.oracle.clock import clock
from tests.oracle.values import same_bag, table_rows
from tests.properties.case import Case, View, generate, write
from tests.properties.histories import Write

HISTORIES = 60
CHUNK = 10
BY_VALUE = " TBLPROPERTIES ('ties' = 'value')"
Key = tuple[Any, ...]


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_order_and_repetition_do_not_matter(first: int) -> None:
    """Every put has a timestamp of its own; every other delete has that of a put of its row."""
    for seed in range(first, first + CHUNK):
        case, rng = generate(seed), Random(seed)
        stamped: list[Write] = []
        puts: dict[Key, int] = {}
        for i, change in enumerate(_single(case)):
            key = _key(case, change)
            ts = puts.get(key, 1000 + 7 * i) if change.deletes[0] and rng.random() < 0.5 else 1000 + 7 * i
            stamped.append(replace(change, ts=ts))
            if not change.deletes[0]:
                puts[key] = ts
        again = stamped + rng.sample(stamped, len(stamped) // 3)
        rng.shuffle(again)
        _compare(case, stamped, again, f"seed {seed}")


@pytest.mark.parametrize("first", range(0, HISTORIES // 2, CHUNK))
def test_equal_timestamps_follow_the_lineage_of_their_row(first: int) -> None:
    """Few timestamps, out of order, many of them equal, also of puts: the order within a row counts, nothing else."""
    for seed in range(first, first + CHUNK):
        case, rng = generate(seed), Random(seed)
        stamped = [replace(change, ts=rng.randint(1, 4)) for change in _single(case)]
        lineages: dict[Key, list[Write]] = {}
        for change in stamped:
            lineages.setdefault(_key(case, change), []).append(change)
        _compare(case, stamped, _calls(_redelivered(list(lineages.values()), rng), rng), f"seed {seed}")


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_where_the_value_settles_ties_no_order_matters(first: int) -> None:
    """Few timestamps, most of them equal: whatever comes first, and however often, and in whichever calls."""
    for seed in range(first, first + CHUNK):
        case, rng = generate(seed), Random(seed)
        stamped = [replace(change, ts=rng.randint(1, 4)) for change in _single(case)]
        again = stamped + rng.sample(stamped, len(stamped) // 3)
        rng.shuffle(again)
        _compare(case, _calls(stamped, rng), _calls(again, rng), f"seed {seed}", BY_VALUE)


def test_of_two_puts_with_one_timestamp_the_later_wins_whichever_it_is() -> None:
    """Order counts there, and in calls and positions of a call alike: no rule but the lineage's decides."""
    for values in ((1, 2), (2, 1)):
        for calls in ([[values[0]], [values[1]]], [list(values)]):
            with belvedere.open(clock=clock()) as db:
                db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
                db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t")
                for call in calls:
                    token = db.put("t", [{"id": 1, "a": value} for value in call], ts=100)
                assert db.get("v", 1, after=token) == {"id": 1, "a": values[1]}


def _single(case: Case) -> list[Write]:
    """The changes of a history one by one, in the order of their log."""
    return [
        replace(s, rows=(row,), deletes=(delete,), ts=None)
        for s in case.steps
        if isinstance(s, Write)
        for row, delete in zip(s.rows, s.deletes, strict=True)
    ]


def _key(case: Case, change: Write) -> Key:
    (columns,) = (table.key for table in case.tables if table.name == change.table)
    values = (change.rows[0][column] for column in columns)
    return (change.table, *(0.0 if isinstance(v, float) and v == 0 else v for v in values))


def _redelivered(lineages: Sequence[list[Write]], rng: Random) -> list[Write]:
    """Each lineage in its order, mixed at random; some begin again further back, and then come to their end again."""
    out: list[Write] = []
    at = [0] * len(lineages)
    while open := [i for i, lineage in enumerate(lineages) if at[i] < len(lineage)]:
        i = rng.choice(open)
        if rng.random() < 0.2:
            at[i] = max(0, at[i] - rng.randint(1, 4))
        out.append(lineages[i][at[i]])
        at[i] += 1
    return out


def _calls(changes: Sequence[Write], rng: Random) -> list[Write]:
    """Changes of one table and timestamp that follow each other, some of them in one call."""
    out: list[Write] = []
    for change in changes:
        last = out[-1] if out else None
        alike = last is not None and (last.table, last.ts, last.deletes[0]) == (
            change.table,
            change.ts,
            change.deletes[0],
        )
        if last is not None and alike and rng.random() < 0.7:
            out[-1] = replace(last, rows=last.rows + change.rows, deletes=last.deletes + change.deletes)
        else:
            out.append(change)
    return out


def _compare(case: Case, one: Sequence[Write], other: Sequence[Write], what: str, options: str = "") -> None:
    views = {s.name: s.sql.spark for s in case.steps if isinstance(s, View)}
    wanted, found = _outcome(case, views, one, options), _outcome(case, views, other, options)
    for name in views:
        difference = same_bag(found[name], wanted[name], exact=True)
        assert difference is None, f"{what}, view {name} = {views[name]}: {difference}"


def _outcome(
    case: Case, views: dict[str, str], changes: Sequence[Write], options: str
) -> dict[str, list[tuple[Any, ...]]]:
    """The final rows of every view."""
    with belvedere.open(clock=clock()) as db:
        for table in case.tables:
            db.execute(table.ddl() + options)
        for name, sql in views.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        token = None
        for change in changes:
            token = write(db, change)
        db.wait(token)
        return {name: table_rows(db.scan(name)) for name in views}
