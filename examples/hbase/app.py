"""An application that keeps orders in HBase. It knows happybase and nothing of Belvedere.

    python app.py HOST PORT [SECONDS]      the Thrift gateway; without seconds it writes what is there at the start

Rows: orders, by id (`Bytes.toBytes(long)`), with `d:customer` (int) and `d:total` (text); customers, by id (int), with
`d:city`. Prints how many writes it has made, once a second.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Callable

import happybase

CITIES = ("Athens", "Berlin", "Cairo", "Dublin", "Essen")
CUSTOMERS, ORDERS = 100, 5000


def order_key(id: int) -> bytes:
    return struct.pack(">q", id)


def order(rng: random.Random) -> dict[bytes, bytes]:
    cents = rng.randrange(100, 10_000)
    customer = struct.pack(">i", rng.randrange(CUSTOMERS))
    return {b"d:customer": customer, b"d:total": f"{cents // 100}.{cents % 100:02}".encode()}


def first_rows(connection: happybase.Connection) -> None:
    there = connection.tables()
    for name in (b"orders", b"customers"):
        if name not in there:
            connection.create_table(name.decode(), {"d": {"max_versions": 1}})
    rng = random.Random(1)
    with connection.table("customers").batch(batch_size=1000) as batch:
        for id in range(CUSTOMERS):
            batch.put(struct.pack(">i", id), {b"d:city": rng.choice(CITIES).encode()})
    with connection.table("orders").batch(batch_size=1000) as batch:
        for id in range(ORDERS):
            batch.put(order_key(id), order(rng))


class Shop:
    """Writes; what an HBase that loses a server does not take is written again."""

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._connection: happybase.Connection | None = None

    def write(self, what: Callable[[happybase.Connection], None]) -> None:
        while True:
            try:
                if self._connection is None:
                    self._connection = happybase.Connection(*self._where, timeout=10_000)
                return what(self._connection)
            except Exception as problem:  # Thrift, HBase behind it, or the network: all of it passes
                print(f"again, after: {type(problem).__name__}", flush=True)
                self._connection = None
                time.sleep(0.5)


def work(shop: Shop, seconds: float) -> None:
    rng = random.Random(2)
    stop, shown, writes = time.monotonic() + seconds, time.monotonic(), 0

    def change(connection: happybase.Connection) -> None:
        orders = connection.table("orders")
        with orders.batch() as batch:
            for _ in range(20):
                batch.put(order_key(rng.randrange(2 * ORDERS)), order(rng))
            for _ in range(4):
                batch.delete(order_key(rng.randrange(2 * ORDERS)))
        if rng.random() < 0.1:
            moved = {b"d:city": rng.choice(CITIES).encode()}
            connection.table("customers").put(struct.pack(">i", rng.randrange(CUSTOMERS)), moved)

    while time.monotonic() < stop:
        shop.write(change)
        writes += 24
        if time.monotonic() - shown > 1.0:
            shown = time.monotonic()
            print(f"{writes:,} orders written", flush=True)
        time.sleep(0.05)
    print(f"{writes:,} orders written", flush=True)


if __name__ == "__main__":
    shop = Shop(sys.argv[1], int(sys.argv[2]))
    if len(sys.argv) > 3:
        work(shop, float(sys.argv[3]))
    else:
        shop.write(first_rows)
