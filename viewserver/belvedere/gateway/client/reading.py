"""Reads over HTTP: rows by key and in key order, epochs and names. What was seen goes with each read, so a connection
never goes back in epochs, whichever gateway answers."""

from __future__ import annotations

import functools
import json
import urllib.parse
from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa

from belvedere.cluster.client.token import ClusterToken
from belvedere.errors import (
    CatalogError,
    Closed,
    DataError,
    EpochExpired,
    NoSuchResource,
    NotYet,
    PeerUnavailable,
    ViewFailed,
)
from belvedere.gateway.client.caller import ARROW, JSON, Caller, Reply, Request
from belvedere.gateway.client.forms import dumps, table_of
from belvedere.gateway.client.leases import Leases
from belvedere.gateway.client.relations import (
    Relation,
    Relations,
    as_given,
    bounds_of,
    catalog_of,
    check_columns,
    key_of,
    prefix_of,
    relation_of,
)
from belvedere.model.closing import Closing
from belvedere.model.rows import GivenRows
from belvedere.model.token import Token
from belvedere.retry import Deadline
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import Column

T = TypeVar("T")
Moment = int | datetime | Token | None
After = Token | int | str | None

MAX_WAIT = 10.0
"""How long one request lets a gateway wait; who waits longer asks again, and notices in time that it is gone."""
PAGE_ROWS = 1_000_000
"""The largest page there is. Base tables of an embedded database are at one epoch within a page only."""
MOST_READS = 100
"""Of one request."""
LONG_KEY = 8_000
"""Keys of more characters travel in a body: addresses have limits everywhere."""


class HttpReading(Closing):
    """Methods that read. `timeout`: seconds that a call may take, where it does not say itself."""

    def __init__(self, caller: Caller, *, timeout: float) -> None:
        self.timeout = timeout
        self._caller = caller
        self._leases = Leases(caller)
        self._relations = Relations(self._ask_relation)
        self._readers: dict[TableDef, GivenRows] = {}
        self._catalog: tuple[list[Relation], Catalog] = ([], Catalog())
        self._seen = 0
        self._closed = False
        told = self._call(Request("GET", "/v1", "connecting"), self._deadline(None)).json()
        self.kind: str = told["database"]
        """embedded or pool."""
        self.read_only = bool(told.get("read_only"))

    @abstractmethod
    def snapshot(self, at: Moment = None, *, timeout: float | None = None) -> Any:
        """Several reads at one epoch."""

    # ------------------------------------------------------------------ calls

    def _deadline(self, timeout: float | None) -> Deadline:
        if self._closed:
            raise Closed("the connection is closed")
        return Deadline(self.timeout if timeout is None else timeout)

    def _call(self, request: Request, deadline: Deadline) -> Reply:
        return self._caller.call(request, deadline)

    def _read(
        self,
        request: Request,
        deadline: Deadline,
        *,
        after: After = None,
        accept: str = ARROW,
        goes_back: bool = False,
    ) -> Reply:
        """A read that includes a token and is not older than any before it, but if it was asked to go back."""
        wanted = [str(ClusterToken.parse(after))] if after is not None else []
        if self._seen and not goes_back:
            wanted.append(f"e{self._seen}")
        while True:
            wait = deadline.left(MAX_WAIT)
            headers = {**request.headers, "Accept": accept}
            if wanted:
                headers |= {"Belvedere-After": " ".join(wanted), "Belvedere-Wait": f"{wait:.3f}"}
            asked = Request(
                request.method,
                request.path,
                request.what,
                request.query,
                headers,
                request.body,
                wait if wanted else 0.0,
            )
            try:
                reply = self._call(asked, deadline)
            except NotYet:
                if deadline.over or wait < MAX_WAIT:
                    raise
                continue
            self._saw(reply)
            return reply

    def _saw(self, reply: Reply) -> None:
        token, epoch = reply.headers.get("belvedere-token"), reply.headers.get("belvedere-epoch")
        newest = max(ClusterToken.parse(token).epoch if token else 0, int(epoch) if epoch else 0)
        if newest > self._seen:
            self._seen = newest

    # ------------------------------------------------------------------ names and epochs

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self._wait_for(ClusterToken(0), self._deadline(None))

    @property
    def known_epoch(self) -> int:
        """The newest epoch that an answer told of."""
        return self._seen

    def wait(self, token: After, timeout: float | None = None) -> None:
        """Returns when the write is in every view; raises NotYet."""
        if token is not None:
            self._wait_for(ClusterToken.parse(token), self._deadline(timeout))

    def wait_for(self, table: str, key: Any, timestamp: int, *, timeout: float | None = None) -> ClusterToken:
        """For writes that came to a table of HBase by another way: returns when every view has what was written to the
        row of that key at that timestamp (of the cell), or raises NotYet. The token is for reads elsewhere."""
        asked = dumps(self._checked(table, lambda known: key_of(known, key)))
        about = [("key", asked), ("timestamp", str(int(timestamp)))]
        request = Request("GET", f"{path_of(table)}/written", f"waiting for a write to {table!r}", about)
        return ClusterToken.parse(self._read(request, self._deadline(timeout), accept=JSON).json()["token"])

    def _wait_for(self, token: ClusterToken, deadline: Deadline) -> int:
        self._read(Request("POST", "/v1/wait", "waiting for a write"), deadline, after=token, accept=JSON)
        return self._seen

    def _ask_relation(self, name: str) -> Relation:
        request = Request("GET", path_of(name), f"asking for {name!r}")
        return relation_of(self._call(request, self._deadline(None)).json())

    @property
    def catalog(self) -> Catalog:
        """Tables and views that can be read now. Of a view's query it has the text, what it reads and its columns."""
        reply = self._call(Request("GET", "/v1/relations", "listing tables and views"), self._deadline(None))
        found = [relation_of(one) for one in reply.json()["relations"]]
        listed, catalog = self._catalog
        if listed != found:
            self._catalog = found, (catalog := catalog_of(found))
        return catalog

    def key_columns(self, relation: str) -> tuple[Column, ...]:
        """The key of a table or view: what `get` takes, and the order of `scan`."""
        return self._relations.fresh(relation).key_columns

    def _checked(self, name: str, check: Callable[[Relation], T], unchecked: Callable[[], T] | None = None) -> T:
        """Look at what was given; who refuses it has looked at the relation as it is now. `unchecked`: what is sent
        where the relation of an older epoch may be another one."""
        try:
            known = self._relations.get(name)
            try:
                return check(known)
            except (CatalogError, DataError):
                fresh = self._relations.fresh(name)
                if fresh == known:
                    raise
                return check(fresh)
        except (CatalogError, DataError, ViewFailed):
            if unchecked is None:
                raise
            return unchecked()

    # ------------------------------------------------------------------ reads

    def get(
        self,
        relation: str,
        key: Any,
        *,
        after: After = None,
        timeout: float | None = None,
        at: Moment = None,
        allow_stale: bool = False,
    ) -> dict[str, Any] | None:
        """The row of that key (a value, a tuple, or a dict), or None.

        `after`: a token; the answer includes its write, or NotYet is raised by `timeout` seconds. `at`: an older state,
        that of the newest epoch at or before a number or moment, or the first one that includes a token's write.
        `allow_stale`: of a view that has failed, the row that it had before, if that includes what `after` asks for.
        """
        deadline = self._deadline(timeout)
        if at is None and after is not None:
            self._wait_if_unknown(relation, after, deadline)
        unchecked = None if at is None and not allow_stale else lambda: as_given(key)
        asked = dumps(self._checked(relation, lambda known: key_of(known, key), unchecked))
        what = f"reading {relation!r}"
        if len(asked) > LONG_KEY:
            return self._read_keys(relation, [json.loads(asked)], what, after, at, deadline)[0][0]
        request = Request("GET", f"{path_of(relation)}/row", what, [("key", asked), *_at(at), *_stale(allow_stale)])
        try:
            reply = self._read(request, deadline, after=after, goes_back=allow_stale)
        except NoSuchResource as error:
            if error.kind == "row":
                return None
            raise
        rows: list[dict[str, Any]] = table_of_reply(reply).to_pylist()
        return rows[0]

    def get_many(
        self,
        relation: str,
        keys: Sequence[Any],
        *,
        after: After = None,
        timeout: float | None = None,
        at: Moment = None,
    ) -> list[dict[str, Any] | None]:
        """The rows of several keys, of a view all at one epoch; see `get`."""
        deadline, found = self._deadline(timeout), list[dict[str, Any] | None]()
        if at is None and after is not None:
            self._wait_if_unknown(relation, after, deadline)
        if self.kind == "embedded" and keys and not self._relations.get(relation).is_view:
            return [self.get(relation, key, after=after, timeout=timeout, at=at) for key in keys]  # it has no epochs
        for start in range(0, len(keys), MOST_READS):
            part = keys[start : start + MOST_READS]
            unchecked = None if at is None else functools.partial(_all_as_given, part)
            asked = self._checked(relation, functools.partial(_all_keys_of, part), unchecked)
            rows, epoch = self._read_keys(relation, asked, f"reading {relation!r}", after, at, deadline)
            found += rows
            if at is None and self._relations.get(relation).is_view:
                at = epoch
        return found

    def _read_keys(
        self, relation: str, keys: Sequence[Any], what: str, after: After, at: Moment, deadline: Deadline
    ) -> tuple[list[dict[str, Any] | None], int]:
        """Rows by keys in JSON, in the body of a request, and their epoch."""
        reads = [{"relation": relation, "key": key} for key in keys]
        body = dumps({"reads": reads, "at": moment_json(at)}).encode()
        request = Request("POST", "/v1/read", what, headers={"Content-Type": JSON}, body=body)
        told = self._read(request, deadline, after=after, accept=JSON).json()
        rows = [result["row"] for result in told["results"]]
        there = iter(
            table_of([row for row in rows if row is not None], self._relations.get(relation).columns).to_pylist()
        )
        return [None if row is None else next(there) for row in rows], int(told["epoch"])

    def _wait_if_unknown(self, relation: str, after: After, deadline: Deadline) -> None:
        """What the token's write has brought with it may be the relation."""
        try:
            self._relations.get(relation)
        except (CatalogError, ViewFailed):
            self.wait(after, deadline.left(MAX_WAIT))

    def lookup(
        self,
        relation: str,
        *prefix: Any,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
        at: Moment = None,
        after: After = None,
        timeout: float | None = None,
        allow_stale: bool = False,
    ) -> pa.Table:
        """All rows whose key begins with these values, in key order; None is NULL. The rest is as with `scan`."""

        def check(known: Relation) -> list[tuple[str, str]]:
            check_columns(known, columns)
            return [("prefix", dumps(prefix_of(known, prefix, limit, reverse)))]

        def unchecked() -> list[tuple[str, str]]:
            given = prefix[0] if len(prefix) == 1 else prefix
            return [("prefix", dumps(as_given(given)))]

        return self._range(relation, check, unchecked, columns, limit, reverse, at, after, timeout, allow_stale)

    def scan(
        self,
        relation: str,
        *,
        start: Any = None,
        stop: Any = None,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        at: Moment = None,
        after: After = None,
        timeout: float | None = None,
        allow_stale: bool = False,
    ) -> pa.Table:
        """Rows in key order, from the key `start` to the key `stop` (not included); a prefix of a key will do.

        `reverse`: from the greatest key down; `start` and `stop` mean the same. `columns`: only these, in this order.
        `allow_stale`: of a view that has failed, the rows that it had before, as with `get`.
        """

        def check(known: Relation) -> list[tuple[str, str]]:
            check_columns(known, columns)
            bounds = bounds_of(known, start, stop, limit, reverse)
            return [
                (name, dumps(bound)) for name, bound in zip(("start", "stop"), bounds, strict=True) if bound is not None
            ]

        def unchecked() -> list[tuple[str, str]]:
            bounds = (("start", start), ("stop", stop))
            return [(name, dumps(as_given(bound))) for name, bound in bounds if bound is not None]

        return self._range(relation, check, unchecked, columns, limit, reverse, at, after, timeout, allow_stale)

    def _range(
        self,
        relation: str,
        check: Callable[[Relation], list[tuple[str, str]]],
        unchecked: Callable[[], list[tuple[str, str]]],
        columns: Sequence[str] | None,
        limit: int | None,
        reverse: bool,
        at: Moment,
        after: After,
        timeout: float | None,
        stale: bool,
    ) -> pa.Table:
        deadline = self._deadline(timeout)
        if at is None and after is not None:
            self._wait_if_unknown(relation, after, deadline)
        asked = [
            *self._checked(relation, check, None if at is None and not stale else unchecked),
            *_stale(stale),
        ]
        try:
            return self._pages(relation, asked, columns, limit, reverse, at, after, deadline, stale)
        except EpochExpired:
            if at is not None or stale:
                raise
        with self.snapshot() as snapshot:  # it took longer than the retention, and would so again
            return self._pages(relation, asked, columns, limit, reverse, snapshot.epoch, None, self._deadline(timeout))

    def _pages(
        self,
        relation: str,
        asked: list[tuple[str, str]],
        columns: Sequence[str] | None,
        limit: int | None,
        reverse: bool,
        at: Moment,
        after: After,
        deadline: Deadline,
        stale: bool = False,
    ) -> pa.Table:
        query = [*asked, *_at(at)]
        if reverse:
            query.append(("reverse", "true"))
        if columns is not None:
            query.append(("columns", dumps(list(map(str, columns)))))
        pages, rows, cursor = list[pa.Table](), 0, ""
        while True:
            most = PAGE_ROWS if limit is None else max(1, min(PAGE_ROWS, limit - rows))
            page = [*([("cursor", cursor)] if cursor else query), ("limit", str(most))]
            request = Request("GET", f"{path_of(relation)}/rows", f"reading {relation!r}", page)
            reply = self._read(request, deadline, after=None if cursor else after, goes_back=stale)
            pages.append(table_of_reply(reply))
            rows += pages[-1].num_rows
            cursor = reply.headers.get("belvedere-cursor", "")
            if not cursor or (limit is not None and rows >= limit):
                break
            deadline = self._deadline(None)  # each page has its time
        found = pages[0] if len(pages) == 1 else pa.concat_tables(pages)
        return found if limit is None else found.slice(0, limit)


def _all_keys_of(keys: Sequence[Any], relation: Relation) -> list[Any]:
    return [key_of(relation, key) for key in keys]


def _all_as_given(keys: Sequence[Any]) -> list[Any]:
    return [as_given(key) for key in keys]


def path_of(relation: str) -> str:
    return f"/v1/relations/{urllib.parse.quote(relation, safe='')}"


def _at(at: Moment) -> list[tuple[str, str]]:
    return [] if at is None else [("at", str(moment_json(at)))]


def _stale(allowed: bool) -> list[tuple[str, str]]:
    return [("allow_stale", "true")] if allowed else []


def moment_json(at: Moment) -> int | str | None:
    if isinstance(at, datetime):
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return str(at) if isinstance(at, Token) else at


def accepting(request: Request, accept: str) -> Request:
    return Request(request.method, request.path, request.what, request.query, {"Accept": accept})


def table_of_reply(reply: Reply) -> pa.Table:
    try:
        return pa.ipc.open_stream(pa.py_buffer(reply.body)).read_all()
    except pa.ArrowException as error:
        raise PeerUnavailable(f"the answer is no Arrow stream: {error}") from error


__all__ = ["MAX_WAIT", "After", "HttpReading", "Moment"]
