"""What only the Flight transport has: TLS, and processes that freeze or end."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from belvedere import errors
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.protocol.messages import Attempt, Epoch, Expect, Message
from belvedere.protocol.ring import MemberId
from belvedere.rpc.client import RpcClient
from tests.cluster.certificates import authority, certified

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")
ROOT = Path(__file__).resolve().parents[2]


def ignore(sender: MemberId, message: Message, payload: memoryview | None) -> None:
    pass


def number(n: int) -> Expect:
    return Expect(Epoch(1), Attempt(1), 0, n)


@pytest.fixture
def server() -> Iterator[FlightTransport]:
    transport = FlightTransport("127.0.0.1", member=B)
    transport.start(ignore, {"echo": lambda request: request})
    yield transport
    transport.close()


@pytest.fixture
def client() -> Iterator[RpcClient]:
    made = RpcClient()
    yield made
    made.close()


def test_a_port_that_is_taken_is_reported(server: FlightTransport) -> None:
    with pytest.raises(errors.Unavailable, match=f"cannot listen on 127.0.0.1, port {server.port}"):
        FlightTransport("127.0.0.1", server.port, member=A)


def test_a_member_that_has_not_begun_is_asked_again(client: RpcClient) -> None:
    """Its port listens before it can answer: that is no sign of another version."""
    transport = FlightTransport("127.0.0.1", member=A)
    try:
        with pytest.raises(errors.PeerUnavailable, match="nobody answers here yet"):
            client.call(transport.address, "topology", b"", 5.0)
        transport.start(ignore, {"topology": lambda _: b"here"})
        assert client.call(transport.address, "topology", b"", 5.0) == b"here"
        with pytest.raises(errors.Incompatible, match="call status is unknown here"):
            client.call(transport.address, "status", b"", 5.0)
    finally:
        transport.close()


# --- TLS


def test_members_with_certificates_of_one_authority_talk_and_others_do_not(tmp_path: Path) -> None:
    ours, theirs = authority(tmp_path, "ours"), authority(tmp_path, "theirs")
    received: list[Message] = []
    there = FlightTransport("127.0.0.1", member=B, tls=certified(tmp_path, "there", ours))
    here = FlightTransport("127.0.0.1", member=A, tls=certified(tmp_path, "here", ours))
    stranger = RpcClient(tls=certified(tmp_path, "stranger", theirs, trusts=ours))
    deceived = RpcClient(tls=certified(tmp_path, "deceived", ours, trusts=theirs))
    try:
        there.start(lambda sender, message, payload: received.append(message), {"echo": lambda request: request})
        here.start(ignore, {})
        assert there.address.startswith("grpc+tls://")
        here.know(B, there.address)
        for n in range(100):
            here.send(B, number(n), b"x" * 1_000)
        assert here.drain(20)
        assert received == [number(n) for n in range(100)]
        assert here.call(there.address, "echo", b"hello", 5) == b"hello"
        plain = there.address.replace("grpc+tls", "grpc")
        for client, address in ((stranger, there.address), (deceived, there.address), (RpcClient(), plain)):
            with pytest.raises(errors.PeerUnavailable):
                client.call(address, "echo", b"hello", 2)
    finally:
        here.close()
        there.close()


def test_a_certificate_of_another_name_is_accepted_only_if_told(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    tls = certified(tmp_path, "there", ours)
    there = FlightTransport("127.0.0.1", member=B, tls=tls, advertise="127.0.0.2")
    there.start(ignore, {"echo": lambda request: request})
    other = FlightTransport("0.0.0.0", member=C, tls=tls, advertise="127.0.0.2")
    other.start(ignore, {"echo": lambda request: request})
    try:
        with pytest.raises(errors.PeerUnavailable):
            RpcClient(tls=tls).call(other.address, "echo", b"x", 2)
        named = replace(tls, server_name="localhost")
        assert RpcClient(tls=named).call(other.address, "echo", b"x", 5) == b"x"
    finally:
        there.close()
        other.close()


# --- processes


class Peer:
    """`frozen_peer.py` in a process of its own."""

    def __init__(self, member: MemberId) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.frozen_peer", member],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"PYTHONPATH": f"{ROOT / 'viewserver'}:{ROOT}"},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.address = self.next()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def next(self) -> str:
        return self.lines.get(timeout=30)

    def freeze(self) -> None:
        """Returns when it is: a signal may take a moment, in which it would receive something."""
        self.process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + 20
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def end(self) -> str:
        """Ask it to close and to exit; what it wrote to stderr."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        said = self.process.stderr.read()
        self.process.wait(20)
        return said

    def kill(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
        self.process.kill()
        self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None and not stream.closed:
                stream.close()


@pytest.fixture
def frozen() -> Iterator[Peer]:
    peer = Peer(C)
    yield peer
    peer.kill()


def test_a_frozen_peer_holds_up_only_its_own_queue(server: FlightTransport, frozen: Peer) -> None:
    received: list[Message] = []
    server.start(lambda sender, message, payload: received.append(message), {})
    here = FlightTransport("127.0.0.1", member=A)
    here.start(ignore, {})
    here.know(C, frozen.address)
    here.know(B, server.address)
    try:
        here.send(C, number(0))
        assert frozen.next() == "0"
        frozen.freeze()
        start = time.monotonic()
        for n in range(1, 41):
            here.send(C, number(n), b"x" * 1_000_000)
            here.send(B, number(n), b"x" * 1_000)
        assert time.monotonic() - start < 20
        deadline = time.monotonic() + 20
        while len(received) < 40:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert here.backlog() >= 40_000_000
        assert here.call(server.address, "echo", b"still there", 5) == b"still there"
        with pytest.raises(errors.PeerUnavailable):
            here.call(frozen.address, "echo", b"", 0.3)
        frozen.process.send_signal(signal.SIGCONT)
        assert here.drain(60)
        assert [frozen.next() for _ in range(40)] == [str(n) for n in range(1, 41)]
    finally:
        here.close()


def test_forget_and_close_do_not_wait_for_a_frozen_peer(frozen: Peer) -> None:
    here = FlightTransport("127.0.0.1", member=A)
    here.start(ignore, {})
    here.know(C, frozen.address)
    here.send(C, number(0))
    assert frozen.next() == "0"
    frozen.freeze()
    for _ in range(20):
        here.send(C, number(1), b"x" * 4_000_000)
    time.sleep(0.2)  # until the writer waits for the peer
    start = time.monotonic()
    here.forget(C)
    assert time.monotonic() - start < 20
    while [thread for thread in threading.enumerate() if thread.name == "send a to c"]:
        assert time.monotonic() - start < 20
        time.sleep(0.01)
    start = time.monotonic()
    here.know(C, frozen.address)
    here.send(C, number(2), b"x" * 4_000_000)
    here.close()
    assert time.monotonic() - start < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "send a to c"]


def test_a_process_ends_while_others_are_connected_to_it(frozen: Peer) -> None:
    here = FlightTransport("127.0.0.1", member=A)
    here.start(ignore, {})
    here.know(C, frozen.address)
    try:
        here.send(C, number(7))
        assert frozen.next() == "7"
        start = time.monotonic()
        said = frozen.end()
        assert frozen.process.returncode == 0
        assert said == ""
        assert time.monotonic() - start < 20
        here.send(C, number(8))
        deadline = time.monotonic() + 60
        while C not in here.troubles():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        here.close()
