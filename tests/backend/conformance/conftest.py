"""The stores that every test of this folder runs on: in memory, LMDB in this process, LMDB behind a Flight server, a
real HBase by both ways to its cells; and those that own base tables, as their users have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.opening import open_backend, served_url
from belvedere.backend.pusher import PushedLog
from belvedere.backend.seam import BaseTables, Store
from belvedere.backend.served.base_service import BaseService
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.backend.split_store import SplitStore
from tests.backend.conformance.dated import DatedStore

KINDS = ["memory", "images", "lmdb", "small", "flight", "split"]
HBASE_KINDS = ["hbase-rpc", "hbase-thrift"]
"""`images`: in memory, and asking for previous images. `small`: LMDB whose recent rows go to the tree all the time,
`lmdb` one where they mostly stay in memory. `split`: LMDB, and another store for what is a view."""


def make(kind: str, path: Path, stack: ExitStack, request: pytest.FixtureRequest) -> Store:
    """A store of this kind, with epochs of our time; what it needs is closed with the stack."""
    if kind in HBASE_KINDS:
        cluster = request.getfixturevalue("hbase")
        from tests.backend.hbase.pools import make_store

        return cast(Store, DatedStore(make_store(kind, cluster, stack)))
    return cast(Store, DatedStore(_make(kind, path, stack)))


def versions_of(store: Store) -> int:
    """How many newer versions of a row its reads can see past; they are refused where there are more."""
    return int(getattr(store, "versions", 1 << 62))


def _make(kind: str, path: Path, stack: ExitStack) -> Store:
    """The map is small, so that it has to grow."""
    if kind in ("memory", "images"):
        return MemoryStore(previous_images=kind == "images")
    local = LmdbStore(path, map_size=1 << 20, collect_pause=0.0, merge_rows=10 if kind == "small" else 10**6)
    stack.callback(local.close)
    if kind == "split":
        return SplitStore(local, MemoryStore(previous_images=True), lambda table: table.startswith("v"))
    if kind != "flight":
        return local
    server = StoreServer([StoreService(local)])
    stack.callback(server.close)
    client = FlightStore(server.address)
    stack.callback(client.close)
    return client


NODES = ("n0", "n1", "n2")


@dataclass(frozen=True)
class Owner:
    """A backend that owns base tables: as clients and coordinators have it, and the logs as pushers do."""

    store: Store
    base: BaseTables
    log: PushedLog


@pytest.fixture(params=["memory", "served"])
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Owner]:
    with ExitStack() as stack:
        if request.param == "memory":
            held = MemoryStore(nodes=NODES)
            yield Owner(held, held.base, held.base)
            return
        local = LmdbStore(tmp_path / "store", nodes=NODES, map_size=1 << 20)
        stack.callback(local.close)
        server = StoreServer([StoreService(local), BaseService(local.base)])
        stack.callback(server.close)
        backend = open_backend(served_url(server.address))
        stack.callback(backend.close)
        assert backend.base is not None
        yield Owner(backend.store, backend.base, local.base)


@pytest.fixture(params=[*KINDS, *HBASE_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        yield make(request.param, tmp_path / "store", stack, request)
