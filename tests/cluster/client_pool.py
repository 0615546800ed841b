"""A pool in one process and a client of it, for tests of the client; fixtures, known through `conftest.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from belvedere.cluster.client.database import ClusterDatabase
from tests.cluster.fake_pool import FakePool

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))"
SPEND = "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY 1"


@pytest.fixture
def pool() -> FakePool:
    made = FakePool()
    made.step()
    return made


@pytest.fixture
def db(pool: FakePool) -> Iterator[ClusterDatabase]:
    with pool.connect() as made:
        yield made


def create(pool: FakePool, db: ClusterDatabase, *statements: str) -> None:
    """DDL with views that are built at once."""
    for statement in statements:
        db.execute(statement, wait=False)
        while pool.building:
            pool.step()


def order(id: int, customer: int, total: str) -> dict[str, Any]:
    return {"id": id, "customer": customer, "total": total}
