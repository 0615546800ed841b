"""Certificates that are renewed while others talk: nobody restarts, nothing is lost, and old authorities end."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.protocol.messages import Message
from belvedere.protocol.ring import MemberId
from belvedere.rpc.addresses import Certificates, host_and_port
from belvedere.rpc.client import RpcClient
from belvedere.rpc.server import RpcServer
from belvedere.rpc.tls_files import LOOK_SECONDS, TlsFiles
from tests.cluster.certificates import Mounted, authority, certified
from tests.cluster.test_flight import number

WITHIN = 20.0


@pytest.fixture
def mounted(tmp_path: Path) -> Callable[[str], Mounted]:
    return lambda name: Mounted(tmp_path / name)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)


def shown(address: str, files: Certificates) -> bytes:
    """The certificate that a port shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(str(files.certificate), str(files.key))

    with (
        socket.create_connection(host_and_port(address), timeout=5) as plain,
        context.wrap_socket(plain) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
    assert found is not None
    return found


def pem_of(path: str | Path | None) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(str(path)).read_text())


def test_a_new_certificate_is_shown_and_what_is_under_way_goes_on(
    tmp_path: Path, mounted: Callable[[str], Mounted]
) -> None:
    ours = authority(tmp_path, "ours")
    first, second = certified(tmp_path, "first", ours), certified(tmp_path, "second", ours)
    here = mounted("server")
    here.hold(first, ours)
    server = RpcServer("127.0.0.1", tls=here.files)
    go = threading.Event()

    def slow(request: pa.Buffer) -> Iterator[bytes]:
        yield b"begun"
        assert go.wait(WITHIN)
        yield b"ended"

    server.serve({"echo": lambda request: request}, {"slow": slow})
    server.begin()
    client = RpcClient(tls=first)
    try:
        assert shown(server.address, first) == pem_of(first.certificate)
        answers = client.stream(server.address, "slow", b"", WITHIN * 2)
        assert next(answers).to_pybytes() == b"begun"
        here.hold(second, ours)
        until(lambda: _shows(server.address, first, second))
        assert client.call(server.address, "echo", b"x", 5) == b"x"
        go.set()
        assert [answer.to_pybytes() for answer in answers] == [b"ended"]
    finally:
        client.close()
        server.close()


def _shows(address: str, files: Certificates, wanted: Certificates) -> bool:
    try:
        return shown(address, files) == pem_of(wanted.certificate)
    except OSError:  # for a moment nobody listens
        return False


def _beyond(count: list[int], least: int) -> bool:
    return count[0] > least


def test_authorities_change_under_load_and_every_message_arrives_once(
    tmp_path: Path, mounted: Callable[[str], Mounted]
) -> None:
    """The steps of a rotation: both are trusted, the new one signs, the old one ends. Then it is of no use any more."""
    old, new = authority(tmp_path, "old"), authority(tmp_path, "new")
    names = ("here", "there")
    by_old = {name: certified(tmp_path, f"{name}-old", old) for name in names}
    by_new = {name: certified(tmp_path, f"{name}-new", new) for name in names}
    places = {name: mounted(name) for name in names}
    for name in names:
        places[name].hold(by_old[name], old)
    received: list[Message] = []
    there = FlightTransport("127.0.0.1", member=MemberId("there"), tls=places["there"].files)
    here = FlightTransport("127.0.0.1", member=MemberId("here"), tls=places["here"].files)
    late = RpcClient(tls=by_old["here"])
    stop, sent, refused = threading.Event(), [0], [0]

    def send() -> None:
        while not stop.is_set():
            here.send(MemberId("there"), number(sent[0]), b"x" * 500)
            sent[0] += 1
            try:
                assert here.call(there.address, "echo", b"y", 5.0) == b"y"
            except errors.PeerUnavailable:
                refused[0] += 1
            time.sleep(0.001)

    sender = threading.Thread(target=send)
    try:
        there.start(lambda sender, message, payload: received.append(message), {"echo": lambda request: request})
        here.start(lambda *_: None, {})
        here.know(MemberId("there"), there.address)
        sender.start()
        for certificates, authorities in ((by_old, (old, new)), (by_new, (new, old)), (by_new, (new,))):
            before = sent[0]
            for name in names:
                places[name].hold(certificates[name], *authorities)
            until(partial(_shows, there.address, certificates["here"], certificates["there"]))
            time.sleep(LOOK_SECONDS * 1.5)  # everybody has looked
            until(partial(_beyond, sent, before + 50))
        stop.set()
        sender.join(WITHIN)
        assert here.drain(WITHIN)
        assert received == [number(n) for n in range(sent[0])]
        assert refused[0] <= sent[0] // 20, f"{refused[0]} of {sent[0]} calls were refused"
        with pytest.raises(errors.PeerUnavailable):
            late.call(there.address, "echo", b"", 2.0)
    finally:
        stop.set()
        here.close()
        there.close()


def test_files_that_do_not_fit_are_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours = authority(tmp_path, "ours")
    first, second = certified(tmp_path, "first", ours), certified(tmp_path, "second", ours)
    for name in ("certificate", "key", "authority"):
        shutil.copy(str(getattr(first, name)), tmp_path / name)
    time_now = [0.0]
    files = TlsFiles(
        Certificates(tmp_path / "certificate", tmp_path / "key", tmp_path / "authority"), lambda: time_now[0]
    )

    def look() -> bool:
        time_now[0] += LOOK_SECONDS
        return files.changed()

    assert not look()
    shutil.copy(str(second.certificate), tmp_path / "certificate")
    assert not look() and "no good" in caplog.text, "a certificate without its key"
    assert files.texts.key == Path(str(first.key)).read_bytes() != Path(str(second.key)).read_bytes()
    shutil.copy(str(second.key), tmp_path / "key")
    assert not files.changed(), "it does not look that often"
    assert look() and not look()
    assert files.texts.certificate == Path(str(second.certificate)).read_bytes()
    for nonsense in ("nonsense", ""):
        (tmp_path / "authority").write_text(nonsense)
        assert not look()
    (tmp_path / "authority").unlink()
    assert not look()
    assert files.texts.authority == ours[1].read_bytes()


def test_a_port_closes_while_streams_of_an_older_certificate_go_on(
    tmp_path: Path, mounted: Callable[[str], Mounted]
) -> None:
    ours = authority(tmp_path, "ours")
    first, second = certified(tmp_path, "first", ours), certified(tmp_path, "second", ours)
    here = mounted("server")
    here.hold(first, ours)
    server = RpcServer("127.0.0.1", tls=here.files)
    server.serve(exchanges={"talk": lambda hello: lambda head, body: b"answer"})
    server.begin()
    client = RpcClient(tls=first)
    exchange = client.exchange(server.address, "talk", b"", 60.0)
    exchange.write(b"question", None)
    assert exchange.answer() == b"answer"
    here.hold(second, ours)
    until(lambda: _shows(server.address, first, second))
    exchange.write(b"question", None)
    assert exchange.answer() == b"answer", "what was begun goes on"
    begun = time.monotonic()
    server.close()
    assert time.monotonic() - begun < 5.0
    client.close()
