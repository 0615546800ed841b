"""Gateways keep nothing that counts: what began at one goes on at another, and a write through both happens once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from belvedere.gateway.databases import PoolDatabase
from belvedere.gateway.token_file import TokenFile
from tests.cluster.fake_pool import FakePool
from tests.gateway.serving import JSON, ORDERS, SPEND, Served, serving, subscribed

ONE, OTHER = "one-0123456789abcdef", "other-0123456789abcdef"
TOKENS = f"""
tokens:
  - {{name: one, token: {ONE}, read: ["*"], write: ["*"]}}
  - {{name: other, token: {OTHER}, read: ["*"], write: ["*"]}}
"""
ROWS = "/v1/relations/orders/rows"


@pytest.fixture
def pool() -> Iterator[FakePool]:
    made = FakePool()
    made.step()
    with made.running():
        yield made


@pytest.fixture
def gateways(pool: FakePool, tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    with pool.connect(max_age=0.05) as left, pool.connect(max_age=0.05) as right:
        for statement in (ORDERS, ORDERS.replace("orders", "returns"), SPEND):
            left.execute(statement)
        left.wait(left.put("orders", [{"id": i, "customer": i % 10, "total": "9.50"} for i in range(100)]))
        with (
            serving(PoolDatabase(left), authenticator=TokenFile(tmp_path / "tokens.yaml")) as first,
            serving(PoolDatabase(right), authenticator=TokenFile(tmp_path / "tokens.yaml")) as second,
        ):
            for served in (first, second):
                served.http.headers["authorization"] = f"Bearer {ONE}"
            yield first, second


def write(served: Served, key: str, row: Any, table: str = "orders", bearer: str = ONE) -> httpx.Response:
    headers = {**JSON, "idempotency-key": key, "authorization": f"Bearer {bearer}"}
    return served.post(f"/v1/relations/{table}/rows", row, headers=headers)


def test_a_session_goes_on_at_the_other(gateways: tuple[Served, Served]) -> None:
    """It reads its own writes at either, and never goes back."""
    token, epochs = "", []
    for number in range(12):
        here, there = gateways[number % 2], gateways[(number + 1) % 2]
        after = {"belvedere-after": token} if token else {}
        written = here.post(ROWS, {"id": 1000 + number, "customer": 77, "total": "1.00"}, headers=after)
        token = written.headers["belvedere-token"]
        found = there.get("/v1/relations/spend/rows?prefix=77", headers={"belvedere-after": token})
        assert found.json()["rows"][0]["n"] == number + 1
        epochs.append(found.json()["epoch"])
        token = found.headers["belvedere-token"]
    assert epochs == sorted(epochs)


def test_a_token_of_a_write_that_went_before_a_read_includes_both(gateways: tuple[Served, Served]) -> None:
    first, second = gateways
    one = first.post(ROWS, {"id": 1, "customer": 77, "total": "1.00"}).json()["token"]
    two = second.post("/v1/relations/returns/rows", {"id": 1}, headers={"belvedere-after": one})
    assert one.partition(",")[2] in two.headers["belvedere-token"], "the last token is all that a session keeps"


def test_pages_of_a_cursor_are_of_one_epoch_at_either(gateways: tuple[Served, Served]) -> None:
    page = gateways[0].get("/v1/relations/spend/rows?limit=3").json()
    rows, number = page["rows"], 0
    while page["cursor"] is not None:
        number += 1
        here = gateways[number % 2]
        here.db.wait(here.db.put("orders", {"id": 2000 + number, "customer": number, "total": "1.00"}))
        following = here.get("/v1/relations/spend/rows", params={"cursor": page["cursor"], "limit": 3}).json()
        assert following["epoch"] == page["epoch"]
        page, rows = following, rows + following["rows"]
    assert [(row["customer"], row["n"]) for row in rows] == [(customer, 10) for customer in range(10)]


def test_a_snapshot_is_renewed_at_the_other(gateways: tuple[Served, Served]) -> None:
    first, second = gateways
    made = first.post("/v1/snapshots", {"seconds": 60}).json()
    renewed = second.http.put(f"/v1/snapshots/{made['snapshot']}", content='{"seconds": 90}', headers=JSON).json()
    assert (renewed["epoch"], renewed["seconds"]) == (made["epoch"], 90)
    assert first.http.delete(f"/v1/snapshots/{made['snapshot']}").status_code == 204
    second.db.wait(second.db.put("orders", {"id": 0, "customer": 5, "total": "1.00"}))
    found = second.get("/v1/relations/spend/row", params={"key": 0, "at": made["epoch"]})
    assert found.json()["n"] == 10


def test_a_subscriber_goes_on_at_the_other(gateways: tuple[Served, Served]) -> None:
    path, seen, last = "/v1/relations/spend/changes", [], ""
    for number in range(6):
        here = gateways[number % 2]
        with subscribed(here, path, headers={"last-event-id": last} if last else {}) as events:
            if not last:
                last = str(next(events)[1])
            here.db.wait(here.db.put("orders", {"id": 3000 + number, "customer": 500 + number, "total": "1"}))
            for name, id, told in events:
                seen += [row["customer"] for row in told["added"]] if name == "change" else []
                last = id or last
                if len(seen) == number + 1:
                    break
    assert seen == [500, 501, 502, 503, 504, 505]


def test_the_same_write_through_both_at_once_happens_once(gateways: tuple[Served, Served]) -> None:
    for number in range(5):
        together = threading.Barrier(8)

        def one(which: int, number: int = number, together: threading.Barrier = together) -> httpx.Response:
            together.wait(30)
            return write(gateways[which % 2], f"k{number}", {"id": 4000 + number, "customer": 600, "total": "1.00"})

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(one, range(8)))
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["token"] for answer in answers}) == 1, "all hear of the one that happened"
    last = {"belvedere-after": answers[0].json()["token"]}
    assert gateways[0].get("/v1/relations/spend/row?key=600", headers=last).json()["n"] == 5


def test_of_two_different_writes_of_one_name_at_once_one_happens(gateways: tuple[Served, Served]) -> None:
    together = threading.Barrier(2)

    def one(which: int) -> httpx.Response:
        together.wait(30)
        return write(gateways[which], "same", {"id": 5000 + which, "customer": 700, "total": "1.00"})

    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(one, range(2)))
    assert sorted(answer.status_code for answer in answers) == [200, 422]
    token = next(answer for answer in answers if answer.status_code == 200).json()["token"]
    found = gateways[0].get("/v1/relations/spend/row?key=700", headers={"belvedere-after": token})
    assert found.json()["n"] == 1


def test_names_of_other_callers_and_tables_are_other_names(gateways: tuple[Served, Served]) -> None:
    first, second = gateways
    assert write(first, "k", {"id": 1, "customer": 1, "total": "1.00"}).status_code == 200
    assert write(second, "k", {"id": 2, "customer": 1, "total": "2.00"}, bearer=OTHER).status_code == 200
    assert write(second, "k", {"id": 3, "customer": 1, "total": "3.00"}, table="returns").status_code == 200
    again = write(second, "k", {"id": 1, "customer": 1, "total": "1.00"}, table="ORDERS")
    assert again.headers["idempotency-replayed"] == "true", "a table is the same in capitals"
    assert write(second, "k", {"id": 9, "customer": 1, "total": "1.00"}).status_code == 422
