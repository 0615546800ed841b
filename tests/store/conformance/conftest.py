"""The stores that every test of this folder runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from belvedere.store.memory import MemoryStore
from belvedere.store.seam import Store

KINDS = ["memory"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path) -> Iterator[Store]:
    made = MemoryStore()
    yield made
    made.close()
