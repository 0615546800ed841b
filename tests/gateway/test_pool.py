"""The same API over a pool: what differs is how it reads, what it waits for, and that it may be gone for a while."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest

from belvedere.errors import StoreUnavailable
from belvedere.gateway import estimates
from belvedere.gateway.batches import Batches
from belvedere.gateway.databases import PoolDatabase
from belvedere.protocol.ring import MemberId
from tests.cluster.client_pool import create
from tests.cluster.fake_pool import FakePool
from tests.gateway.serving import JSON, ORDERS, SPEND, Served, serving, subscribed


@pytest.fixture
def pool() -> Iterator[FakePool]:
    made = FakePool()
    made.step()
    with made.running():
        yield made


@pytest.fixture
def pooled(pool: FakePool) -> Iterator[Served]:
    with pool.connect(max_age=0.05) as db:
        db.execute(ORDERS)
        db.execute(SPEND)
        db.wait(db.put("orders", [{"id": i, "customer": i % 10, "total": "9.50"} for i in range(100)]))
        with serving(PoolDatabase(db)) as served:
            yield served


def test_reads_of_a_pool(pooled: Served) -> None:
    assert pooled.get("/v1").json()["database"] == "pool"
    assert pooled.get("/v1/relations/spend/row?key=7").json() == {"customer": 7, "n": 10, "total": "95.00"}
    assert pooled.get("/v1/relations/spend/row?key=70").status_code == 404
    page = pooled.get("/v1/relations/orders/rows?limit=30").json()
    pooled.db.wait(pooled.db.put("orders", [{"id": i, "customer": 0, "total": "0"} for i in range(1000, 1100)]))
    rows, cursor = page["rows"], page["cursor"]
    while cursor is not None:
        following = pooled.get("/v1/relations/orders/rows", params={"cursor": cursor, "limit": 30}).json()
        assert following["epoch"] == page["epoch"]
        rows, cursor = rows + following["rows"], following["cursor"]
    assert [row["id"] for row in rows] == list(range(100)), "base tables of a pool have pages at one epoch as well"
    reads = [{"relation": "spend", "key": 7}, {"relation": "orders", "key": 7}]
    assert [r["row"]["customer"] for r in pooled.post("/v1/read", {"reads": reads}).json()["results"]] == [7, 7]


def test_writes_and_tokens_of_a_pool(pooled: Served) -> None:
    key = {"idempotency-key": "k", **JSON}
    body = '{"id": 7, "customer": 3, "total": "1.00"}'
    first = pooled.http.post("/v1/relations/orders/rows", content=body, headers=key)
    token = first.json()["token"]
    assert ":" in token, "a position of a source"
    after = {"belvedere-after": token}
    assert pooled.get("/v1/relations/spend/row?key=3", headers=after).json()["n"] == 11
    assert pooled.get("/v1/relations/spend/row?key=7", headers=after).json()["n"] == 9
    again = pooled.http.post("/v1/relations/orders/rows", content=body, headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first.json(), "true")
    other = pooled.http.post("/v1/relations/orders/rows", content=body.replace("1.00", "2.00"), headers=key)
    assert (other.status_code, other.json()["error"]) == (422, "RequestReused")
    assert pooled.get("/v1/writes/k?relation=orders").json()["token"] == token
    second = pooled.post("/v1/relations/orders/rows", {"id": 8}, headers=after)
    joined = second.headers["belvedere-token"]
    assert pooled.post("/v1/wait", b"", headers={"belvedere-after": joined}).status_code == 200


def test_a_write_that_never_gets_in_is_not_yet(pooled: Served, pool: FakePool) -> None:
    future = {"belvedere-after": f"e{int(time.time() * 1000) + 3_600_000}", "belvedere-wait": "0.2"}
    late = pooled.get("/v1/relations/spend/row?key=3", headers=future)
    assert (late.status_code, late.json()["error"]) == (409, "NotYet")


def test_many_reads_at_once_are_right_and_few_calls(pooled: Served, pool: FakePool) -> None:
    asked = pool.asked_server
    with ThreadPoolExecutor(16) as threads:

        def read(key: int) -> tuple[int, Any]:
            answer = pooled.get("/v1/relations/spend/row", params={"key": key})
            return answer.status_code, answer.json().get("customer")

        found = list(threads.map(read, [n % 14 for n in range(280)]))
    assert found == [(200, n % 14) if n % 14 < 10 else (404, None) for n in range(280)]
    assert pool.asked_server - asked <= 280


def test_reads_that_wait_for_a_token_are_not_made_together_with_others(
    pooled: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made together asks for the newest rows, whatever a token wants."""
    together: list[str | None] = []
    ask = Batches.ask

    async def asked(self: Batches, relation: str, call: Any, answer: Any) -> Any:
        together.append(call.after)
        return await ask(self, relation, call, answer)

    monkeypatch.setattr(Batches, "ask", asked)
    token = pooled.post("/v1/relations/orders/rows", {"id": 7, "customer": 3, "total": "1.00"}).json()["token"]
    after = {"belvedere-after": token}
    assert pooled.get("/v1/relations/spend/row?key=3", headers=after).json()["n"] == 11
    assert pooled.get("/v1/relations/spend/row", params={"key": 3, "at": pooled.db.epoch}).json()["n"] == 11
    assert together == []
    assert pooled.get("/v1/relations/spend/row?key=3").json()["n"] == 11
    assert together == [None]


def test_one_wrong_key_among_many_is_the_only_one_refused(pooled: Served) -> None:
    from belvedere.gateway import reads
    from belvedere.gateway.api import Answer

    class Call:
        database, relation, accept, wait, after = pooled.database, "spend", "", 5.0, None

        def __init__(self, key: Any) -> None:
            self.params = {"key": key}

        def get(self, name: str, default: Any = None) -> Any:
            return self.params.get(name, default)

    calls: list[Any] = [Call(1), Call([1, 2]), Call(2), Call(99)]
    found = reads.get_together(calls)
    assert [isinstance(one, Answer) for one in found] == [True, False, True, False]
    assert [type(found[1]).__name__, type(found[3]).__name__] == ["DataError", "NoSuchResource"]


def test_subscriptions_of_a_pool_resume(pooled: Served) -> None:
    path = "/v1/relations/spend/changes"
    with subscribed(pooled, path) as events:
        start = int(next(events)[1] or 0)
        for customer in range(5):
            pooled.db.wait(pooled.db.put("orders", {"id": 2000 + customer, "customer": 50 + customer, "total": "1"}))
        seen: list[int] = []
        for name, _, told in events:
            seen += [row["customer"] for row in told["added"]] if name == "change" else []
            if len(seen) == 5:
                break
    assert seen == [50, 51, 52, 53, 54]
    with subscribed(pooled, path, headers={"last-event-id": str(start)}) as events:
        again: list[int] = []
        for name, _, told in events:
            again += [row["customer"] for row in told["added"]] if name == "change" else []
            if len(again) == 5:
                break
    assert again == seen


def test_a_pool_that_is_gone_and_comes_back() -> None:
    pool = FakePool()
    pool.step()
    with pool.connect() as db, serving(PoolDatabase(db)) as served:
        create(pool, db, ORDERS, SPEND)
        db.put("orders", {"id": 7, "customer": 7, "total": "95.00"})
        pool.step()

        def ready(wanted: int) -> dict[str, Any]:
            deadline = time.monotonic() + 60
            while (answer := served.get("/readyz")).status_code != wanted:
                assert time.monotonic() < deadline, answer.text
                time.sleep(0.05)
            found: dict[str, Any] = answer.json()
            return found

        def gone(*_: object) -> None:
            raise StoreUnavailable("the store is gone")

        ready(200)
        leader = pool.leader
        pool.store.faults, pool.leader = gone, pool.hub.transport(MemberId("nobody"))
        assert "the store is gone" in str(ready(503)["reasons"])
        assert served.get("/healthz").status_code == 200, "it is alive: to restart it would not help"
        early = served.get("/v1/relations/orders/row?key=7", headers={"belvedere-wait": "0.5"})
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        pool.store.faults, pool.leader = None, leader
        ready(200)
        assert served.get("/v1/relations/spend/row?key=7").json()["total"] == "95.00"


CODE = """
import sys
from belvedere.cluster.process.lean import do_without_pandas
do_without_pandas()
import belvedere.gateway.server
from belvedere.cluster.client.database import ClusterDatabase
import belvedere.cluster.client.connecting
from belvedere.gateway import openapi, routes, formats
from belvedere.gateway import estimates
from belvedere.gateway.batches import Batches
from belvedere.gateway.databases import PoolDatabase
openapi.text(routes.ENDPOINTS)
import pyarrow as pa
formats.read_arrow(formats.arrow(pa.table({"a": [1]})))
heavy = ("numba", "llvmlite", "pandas", "duckdb", "belvedere.embedded.database", "belvedere.engine.engine",
         "belvedere.engine.state.index", "belvedere.engine.state.jit")
print([name for name in heavy if name in sys.modules])
"""


def test_a_gateway_of_a_pool_starts_without_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


DEFINITIONS = """
import sys
from belvedere.cluster.process.lean import do_without_pandas
do_without_pandas()
import belvedere.gateway.server
from belvedere.cluster.catalog import plan
from belvedere.plan.nodes import Plan
from belvedere.plan.zones import zones
names = plan.names_at(sys.stdin.buffer.read(), ())
assert sorted(names) == ["orders", "spend"], names
zones(Plan((names["spend"].node,)))
heavy = ("numba", "llvmlite", "pandas", "duckdb", "belvedere.engine.shard", "belvedere.engine.graph")
print([name for name in heavy if name in sys.modules])
"""


def test_definitions_are_read_without_the_engine(pooled: Served) -> None:
    """Lists, status, statements and subscriptions need them: as a process of its own, a gateway runs none of it."""
    db = pooled.db
    deadline = db.deadline()
    document = db.epochs.document(db.epochs.newest(deadline).committed, deadline)
    done = subprocess.run(
        [sys.executable, "-c", DEFINITIONS], input=document, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == "[]"


def test_a_status_counts_rows_and_not_versions(pooled: Served) -> None:
    """Each row was written several times; so were the groups of the view."""
    for total in range(3):
        rows = [{"id": i, "customer": i % 10, "total": str(total)} for i in range(100)]
        pooled.db.wait(pooled.db.put("orders", rows))
    told = pooled.get("/v1/status").json()
    assert told["tables"]["orders"]["rows"] == 100 and told["tables"]["orders"]["bytes"] > 1000
    spend = told["views"]["spend"]
    assert (spend["rows"], spend["quarantined"], spend["complete"]) == (10, 0, True) and spend["bytes"] > 0
    assert told["building"] == []


def test_rows_of_big_tables_are_estimated_from_a_part_of_them(pooled: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "COUNTED", 4000)
    pooled.db.wait(pooled.db.put("orders", [{"id": i, "customer": i, "total": "1"} for i in range(20_000)]))
    pooled.db.wait(pooled.db.delete("orders", list(range(10_000))))
    rows = pooled.get("/v1/status").json()["tables"]["orders"]["rows"]
    assert abs(rows - 10_000) < 1000 and rows != 10_000


def test_tables_are_looked_at_again_when_they_changed_and_some_at_a_time() -> None:
    looked: list[str] = []

    class Store:
        def scan(self, table: str, first: int, stop: int, below: int) -> Iterator[tuple[Any, pa.BinaryArray]]:
            looked.append(table)
            yield None, pa.array([b"x", None], pa.binary())

    now = [0.0]
    found = estimates.Estimates(lambda: now[0])

    def look(**versions: int) -> list[str]:
        looked.clear()
        found.of(cast(Any, Store()), {table: estimates.Stored(count) for table, count in versions.items()}, 7)
        return sorted(looked)

    assert look(a=1, b=1, none=0) == ["a", "b"]
    assert look(a=2, b=1, none=0) == []
    now[0] = 6.0
    assert look(a=2, b=1, none=0) == ["a"]
    now[0] = 61.0
    assert look(a=2, b=1, none=0) == ["b"]
    many = {f"t{number}": 1 for number in range(estimates.AT_ONCE + 5)}
    assert len(look(**many)) == estimates.AT_ONCE and len(look(**many)) == 5
