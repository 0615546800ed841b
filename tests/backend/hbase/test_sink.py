"""The sink without HBase: its server, and which entries count."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence

import pytest

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import ADMIN, Connection, Server
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.followed import Ancestry, FollowedBook, FollowedRegion, FollowedTable
from belvedere.backend.hbase.meta import RegionBirth
from belvedere.backend.hbase.sink import EntryReceiver
from belvedere.backend.hbase.sink_server import SinkServer
from belvedere.backend.memory import MemoryStore
from belvedere.errors import DataError, StoreUnavailable
from belvedere.protocol.exactly_once import DURABLE_END, SourceEntry, SourceId
from tests.backend.hbase.test_wal import ORDERS, ROW, put
from tests.backend.hbase.wal_blocks import LogEntry, request
from tests.cluster.real import until

METHOD = "ReplicateWALEntry"


class Receiver:
    def __init__(self) -> None:
        self.came: list[tuple[bytes, bytes]] = []
        self.problems: list[Exception] = []

    def __call__(self, message: memoryview, block: memoryview) -> None:
        if self.problems:
            raise self.problems.pop(0)
        self.came.append((bytes(message), bytes(block)))


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def server(receiver: Receiver) -> Iterator[SinkServer]:
    made = SinkServer(receiver)
    yield made
    made.close()


def connect(server: SinkServer) -> Connection:
    return Connection(Server("127.0.0.1", server.port), ADMIN, 10.0)


def ship(connection: Connection, message: bytes = b"request", block: bytes = b"cells") -> None:
    connection.call(METHOD, message, messages.Empty, block)


def test_a_request_is_answered_when_it_is_durable_and_delayed_until_then(
    server: SinkServer, receiver: Receiver
) -> None:
    receiver.problems = [StoreUnavailable("the store is away")] * 3
    connection = connect(server)
    ship(connection)
    ship(connection, b"", b"")
    assert receiver.came == [(b"request", b"cells"), (b"", b"")]
    assert (server.requests, server.delays, server.trouble) == (2, 3, "")
    connection.close()


def test_other_calls_are_refused_and_do_no_harm(server: SinkServer, receiver: Receiver) -> None:
    connection = connect(server)
    with pytest.raises(Refused, match="GetRegionInfo: this is no region server"):
        connection.call("GetRegionInfo", messages.Empty(), messages.Empty)
    ship(connection)
    assert len(receiver.came) == 1
    connection.close()


def test_damaged_requests_and_foreign_protocols_end_the_connection(
    server: SinkServer, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.problems = [DataError("a log entry of type 99")]
    connection = connect(server)
    with pytest.raises(StoreUnavailable):
        ship(connection)
    connection.close()
    with socket.create_connection(("127.0.0.1", server.port)) as kerberos:
        kerberos.sendall(b"HBas\x00\x51")
        assert kerberos.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port)) as huge:
        huge.sendall(b"HBas\x00\x50" + struct.pack(">i", -5))
        assert huge.recv(1) == b""
    for part in ("a log entry of type 99", "Kerberos is not understood yet", "a frame of -5 bytes"):
        assert part in caplog.text


def test_a_region_server_that_gave_up_is_not_waited_for(server: SinkServer, receiver: Receiver) -> None:
    receiver.problems = [StoreUnavailable("the store is away")] * 100_000
    connection = connect(server)
    connection.send(METHOD, b"request", b"cells")
    until(lambda: server.delays > 0, 10.0, "a delay")
    connection.close()
    until(lambda: not server._connections, 10.0, "the end of the connection")


def test_closing_ends_what_waits(receiver: Receiver) -> None:
    receiver.problems = [StoreUnavailable("the store is away")] * 100_000
    server = SinkServer(receiver)
    connection = connect(server)
    connection.send(METHOD, b"request", b"cells")
    until(lambda: server.delays > 0, 10.0, "a delay")
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sink")]
    connection.close()


# --- which entries count


class Meta:
    """What `hbase:meta` says, as it is set."""

    def __init__(self) -> None:
        self.said: list[RegionBirth] = []
        self.asked = 0

    def births(self, table: TableName) -> list[RegionBirth]:
        self.asked += 1
        return [birth for birth in self.said if str(table) == "shop:orders"]


def birth(encoded: str, *parents: str, opened: int = 0, ended: bool = False) -> RegionBirth:
    return RegionBirth(encoded.encode(), encoded, frozenset(parents), opened, "", ended)


class World:
    """Two sinks over one store, and what they pushed."""

    def __init__(self) -> None:
        self.meta, self.store = Meta(), MemoryStore()
        self.pushed: list[tuple[SourceId, int]] = []
        self.sinks = [self._sink() for _ in range(2)]
        self.book = FollowedBook(self.store)

    def _sink(self) -> EntryReceiver:
        book = FollowedBook(self.store)
        return EntryReceiver(book, Ancestry(book, self.meta), self._push)  # type: ignore[arg-type]

    def _push(self, runs: Sequence[tuple[SourceId, Sequence[SourceEntry]]]) -> None:
        self.pushed += [(source, entry.seq) for source, entries in runs for entry in entries]

    def follow(self, *regions: RegionBirth) -> None:
        self.meta.said = list(regions)
        self.book.put_table(FollowedTable(ORDERS, False))
        Ancestry(self.book, self.meta).list_regions(FollowedTable(ORDERS, False))  # type: ignore[arg-type]

    def receive(self, *entries: tuple[str, int], sink: int = 0, table: bytes = b"shop:orders") -> None:
        made = [LogEntry(table, region.encode(), seq, [put(ROW, "f:city", 5)]) for region, seq in entries]
        message, block = request(made)
        self.sinks[sink].receive(memoryview(message), memoryview(block))

    def sources(self) -> dict[str, tuple[set[str], bool]]:
        """Parents, and whether it has ended."""
        return {
            info.id.removeprefix("orders/"): (
                {parent.removeprefix("orders/") for parent in info.parents},
                info.last == DURABLE_END,
            )
            for info in self.book.sources()
        }


def test_listed_regions_count_from_where_they_were_opened() -> None:
    world = World()
    world.follow(birth("a", opened=5), birth("b"), birth("old", ended=True))
    world.receive(("a", 3), ("a", 4), ("a", 6), ("b", 1))
    world.receive(("a", 2))
    assert sorted(world.pushed) == [("orders/a", 6), ("orders/b", 1)]
    assert world.sinks[0].figures.early == 3
    assert world.sources() == {"a": (set(), False), "b": (set(), False)}


def test_other_tables_and_regions_of_a_namesake_are_left_out() -> None:
    world = World()
    world.follow(birth("a"))
    world.meta.said = [birth("a"), birth("new")]
    world.receive(("a", 1), ("gone", 2), ("new", 3))
    world.receive(("x", 1), table=b"other")
    assert world.pushed == [("orders/a", 1)]
    assert world.sinks[0].figures.foreign == 2
    assert world.sources().keys() == {"a"}


def test_nothing_is_answered_before_the_regions_are_listed() -> None:
    world = World()
    world.receive(("a", 1))  # nobody follows the table
    world.book.put_table(FollowedTable(ORDERS, False))
    for sink in (0, 1):
        with pytest.raises(StoreUnavailable, match="its regions are not listed yet"):
            world.receive(("a", 2), sink=sink)
    world.follow(birth("a"))
    for sink in (0, 1):
        world.receive(("a", 3), sink=sink)
    assert world.pushed == [("orders/a", 3)] * 2


def test_daughters_count_and_end_their_ancestors_also_those_that_never_had_an_entry() -> None:
    world = World()
    world.follow(birth("a"), birth("b"))
    world.receive(("a", 1), ("b", 1))
    world.meta.said = [birth("a", ended=True), birth("a1", "a", ended=True), birth("m", "a1", "b"), birth("a2", "a")]
    world.receive(("m", 7), sink=1)
    assert world.pushed[-1] == ("orders/m", 7)
    assert world.sources() == {
        "a": (set(), True),
        "b": (set(), True),
        "a1": ({"a"}, True),
        "a2": ({"a"}, False),
        "m": ({"a1", "b"}, False),
    }
    world.book.forget_sources([SourceId("orders/a"), SourceId("orders/m")])
    assert world.sources().keys() == {"b", "a1", "a2", "m"}
    world.receive(("a2", 3))  # the last of the sisters, when their parent is forgotten
    assert world.pushed[-1] == ("orders/a2", 3)


def test_daughters_are_known_before_hbase_forgets_their_parents() -> None:
    world = World()
    world.follow(birth("a"))
    world.meta.said = [birth("a", ended=True), birth("a1", "a")]
    Ancestry(world.book, world.meta).look_for_daughters(FollowedTable(ORDERS, True))  # type: ignore[arg-type]
    assert world.sources() == {"a": (set(), False), "a1": ({"a"}, False)}
    world.meta.said = [birth("a1")]
    world.receive(("a1", 9))
    assert world.pushed == [("orders/a1", 9)]
    assert world.sources() == {"a": (set(), True), "a1": ({"a"}, False)}


def test_a_dropped_table_leaves_nothing_behind() -> None:
    world = World()
    world.follow(birth("a"))
    world.book.put_region(FollowedRegion("orders", "a1", frozenset({"a"}), 0))
    world.book.end("orders", ["a"])
    world.book.remove_table("orders")
    assert world.store.list_documents("") == []
    world.receive(("a", 1))
    assert world.pushed == []
