"""The golden queries, TPC-H among them, give the rows of their queries on random data made to meet their conditions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Expr, Literal, walk
from belvedere.types import Column, Kind

from .naive import Machine, result
from .test_golden import GOLDEN, SEPARATOR, definitions, planned

SEEDS = 40


def _exprs(query: q.Query) -> Iterator[Expr]:
    if isinstance(query, q.Filter):
        yield query.predicate
    elif isinstance(query, q.Project):
        yield from query.exprs
    elif isinstance(query, q.Join) and query.condition is not None:
        yield query.condition
    for below in q.inputs(query):
        yield from _exprs(below)


def _pools(queries: list[q.Query]) -> dict[Kind, list[Any]]:
    """Values that the queries compare with, and neighbours of them."""
    pools: dict[Kind, list[Any]] = {
        Kind.INT: [0, 1, 2, 3],
        Kind.BIGINT: [0, 1, 2],
        Kind.DECIMAL: [Decimal(0), Decimal("0.05"), Decimal(2), Decimal(400)],
        Kind.STRING: ["O", "F"],
        Kind.DATE: [date(1995, 6, 17), date(1994, 2, 3), date(1993, 8, 9), date(1993, 11, 1)],
    }
    for query in queries:
        for part in (p for e in _exprs(query) for p in walk(e)):
            if not isinstance(part, Literal) or part.value is None or part.type.kind not in pools:
                continue
            pool = pools[part.type.kind]
            if isinstance(part.value, date):
                pool += [part.value + timedelta(days=d) for d in (-1, 0, 1)]
            elif isinstance(part.value, str):
                pool.append(part.value.replace("%", " "))
            else:
                pool.append(part.value)
    return pools


def _data(catalog: Catalog, pools: dict[Kind, list[Any]], rng: random.Random, keys: int) -> dict[str, list[Any]]:
    def value(column: Column, unique: bool) -> Any:
        if column.name.endswith("key"):
            return None if not unique and rng.random() < 0.05 else rng.randrange(keys)
        if unique:
            return rng.randrange(keys)
        return None if rng.random() < 0.05 else rng.choice(pools[column.type.kind])

    tables = {}
    for table in catalog.tables.values():
        found: dict[Any, Any] = {}
        for _ in range(2 * keys):
            row = tuple(value(c, c.name in table.key) for c in table.columns)
            found[tuple(row[p] for p in table.key_positions)] = row
        tables[table.name] = list(found.values())
    return tables


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_plan_gives_the_rows_of_the_query(path: Path) -> None:
    text = path.read_text().partition(SEPARATOR)[0]
    views, catalog = definitions(text)
    plan = planned(text)
    pools = _pools([v.query for v in views])
    some = 0
    for seed in range(SEEDS):
        # Queries over many tables are evaluated as cross products, so their tables are tiny.
        keys = 2 if path.stem in ("tpch_05", "tpch_07", "tpch_08", "tpch_09") else 3
        data: dict[str, list[Any]] = _data(catalog, pools, random.Random(seed), keys)
        machine = Machine(data)
        for view, definition in zip(plan.views, views, strict=True):
            expected = result(definition.query, data)
            assert machine.view(view) == expected
            some += len(expected)
            data[view.name] = list(expected.elements())
    assert some, "the data should meet the conditions at least once"
