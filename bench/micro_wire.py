"""What the wire costs: encoding and decoding messages, and bringing batches to another process over Flight.

PYTHONPATH=viewserver python bench/micro_wire.py
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

from belvedere.cluster.transport.flight import FlightTransport
from belvedere.protocol import wire
from belvedere.protocol.exactly_once import ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.protocol.messages import Attempt, Batch, Committed, Epoch, Expect, Message, Sent
from belvedere.protocol.ring import MemberId

EPOCH, ATTEMPT = Epoch(1_700_000_000_000), Attempt(3)
HERE, THERE = MemberId("here"), MemberId("there")
BATCH = Batch(EPOCH, ATTEMPT, 1, MemberId("viewserver-2"), 5, 3, 100)
PAYLOADS = ((None, 20_000), (200, 20_000), (20_000, 5_000), (1 << 20, 300), (50 << 20, 8))


def main() -> None:
    codec()
    transport()


def codec() -> None:
    counts = {1: (4, 4, 4, 4), 2: (1, 1, 1, 1)}
    positions = {SourceId(f"orders/{n}"): Seq(n * 1_000) for n in range(100)}
    kinds: list[Any] = [
        Expect(EPOCH, ATTEMPT, 2, 14),
        BATCH,
        InputPiece(ChunkId(WriterId("distributor-1"), 4), SourceId("orders/0"), Seq(10), Seq(20)),
        Sent(EPOCH, ATTEMPT, MemberId("viewserver-2"), 1, counts),
        Committed(EPOCH, positions),
    ]
    print("message                     bytes  encode us  decode us")
    for message in kinds:
        data = wire.encode(message)
        assert wire.decode(data) == message
        encode, decode = per_call(lambda m=message: wire.encode(m)), per_call(lambda d=data: wire.decode(d))
        print(f"{type(message).__name__:26} {len(data):6}  {encode:9.1f}  {decode:9.1f}")


def per_call(work: Callable[[], object], count: int = 10_000) -> float:
    start = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - start) / count * 1e6


def serve(address: Any) -> None:
    receiving = FlightTransport("127.0.0.1", member=THERE)

    def receive(sender: MemberId, message: Message, payload: memoryview | None) -> None:
        pass

    receiving.start(receive, {"cpu": lambda request: repr(time.process_time()).encode()})
    address.put(receiving.address)
    threading.Event().wait()


def transport() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=serve, args=(queue,), daemon=True)
    process.start()
    address = queue.get()
    sending = FlightTransport("127.0.0.1", member=HERE)
    sending.start(lambda sender, message, payload: None, {})
    sending.know(THERE, address)
    print("\npayload bytes  us/batch  sender CPU us  receiver CPU us    MB/s")
    for size, count in PAYLOADS:
        payload = None if size is None else b"x" * size
        sending.send(THERE, BATCH, payload)
        sending.drain(60)
        took = measure(sending, address, count, lambda payload=payload: sending.send(THERE, BATCH, payload))
        report(str(size), took, size or 0)
    report("one at a time", measure(sending, address, 1_000, lambda: one_at_a_time(sending)), 0)
    sending.close()
    process.terminate()


def one_at_a_time(sending: FlightTransport) -> None:
    sending.send(THERE, BATCH)
    while sending.backlog():
        time.sleep(0.00005)


def measure(sending: FlightTransport, address: str, count: int, work: Callable[[], object]) -> list[float]:
    """Microseconds for each: on the clock, of the sender's CPU, of the receiver's CPU."""

    def now() -> tuple[float, float, float]:
        there = float(sending.call(address, "cpu", b"", 10))
        return time.perf_counter(), time.process_time(), there

    before = now()
    for _ in range(count):
        work()
    sending.drain(60)
    return [(after - start) / count * 1e6 for start, after in zip(before, now(), strict=True)]


def report(name: str, took: list[float], size: int) -> None:
    print(f"{name:13}  {took[0]:8.0f}  {took[1]:13.0f}  {took[2]:15.0f}  {size / took[0]:6.0f}")


if __name__ == "__main__":
    main()
