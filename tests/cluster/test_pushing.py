"""The store's pushes to distributors that are frozen, or whose host is gone: nobody answers, and nothing says so."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.roles.store import NODES, StoreDirectory
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.errors import StoreUnavailable
from belvedere.model.base_keys import encode_keys
from belvedere.model.pushes import PUSH, unpack_request
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import MemberId
from belvedere.sql.catalog import TableDef
from tests.backend.served.base_changes import ORDERS, Change, changes_of, keys_of, rows_of


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken, and nothing is ever read."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"


class Distributor:
    def __init__(self) -> None:
        self.heard: set[str] = set()
        self._transport = FlightTransport("127.0.0.1", member=MemberId("d"))
        self._transport.start(lambda *_: None, {PUSH: self._take})
        self.address = self._transport.address
        self.close = self._transport.close

    def _take(self, request: bytes) -> bytes:
        self.heard.add(unpack_request(request)[0])
        return b""


def opened(path: Path, session_timeout: float, **settings: Any) -> StoreDirectory:
    options = ProcessOptions(Role.STORE, "nowhere:1", directory=path, session_timeout=session_timeout, **settings)
    store = StoreDirectory(options)
    store.base.create_table(ORDERS, encode_keys(keys_of(100, 200, 300), "orders"))
    return store


def write(store: StoreDirectory, table: TableDef = ORDERS) -> None:
    """To every range: every pusher has something to push."""
    store.base.put(table.name, changes_of([Change(key, {"a": 1}) for key in (1, 101, 201, 301)]))


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to it"
        time.sleep(0.01)


def under_way(store: StoreDirectory) -> int:
    return len(store._watch._due)


def test_pushes_to_a_distributor_that_left_are_given_up_at_once(tmp_path: Path, silent: str) -> None:
    store, other = opened(tmp_path, session_timeout=60.0), Distributor()
    store.push_to([silent])
    write(store)
    until(lambda: under_way(store) == len(NODES), 60.0)
    store.push_to([other.address])
    until(lambda: len(other.heard) == 4, 60.0)
    store.close()
    other.close()


def test_a_distributor_that_is_leaving_may_still_answer(tmp_path: Path) -> None:
    store, leaving, other = opened(tmp_path, session_timeout=60.0), Distributor(), Distributor()
    held, goes_on = threading.Event(), threading.Event()

    def slow(request: bytes) -> bytes:
        held.set()
        goes_on.wait(120.0)
        return b""

    leaving._transport._server.serve({PUSH: lambda request: slow(request.to_pybytes())})
    store.push_to([leaving.address])
    write(store)
    until(lambda: under_way(store) == len(NODES), 60.0)
    assert held.wait(60.0)
    store.push_to([other.address], [leaving.address, other.address])
    goes_on.set()
    until(lambda: all(store.pushers.positions.get(source.id) > 0 for source in store.sources()), 60.0)
    assert not other.heard and not store.pushers.troubles()
    for one in (store, leaving, other):
        one.close()


def test_a_push_that_is_not_answered_is_tried_again_after_the_session_timeout(tmp_path: Path, silent: str) -> None:
    store = opened(tmp_path, session_timeout=1.0)
    store.push_to([silent])
    write(store)
    until(lambda: len(store.pushers.troubles()) == 4, 60.0)
    store.close()


def test_base_writes_return_though_nobody_takes_what_is_pushed(tmp_path: Path, silent: str) -> None:
    """A pool that hangs: no write waits for it, up to the limit of the backlog, and there it is refused, not held."""
    store = opened(tmp_path, session_timeout=60.0, backlog_limit=1 << 20)
    store.push_to([silent])
    taken: list[int] = []
    refused: list[str] = []

    def write_on() -> None:
        write(store)
        try:
            for key in range(1000, 2000):
                store.base.put(ORDERS.name, changes_of([Change(key, {"a": key, "b": "x" * 10_000})]))
                taken.append(key)
        except StoreUnavailable as error:
            refused.append(str(error))

    writer = threading.Thread(target=write_on, daemon=True)
    writer.start()
    writer.join(30.0)
    assert not writer.is_alive(), "a write waits"
    until(lambda: under_way(store) == len(NODES), 60.0)
    assert len(taken) > 50 and "1.0 MiB are allowed" in refused[0]
    assert not any(store.pushers.positions.get(source.id) > 0 for source in store.sources()), "nobody took anything"
    keys = [row["id"] for row in rows_of(store.base)]
    assert [key for key in keys if key >= 1000] == taken
    store.close()


def test_a_store_whose_pushes_hang_is_closed_in_time(tmp_path: Path, silent: str) -> None:
    store = opened(tmp_path, session_timeout=60.0)
    store.push_to([silent])
    write(store)
    until(lambda: under_way(store) == len(NODES), 60.0)
    begin = time.monotonic()
    store.close()
    assert time.monotonic() - begin < 40.0  # not the 60 s that the pushes would wait
