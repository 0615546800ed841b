"""What the torture test writes and which views are over it, and the journal of every write.

A write is in the journal before it is sent. When its answer comes, its place is known: a seq for each source that it
touched. A write whose answer was lost is sent again under the same request name until there is an answer, so at last
every write has a place; until then nobody can tell whether an epoch has it, and samples that could see it wait.

Two kinds of timestamps: the store's own clock, or explicit ones of the hour before the test began, which lose to the
clock and are merged among each other by value, whatever the order of arrival.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from belvedere import errors
from belvedere.cluster.catalog.catalogs import ServedTable
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.token import ClusterToken
from belvedere.model import rows as given
from belvedere.retry import Deadline

TABLES = {
    "orders": "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount BIGINT, price DECIMAL(12,2), "
    "status STRING)",
    "customers": "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING, region BIGINT)",
    "accounts": "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT, moves BIGINT)",
    "probes": "CREATE TABLE probes (id BIGINT PRIMARY KEY, n BIGINT)",
}
VIEWS = {
    "large": "SELECT id, customer, amount, price FROM orders WHERE amount > 500",
    "spend": "SELECT customer, count(*) AS n, count(amount) AS filled, sum(amount) AS total, sum(price) AS money, "
    "min(amount) AS least, max(amount) AS most, avg(amount) AS mean FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.name, o.price FROM orders o JOIN customers c ON o.customer = c.id",
    "anyone": "SELECT o.id, o.amount, c.region FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "WHERE o.id % 3 = 0",
    "regions": "SELECT c.region, count(*) AS n, sum(o.amount) AS total FROM orders o "
    "JOIN customers c ON o.customer = c.id GROUP BY c.region",
    "busy": "SELECT customer, n, total FROM spend WHERE n > 8",
    "sizes": "SELECT n, count(*) AS customers, sum(total) AS total FROM spend GROUP BY n",
    "everything": "SELECT count(*) AS n, sum(amount) AS total, min(price) AS least, max(price) AS most FROM orders",
    "variety": "SELECT status, count(DISTINCT customer) AS customers, count(*) AS n FROM orders GROUP BY status",
    "bank": "SELECT count(*) AS n, sum(balance) AS total FROM accounts",
    "rich": "SELECT id, balance FROM accounts WHERE balance > 1000",
    "seen": "SELECT id, n FROM probes",
    "index": "SELECT customer, id, amount FROM orders WHERE customer IS NOT NULL",
}
KEYS = {"index": ["customer", "id"]}
"""Of views that have another key than their own."""
LATER = ("busy", "sizes", "everything", "variety")
"""Views that are created one by one, each a view group of its own; the others are applied together and share state."""
TEMPORARY = (
    "SELECT status, sum(amount) AS total FROM orders GROUP BY status",
    "SELECT region, count(*) AS n FROM customers GROUP BY region",
    "SELECT customer, total FROM spend WHERE total > 1000",
    "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE o.amount < 100",
)
"""Queries of views that come and go."""

ACCOUNTS = 200
BALANCE = 1000
ORDERS = 3000
CUSTOMERS = 150
WRITE_SECONDS = 180.0
"""A write that has no outcome by then is a failure of the test."""
_HOUR_US = 3_600_000_000


@dataclass
class Write:
    """One call. `rows` have the columns that were written; `deleted` says which of them are deletes. `token` is None
    as long as nobody knows whether it has happened."""

    number: int
    table: str
    rows: Sequence[Mapping[str, Any]]
    deleted: Sequence[bool]
    ts: int | None
    begun: float
    token: ClusterToken | None = None


class Journal:
    """Every write that was begun, in that order. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._writes: list[Write] = []
        self.retried = 0
        self.rows = 0

    def begin(self, table: str, rows: Sequence[Mapping[str, Any]], deleted: Sequence[bool], ts: int | None) -> Write:
        with self._lock:
            write = Write(len(self._writes), table, rows, deleted, ts, time.monotonic())
            self._writes.append(write)
            self.rows += len(rows)
            return write

    def resolve(self, write: Write, token: ClusterToken) -> None:
        with self._lock:
            write.token = token
            self._lock.notify_all()

    def retry(self) -> None:
        with self._lock:
            self.retried += 1

    def __len__(self) -> int:
        with self._lock:
            return len(self._writes)

    def resolved(self, first: int, stop: int, timeout: float) -> list[Write]:
        """The writes of these numbers, when the outcome of each is known."""
        with self._lock:
            done = self._lock.wait_for(lambda: all(w.token is not None for w in self._writes[first:stop]), timeout)
            if not done:
                waiting = [f"{w.number} ({w.table})" for w in self._writes[first:stop] if w.token is None]
                raise AssertionError(f"writes without an outcome after {timeout:g} s: {', '.join(waiting)}")
            return self._writes[first:stop]

    def token(self) -> ClusterToken:
        """One that includes everything with a known outcome."""
        with self._lock:
            return ClusterToken.joined(write.token for write in self._writes if write.token is not None)


class Sender:
    """Sends writes of one thread, one after the other, and knows the outcome of each in the end."""

    def __init__(self, db: ClusterDatabase, journal: Journal, rng: random.Random) -> None:
        self.db, self._journal, self._rng = db, journal, rng

    def send(
        self,
        table: str,
        rows: Sequence[Mapping[str, Any]],
        deleted: Sequence[bool] | None = None,
        ts: int | None = None,
        patient: bool = False,
    ) -> ClusterToken:
        write = self._journal.begin(table, rows, deleted or [False] * len(rows), ts)
        impatient = not patient and self._rng.random() < 0.3
        token = self._named(write) if impatient else self._plain(write)
        self._journal.resolve(write, token)
        return token

    def _plain(self, write: Write) -> ClusterToken:
        """As users do it."""
        keys = [row["id"] for row in write.rows]
        if all(write.deleted):
            return self.db.delete(write.table, keys, ts=write.ts, timeout=WRITE_SECONDS)
        if not any(write.deleted):
            return self.db.put(write.table, list(write.rows), ts=write.ts, timeout=WRITE_SECONDS)
        return self.db.write(
            write.table, list(write.rows), deletes=list(write.deleted), ts=write.ts, timeout=WRITE_SECONDS
        )

    def _named(self, write: Write) -> ClusterToken:
        """Give up early, as often as it takes, and say the same thing again; sometimes once more when it was heard."""
        deadline = time.monotonic() + WRITE_SECONDS
        name = uuid.UUID(int=self._rng.getrandbits(128)).hex
        while True:
            try:
                token = self._once(write, name, self._rng.choice([0.02, 0.2, 2.0]))
                break
            except errors.Unavailable:
                self._journal.retry()
                if time.monotonic() > deadline:
                    raise
                time.sleep(self._rng.choice([0.0, 0.05, 0.5]))
        if self._rng.random() < 0.2:
            again = self._once(write, name, WRITE_SECONDS)
            assert again == token, f"write {write.number} was repeated: first {token}, then {again}"
        return token

    def _once(self, write: Write, name: str, seconds: float) -> ClusterToken:
        known = self.db.epochs.newest(Deadline(WRITE_SECONDS))
        served = self.db.epochs.names(known.committed, Deadline(WRITE_SECONDS))[write.table]
        assert isinstance(served, ServedTable)
        changes = given.GivenRows(served.definition).mixed(list(write.rows), list(write.deleted))
        assert changes is not None
        if write.ts is not None:
            changes.ts = given.timestamps(write.ts, len(changes))
        store = self.db.stores(Deadline(seconds))
        return ClusterToken.of(store.write_base(served.stored, changes, write.ts is None, name))


class Writers:
    """Threads that write until they are stopped. `rate`: writes in a second, of all together."""

    def __init__(self, connect: Callable[[], ClusterDatabase], journal: Journal, seed: int, rate: float) -> None:
        self.journal, self.failures = journal, list[BaseException]()
        self.fresh: list[tuple[float, float]] = []
        """When a probe was written (monotonic), and the seconds until it was seen in its view."""
        self._seed, self._pause = seed, 3.0 / rate
        self._began_us = time.time_ns() // 1000
        self._stop = threading.Event()
        self._connect = connect
        works = [("orders", self._orders), ("orders", self._orders), ("bank", self._bank), ("probe", self._probe)]
        self._threads = [
            threading.Thread(target=self._run, args=(number, work), name=f"writer {name}", daemon=True)
            for number, (name, work) in enumerate(works)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Returns when every write has its outcome."""
        self._stop.set()
        for thread in self._threads:
            thread.join(WRITE_SECONDS + 10.0)
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        assert not alive, f"writers that do not end: {', '.join(alive)}"

    def _run(self, number: int, work: Callable[[Sender, random.Random], None]) -> None:
        rng = random.Random(self._seed * 1000 + number)
        try:
            with self._connect() as db:
                work(Sender(db, self.journal, rng), rng)
        except BaseException as error:
            self.failures.append(error)

    def _resting(self, rng: random.Random) -> bool:
        return self._stop.wait(self._pause * rng.uniform(0.5, 1.5))

    # ------------------------------------------------------------------ orders and customers

    def _orders(self, sender: Sender, rng: random.Random) -> None:
        while not self._resting(rng):
            table = "customers" if rng.random() < 0.15 else "orders"
            count = self._count(rng)
            space = CUSTOMERS if table == "customers" else ORDERS
            if rng.random() < 0.3:  # neighbours
                start = rng.randrange(space)
                ids = list(range(start, min(start + count, space)))
            else:
                ids = sorted({rng.randrange(space) for _ in range(count)})
            rng.shuffle(ids)
            ts = self._began_us - _HOUR_US + rng.randrange(1000) if rng.random() < 0.15 else None
            chance = rng.random()
            if chance < 0.15:
                sender.send(table, [{"id": id} for id in ids], [True] * len(ids), ts)
            elif chance < 0.25:
                self._mixed(sender, rng, table, ids, ts)
            else:
                columns = _some(rng, table)
                sender.send(table, [_row(rng, table, id, columns) for id in ids], None, ts)

    @staticmethod
    def _mixed(sender: Sender, rng: random.Random, table: str, ids: list[int], ts: int | None) -> None:
        deleted = [rng.random() < 0.4 for _ in ids]
        sender.send(table, [_row(rng, table, id, _some(rng, table, True)) for id in ids], deleted, ts)

    @staticmethod
    def _count(rng: random.Random) -> int:
        chance = rng.random()
        if chance < 0.5:
            return rng.randrange(1, 8)
        return rng.randrange(8, 100) if chance < 0.96 else rng.randrange(100, 2001)

    # ------------------------------------------------------------------ accounts: their sum never changes

    def _bank(self, sender: Sender, rng: random.Random) -> None:
        balance = dict.fromkeys(range(ACCOUNTS), BALANCE)
        moves = dict.fromkeys(range(ACCOUNTS), 0)
        while not self._resting(rng):
            chosen = rng.sample(range(ACCOUNTS), rng.choice([2, 2, 2, 10, 50]))
            shares = [rng.randrange(-100, 101) for _ in chosen[1:]]
            shares.append(-sum(shares))
            for id, share in zip(chosen, shares, strict=True):
                balance[id] += share
                moves[id] += 1
            sender.send("accounts", [{"id": id, "balance": balance[id], "moves": moves[id]} for id in chosen])

    # ------------------------------------------------------------------ one who reads what he wrote

    def _probe(self, sender: Sender, rng: random.Random) -> None:
        n = 0
        while not self._resting(rng):
            n += 1
            id = rng.randrange(20)
            token = sender.send("probes", [{"id": id, "n": n}], patient=True)
            begun = time.monotonic()
            sender.db.wait(token, WRITE_SECONDS)
            self.fresh.append((begun, time.monotonic() - begun))
            found = sender.db.get("seen", id, after=token, timeout=WRITE_SECONDS)
            assert found == {"id": id, "n": n}, f"written {n}, read {found} after token {token}"


def manifest() -> str:
    """The views that are applied together."""
    found = []
    for name, query in VIEWS.items():
        if name not in LATER:
            spec = {"query": query} | ({"key": KEYS[name]} if name in KEYS else {})
            head = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "MaterializedView", "metadata": {"name": name}}
            found.append(json.dumps(head | {"spec": spec}))
    return "\n---\n".join(found)


def first_rows() -> list[dict[str, Any]]:
    """Of accounts."""
    return [{"id": id, "balance": BALANCE, "moves": 0} for id in range(ACCOUNTS)]


def _some(rng: random.Random, table: str, all: bool = False) -> list[str]:
    columns = ["name", "region"] if table == "customers" else ["customer", "amount", "price", "status"]
    if all or rng.random() < 0.5:
        return columns
    return [column for column in columns if rng.random() < 0.5]  # perhaps none: the key alone


def _row(rng: random.Random, table: str, id: int, columns: Sequence[str]) -> dict[str, Any]:
    if table == "customers":
        found: dict[str, Any] = {"name": f"name {rng.randrange(500)}", "region": rng.randrange(7)}
    else:
        found = {
            "customer": rng.randrange(CUSTOMERS + 20),
            "amount": rng.randrange(-50, 1000),
            "price": Decimal(rng.randrange(-9999, 99999)) / 100,
            "status": rng.choice(["new", "paid", "sent", "späť", ""]),
        }
    return {"id": id} | {c: None if rng.random() < 0.05 else found[c] for c in columns}
