"""What every transport promises, on each implementation; then what only Flight has: tables, TLS, peers that freeze."""

from __future__ import annotations

import abc
import random
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.cluster.transport import frames
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.cluster.transport.loopback import Hub
from belvedere.cluster.transport.outbox import OutboxEntry
from belvedere.cluster.transport.seam import Handler, Payload, Transport
from belvedere.protocol.messages import Attempt, Epoch, Expect, Message
from belvedere.protocol.ring import MemberId
from tests.cluster.proxy import Proxy

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


def eventually(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def number(n: int) -> Expect:
    return Expect(Epoch(1), Attempt(1), 0, n)


class Received:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.all: list[tuple[MemberId, Message, bytes | None]] = []

    def __call__(self, sender: MemberId, message: Message, payload: memoryview | None) -> None:
        self.all.append((sender, message, None if payload is None else bytes(payload)))

    @property
    def numbers(self) -> list[int]:
        return [message.batches for _, message, _ in self.all if isinstance(message, Expect)]


class Net(abc.ABC):
    """Transports that reach each other, and the faults between them."""

    def __init__(self) -> None:
        self.started: list[Transport] = []

    def join(self, member: MemberId, receiver: Received | None = None, **handlers: Handler) -> Transport:
        transport = self.make(member)
        transport.start(receiver or Received(), handlers)
        self.started.append(transport)
        return transport

    @abc.abstractmethod
    def make(self, member: MemberId) -> Transport: ...

    @abc.abstractmethod
    def route(self, transport: Transport) -> str:
        """An address of the transport on which faults can be set."""

    @abc.abstractmethod
    def sever(self, route: str) -> None:
        """Break what is open. The next attempt gets through."""

    @abc.abstractmethod
    def cut(self, route: str) -> None: ...

    @abc.abstractmethod
    def mend(self, route: str) -> None: ...

    def close(self) -> None:
        for transport in reversed(self.started):  # senders first: receivers wait for their streams
            transport.close()


class LoopbackNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.hub = Hub()

    def make(self, member: MemberId) -> Transport:
        return self.hub.transport(member)

    def route(self, transport: Transport) -> str:
        return transport.address

    def sever(self, route: str) -> None:
        self.hub.lose_answers(route, 1)

    def cut(self, route: str) -> None:
        self.hub.cut(route)

    def mend(self, route: str) -> None:
        self.hub.mend(route)


class FlightNet(Net):
    def __init__(self) -> None:
        super().__init__()
        self.proxies: dict[str, Proxy] = {}

    def make(self, member: MemberId) -> FlightTransport:
        return FlightTransport("127.0.0.1", member=member)

    def route(self, transport: Transport) -> str:
        proxy = Proxy(int(transport.address.rsplit(":", 1)[1]))
        address = f"grpc://127.0.0.1:{proxy.port}"
        self.proxies[address] = proxy
        return address

    def sever(self, route: str) -> None:
        self.proxies[route].sever()

    def cut(self, route: str) -> None:
        self.proxies[route].closed = True
        self.proxies[route].sever()

    def mend(self, route: str) -> None:
        self.proxies[route].closed = False

    def close(self) -> None:
        super().close()
        for proxy in self.proxies.values():
            proxy.stop()


@pytest.fixture(params=[LoopbackNet, FlightNet], ids=["loopback", "flight"])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    made: Net = request.param()
    yield made
    made.close()


# --- messages


def test_messages_and_payloads_arrive_in_order_and_unchanged(net: Net) -> None:
    rng = random.Random(1)
    received = Received()
    there = net.join(B, received)
    here = net.join(A)
    here.know(B, there.address)
    sizes = (None, 0, 1, 200, frames.INLINE, frames.INLINE + 1, 100_000)
    sent = [(number(n), None if (size := rng.choice(sizes)) is None else rng.randbytes(size)) for n in range(600)]
    for message, payload in sent:
        here.send(B, message, payload)
    assert here.drain(20)
    assert received.all == [(A, message, payload) for message, payload in sent]
    assert here.backlog() == 0
    assert here.troubles() == {}


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, pa.py_buffer])
def test_a_payload_may_be_any_contiguous_bytes(net: Net, make: Callable[[bytes], Payload]) -> None:
    received = Received()
    there, here = net.join(B, received), net.join(A)
    here.know(B, there.address)
    for size in (0, 10, 50_000):
        here.send(B, number(size), make(b"x" * size))
    assert here.drain(20)
    assert [payload for _, _, payload in received.all] == [b"", b"x" * 10, b"x" * 50_000]


def test_nothing_is_lost_or_reordered_when_connections_break(net: Net) -> None:
    rng = random.Random(2)
    received = Received()
    there, here = net.join(B, received), net.join(A)
    route = net.route(there)
    here.know(B, route)
    for n in range(1_500):
        here.send(B, number(n), rng.randbytes(rng.choice((10, 1_000, 60_000))))
        if n % 100 == 50:
            net.sever(route)
            time.sleep(0.01)
    assert here.drain(60)
    assert received.numbers == list(range(1_500))


def test_what_was_sent_while_a_peer_was_away_arrives_when_it_is_back(net: Net) -> None:
    received = Received()
    there, here = net.join(B, received), net.join(A)
    route = net.route(there)
    net.cut(route)
    here.know(B, route)
    for n in range(50):
        here.send(B, number(n))
    eventually(lambda: B in here.troubles())
    assert received.all == []
    assert here.backlog() > 0
    net.mend(route)
    assert here.drain(30)
    assert received.numbers == list(range(50))
    assert here.troubles() == {}


def test_a_peer_that_is_away_does_not_hold_up_others(net: Net) -> None:
    received = Received()
    away, there, here = net.join(C), net.join(B, received), net.join(A)
    route = net.route(away)
    net.cut(route)
    here.know(C, route)
    here.know(B, there.address)
    for n in range(100):
        here.send(C, number(n), b"x" * 10_000)
        here.send(B, number(n))
    eventually(lambda: received.numbers == list(range(100)))
    assert here.backlog() >= 1_000_000


def test_forget_drops_what_is_queued_and_know_starts_anew(net: Net) -> None:
    received = Received()
    there, here = net.join(B, received), net.join(A)
    route = net.route(there)
    net.cut(route)
    here.know(B, route)
    for n in range(50):
        here.send(B, number(n))
    here.forget(B)
    assert here.backlog() == 0
    here.send(B, number(50))
    net.mend(route)
    here.know(B, there.address)
    here.send(B, number(51))
    assert here.drain(20)
    assert received.numbers == [51]


def test_messages_to_an_unknown_peer_are_dropped(net: Net) -> None:
    here = net.join(A)
    here.send(B, number(1), b"payload")
    assert here.backlog() == 0
    assert here.drain(0)


def test_a_peer_that_moved_gets_its_messages_at_the_new_address(net: Net) -> None:
    received = Received()
    there, left, here = net.join(B, received), net.join(C), net.join(A)
    left.close()
    here.know(B, left.address)
    here.send(B, number(1))
    eventually(lambda: B in here.troubles())
    here.know(B, there.address)
    assert here.drain(20)
    assert received.numbers == [1]


def test_a_member_that_took_over_an_address_does_not_get_the_messages_of_its_predecessor(net: Net) -> None:
    received = Received()
    successor, here = net.join(C, received), net.join(A)
    here.know(B, successor.address)
    here.send(B, number(1))
    eventually(lambda: B in here.troubles())
    assert here.troubles()[B] == "member b is gone; member c has its address"
    assert received.all == []


def test_a_message_that_the_receiver_refused_comes_again(net: Net) -> None:
    seen: list[int] = []

    def receive(sender: MemberId, message: Message, payload: memoryview | None) -> None:
        assert isinstance(message, Expect)
        seen.append(message.batches)
        if seen.count(2) == 1:
            raise errors.StoreUnavailable("not now")

    there, here = net.make(B), net.join(A)
    there.start(receive, {})
    net.started.append(there)
    here.know(B, there.address)
    for n in range(5):
        here.send(B, number(n), b"x" * 20_000)
    assert here.drain(20)
    assert sorted(set(seen)) == list(range(5))
    assert seen == sorted(seen)


def test_a_large_payload_arrives(net: Net) -> None:
    received = Received()
    there, here = net.join(B, received), net.join(A)
    here.know(B, there.address)
    payload = random.Random(3).randbytes(1 << 20) * 50
    here.send(B, number(1), payload)
    here.send(B, number(2))
    assert here.drain(60)
    assert received.numbers == [1, 2]
    assert received.all[0][2] == payload


def test_twenty_peers(net: Net) -> None:
    members = [MemberId(f"m{n}") for n in range(20)]
    receivers = {member: Received() for member in members}
    transports = {member: net.join(member, receivers[member]) for member in members}
    for here in transports.values():
        for member, there in transports.items():
            here.know(member, there.address)
    for n in range(5):
        for here in transports.values():
            for member in members:
                here.send(member, number(n), b"x" * 100)
    for here in transports.values():
        assert here.drain(30)
    for received in receivers.values():
        for member in members:
            assert [message for sender, message, _ in received.all if sender == member] == [number(n) for n in range(5)]


def test_threads_that_send_at_the_same_time_keep_their_own_order(net: Net) -> None:
    received = Received()
    there, here = net.join(B, received), net.join(A)
    here.know(B, there.address)

    def send(first: int) -> None:
        for n in range(first, first + 300):
            here.send(B, number(n))

    threads = [threading.Thread(target=send, args=(first,)) for first in (0, 1_000, 2_000, 3_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert here.drain(20)
    for first in (0, 1_000, 2_000, 3_000):
        assert [n for n in received.numbers if first <= n < first + 300] == list(range(first, first + 300))


def test_send_does_not_wait_for_a_receiver_that_is_slow(net: Net) -> None:
    go = threading.Event()
    there, here = net.make(B), net.join(A)
    received = Received()

    def receive(sender: MemberId, message: Message, payload: memoryview | None) -> None:
        if go.wait(120):
            received(sender, message, payload)

    there.start(receive, {})
    net.started.append(there)
    here.know(B, there.address)
    for n in range(200):
        here.send(B, number(n), b"x" * 100_000)
    assert here.backlog() >= 200 * 100_000, "none of them waited for the receiver"
    go.set()
    assert here.drain(60)
    assert received.numbers == list(range(200))


def test_close_while_busy_ends_soon_and_drops_the_rest(net: Net) -> None:
    there, here = net.join(B), net.join(A)
    here.know(B, there.address)
    for n in range(2_000):
        here.send(B, number(n), b"x" * 20_000)
    start = time.monotonic()
    here.close()
    there.close()
    assert time.monotonic() - start < 20
    assert here.backlog() == 0
    here.send(B, number(1))
    assert here.backlog() == 0


# --- calls


def failing(error: Exception) -> Handler:
    def handler(request: bytes) -> bytes:
        raise error

    return handler


def test_a_call_is_answered(net: Net) -> None:
    there, here = net.join(B, echo=lambda request: request[::-1]), net.join(A)
    assert here.call(there.address, "echo", b"abc", 5) == b"cba"
    assert here.call(there.address, "echo", b"", 5) == b""
    large = b"y" * 10_000_000
    assert here.call(there.address, "echo", large, 20) == large


@pytest.mark.parametrize(
    "error",
    [
        errors.NotYet("view spend is 120 ms behind", 120.0),
        errors.SqlError("no table t", line=3, column=7, hint="create it"),
        errors.UnsupportedSql("window functions", line=1, column=2),
        errors.EpochExpired("epoch 7 is gone"),
        errors.Damaged("chunk 7"),
        errors.StoreUnavailable("ü" * 50_000),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_handler_is_raised_by_the_call(net: Net, error: errors.BelvedereError) -> None:
    there, here = net.join(B, fail=failing(error)), net.join(A)
    with pytest.raises(errors.BelvedereError) as raised:
        here.call(there.address, "fail", b"", 5)
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)


def test_a_defect_of_a_handler_is_a_peer_that_does_not_answer(net: Net) -> None:
    there, here = net.join(B, fail=failing(ValueError("seven"))), net.join(A)
    with pytest.raises(errors.PeerUnavailable, match="seven"):
        here.call(there.address, "fail", b"", 5)


def test_an_unknown_call_is_refused(net: Net) -> None:
    there, here = net.join(B), net.join(A)
    with pytest.raises(errors.Incompatible, match="nonsense"):
        here.call(there.address, "nonsense", b"", 5)


def test_a_call_ends_in_time(net: Net) -> None:
    go = threading.Event()
    to_the_end: list[bytes] = []

    def wait(request: bytes) -> bytes:
        if not go.wait(120):
            to_the_end.append(request)
        return b""

    there, here = net.join(B, wait=wait, echo=lambda request: request), net.join(A)
    with pytest.raises(errors.PeerUnavailable, match=r"within 0\.2 s"):
        here.call(there.address, "wait", b"", 0.2)
    assert not to_the_end
    assert here.call(there.address, "echo", b"still there", 60) == b"still there"
    go.set()


def test_a_call_to_nobody_fails_and_works_again_when_somebody_is_there(net: Net) -> None:
    there, here = net.join(B, echo=lambda request: request), net.join(A)
    route = net.route(there)
    net.cut(route)
    with pytest.raises(errors.PeerUnavailable):
        here.call(route, "echo", b"", 2)
    net.mend(route)
    assert here.call(route, "echo", b"x", 5) == b"x"


def test_calls_at_the_same_time(net: Net) -> None:
    there, here = net.join(B, echo=lambda request: request), net.join(A)
    answers: dict[int, bytes] = {}

    def call(n: int) -> None:
        answers[n] = here.call(there.address, "echo", b"%d" % n, 10)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: b"%d" % n for n in range(20)}


# --- frames


def test_frames_carry_entries_of_all_sizes() -> None:
    rng = random.Random(4)
    for _ in range(300):
        entries = []
        for n in range(rng.randrange(1, 12)):
            size = rng.choice((None, 0, 1, frames.INLINE, frames.INLINE + 1, 40_000))
            payload = None if size is None else memoryview(rng.randbytes(size))
            entries.append(OutboxEntry(n * 7, rng.randbytes(rng.randrange(0, 40)), payload))
        chunks = list(frames.pack(entries))
        assert [frames.is_last(memoryview(chunk)) for chunk, _ in chunks] == [False] * (len(chunks) - 1) + [True]
        found = [part for chunk, body in chunks for part in frames.unpack(memoryview(chunk), body)]
        assert found == [(entry.number, entry.head, entry.payload) for entry in entries]


def test_a_frame_that_was_cut_short_is_noticed() -> None:
    (chunk, _), *_ = frames.pack([OutboxEntry(1, b"head", memoryview(b"payload"))])
    for length in range(2, len(chunk)):
        with pytest.raises(errors.Damaged):
            frames.unpack(memoryview(chunk)[:length], None)
