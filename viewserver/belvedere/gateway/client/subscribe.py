"""Subscriptions over server-sent events: the changes of a view in order, whatever happens to the connection.

The id of an event is its epoch, so a connection that broke, or a gateway that ended, is followed by another one with
`Last-Event-ID`, and nothing is missed or told twice. When the gateway has told all that it knows, it says so (an event
`epoch`); only then the time of a caller begins that does not want to wait for ever. Before that time is over for good
the gateway is asked once more, on a new connection: what was committed until then is told.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.gateway.client.caller import EVENTS, Caller, Request, Stream
from belvedere.gateway.client.forms import table_of
from belvedere.gateway.client.problems import raised
from belvedere.gateway.client.relations import Relation
from belvedere.model.view_change import ViewChange
from belvedere.retry import Backoff, Deadline, Retry
from belvedere.types import Type

SILENCE_SECONDS = 45.0
"""The gateway says something about every 15 s. One that is silent for so long is gone."""
_FINAL = (errors.EpochExpired, errors.ViewReplaced, errors.ViewFailed, errors.CatalogError)


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    kind: str
    id: str
    data: Any


class HttpSubscription:
    """An iterator over changes. It closes itself when there is nothing more to come: nothing happened for `timeout`,
    the history is gone, the view is another one."""

    def __init__(
        self,
        caller: Caller,
        describe: Callable[[], Relation],
        after: str,
        timeout: float | None,
        patience: float,
    ) -> None:
        """`after`: a token. `patience`: seconds for which a gateway is looked for."""
        self._stream: Stream | None = None
        self._caller, self._describe, self._timeout, self._patience = caller, describe, timeout, patience
        self._after = after
        self.epoch = 0
        """Of the last event; 0: there was none yet."""
        self._current = self._closed = False
        self._parts: list[tuple[pa.Table, int]] = []
        self._relation = self._open(Deadline(patience))

    # ------------------------------------------------------------------ connections

    def _open(self, deadline: Deadline, *more: type[Exception]) -> Relation:
        """Connect, and know what the columns are: those of the version that was there before and after. `more`: errors
        after which it is tried again."""
        on = (errors.Unavailable, errors.TooManyRequests, *more)
        retry = Retry(
            f"subscribing at {self._caller.url}" if not more else "",
            on=on,
            deadline=deadline,
            backoff=Backoff(0.02, 1.0),
        )

        def attempt() -> Relation:
            while True:
                before = self._describe()
                self._connect(before)
                if self._describe() == before:
                    return before
                self._disconnect()

        return retry.run(attempt)

    def _connect(self, relation: Relation) -> None:
        self._disconnect()
        headers = {"Accept": EVENTS, "Cache-Control": "no-cache"}
        if self.epoch:
            headers["Last-Event-ID"] = str(self.epoch)
        path = f"/v1/relations/{urllib.parse.quote(relation.name, safe='')}/changes"
        query = [] if self.epoch else [("after", self._after)]
        self._stream = self._caller.stream(
            Request("GET", path, "subscribing", query, headers), min(self._patience, SILENCE_SECONDS)
        )
        self._current, self._parts = False, []

    def _disconnect(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Nothing more is told."""
        self._closed = True
        self._disconnect()

    # ------------------------------------------------------------------ changes

    def __iter__(self) -> Iterator[ViewChange]:
        return self

    def __next__(self) -> ViewChange:
        try:
            change = self._next()
            if change is not None:
                # no interrupt comes between these two
                self.epoch = change.epoch
                return change
        except BaseException:
            self._disconnect()  # what was read and not returned is told again to the next call
            raise
        self.close()
        raise StopIteration

    def _next(self) -> ViewChange | None:
        """The next change; None if there was none in time."""
        deadline, last_look = Deadline(self._timeout), False
        while not self._closed:
            if self._stream is None:
                self._reconnect()
            if self._current and last_look:
                return None
            waiting = self._current and self._timeout is not None
            try:
                event = self._event(deadline.left(SILENCE_SECONDS) if waiting else SILENCE_SECONDS)
            except errors.PeerUnavailable:
                self._disconnect()
                continue
            if event is None:
                last_look = waiting and deadline.over
                self._disconnect()
                continue
            was_current = self._current
            change = self._taken(event)
            if change is not None:
                return change
            if self._current and not was_current:
                deadline = Deadline(self._timeout)  # it was not told all before
        return None

    def _reconnect(self) -> None:
        try:
            # where it stopped may be an epoch that the next gateway has not heard of yet
            found = self._open(Deadline(self._patience), errors.NotYet)
        except errors.UnknownRelation as error:
            self.close()
            raise errors.ViewReplaced(f"view {self._relation.name!r} was dropped: {error}") from error
        except _FINAL:
            self.close()
            raise
        if _shape(found) != _shape(self._relation):
            self.close()
            raise errors.ViewReplaced(
                f"view {found.name!r} got other columns or another key; read it and subscribe again"
            )
        self._relation = found

    def _taken(self, event: Event) -> ViewChange | None:
        """What an event says."""
        if event.kind == "end":
            self._disconnect()
            if not event.data.get("resumable"):
                self.close()
                raise raised(event.data)
            return None
        if event.kind == "epoch":
            self._current = True
            self.epoch = max(self.epoch, int(event.data["epoch"]))
            return None
        if event.kind != "change":
            return None  # of a later version of the API
        schema = self._relation.columns
        for field, weight in (("removed", -1), ("added", 1)):
            rows = event.data.get(field) or []
            if rows:
                self._parts.append((table_of(rows, schema), weight))
        if not event.data.get("last", True):
            return None
        parts, self._parts = self._parts, []
        epoch = int(event.data["epoch"])
        if not parts:
            self.epoch = epoch
            return None
        weights = [np.full(part.num_rows, weight, np.int8) for part, weight in parts]
        table = pa.concat_tables([part for part, _ in parts]).combine_chunks()
        return ViewChange(epoch, table, np.concatenate(weights))

    def _event(self, timeout: float) -> Event | None:
        """The next event; None if none came in time."""
        assert self._stream is not None
        kind, id, data = "message", "", list[bytes]()
        end = time.monotonic() + timeout
        while True:
            line = self._stream.line(end - time.monotonic())
            if line is None:
                return None
            if not line:
                if data:
                    return Event(kind, id, json.loads(b"\n".join(data)))
                kind, id = "message", ""
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"event":
                kind = value.decode()
            elif name == b"id":
                id = value.decode()
            elif name == b"data":
                data.append(value)


def _shape(relation: Relation) -> list[tuple[str, Type]]:
    """Equal for versions between which a subscription goes on: whether a column may be NULL does not matter."""
    return [(column.name, column.type) for column in (*relation.columns, *relation.key_columns)]
