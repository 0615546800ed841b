"""The stores that every test of this folder runs on: in memory, LMDB in this process, LMDB behind a Flight server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Store
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService

KINDS = ["memory", "images", "lmdb", "small", "flight"]
"""`images`: in memory, and asking for previous images. `small`: LMDB whose recent rows go to the tree all the time,
`lmdb` one where they mostly stay in memory."""


def make(kind: str, path: Path, stack: ExitStack) -> Store:
    """A store of this kind; what it needs is closed with the stack. The map is small, so that it has to grow."""
    if kind in ("memory", "images"):
        return MemoryStore(previous_images=kind == "images")
    local = LmdbStore(path, map_size=1 << 20, collect_pause=0.0, merge_rows=10 if kind == "small" else 10**6)
    stack.callback(local.close)
    if kind != "flight":
        return local
    server = StoreServer([StoreService(local)])
    stack.callback(server.close)
    client = FlightStore(server.address)
    stack.callback(client.close)
    return client


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        yield make(request.param, tmp_path / "store", stack)
