"""Subscriptions: every change once and in order, from wherever a subscriber begins; one upstream for all of them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere import errors
from belvedere.gateway import fanout
from belvedere.gateway.limits import Limits
from belvedere.gateway.server import ServerOptions
from tests.cluster.real import until as until_so
from tests.gateway.serving import ORDERS, SPEND, Served, embedded, subscribed

CHANGES = "/v1/relations/spend/changes"
Bag = Counter[tuple[Any, ...]]


def put(served: Served, *customers: int, first: int = 1000, total: str = "1.00") -> int:
    rows = [{"id": first + n, "customer": customer, "total": total} for n, customer in enumerate(customers)]
    token = served.db.put("orders", rows)
    served.db.wait(token)
    return int(token.epoch)


def applied(bag: Bag, told: Any) -> None:
    """One event's rows; a snapshot's are added."""
    bag.update(tuple(row.values()) for row in [*told.get("rows", ()), *told.get("added", ())])
    bag.subtract(tuple(row.values()) for row in told.get("removed", ()))


def now(served: Served) -> Bag:
    from belvedere.gateway import values

    return Counter(tuple(row.values()) for row in values.rows(served.db.scan("spend")))


def until(events: Iterator[tuple[str, str | None, Any]], epoch: int, bag: Bag) -> list[int]:
    """Events up to an epoch; their ids."""
    ids = []
    for _, id, told in events:
        applied(bag, told)
        if id is not None:
            ids.append(int(id))
            if int(id) >= epoch:
                return ids
    raise AssertionError(f"the stream ended before epoch {epoch}")


def test_changes_come_from_now_on_and_in_order(served: Served) -> None:
    bag = now(served)
    with subscribed(served, CHANGES) as events:
        assert next(events)[0] == "epoch"
        for customer in (1, 2, 1, 77):
            last = put(served, customer, first=2000 + customer)
        ids = until(events, last, bag)
    assert +bag == now(served)
    assert ids == sorted(set(ids))


def test_a_snapshot_and_all_changes_after_it_are_the_view(served: Served) -> None:
    bag: Bag = Counter()
    with subscribed(served, f"{CHANGES}?from=snapshot") as events:
        name, id, told = next(events)
        assert name == "snapshot" and told["last"] and int(id or 0) == told["epoch"]
        applied(bag, told)
        assert +bag == now(served)
        until(events, put(served, 1, 2, 3, 500), bag)
    assert +bag == now(served)


def test_a_subscriber_goes_on_where_the_connection_broke(served: Served) -> None:
    bag = now(served)
    with subscribed(served, CHANGES) as events:
        next(events)
        seen = until(events, put(served, 1), bag)[-1]
    for customer in range(5):
        last = put(served, customer, first=3000 + customer)
    with subscribed(served, CHANGES, headers={"last-event-id": str(seen)}) as events:
        ids = until(events, last, bag)
    assert +bag == now(served)
    assert min(ids) > seen
    with subscribed(served, f"{CHANGES}?after=e{seen}") as events:
        assert until(events, last, Counter())[-1] == last


def test_resuming_while_others_subscribe_joins_their_ring(served: Served) -> None:
    with subscribed(served, CHANGES) as others:
        start = int(next(others)[1] or 0)
        bag = now(served)
        for customer in range(8):
            last = put(served, customer, first=4000 + customer)
        with subscribed(served, CHANGES, headers={"last-event-id": str(start)}) as events:
            until(events, last, bag)
        assert +bag == now(served)
        assert served.server.metrics.value("belvedere_http_subscribed_views") == 1


def test_large_changes_and_snapshots_come_in_parts(served: Served) -> None:
    bag = now(served)
    with subscribed(served, CHANGES) as events:
        next(events)
        last = put(served, *range(100, 2600))
        parts = []
        for _, id, told in events:
            applied(bag, told)
            parts.append((told["last"], id is not None))
            if id is not None and int(id) >= last:
                break
    assert parts == [(False, False), (False, False), (True, True)]
    assert +bag == now(served)
    with subscribed(served, f"{CHANGES}?from=snapshot") as events:
        sizes = []
        for name, id, told in events:
            assert name == "snapshot"
            sizes.append(len(told["rows"]))
            if id is not None:
                break
    assert sizes == [1000, 1000, 510]


def test_what_a_subscription_pins_goes_with_its_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a request for the head alone, and of one that is refused when its stream begins."""
    epoch = put(served, 1)

    def pins() -> Any:
        return served.db.pins.held(int(time.time() * 1000))

    assert served.http.head(f"{CHANGES}?after=e{epoch}").status_code == 200
    until_so(lambda: not pins(), 30.0, "its pin goes")

    def refuse(*given: Any) -> Any:
        raise errors.Draining("no")

    with monkeypatch.context() as patched:
        patched.setattr(fanout.Fanouts, "join", refuse)
        with subscribed(served, f"{CHANGES}?after=e{epoch}") as events:
            assert next(events)[0] == "end"
    until_so(lambda: not pins(), 30.0, "its pin goes")


def test_a_quiet_view_says_how_far_it_is(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "PROGRESS_SECONDS", 0.2)
    served.db.execute("CREATE MATERIALIZED VIEW few AS SELECT id FROM orders WHERE id < 0")
    with subscribed(served, "/v1/relations/few/changes") as events:
        first = int(next(events)[1] or 0)
        written = put(served, 1)
        for name, id, _ in events:
            assert name == "epoch"
            if int(id or 0) >= written:
                break
    assert written > first


def test_a_view_that_is_dropped_or_replaced_ends_its_subscriptions(served: Served) -> None:
    with subscribed(served, CHANGES) as events:
        next(events)
        served.db.execute("CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT id FROM orders")
        name, _, told = list(events)[-1]
    assert (name, told["error"], told["resumable"]) == ("end", "ViewReplaced", False)
    with subscribed(served, CHANGES) as events:
        next(events)
        served.db.execute("DROP MATERIALIZED VIEW spend")
        assert list(events)[-1][2]["resumable"] is False
    assert served.get(CHANGES).status_code == 404


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("", {"last-event-id": "1"}, 410),
        ("?after=e1", {}, 410),
        ("", {"last-event-id": "x"}, 400),
        ("?from=yesterday", {}, 400),
        ("?from=now&after=e5", {}, 400),
        ("?after=nonsense", {}, 400),
        ("?after=e99999999999999", {"belvedere-wait": "0.1"}, 409),
        ("", {"accept": "application/json"}, 406),
    ],
)
def test_what_cannot_be_subscribed_to_says_so_by_its_status(
    served: Served, query: str, headers: dict[str, str], status: int
) -> None:
    assert served.get(f"{CHANGES}{query}", headers=headers).status_code == status
    assert served.get("/v1/relations/orders/changes").status_code == 409


@pytest.mark.parametrize("after", ["nonsense", ""])
def test_what_is_wrong_is_named_as_it_was_given(served: Served, after: str) -> None:
    answer = served.get(CHANGES, params={"after": after})
    assert (answer.status_code, answer.json()["detail"][:6]) == (400, "after=")


def read_head(address: tuple[str, int], path: str, window: int = 4096) -> socket.socket:
    """A subscriber that has sent its request and reads nothing."""
    made = socket.create_connection(address)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return made


def read_on(reader: socket.socket) -> tuple[list[int], dict[str, Any]]:
    """The ids of what is left, and the data of the last event, of a stream that the server has ended."""
    reader.settimeout(30)
    told = b""
    while part := reader.recv(65536):
        told += part
    assert told.endswith(b"\r\n0\r\n\r\n"), "the body is whole"
    lines = told.split(b"\n")
    assert b"event: end" in lines
    return [int(line[4:]) for line in lines if line.startswith(b"id: ")], json.loads(
        [line for line in lines if line.startswith(b"data: ")][-1][6:]
    )


def test_who_reads_on_too_late_learns_why_it_was_ended_and_where_to_go_on() -> None:
    options = ServerOptions(port=0, limits=Limits(send_seconds=8.0))
    with embedded(options, ORDERS, SPEND) as served:
        lazy = read_head(served.address, CHANGES, 1 << 16)
        try:
            for number in range(60):
                last = put(served, *range(500), first=number * 500, total=f"{number}.00")
            deadline = time.monotonic() + 30
            while served.server.metrics.value("belvedere_http_subscribers") != 0:
                assert time.monotonic() < deadline, "it is never ended"
                time.sleep(0.05)
            ids, end = read_on(lazy)
            assert (end["error"], end["resumable"], end["status"]) == ("SlowReader", True, 503)
            assert ids == sorted(set(ids)) and ids[-1] < last
            with subscribed(served, CHANGES, headers={"last-event-id": str(ids[-1])}) as events:
                bag = rows_at(served, ids[-1])
                until(events, last, bag)
            assert +bag == now(served)
        finally:
            lazy.close()


def rows_at(served: Served, epoch: int) -> Bag:
    from belvedere.gateway import values

    return Counter(tuple(row.values()) for row in values.rows(served.db.scan("spend", at=epoch)))


def test_who_does_not_read_is_ended_and_does_not_hold_up_others() -> None:
    options = ServerOptions(port=0, limits=Limits(change_bytes=200_000, send_seconds=1.0))
    with embedded(options, ORDERS, SPEND) as served:
        lazy = read_head(served.address, CHANGES)
        try:
            bag = now(served)
            with subscribed(served, CHANGES) as events:
                next(events)
                for number in range(12):
                    last = put(served, *range(500), first=number * 500, total=f"{number}.00")
                    until(events, last, bag)
            assert +bag == now(served)
            deadline = time.monotonic() + 30
            while served.server.metrics.value("belvedere_http_subscribers") != 0:
                assert time.monotonic() < deadline, "the one who does not read is still there"
                time.sleep(0.05)
            reasons = served.server.metrics.value("belvedere_http_subscribers_ended_total", reason="slow-reader")
            assert reasons == 1
        finally:
            lazy.close()


def test_many_subscribers_share_one_subscription_and_all_get_everything_in_order() -> None:
    """Each subscriber's stream, byte for byte, is the same; the database has one subscription."""
    count, changes = 100, 60
    with embedded(None, ORDERS, SPEND) as served:

        async def one(first: asyncio.Barrier, last: threading.Event) -> list[int]:
            reader, writer = await asyncio.open_connection(*served.address, limit=1 << 22)
            writer.write(f"GET {CHANGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            ids: list[int] = []
            seen = 0
            async with asyncio.timeout(120):
                while True:
                    line = (await reader.readline()).strip()
                    if line.startswith(b"event: epoch") and not ids:
                        await first.wait()
                    if line.startswith(b"data: ") and b"added" in line:
                        seen += len(json.loads(line[6:])["added"])
                        if seen == changes:
                            break
                    if line.startswith(b"id: "):
                        ids.append(int(line[4:]))
            writer.close()
            return ids

        async def everybody() -> list[list[int]]:
            first, last = asyncio.Barrier(count + 1), threading.Event()

            async def write() -> None:
                await first.wait()
                assert len([p for p in served.db.status()["pins"] if p["purpose"] == "subscription"]) == 1
                for number in range(changes):
                    await asyncio.to_thread(put, served, number + 1_000, first=number)

            writing = asyncio.create_task(write())
            found = await asyncio.gather(*(one(first, last) for _ in range(count)))
            await writing
            return found

        streams = asyncio.run(everybody())
    assert all(ids == sorted(set(ids)) for ids in streams)
    assert {tuple(ids[1:]) for ids in streams} == {tuple(streams[0][1:])}
