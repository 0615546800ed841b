"""The store over Flight: errors cross the wire as what they are, and a server that is gone is unavailable."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.backend.memory import MemoryStore, Moment
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.rpc.addresses import Certificates, location
from tests.backend.conformance.rows import read, scan, write
from tests.backend.conformance.test_input import chunk


@pytest.fixture
def served() -> Iterator[tuple[MemoryStore, FlightStore]]:
    store = MemoryStore("behind")
    server = StoreServer([StoreService(store)])
    client = FlightStore(server.address)
    yield store, client
    client.close()
    server.close()


RAISED = [
    errors.StoreUnavailable("no room in /x: 0 MiB are free; …"),
    errors.Damaged("chunk 1"),
    errors.DataError("2 ids and 1 values"),
    errors.FormatError("newer"),
    errors.NotYet("not in time", 12.5),
    errors.UnsupportedSql("no", line=3, column=4, hint="other"),
    errors.Incompatible("another cluster"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_errors_cross_as_what_they_are(served: tuple[MemoryStore, FlightStore], error: errors.BelvedereError) -> None:
    store, client = served

    def strike(call: str, moment: Moment) -> None:
        raise error

    store.faults = strike
    for call in (client.identity, client.chunks, lambda: read(client, [1]), lambda: write(client, 1, {1: b"a"})):
        with pytest.raises(errors.BelvedereError) as caught:
            call()
        assert type(caught.value) is type(error)
        assert str(caught.value) == str(error) and vars(caught.value) == vars(error)
    with pytest.raises(type(error)):
        scan(client)


def test_a_defect_of_the_server_is_unavailable(served: tuple[MemoryStore, FlightStore]) -> None:
    store, client = served

    def strike(call: str, moment: Moment) -> None:
        raise ZeroDivisionError("oops")

    store.faults = strike
    with pytest.raises(errors.StoreUnavailable, match=r"not answer store\.chunks: it failed: ZeroDivisionError: oops"):
        client.chunks()


def test_a_scan_that_fails_halfway_raises_there(served: tuple[MemoryStore, FlightStore]) -> None:
    store, client = served

    def broken(*_: object) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        yield np.zeros((1, 2), np.uint64), pa.array([b"x"], pa.binary())
        raise errors.StoreUnavailable("the disk went away")

    store.scan = broken  # type: ignore[method-assign]
    pieces = client.scan("t", 0, 1, 9)
    assert next(pieces)[1].to_pylist() == [b"x"]
    with pytest.raises(errors.StoreUnavailable, match="the disk went away"):
        next(pieces)


def test_nobody_there_is_unavailable_with_address_and_reason() -> None:
    server = StoreServer([StoreService(MemoryStore())])
    address = server.address
    client = FlightStore(address, timeout=5)
    assert client.identity() == "memory"
    server.close()
    for call in (client.identity, lambda: read(client, [1]), lambda: write(client, 1, {1: b"a"}), lambda: scan(client)):
        with pytest.raises(errors.StoreUnavailable, match=f"the store at {address} does not answer"):
            call()
    client.close()


def test_a_server_that_comes_back_is_found_again() -> None:
    store = MemoryStore()
    server = StoreServer([StoreService(store)])
    client = FlightStore(server.address, timeout=5)
    write(client, 1, {1: b"a"})
    server.close()
    with pytest.raises(errors.StoreUnavailable):
        read(client, [1])
    again = StoreServer([StoreService(store)], port=server.port)
    deadline = threading.Event()
    for _ in range(200):
        try:
            assert read(client, [1]) == [b"a"]
            break
        except errors.StoreUnavailable:
            deadline.wait(0.05)
    else:
        raise AssertionError("the client did not find the server again")
    client.close()
    again.close()


def test_an_answer_that_does_not_come_in_time_is_unavailable() -> None:
    store, stuck = MemoryStore(), threading.Event()

    def strike(call: str, moment: Moment) -> None:
        stuck.wait(20)

    store.faults = strike
    server = StoreServer([StoreService(store)])
    client = FlightStore(server.address, timeout=0.2)
    with pytest.raises(errors.StoreUnavailable, match=r"does not answer store\.identity"):
        client.identity()
    stuck.set()
    client.close()
    server.close()


def test_a_store_that_was_closed_below_its_server_is_unavailable(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    server = StoreServer([StoreService(store)])
    client = FlightStore(server.address)
    store.close()
    with pytest.raises(errors.StoreUnavailable, match="is closed"):
        read(client, [1])
    client.close()
    server.close()


def test_a_port_that_is_taken_and_files_that_are_missing_are_named(tmp_path: Path) -> None:
    server = StoreServer([StoreService(MemoryStore())])
    with pytest.raises(errors.StoreUnavailable, match=f"the store cannot listen on 127.0.0.1, port {server.port}"):
        StoreServer([StoreService(MemoryStore())], port=server.port)
    server.close()
    missing = Certificates(tmp_path / "a.pem", tmp_path / "a.key")
    with pytest.raises(errors.DiskError, match=r"TLS file .*a\.pem cannot be read: No such file"):
        StoreServer([StoreService(MemoryStore())], tls=missing)
    with pytest.raises(errors.DiskError, match=r"TLS file .*a\.pem cannot be read"):
        FlightStore("grpc+tls://localhost:1", tls=missing)


def test_many_threads_share_a_client(served: tuple[MemoryStore, FlightStore]) -> None:
    _, client = served

    def work(thread: int) -> None:
        for epoch in range(1, 15):
            write(client, epoch, dict.fromkeys(range(50), b"%d" % epoch), table=f"t{thread}")
            client.put_chunks([(chunk(epoch, writer=f"w{thread}"), b"x")])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(client.chunks()) == 70
    for thread in range(5):
        assert read(client, [7], table=f"t{thread}") == [b"14"]


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """An authority, and a key and certificate for the host `localhost` that it signed; a stranger's beside them."""
    (tmp_path / "san").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for authority, name in (("ca", "peer"), ("other", "stranger")):
        openssl(
            tmp_path,
            *f"req -x509 -newkey rsa:2048 -nodes -keyout {authority}.key -out {authority}.pem -days 2".split(),
            *f"-subj /CN={authority}".split(),
        )
        openssl(
            tmp_path,
            *f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost".split(),
        )
        openssl(
            tmp_path,
            *f"x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial".split(),
            *f"-out {name}.pem -days 2 -extfile san".split(),
        )
    return tmp_path


def test_with_tls_only_those_who_are_known_get_in(certificates: Path) -> None:
    def tls(name: str, authority: str = "ca") -> Certificates:
        return Certificates(
            certificates / f"{name}.pem", certificates / f"{name}.key", certificates / f"{authority}.pem"
        )

    server = StoreServer([StoreService(MemoryStore("secret"))], host="localhost", tls=tls("peer"))
    friend = FlightStore(server.address, timeout=5, tls=tls("peer"))
    assert friend.identity() == "secret"
    for wrong in (tls("stranger"), tls("peer", "other"), Certificates(authority=certificates / "ca.pem")):
        stranger = FlightStore(server.address, timeout=2, tls=wrong)
        with pytest.raises(errors.StoreUnavailable, match=r"does not answer store\.identity"):
            stranger.identity()
        stranger.close()
    friend.close()
    server.close()


def test_others_are_told_the_host_by_which_they_reach_it() -> None:
    server = StoreServer([StoreService(MemoryStore())], "0.0.0.0", advertise="localhost")
    try:
        assert server.address == f"grpc://localhost:{server.port}"
        assert FlightStore(server.address).identity()
    finally:
        server.close()
    assert location("grpc", "fd00::7", 4711) == "grpc://[fd00::7]:4711"
