"""What clients may rely on, with several of them at once on a pool that commits all the time.

Money is moved between accounts, each time with one put, so that the total never changes: two views that both tell the
total must agree with each other and with the constant at every epoch; a client reads its own writes; no session goes
back; nobody sees a half-done put.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from belvedere.cluster.client.database import ClusterDatabase
from tests.cluster.fake_pool import FakePool

ACCOUNTS = 12
MONEY = 100
CLIENTS = 3
TURNS = 40
SCHEMA = [
    "CREATE TABLE accounts (id BIGINT PRIMARY KEY, branch BIGINT, money BIGINT)",
    "CREATE TABLE marks (client BIGINT PRIMARY KEY, turn BIGINT)",
    "CREATE MATERIALIZED VIEW branches AS SELECT branch, sum(money) AS money, count(*) AS n FROM accounts GROUP BY 1",
    "CREATE MATERIALIZED VIEW everything AS SELECT sum(money) AS money, count(*) AS n FROM branches",
    "CREATE MATERIALIZED VIEW seen AS SELECT client, turn FROM marks",
]


class Client:
    """One session. Accounts `first` … belong to it alone, so it knows what they hold."""

    def __init__(self, db: ClusterDatabase, number: int, seed: int) -> None:
        self.db, self.number, self.rng = db, number, random.Random(seed * 100 + number)
        own = range(number * ACCOUNTS // CLIENTS, (number + 1) * ACCOUNTS // CLIENTS)
        self.money = dict.fromkeys(own, MONEY)
        self.epoch = 0
        self.turn = 0

    def run(self) -> None:
        for _ in range(TURNS):
            self.rng.choice([self.move, self.move, self.mark, self.check_snapshot, self.check_scan, self.check_get])()
            epoch = self.db.epoch
            assert epoch >= self.epoch, "the session went back"
            self.epoch = epoch

    def move(self) -> None:
        source, target = self.rng.sample(sorted(self.money), 2)
        amount = self.rng.randrange(1, 20)
        self.money[source] -= amount
        self.money[target] += amount
        token = self.db.put("accounts", [{"id": i, "money": self.money[i]} for i in (source, target)])
        if self.rng.random() < 0.5:
            found = self.db.get("accounts", source, after=token, timeout=10)
            assert found is not None and found["money"] == self.money[source]

    def mark(self) -> None:
        self.turn += 1
        token = self.db.put("marks", {"client": self.number, "turn": self.turn})
        found = self.db.get("seen", self.number, after=str(token), timeout=10)
        assert found == {"client": self.number, "turn": self.turn}

    def check_snapshot(self) -> None:
        with self.db.snapshot() as snapshot:
            total = snapshot.scan("everything").to_pylist()
            assert total == [{"money": ACCOUNTS * MONEY, "n": 4}]
            branches = snapshot.scan("branches").to_pylist()
            assert sum(row["money"] for row in branches) == ACCOUNTS * MONEY
            accounts = snapshot.scan("accounts").to_pylist()
            by_branch: dict[Any, int] = {}
            for row in accounts:
                by_branch[row["branch"]] = by_branch.get(row["branch"], 0) + row["money"]
            assert by_branch == {row["branch"]: row["money"] for row in branches}

    def check_scan(self) -> None:
        assert sum(self.db.scan("accounts")["money"].to_pylist()) == ACCOUNTS * MONEY

    def check_get(self) -> None:
        """Once seen, a mark never becomes older."""
        found = self.db.get("seen", self.number)
        assert (found or {"turn": 0})["turn"] == self.turn, "it waited for its own marks"


@pytest.mark.parametrize("seed", range(3))
def test_sessions_and_snapshots_under_load(seed: int) -> None:
    pool = FakePool()
    rng = random.Random(seed)
    failures: list[BaseException] = []
    databases = [pool.connect(max_age=rng.choice([0.0, 0.02, 0.05])) for _ in range(CLIENTS)]
    with pool.running(0.001):
        for statement in SCHEMA:
            databases[0].execute(statement)
        rows = [{"id": i, "branch": i % 4, "money": MONEY} for i in range(ACCOUNTS)]
        token = databases[0].put("accounts", rows)
        for db in databases:
            db.wait(token)
        clients = [Client(db, number, seed) for number, db in enumerate(databases)]
        threads = [threading.Thread(target=_noting(client.run, failures)) for client in clients]
        threads.append(threading.Thread(target=_noting(lambda: _disturb(pool, rng), failures)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for db in databases:
        db.close()
    if failures:
        raise failures[0]


def _disturb(pool: FakePool, rng: random.Random) -> None:
    """View servers that refuse, leaders that change, collections of everything that is not pinned."""
    for _ in range(10):
        pool.reads_refused = rng.choice(["", "", "moved"])
        with pool.lock:
            pool.leader = rng.choice(pool.coordinators)
            assert pool.plan is not None
            pinned = [int(name.split("/")[1].split("-")[0]) for name in pool.store.list_documents("pins/")]
            horizon = min([*pinned, pool.plan.epoch - 2_000])
            if horizon > pool.store.collected():
                pool.collect(horizon)
        threading.Event().wait(0.02)


def _noting(body: Callable[[], None], failures: list[BaseException]) -> Callable[[], None]:
    def run() -> None:
        try:
            body()
        except BaseException as error:
            failures.append(error)

    return run
