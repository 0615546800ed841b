"""Writes over HTTP: all or nothing, in every format; by a name they happen once, also through a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import belvedere
from belvedere import errors
from belvedere.gateway.databases import EmbeddedDatabase
from tests.gateway.serving import ARROW, JSON, NDJSON, ORDERS, SPEND, Served, embedded, serving

ROWS = "/v1/relations/orders/rows"
DELETES = "/v1/relations/orders/deletes"
CHANGES = "/v1/relations/orders/changes"


@pytest.fixture
def empty() -> Iterator[Served]:
    with embedded(None, ORDERS, SPEND) as found:
        yield found


def settled(served: Served) -> Any:
    """The database, when everything that was written can be read."""
    served.db.wait(served.db.status()["written_epoch"])
    return served.db


def ids(served: Served) -> list[int]:
    settled(served)
    return [row["id"] for row in served.db.scan("orders").to_pylist()]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def order(id: int, customer: int = 1, total: str | None = "1.00") -> dict[str, Any]:
    return {"id": id, "customer": customer, "total": total}


def test_puts_in_every_format_are_the_same(empty: Served) -> None:
    assert empty.post(ROWS, order(1)).json()["rows"] == 1
    assert empty.post(ROWS, [order(2), {"id": 3}]).json()["rows"] == 2
    lines = "\n".join(json.dumps(order(id)) for id in (4, 5)) + "\n\n"
    assert empty.post(ROWS, lines, headers=NDJSON).json()["rows"] == 2
    table = pa.table({"id": pa.array([6, 7]), "total": pa.array(["1.25", "2"])})
    assert empty.post(ROWS, stream(table), headers={"content-type": ARROW}).json()["rows"] == 2
    assert ids(empty) == [1, 2, 3, 4, 5, 6, 7]
    assert str(settled(empty).get("orders", 6)["total"]) == "1.25"
    assert empty.post(ROWS, {"id": 1, "customer": None}).status_code == 200
    assert settled(empty).get("orders", 1) == {
        "id": 1,
        "customer": None,
        "total": settled(empty).get("orders", 2)["total"],
    }


def test_deletes_and_changes(empty: Served) -> None:
    empty.post(ROWS, [order(id) for id in range(10)])
    assert empty.post(DELETES, [0, [1], {"id": 2}, "3"]).json()["rows"] == 4
    assert empty.post(DELETES, "4\n5\n", headers=NDJSON).status_code == 200
    assert empty.post(DELETES, stream(pa.table({"id": [6]})), headers={"content-type": ARROW}).status_code == 200
    assert ids(empty) == [7, 8, 9]
    mixed = [{"put": order(20)}, {"delete": 20}, {"delete": [7]}, {"put": order(7, 5)}, {"delete": {"id": 8}}]
    assert empty.post(CHANGES, mixed).json()["rows"] == 5
    assert (ids(empty), settled(empty).get("orders", 7)["customer"]) == ([7, 9], 5)
    table = pa.table({"id": [7, 30], "gone": [True, False]})
    answer = empty.post(f"{CHANGES}?deletes=gone", stream(table), headers={"content-type": ARROW})
    assert answer.status_code == 200 and ids(empty) == [9, 30]


def test_timestamps_decide_which_write_counts(empty: Served) -> None:
    empty.post(f"{ROWS}?ts=2024-01-01T00:00:00Z", order(1, 10))
    empty.post(f"{ROWS}?ts=1000", order(1, 20))
    assert settled(empty).get("orders", 1)["customer"] == 10
    rows = [{**order(2, 1), "at": 2000}, {**order(2, 2), "at": 1000}]
    for row in rows:
        assert empty.post(f"{ROWS}?ts_column=at", [row]).status_code == 200
    assert settled(empty).get("orders", 2)["customer"] == 1
    table = pa.table({"id": [3], "customer": [9], "at": [5000]})
    assert empty.post(f"{ROWS}?ts_column=at", stream(table), headers={"content-type": ARROW}).status_code == 200
    assert empty.post(f"{ROWS}?ts_column=at", [order(4)]).status_code == 400
    assert empty.post(f"{ROWS}?ts_column=at&ts=1", [{**order(4), "at": 1}]).status_code == 400


def test_deletes_and_changes_have_timestamps_of_their_own(empty: Served) -> None:
    empty.post(f"{ROWS}?ts=5000", [order(1), order(2), order(3), order(4)])
    answer = empty.post(f"{DELETES}?ts_column=at", [{"id": 1, "at": 4000}, {"id": 2, "at": "1970-01-01T00:00:01Z"}])
    assert answer.status_code == 200 and ids(empty) == [1, 3, 4], "the older one lost"
    lines = '{"id": 3, "at": 6000}\n'
    assert empty.post(f"{DELETES}?ts_column=at", lines, headers=NDJSON).status_code == 200
    body = [{"delete": {"id": 1, "at": 4500}}, {"put": {"id": 4, "customer": 7, "at": 6000}}]
    assert empty.post(f"{CHANGES}?ts_column=at", body).status_code == 200
    assert ids(empty) == [1, 4] and settled(empty).get("orders", 4)["customer"] == 7


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        (f"{DELETES}?ts_column=at", [1], 400, "row 0 has no 'at'"),
        (f"{DELETES}?ts_column=at&ts=5", [{"id": 1, "at": 1}], 400, "give one"),
        (f"{DELETES}?ts_column=at", [{"id": 1}], 400, "row 0 has no 'at'"),
        (f"{CHANGES}?ts_column=at", [{"put": {"id": 1, "at": 1}}, {"delete": 1}], 400, "row 1 has no 'at'"),
        (f"{CHANGES}?deletes=gone", [{"delete": 1}], 400, "a column of Arrow"),
        (f"{ROWS}?ts_column=at", [{"id": 1, "at": 1.5}], 422, "timestamp"),
        (f"{ROWS}?ts_column=at", [{"id": 1, "at": True}], 422, "timestamp"),
        (f"{ROWS}?ts_column=at", [{"id": 1, "at": [1]}], 422, "timestamp"),
        (f"{ROWS}?ts_column=at", [{"id": 1, "at": 2**63}], 422, "out of range"),
        (f"{ROWS}?ts_column=at", [{"id": 1, "at": "soon"}], 400, "a time such as"),
        (f"{ROWS}?ts=9223372036854775808", [{"id": 1}], 422, "out of range"),
    ],
)
def test_timestamps_that_say_nothing_are_refused(empty: Served, path: str, body: Any, status: int, says: str) -> None:
    answer = empty.post(path, body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"]
    assert ids(empty) == []


@pytest.mark.parametrize(
    ("path", "body", "kind", "status", "says"),
    [
        (ROWS, '[{"id": 1}, {"id": "x"}]', "application/json", 422, "column 'id'"),
        (ROWS, '[{"id": 1}, {"id": 2, "nmae": 1}]', "application/json", 422, "no column 'nmae'"),
        (ROWS, '[{"id": 1}, {"customer": 1}]', "application/json", 422, "key column 'id' is missing"),
        (ROWS, '[{"id": 1}, {"id": 2, "total": "1.234"}]', "application/json", 422, "column 'total'"),
        (ROWS, '[{"id": 1}, {"id": 99999999999999999999}]', "application/json", 422, "column 'id'"),
        (ROWS, '[{"id": 1}, 5]', "application/json", 400, "row 1"),
        (ROWS, '[{"id": 1},', "application/json", 400, "no JSON"),
        (ROWS, '{"id": NaN}', "application/json", 400, "no JSON"),
        (ROWS, '{"id": 1}\n{"id": \n', "application/x-ndjson", 400, "line 2"),
        (ROWS, b"\xff\xfe", "application/json", 400, "no JSON"),
        (ROWS, b"ARROW1\0\0", ARROW, 400, "no Arrow stream"),
        (ROWS, b"", ARROW, 400, "no Arrow stream"),
        (ROWS, b"<a/>", "text/xml", 415, "there is application/json"),
        (DELETES, '{"id": 1}', "application/json", 400, "array of keys"),
        (DELETES, "[[1, 2]]", "application/json", 400, "found 2 values"),
        (DELETES, '[{"customer": 1}]', "application/json", 422, "customer"),
        (CHANGES, '[{"put": {"id": 1}, "delete": 2}]', "application/json", 400, "change 0"),
        (CHANGES, '[{"put": {"id": 1}}, {"upsert": {}}]', "application/json", 400, "change 1"),
        (CHANGES, b"", ARROW, 400, "no Arrow stream"),
    ],
)
def test_a_body_that_is_wrong_anywhere_writes_nothing(
    empty: Served, path: str, body: Any, kind: str, status: int, says: str
) -> None:
    answer = empty.post(path, body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    assert says in answer.json()["detail"]
    assert ids(empty) == []


def test_arrow_that_was_tampered_with_is_refused_or_read_but_harms_nothing(empty: Served) -> None:
    good = stream(pa.table({"id": pa.array(range(50)), "total": pa.array([f"{i}.00" for i in range(50)])}))
    for at in range(0, len(good), 7):
        bad = good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]
        answer = empty.post(ROWS, bad, headers={"content-type": ARROW})
        assert answer.status_code in (200, 400, 422), (at, answer.text)
    for size in (1, 10, 100, len(good) - 9):
        assert empty.post(ROWS, good[:size], headers={"content-type": ARROW}).status_code == 400
    assert empty.get("/healthz").status_code == 200


def test_rows_are_written_to_tables_only(empty: Served) -> None:
    answer = empty.post("/v1/relations/spend/rows", {"customer": 1})
    assert (answer.status_code, answer.json()["error"]) == (409, "CatalogError")
    assert empty.post("/v1/relations/nothing/rows", {"id": 1}).status_code == 404


def test_a_write_by_a_name_happens_once(empty: Served) -> None:
    key = {"idempotency-key": "order-1"}
    first = empty.post(ROWS, order(1, 1), headers=key)
    assert "idempotency-replayed" not in first.headers
    empty.post(ROWS, order(1, 2))
    again = empty.post(ROWS, order(1, 1), headers=key)
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert settled(empty).get("orders", 1)["customer"] == 2
    other = empty.post(ROWS, order(1, 3), headers=key)
    assert (other.status_code, other.json()["error"]) == (422, "RequestReused")
    assert settled(empty).get("orders", 1)["customer"] == 2
    found = empty.get("/v1/writes/order-1?relation=orders")
    assert found.json()["token"] == first.json()["token"]
    assert empty.get("/v1/writes/order-2?relation=orders").status_code == 404
    for wrong in ("", "a b", "a" * 201):
        assert empty.http.post(ROWS, json=order(9), headers={"idempotency-key": wrong}).status_code == 400
    assert empty.get("/v1/relations/spend/row?key=1", headers=key).status_code == 400


def test_a_name_of_a_write_is_not_one_of_another_action(empty: Served) -> None:
    """The body of a put of keys alone is that of a delete as well."""
    key = {"idempotency-key": "order-1"}
    assert empty.post(ROWS, [{"id": 1}], headers=key).status_code == 200
    other = empty.post(DELETES, [{"id": 1}], headers=key)
    assert (other.status_code, other.json()["error"]) == (422, "RequestReused")
    assert ids(empty) == [1]
    late = empty.post(f"{ROWS}?ts=5000", [{"id": 1}], headers=key)
    assert (late.status_code, late.json()["error"]) == (422, "RequestReused"), "at another time it is another write"
    body = [{"put": {"id": 2}}]
    assert empty.post(CHANGES, body, headers={"idempotency-key": "order-2"}).status_code == 200
    assert empty.post(ROWS, body[0]["put"], headers={"idempotency-key": "order-2"}).status_code == 422


def test_the_same_write_at_the_same_time_happens_once(empty: Served) -> None:
    def write(_: int) -> str:
        rows = [order(i) for i in range(50)]
        answer = httpx.post(f"{empty.url}{ROWS}", json=rows, headers={"idempotency-key": "together"}, timeout=60.0)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    with ThreadPoolExecutor(8) as threads:
        tokens = set(threads.map(write, range(24)))
    assert len(tokens) == 1
    assert len(ids(empty)) == 50
    groups = [c.epoch for c in empty.db._history(0, empty.db.epoch) if len(list(c.deltas(empty.db._shapes(), "spend")))]
    assert len(groups) == 1, "the view changed once"


def test_names_outlive_the_process_and_snapshots(tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "a.bv") as db:
        db.execute(ORDERS)
        first = db.put("orders", order(1, 1), request="one:aa")
        db.checkpoint()
        second = db.put("orders", order(2, 1), request="two")
    with belvedere.open(tmp_path / "a.bv") as db:
        assert db.put("orders", order(1, 7), request="one:aa") == first
        assert db.put("orders", order(2, 7), request="two") == second
        with pytest.raises(errors.RequestReused, match="by the name 'one'"):
            db.put("orders", order(1, 7), request="one:bb")
        assert [row["customer"] for row in db.scan("orders").to_pylist()] == [1, 1]
        assert (db.written("one"), db.written("two"), db.written("three")) == (first, second, None)


def test_names_are_forgotten_after_an_hour() -> None:
    now = [1_700_000_000_000_000]
    with belvedere.open(None, clock=lambda: now[0]) as db:
        db.execute(ORDERS)
        first = db.put("orders", order(1), request="old")
        now[0] += 3_700_000_000
        db.put("orders", order(2), request="new")
        assert db.written("old") is None and db.written("new") is not None
        assert db.put("orders", order(1), request="old") != first


CHILD = """
import sys, belvedere
from belvedere.gateway.databases import EmbeddedDatabase
from belvedere.gateway.server import GatewayServer, ServerOptions
with belvedere.open(sys.argv[1]) as db:
    if not db.catalog.tables:
        db.execute(sys.argv[2])
    GatewayServer(EmbeddedDatabase(db), ServerOptions(port=0)).run(lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_killed_in_the_middle_of_writes_the_name_tells_whether_it_happened(tmp_path: Path, rounds: int) -> None:
    """A process that is killed while clients write: what they repeat by its name is there once, as a whole."""
    for round in range(rounds):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "a.bv"), ORDERS], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout is not None
            url = child.stdout.readline().strip()
            written = 0
            client = httpx.Client(base_url=url, timeout=60.0)
            for number in range(200):
                if number == 60 + 40 * round:
                    os.kill(child.pid, signal.SIGKILL)
                try:
                    body = [order(round * 100_000 + number * 10 + i, number) for i in range(5)]
                    key = {"idempotency-key": f"{round}-{number}", **JSON}
                    client.post(ROWS, content=json.dumps(body), headers=key).raise_for_status()
                except httpx.TransportError:
                    break
                written = number + 1
            client.close()
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
        with belvedere.open(tmp_path / "a.bv") as db, serving(EmbeddedDatabase(db)) as served:
            for number in range(max(0, written - 20), written + 1):
                name = f"{round}-{number}"
                before = served.get(f"/v1/writes/{name}?relation=orders").status_code
                base = round * 100_000 + number * 10
                there = db.scan("orders", start=base, stop=base + 10).num_rows
                assert (before, there) in ((200, 5), (404, 0)), "the name and the rows come together"
                assert number == written or before == 200, "what was acknowledged is there"
                body = [order(base + i, number) for i in range(5)]
                again = served.post(ROWS, body, headers={"idempotency-key": name})
                assert again.headers.get("idempotency-replayed") == ("true" if before == 200 else None)
                db.wait(again.json()["token"])
                assert db.scan("orders", start=base, stop=base + 10).num_rows == 5


def test_rows_that_get_here_by_another_way_are_those_of_pools(empty: Served) -> None:
    answer = empty.get("/v1/relations/orders/written?key=1&timestamp=5")
    assert answer.status_code == 400 and "its writes return tokens, for Belvedere-After" in answer.json()["detail"]
    assert empty.get("/v1/relations/orders/written?key=1").status_code == 400, "a timestamp is needed"
