"""What is too much, too slow or half is ended with a reason, and costs others nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from belvedere.gateway import connections
from belvedere.gateway.limits import Limits, Places
from belvedere.gateway.metrics import METRICS
from belvedere.gateway.server import ServerOptions
from tests.gateway.serving import JSON, ORDERS, SPEND, Served, embedded

ROWS = "/v1/relations/orders/rows"


@contextlib.contextmanager
def limited(**limits: float) -> Iterator[Served]:
    with embedded(ServerOptions(port=0, limits=Limits(**limits)), ORDERS, SPEND) as served:  # type: ignore[arg-type]
        yield served


def talk(served: Served, data: bytes, *, seconds: float = 30.0) -> bytes:
    """Everything that the server says until it closes the connection."""
    with socket.create_connection(served.address, timeout=seconds) as made:
        made.sendall(data)
        told = b""
        with contextlib.suppress(ConnectionResetError):
            while part := made.recv(65536):
                told += part
        return told


def put(length: int | None, body: bytes, *more: str) -> bytes:
    head = [f"POST {ROWS} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more]
    head += [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def count(served: Served) -> int:
    served.db.wait(served.db.status()["written_epoch"])
    return int(served.db.scan("orders").num_rows)


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with limited(body_bytes=1000) as served:
        rows = [{"id": i} for i in range(500)]
        answer = served.post(ROWS, rows)
        assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
        assert b" 413 " in talk(served, put(10**12, b"[]"))
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        assert b" 413 " in talk(served, put(None, chunk * 3, "Transfer-Encoding: chunked"))
        assert count(served) == 0
        assert served.post(ROWS, rows[:3]).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for_for_ever() -> None:
    with limited(body_seconds=0.3) as served:
        assert b" 408 " in talk(served, put(100, b'[{"id": 1},'))
        assert count(served) == 0


def test_half_a_body_writes_nothing() -> None:
    with limited() as served:
        for half in (b'[{"id": 1}]', b"", b"["):
            with socket.create_connection(served.address) as made:
                made.sendall(put(100, half))
        assert served.post(ROWS, {"id": 5}).status_code == 200
        assert count(served) == 1


def test_a_client_that_goes_away_after_its_body_has_written_all_of_it() -> None:
    """Its idempotency key tells it so."""
    with limited() as served:
        body = json.dumps([{"id": i} for i in range(100)]).encode()
        with socket.create_connection(served.address) as made:
            made.sendall(put(len(body), body, "Idempotency-Key: gone"))
        deadline = time.monotonic() + 20
        while served.get("/v1/writes/gone?relation=orders").status_code == 404:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert count(served) == 100


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b" 431 "),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b" 431 "),
        (b"NONSENSE\r\n\r\n", b" 400 "),
        (b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\nConnection: close\r\n\r\n", b" 400 "),
        (put(None, b"zz\r\n", "Transfer-Encoding: chunked"), b" 400 "),
        (put(5, b"[]", "Content-Length: 2", "Connection: close"), b" 400 "),
        (put(2, b"[]", "Content-Encoding: gzip", "Connection: close"), b" 415 "),
        (b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nBelvedere-Request: a\tb\r\nConnection: close\r\n\r\n", b" 200 "),
    ],
)
def test_what_is_no_request_is_answered_and_closed(data: bytes, says: bytes) -> None:
    with limited() as served:
        assert says in talk(served, data)
        assert served.get("/v1").status_code == 200


def test_header_injection_goes_nowhere() -> None:
    with limited() as served:
        for path in ("/v1/relations/a%0d%0aX-Evil:%201/rows", "/v1/x?a=%0d%0aX-Evil:%201"):
            told = talk(served, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            assert b"x-evil" not in told.lower().partition(b"\r\n\r\n")[0]


def test_a_head_that_does_not_come_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with limited() as served:
        assert b" 408 " in talk(served, b"GET /v1 HTTP/1.1\r\nHost: local")
        assert b" 408 " in talk(served, b"")


def test_connections_are_counted_and_those_beyond_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 600.0)  # they ask nothing, and are there for as long as this takes
    with limited(connections=3) as served:
        idle = [socket.create_connection(served.address) for _ in range(3)]
        try:
            deadline = time.monotonic() + 60
            while served.server.metrics.value("belvedere_http_connections") != 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert talk(served, b"GET /v1 HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
        finally:
            for one in idle:
                one.close()
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx.TransportError):
                if served.get("/v1").status_code == 200:
                    break
            assert time.monotonic() < deadline


def slow(served: Served, blocked: threading.Event) -> None:
    """Scans wait until the event is set."""
    original = served.db.page

    def page(*args: object, **options: object) -> object:
        assert blocked.wait(30)
        return original(*args, **options)

    served.db.page = page


def test_callers_wait_in_a_queue_and_those_beyond_it_are_told_to_come_back() -> None:
    blocked = threading.Event()
    with limited(requests=2, requests_of_caller=2, queue=3) as served:
        slow(served, blocked)
        with ThreadPoolExecutor(12) as threads:
            answers = [threads.submit(served.get, "/v1/relations/spend/rows") for _ in range(8)]
            deadline = time.monotonic() + 20
            while served.server.metrics.value("belvedere_http_waiting") != 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            while sum(answer.done() for answer in answers) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert served.get("/healthz").status_code == 200, "probes need no place"
            blocked.set()
            found = [answer.result() for answer in answers]
        assert sorted(answer.status_code for answer in found) == [200] * 5 + [429] * 3
        assert all(a.headers["retry-after"] == "1" for a in found if a.status_code == 429)
        assert served.get("/v1/relations/spend/rows").status_code == 200


def test_who_waits_gets_no_more_places_than_it_may_have() -> None:
    async def run() -> None:
        places = Places(4, 2, 10)
        assert places.take("a") and places.take("a") and not places.take("a") and places.take("b")
        waiting = [asyncio.create_task(places.wait("a", 60.0)) for _ in range(3)]
        await asyncio.sleep(0)
        places.free("b")  # there is room, and none of it for them
        await asyncio.sleep(0)
        assert (places.busy, places.waiting) == (2, 3)
        places.free("a")
        await asyncio.sleep(0)
        assert (places.busy, places.waiting) == (2, 2) and waiting[0].done()
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (places.busy, places.waiting) == (2, 0)

    asyncio.run(run())


def test_a_place_that_is_given_to_one_who_leaves_is_free_again() -> None:
    async def run() -> None:
        places = Places(1, 1, 10)
        assert places.take("a")
        leaves, stays = (asyncio.create_task(places.wait(who, 60.0)) for who in ("b", "c"))
        await asyncio.sleep(0)
        places.free("a")
        leaves.cancel()  # before it hears that it has the place
        await asyncio.gather(leaves, return_exceptions=True)
        await asyncio.wait_for(stays, 60.0)
        assert places.busy == 1
        places.free("c")
        assert places.busy == 0 and places.take("d")

    asyncio.run(run())


def test_a_request_that_takes_too_long_is_ended() -> None:
    blocked = threading.Event()
    with limited(request_seconds=0.3) as served:
        slow(served, blocked)
        answer = served.get("/v1/relations/spend/rows", headers={"belvedere-wait": "0"})
        assert (answer.status_code, answer.json()["error"]) == (504, "OutOfTime")
        blocked.set()


def test_a_request_that_was_given_up_is_not_begun_later() -> None:
    """Its client was told that it took too long: it must not write when a thread becomes free."""
    blocked = threading.Event()
    with limited(request_seconds=0.3, threads=1) as served:
        slow(served, blocked)
        with ThreadPoolExecutor(1) as other:
            patient = {"belvedere-wait": "60"}  # and the request may take as much longer
            scan = other.submit(served.get, "/v1/relations/spend/rows", headers=patient)
            deadline = time.monotonic() + 20
            while served.server.metrics.value("belvedere_http_at_work") != 1:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            late = served.post(ROWS, {"id": 1}, headers={"belvedere-wait": "0"})
            assert (late.status_code, late.json()["error"]) == (504, "OutOfTime")
            blocked.set()
            scan.result()
        # by the same thread, after the one that was given up
        token = served.post(ROWS, {"id": 2}, headers=patient).json()["token"]
        rows = served.get("/v1/relations/orders/rows", headers={**patient, "belvedere-after": token}).json()["rows"]
        assert [row["id"] for row in rows] == [2]


def test_those_who_wait_for_epochs_do_not_hold_up_the_others() -> None:
    come = threading.Event()
    with limited(threads=2) as served, ThreadPoolExecutor(16) as threads:
        served.db.wait = lambda *_: come.wait(60)
        headers = {"belvedere-after": "e1"}
        waiting = [threads.submit(served.http.post, "/v1/wait", headers=headers) for _ in range(16)]
        try:
            deadline = time.monotonic() + 20
            while served.server.metrics.value("belvedere_http_at_work") != 16:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert served.get("/v1/relations/orders/rows").status_code == 200
            assert served.post(ROWS, {"id": 1}).status_code == 200
            assert not any(one.done() for one in waiting), "they still wait, and were passed"
        finally:
            come.set()
            del served.db.wait
        assert {one.result().status_code for one in waiting} == {200}


@pytest.mark.parametrize("name", ["idempotency-key", "authorization", "content-type"])
def test_headers_that_contradict_each_other_are_refused(name: str) -> None:
    with limited() as served:
        twice = [("content-type", "application/json"), (name, "application/x-ndjson"), (name, "b")]
        answer = served.http.post(ROWS, content='{"id": 1}', headers=twice)
        assert (answer.status_code, name in answer.json()["detail"]) == (400, True)
        assert count(served) == 0


def test_subscriptions_are_counted_by_caller() -> None:
    with limited(subscriptions_of_caller=2) as served, contextlib.ExitStack() as streams:
        path = "/v1/relations/spend/changes"
        for _ in range(2):
            assert streams.enter_context(served.http.stream("GET", path)).status_code == 200
        assert served.get(path).status_code == 429
        assert served.get("/v1/relations/spend/rows").status_code == 200, "subscribers take no place of requests"


def test_many_idle_connections_do_not_hurt() -> None:
    with limited() as served:
        idle = []
        try:
            for _ in range(500):
                idle.append(socket.create_connection(served.address))
            assert served.get("/v1").status_code == 200
        finally:
            for one in idle:
                one.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_ten_thousand_idle_connections_do_not_hurt(tmp_path: Path) -> None:
    """Those that have asked before; of a process of its own, so that its memory can be looked at."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    command = [sys.executable, "-m", "belvedere.cli.main", "serve", "--db", str(tmp_path / "db"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    url = httpx.URL(process.stdout.readline().split()[-1])
    idle: list[socket.socket] = []

    def resident() -> int:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            assert client.post("/v1/sql", content=ORDERS, headers={"content-type": "application/sql"}).is_success
            before = resident()
            for number in range(10_000):
                idle.append(socket.create_connection((url.host, url.port or 0)))
                idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                if number % 100 == 99:  # no more than the queue of the listener takes
                    assert all(b" 200 " in one.recv(4096) for one in idle[-100:])
            for number in range(200):
                assert client.post(ROWS, json={"id": number}).status_code == 200
            assert client.get("/v1/relations/orders/rows?limit=1000").json()["rows"][-1]["id"] == 199
            assert (resident() - before) / len(idle) < 30_000, "bytes for each of them"
            assert "belvedere_http_connections 10001.0" in client.get("/metrics").text
    finally:
        for one in idle:
            one.close()
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


def test_the_reference_lists_every_metric_of_a_gateway_and_nothing_else() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(belvedere_http_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", page, re.MULTILINE)
    listed = [(name, kind, meaning, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, meaning in rows]
    assert listed == [(n + ("_total" if k == "counter" else ""), k, m, labels) for n, k, m, labels in METRICS]


def test_metrics_tell_routes_and_statuses() -> None:
    with limited() as served:
        served.get("/v1/relations/spend/row?key=1")
        served.http.post(ROWS, content="[", headers=JSON)
        text = served.get("/metrics").text
        assert 'belvedere_http_requests_total{route="GET /v1/relations/{relation}/row",status="404"} 1.0' in text
        assert 'belvedere_http_requests_total{route="POST /v1/relations/{relation}/rows",status="400"} 1.0' in text
        assert "belvedere_http_ready 1.0" in text
