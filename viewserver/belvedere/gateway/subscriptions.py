"""Subscribe: the changes of a view as server-sent events, from now, after a token, or from a snapshot."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from belvedere import errors
from belvedere.gateway import fanout, params, problems, values
from belvedere.gateway.api import EVENTS, Access, Answer, Call, Endpoint

SNAPSHOT_ROWS = 1_000
RECHECK_SECONDS = 15.0


def subscribe(call: Call) -> Answer:
    """In a thread: what is wrong is said by the status, before the stream begins."""
    start = _start(call)
    if start is not None and not isinstance(start, str):
        call.database.db.wait(start, call.wait)
    relation, begin = call.database.relation(call.relation), start is not None and not isinstance(start, str)
    # from there it can be subscribed to; who comes from earlier is told what was missed before all else
    missed = call.database.db.subscribe(relation.name, after=start if begin else None, progress=0.0)
    if not begin:
        missed.close()
    opened = [missed]  # each pins what it has not told
    return Answer(
        media_type=EVENTS,
        parts=lambda: _events(call, relation.name, start, opened),
        close=lambda: _close(opened),
    )


def _close(opened: list[Any]) -> None:
    for one in opened:
        one.close()


def _start(call: Call) -> Any:
    """A token, "snapshot", or None for now."""
    if call.last_event:
        if not (call.last_event.isascii() and call.last_event.isdecimal() and len(call.last_event) < 19):
            raise errors.BadRequest(f"Last-Event-ID: {call.last_event[:40]!r} is no epoch")
        return call.database.token(call.last_event, "Last-Event-ID")
    after = call.get("after")
    if after is not None:
        if "from" in call.params:
            raise errors.BadRequest("from= and after= say both where to begin: give one")
        return call.database.token(after, "after=")
    return "snapshot" if call.get("from") == "snapshot" else None


async def _events(call: Call, view: str, start: Any, opened: list[Any]) -> AsyncGenerator[bytes, None]:
    yield b"retry: 1000\n\n"
    try:
        hub = call.fanouts.join(view)
        try:
            async for data in _from(call, view, start, opened, hub):
                yield data
        finally:
            call.fanouts.leave(hub)
    except asyncio.CancelledError:
        raise
    except Exception as error:
        resumable = isinstance(error, fanout.RESUMABLE)
        call.ended(problems.kind_of(error).name)
        yield fanout.end_event(error, call.request, resumable)


async def _from(call: Call, view: str, start: Any, opened: list[Any], hub: fanout.Fanout) -> AsyncIterator[bytes]:
    await hub.ready()
    if start is None:
        reached = hub.position
        yield fanout.event("epoch", {"epoch": reached}, reached)
    elif start == "snapshot":
        async for epoch, data in _in_thread(call, _snapshot(call, view)):
            reached = epoch
            yield data
        if hub.place_after(reached) is None:
            start = call.database.token(f"e{reached}")
            opened.append(
                await call.in_thread(functools.partial(call.database.db.subscribe, view, after=start, progress=0.0))
            )
    if start is not None and start != "snapshot":
        # also where the ring has all of it: its thread may not have heard yet of what is committed
        async for change in _in_thread(call, fanout.closing(opened[-1])):
            yield fanout.change_events(change)
            reached = change.epoch
            if not len(change) and hub.place_after(reached) is not None:
                break
    place = hub.place_after(reached)
    assert place is not None
    checked = asyncio.get_running_loop().time()
    async for data in hub.follow(place, reached):
        if call.gone.is_set():
            return
        yield data
        now = asyncio.get_running_loop().time()
        if now - checked >= RECHECK_SECONDS:
            checked = now
            await call.recheck()


async def _in_thread(call: Call, items: Iterator[Any]) -> AsyncIterator[Any]:
    """Items of an iterator that blocks."""
    done = object()
    try:
        while (item := await call.in_thread(lambda: next(items, done))) is not done:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            with contextlib.suppress(errors.BelvedereError, ValueError):
                await call.in_thread(close)


def _snapshot(call: Call, view: str) -> Iterator[tuple[int, bytes]]:
    """All rows at one epoch; only the last part has an id."""
    db = call.database.db
    with db.snapshot() as snapshot:
        at, beyond = int(snapshot.epoch), None
        while True:
            page = db.page(view, limit=SNAPSHOT_ROWS, beyond=beyond, at=at)
            told = {"epoch": page.epoch, "rows": values.rows(page.rows), "last": not page.more}
            yield page.epoch, fanout.event("snapshot", told, None if page.more else page.epoch)
            if not page.more:
                return
            beyond = page.end(page.rows.num_rows)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/relations/{relation}/changes",
        "Subscribe to a view",
        Access.READ,
        subscribe,
        (params.FROM, params.AFTER, params.ACCESS_TOKEN),
        produces=(EVENTS,),
        answer="Events",
        patient=True,
    ),
)
