"""Sessions: reads that include the session's own writes, and never go back to an older state.

    with db.session() as s:
        s.put("orders", [...])
        s.get("spend", 7)      # includes the write, or raises NotYet by the timeout

A session is a token that grows: with each write by what the write returned, with each read by the epoch of the answer.
It is the same for every database, because all it needs is `after=`. Another process goes on with `str(session.token)`:
`db.session(after=text)`. One thread uses a session at a time, as there is no order between calls of two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from belvedere.errors import Closed, ViewFailed
from belvedere.model.closing import Closing


class SessionDatabase(Protocol):
    """What a session needs of a database: calls that take a token, and calls that return one."""

    @property
    def epoch(self) -> int: ...
    @property
    def known_epoch(self) -> int: ...
    def wait(self, token: Any, timeout: float | None = None) -> None: ...
    def get(
        self, relation: str, key: Any, *, after: Any = None, timeout: float | None = None, allow_stale: bool = False
    ) -> Any: ...
    def scan(self, relation: str, *, after: Any = None, timeout: float | None = None) -> Any: ...
    def lookup(self, relation: str, *prefix: Any, after: Any = None, timeout: float | None = None) -> Any: ...
    def snapshot(self) -> Any: ...
    def subscribe(self, view: str, *, after: Any = None, timeout: float | None = None) -> Any: ...
    def execute(self, sql: str, *, wait: bool = True) -> Any: ...


class Session(Closing):
    """Reads and writes of one user, one after the other. `timeout`: seconds that a read waits for the session's
    writes, where the call does not say itself."""

    def __init__(
        self, database: SessionDatabase, parse: Callable[[Any], Any], after: Any = None, timeout: float | None = None
    ) -> None:
        self._database = database
        self._parse = parse
        self._token = None if after is None else parse(after)
        self._timeout = timeout
        self._closed = False
        self._seen = 0
        """The newest epoch that it may have read at."""

    @property
    def token(self) -> Any:
        """What the session has written and read so far: pass it, or its text, to go on elsewhere."""
        self._require_open()
        self._grow(self._parse(self._database.epoch))
        return self._token

    # ------------------------------------------------------------------ writes

    def put(self, table: str, rows: Any, **options: Any) -> Any:
        """As the database's `put`."""
        return self._grow(self._writing("put")(table, rows, **options))

    def delete(self, table: str, keys: Any, **options: Any) -> Any:
        """As the database's `delete`."""
        return self._grow(self._writing("delete")(table, keys, **options))

    def write(self, table: str, rows: Any, **options: Any) -> Any:
        """As the database's `write`."""
        return self._grow(self._writing("write")(table, rows, **options))

    def wait_for(self, table: str, key: Any, timestamp: int, *, timeout: float | None = None) -> Any:
        """As the database's `wait_for`; later reads include that write."""
        waiting = self._writing("wait_for")
        return self._grow(self._saw(waiting(table, key, timestamp, timeout=self._patience(timeout))))

    def execute(self, sql: str, *, wait: bool = True, timeout: float | None = None) -> Any:
        """As the database's `execute`. A query sees what the session has seen and written."""
        self._catch_up(timeout)
        result = self._saw(self._database.execute(sql, wait=wait))
        return self._grow(result) if hasattr(result, "joined_with") else result

    # ------------------------------------------------------------------ reads

    def get(self, relation: str, key: Any, *, timeout: float | None = None, allow_stale: bool = False) -> Any:
        """The row of that key, or None. `allow_stale`: also from before a view failed, unless the session has written
        or read what came later."""
        return self._read(self._database.get, (relation, key), {}, timeout, allow_stale)

    def lookup(
        self, relation: str, *prefix: Any, timeout: float | None = None, allow_stale: bool = False, **options: Any
    ) -> Any:
        """All rows whose key begins with these values; options as of the database's `lookup`."""
        return self._read(self._database.lookup, (relation, *prefix), options, timeout, allow_stale)

    def scan(self, relation: str, *, timeout: float | None = None, allow_stale: bool = False, **options: Any) -> Any:
        """Rows in key order; options as of the database's `scan`."""
        return self._read(self._database.scan, (relation,), options, timeout, allow_stale)

    def snapshot(self, *, timeout: float | None = None) -> Any:
        """Several reads at one epoch, which includes what the session has seen and written."""
        self._catch_up(timeout)
        return self._saw(self._database.snapshot())

    def subscribe(self, view: str, *, timeout: float | None = None) -> Any:
        """Changes of a view, from what the session has seen and written on."""
        self._catch_up(timeout)
        return self._saw(self._database.subscribe(view, after=self._database.epoch, timeout=timeout))

    def _read(
        self,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        timeout: float | None,
        allow_stale: bool,
    ) -> Any:
        self._refuse_older(options)
        after, patience = self._after(), self._patience(timeout)
        try:
            return self._settled(self._saw(call(*arguments, after=after, timeout=patience, **options)))
        except ViewFailed:
            if not allow_stale:
                raise
        if self._seen:
            seen = self._parse(self._seen)
            after = seen if after is None else after.joined_with(seen)
        return call(*arguments, after=after, timeout=patience, allow_stale=True, **options)

    def _saw(self, answer: Any) -> Any:
        self._seen = max(self._seen, self._database.known_epoch)
        return answer

    def _settled(self, answer: Any) -> Any:
        """What was read includes all that was written: an epoch says so as well as a list of rows."""
        if self._token is not None:
            self._token = self._token.settled(self._seen)
        return answer

    # ------------------------------------------------------------------

    def _after(self) -> Any:
        self._require_open()
        return self._token

    def _patience(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    def _catch_up(self, timeout: float | None) -> None:
        self._database.wait(self._after(), self._patience(timeout))

    def _writing(self, call: str) -> Any:
        self._require_open()
        method = getattr(self._database, call, None)
        if method is None:
            raise Closed(f"the database is open for reading only: a session of it cannot {call}")
        return method

    def _grow(self, token: Any) -> Any:
        self._token = token if self._token is None else self._token.joined_with(token)
        return token

    @staticmethod
    def _refuse_older(options: dict[str, Any]) -> None:
        if options.get("at") is not None:
            raise ValueError("a session does not go back: read an older state through the database, db.scan(…, at=…)")

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the session is closed; db.session(after=session.token) begins another one")

    def close(self) -> None:
        """No call may follow. Nothing of the session is anywhere but in this object."""
        self._closed = True
