"""Pushing: whatever distributors do, and however ranges move, split and merge meanwhile, INPUT has every entry once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.pusher import Habits, Pushers
from belvedere.backend.seam import Sources
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.errors import PeerUnavailable
from belvedere.model import chunks
from belvedere.model.base_keys import encode_keys
from belvedere.model.pushes import pack_request, unpack_request
from belvedere.protocol.exactly_once import (
    Acknowledge,
    DuplicateFilter,
    ReceivedEntries,
    Refuse,
    RequestId,
    Seq,
    SourceId,
    Write,
    WriterId,
    WrittenChunk,
    choose,
    positions,
)
from tests.backend.served.base_changes import ORDERS, Change, changes_of, keys_of

NODES = ("n0", "n1", "n2")
QUICK = Habits(request_bytes=400, shortest_pause=0.001, longest_pause=0.01, trim_seconds=0.02)
Fault = Callable[[str], str]
"""What happens to a request at this address: "fine", "before" (lost) or "after" (its answer is lost)."""


class Distributor:
    """Receives requests as a distributor does: filter, INPUT, answer."""

    def __init__(self, name: str, input: MemoryStore) -> None:
        self._filter = DuplicateFilter(WriterId(name))
        self._input = input
        self._lock = threading.Lock()
        self._number = 0

    def receive(self, source: SourceId, payload: bytes) -> None:
        with self._lock:
            self._number += 1
            request = RequestId(self._number)
            pending = self._filter.handle(ReceivedEntries(request, source, chunks.parse(payload)))
            while pending:
                instruction = pending.pop(0)
                match instruction:
                    case Write(chunk, entries):
                        self._input.put_chunks([(chunk, chunks.encode(source, entries))])
                        pending += self._filter.handle(WrittenChunk(chunk.id))
                    case Acknowledge(answered):
                        assert answered == request
                    case Refuse(_, reason):
                        raise PeerUnavailable(reason)


class World:
    """Distributors over one INPUT."""

    def __init__(self, fault: Fault) -> None:
        self.input = MemoryStore()
        self.distributors = {f"d{i}": Distributor(f"d{i}", self.input) for i in range(3)}
        self.requests: list[tuple[str, SourceId]] = []
        self._fault = fault

    def push(self, address: str, source: SourceId, table: str, payload: bytes) -> None:
        assert table == "orders"
        self.requests.append((address, source))
        what = self._fault(address)
        if what == "before":
            raise PeerUnavailable(f"{address} does not answer")
        self.distributors[address].receive(source, payload)
        if what == "after":
            raise PeerUnavailable(f"{address} went away")

    def known(self) -> list[str]:
        return list(self.distributors)

    def entries(self) -> list[tuple[SourceId, Seq]]:
        """What plans would take, entry by entry."""
        index = self.input.chunks()
        found = []
        for piece in choose({}, positions(index), index):
            (payload,) = self.input.get_chunks([piece.chunk])
            found += [(piece.source, entry.seq) for entry in piece.take(chunks.parse(payload))]
        return found

    def rows(self, store: Sources) -> list[dict[str, Any]]:
        """What the engine would make of it: parents before daughters, then by seq."""
        index = self.input.chunks()
        number = {info.id: int(info.id.rsplit("/", 1)[1]) for info in store.sources()}
        table = DeltaTable(ORDERS)
        for piece in sorted(choose({}, positions(index), index), key=lambda piece: (number[piece.source], piece.after)):
            (payload,) = self.input.get_chunks([piece.chunk])
            for _, changes in chunks.decode(payload, piece, {"orders": ORDERS}):
                table.apply(changes, ())
        columns = [vec.to_arrow() for vec in table.scan(0, table.limit, (0, 1, 2))[0].columns]
        found = pa.RecordBatch.from_arrays(columns, names=["id", "a", "b"]).to_pylist()
        return sorted(found, key=lambda row: row["id"])


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def all_pushed(pushers: Pushers, last: dict[SourceId, Seq]) -> Callable[[], bool]:
    return lambda: all(pushers.positions.get(source) >= seq for source, seq in last.items())


def key(number: int) -> bytes:
    return encode_keys(keys_of(number), "t")[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    made = LmdbStore(tmp_path / "store", nodes=NODES)
    made.base.create_table(ORDERS, [key(-5), key(5)])
    yield made
    made.close()


def test_a_restart_repeats_what_was_not_durable_and_nothing_is_lost(tmp_path: Path) -> None:
    lazy = Habits(request_bytes=300, trim_seconds=1000)
    world = World(lambda address: "fine")
    written: list[tuple[SourceId, Seq]] = []
    for life in range(3):
        store = LmdbStore(tmp_path, nodes=NODES)
        store.base.create_table(ORDERS)
        pushers = Pushers(store.base, NODES, world.push, world.known, seed=life, habits=lazy)
        pushers.start()
        for n in range(10):
            written += store.base.put("orders", changes_of([Change(n, {"a": life})])).items()
        wait_until(all_pushed(pushers, dict(written)))
        for node in pushers.nodes.values():  # killed: positions are not saved
            node.stop()
        store.base.wake()
        for node in pushers.nodes.values():
            node.join(10)
        (source,) = store.sources()
        assert store.base.acknowledged(source.id) == -1
        store.close()
    assert sorted(world.entries()) == sorted(written)
    assert len(world.requests) > 30 / 10


def test_a_source_that_nobody_takes_says_why_and_goes_on_when_somebody_comes(store: LmdbStore) -> None:
    world = World(lambda address: "fine")
    known: list[str] = []
    pushers = Pushers(store.base, NODES, world.push, lambda: known, habits=QUICK)
    pushers.start()
    written = store.base.put("orders", changes_of([Change(0, {"a": 1})]))
    (source,) = written
    wait_until(lambda: pushers.troubles() == {source: "no distributor is known"})
    known.append("d1")
    wait_until(all_pushed(pushers, written))
    wait_until(lambda: not pushers.troubles())
    pushers.close()
    assert world.entries() == list(written.items())


def test_a_late_request_of_the_former_node_does_no_harm(store: LmdbStore) -> None:
    """A source moves while a request hangs; the next node pushes the same entries and more; then the first goes on."""
    hanging, release = threading.Event(), threading.Event()
    first = threading.Lock()

    def fault(address: str) -> str:
        if first.acquire(blocking=False):
            hanging.set()
            assert release.wait(30)
        return "fine"

    world = World(fault)
    pushers = Pushers(store.base, NODES, world.push, world.known, habits=QUICK)
    pushers.start()
    written = list(store.base.put("orders", changes_of([Change(0, {"a": 1})])).items())
    ((source, _),) = written
    assert hanging.wait(30)
    node = next(info.node for info in store.sources() if info.id == source)
    store.base.move(source, next(name for name in NODES if name != node))
    for n in range(5):
        written += store.base.put("orders", changes_of([Change(0, {"a": n})])).items()
    wait_until(all_pushed(pushers, dict(written)))
    release.set()
    pushers.close()
    assert sorted(world.entries()) == sorted(written)
    assert pushers.positions.get(source) == written[-1][1]


def test_a_defect_of_the_transport_is_survived(store: LmdbStore, caplog: pytest.LogCaptureFixture) -> None:
    world = World(lambda address: "fine")
    failures = iter([ZeroDivisionError("oops")])

    def push(address: str, source: SourceId, table: str, payload: bytes) -> None:
        for failure in failures:
            raise failure
        world.push(address, source, table, payload)

    pushers = Pushers(store.base, NODES, push, world.known, habits=QUICK)
    pushers.start()
    written = store.base.put("orders", changes_of([Change(0, {"a": 1})]))
    wait_until(all_pushed(pushers, written))
    pushers.close()
    assert world.entries() == list(written.items())
    assert "ZeroDivisionError: oops" in caplog.text


def test_requests_as_bytes() -> None:
    payload = chunks.entry(ORDERS, Seq(4), changes_of([Change(1, {"a": 1})]))
    source, table, found = unpack_request(pack_request(SourceId("örders/1"), "örders", payload))
    assert (source, table, bytes(found)) == ("örders/1", "örders", payload)
    assert [entry.seq for entry in chunks.parse(found)] == [4]
