"""Sources of one backend feed a pool whose state lives in another."""

from __future__ import annotations

from pathlib import Path

from belvedere.backend.memory import MemoryStore
from belvedere.backend.opening import open_backend, served_url
from belvedere.backend.pusher import PushedLog, Pushers
from belvedere.backend.seam import Backend, BaseTables
from belvedere.backend.served.base_service import BaseService
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.cluster.transport.loopback import LoopbackTransport
from belvedere.model.base_keys import encode_keys
from belvedere.model.pushes import PUSH, pack_request
from belvedere.model.rows import GivenRows
from belvedere.protocol.exactly_once import SourceId
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import MemberId
from tests.backend.served.base_changes import keys_of
from tests.cluster.memory_pool import Pool
from tests.cluster.real import until


def put(base: BaseTables, numbers: range) -> None:
    """Orders, one for each of ten customers in turn."""
    (table,) = base.tables().values()
    given = GivenRows(table).puts([{"id": n, "customer": n % 10, "total": "1.00"} for n in numbers])
    assert given is not None
    base.put(table, given)


def feed(backend: Backend, log: PushedLog) -> None:
    """Two key ranges, then three, are pushed to a pool in memory; ended ones are forgotten where they are."""
    assert backend.base is not None
    base, pool = backend.base, Pool(backend)
    client = LoopbackTransport(pool.hub, MemberId("pusher"))

    def push(address: str, source: SourceId, table: str, payload: bytes) -> None:
        client.call(address, PUSH, pack_request(source, table, payload), 10.0)

    def distributors() -> list[str]:
        return [member.address for member in pool._members() if member.role is Role.DISTRIBUTOR]

    pushers = Pushers(log, ("node-0",), push, distributors)
    try:
        pool.whole()
        pool.define()
        (parent,) = backend.store.sources()
        pushers.start()
        put(base, range(7))
        until(lambda: pool.rows() == 7, 20.0, "the rows of one range are in the view")
        lower, upper = base.split(parent.id, encode_keys(keys_of(50), "orders")[0])
        put(base, range(7, 100))
        until(lambda: pool.rows() == 10, 20.0, "the rows of both daughters are in the view")
        until(lambda: {info.id for info in backend.store.sources()} == {lower, upper}, 20.0, "the parent is forgotten")
        assert set(pool.committed().positions) >= {lower, upper}
    finally:
        pushers.stop()
        pool.stop()
        pushers.close(5.0)
    assert pool.store.sources() == [] and pool.store.tables() and not backend.store.tables()
    assert not backend.store.chunks() and not backend.store.list_documents("")


def test_base_tables_in_memory_feed_another_store() -> None:
    store = MemoryStore("elsewhere")
    feed(Backend("memory:", store, store.base), store.base)


def test_base_tables_of_a_served_store_feed_a_store_in_memory(tmp_path: Path) -> None:
    local = LmdbStore(tmp_path / "store")
    server = StoreServer([StoreService(local), BaseService(local.base)])
    backend = open_backend(served_url(server.address))
    try:
        feed(backend, local.base)
    finally:
        backend.close()
        server.close()
        local.close()
