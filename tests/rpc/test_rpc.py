"""One way of asking other processes: calls, streams, what becomes of errors, connections that fail."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.rpc.addresses import Certificates, host_and_port, location
from belvedere.rpc.client import RpcClient
from belvedere.rpc.server import RpcServer

SOURCES = Path(__file__).resolve().parents[2] / "viewserver" / "belvedere"


@pytest.fixture
def server() -> Iterator[RpcServer]:
    made = RpcServer("127.0.0.1")
    made.serve({"echo": lambda request: request})
    made.begin()
    yield made
    made.close()


@pytest.fixture
def client() -> Iterator[RpcClient]:
    made = RpcClient()
    yield made
    made.close()


def test_a_stream_gives_answers_as_they_come(server: RpcServer, client: RpcClient) -> None:
    go = threading.Event()

    def count(request: pa.Buffer) -> Iterator[bytes]:
        for number in range(int(request.to_pybytes())):
            if number == 2:
                assert go.wait(20)
            yield b"%d" % number

    server.serve(streams={"count": count})
    found = client.stream(server.address, "count", b"5", 30)
    assert [next(found).to_pybytes() for _ in range(2)] == [b"0", b"1"]
    go.set()
    assert [answer.to_pybytes() for answer in found] == [b"2", b"3", b"4"]
    assert list(client.stream(server.address, "count", b"0", 30)) == []


@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (errors.NotYet("view spend is behind", 7.5), errors.NotYet, "^view spend is behind$"),
        (errors.DataError("column n: " + "long " * 10_000), errors.DataError, "^column n: long"),
        (ValueError("seven"), errors.PeerUnavailable, "does not answer fail: it failed: ValueError: seven"),
    ],
    ids=["ours", "long", "defect"],
)
def test_errors_cross_by_calls_and_by_streams(
    server: RpcServer, client: RpcClient, raised: Exception, expected: type[Exception], text: str
) -> None:
    def fail(request: pa.Buffer) -> bytes:
        raise raised

    def break_off(request: pa.Buffer) -> Iterator[bytes]:
        yield b"first"
        raise raised

    server.serve({"fail": fail}, {"stream.fail": break_off})
    with pytest.raises(expected, match=text) as caught:
        client.call(server.address, "fail", b"", 10)
    assert vars(caught.value) == (vars(raised) if isinstance(raised, errors.BelvedereError) else {})
    found = client.stream(server.address, "stream.fail", b"", 10)
    assert next(found).to_pybytes() == b"first"
    with pytest.raises(expected, match=text.replace("fail:", "stream.fail:", 1)) as caught:
        next(found)
    assert vars(caught.value) == (vars(raised) if isinstance(raised, errors.BelvedereError) else {})


def test_what_has_not_begun_is_nobody_and_what_is_unknown_is_another_version(client: RpcClient) -> None:
    server = RpcServer("127.0.0.1")
    try:
        for ask in (client.call, lambda *asked: list(client.stream(*asked))):
            with pytest.raises(errors.PeerUnavailable, match="nobody answers here yet"):
                ask(server.address, "topology", b"", 5.0)
        server.serve({"topology": lambda _: b"here"}, {"scan": lambda _: iter([b"row"])})
        server.begin()
        assert client.call(server.address, "topology", b"", 5.0) == b"here"
        with pytest.raises(errors.Incompatible, match="call status is unknown here, there is scan, topology"):
            client.call(server.address, "status", b"", 5.0)
    finally:
        server.close()


def test_a_connection_is_made_anew_after_it_failed(client: RpcClient) -> None:
    """Without a pause in which it would not be tried, however often it failed."""
    server = RpcServer("127.0.0.1")
    server.serve({"echo": lambda request: request})
    server.begin()
    assert client.call(server.address, "echo", b"x", 5) == b"x"
    server.close()
    for _ in range(20):
        with pytest.raises(errors.PeerUnavailable, match=r"the member at .* does not answer echo: nobody is there"):
            client.call(server.address, "echo", b"x", 5)
    again = RpcServer("127.0.0.1", server.port)
    again.serve({"echo": lambda request: request})
    again.begin()
    try:
        assert client.call(server.address, "echo", b"x", 5) == b"x"
    finally:
        again.close()


def test_those_who_are_late_do_not_take_the_new_connection_away(server: RpcServer, client: RpcClient) -> None:
    """Each of many that wait on a connection which fails gives up that one, not the one that was made since."""
    failing = client._channel(server.address)
    client._given_up(server.address, failing)
    fresh = client._channel(server.address)
    client._given_up(server.address, failing)
    assert client._channel(server.address) is fresh is not failing


def test_a_server_closes_while_an_answer_hangs(client: RpcClient) -> None:
    server, asked, go = RpcServer("127.0.0.1"), threading.Event(), threading.Event()

    def hang(request: pa.Buffer) -> bytes:
        asked.set()
        go.wait(20)
        return b""

    server.serve({"hang": hang})
    server.begin()
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            client.call(server.address, "hang", b"", 60)
        except errors.PeerUnavailable as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert asked.wait(20)
    server.close()
    asking.join(20)
    go.set()
    assert failed and not asking.is_alive()


def test_closed_clients_ports_that_are_taken_and_missing_files_are_named(server: RpcServer, tmp_path: Path) -> None:
    client = RpcClient()
    client.close()
    with pytest.raises(errors.Closed):
        client.call("grpc://127.0.0.1:1", "echo", b"", 1)
    with pytest.raises(errors.Unavailable, match=f"cannot listen on 127.0.0.1, port {server.port}"):
        RpcServer("127.0.0.1", server.port)
    missing = Certificates(tmp_path / "a.pem", tmp_path / "a.key", tmp_path / "ca.pem")
    for make in (lambda: RpcClient(tls=missing), lambda: RpcServer("127.0.0.1", tls=missing)):
        with pytest.raises(errors.DiskError, match=r"TLS file .*\.pem cannot be read: No such file"):
            make()
    with pytest.raises(errors.DataError, match="needs a certificate and a key"):
        RpcServer("127.0.0.1", tls=Certificates(authority=tmp_path / "ca.pem"))


def test_addresses() -> None:
    assert location("grpc", "fd00::7", 4711) == "grpc://[fd00::7]:4711"
    assert host_and_port("grpc+tls://[fd00::7]:4711") == ("fd00::7", 4711)


def test_there_is_no_second_stack() -> None:
    """Flight is known to `rpc` alone."""
    knowing = set()
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(name.startswith("pyarrow.flight") for name in names):
                knowing.add(file.relative_to(SOURCES).parts[0])
    assert knowing == {"rpc"}
