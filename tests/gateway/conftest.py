"""One server for tests that do not change how it behaves; tables of their own keep them apart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.serving import ORDERS, SPEND, Served, embedded


@pytest.fixture
def served() -> Iterator[Served]:
    with embedded(None, ORDERS, SPEND) as found:
        token = found.db.put("orders", [{"id": i, "customer": i % 10, "total": "9.50"} for i in range(100)])
        found.db.wait(token)
        yield found
