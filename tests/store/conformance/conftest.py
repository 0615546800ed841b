"""The stores that every test of this folder runs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from belvedere.store.memory import MemoryStore
from belvedere.store.seam import Store
from belvedere.store.served.lmdb_store import LmdbStore

KINDS = ["memory", "lmdb"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path) -> Iterator[Store]:
    made = MemoryStore() if request.param == "memory" else LmdbStore(tmp_path / "store", map_size=1 << 20)
    yield made
    made.close()
