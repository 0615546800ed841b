"""`HttpDatabase`: an embedded database or a pool behind a gateway, with the methods of either.

Rows travel as Arrow, and are checked here before they are sent, as by every other database. A call that gets no answer
is repeated until its time is over: reads may be, writes carry a name by which the gateway knows them again. A
connection never goes back in epochs, whichever gateway answers: with each read goes the newest epoch that was seen.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from belvedere.cluster.client.token import ClusterToken
from belvedere.errors import (
    AccessDenied,
    CatalogError,
    Closed,
    DataError,
    NoSuchResource,
    NotYet,
    PeerUnavailable,
    RequestReused,
)
from belvedere.gateway.client.bodies import WriteBody, write_body
from belvedere.gateway.client.caller import ARROW, JSON, NDJSON, Reply, Request
from belvedere.gateway.client.forms import dumps, table_of
from belvedere.gateway.client.problems import raised
from belvedere.gateway.client.reading import (
    MAX_WAIT,
    After,
    HttpReading,
    Moment,
    accepting,
    moment_json,
    path_of,
    table_of_reply,
)
from belvedere.gateway.client.relations import Relation, bounds_of, key_of, prefix_of
from belvedere.gateway.client.subscribe import HttpSubscription
from belvedere.model.key_reads import KeyReads, SnapshotReads
from belvedere.model.pin import Pin
from belvedere.model.reloads import Reloading, ReloadReport
from belvedere.model.requests import parted
from belvedere.model.rows import GivenRows, timestamps
from belvedere.model.session import Session, SessionDatabase
from belvedere.model.writing import ReadRows, Writing, refuse_view
from belvedere.retry import Deadline
from belvedere.sql.catalog import TableDef

if TYPE_CHECKING:
    from belvedere.model.repair import RepairReport
    from belvedere.model.verify import Report

Result: TypeAlias = "ClusterToken | pa.Table | str | None"

_WRITES = re.compile(r"\s*(insert|delete)\b", re.IGNORECASE)


class HttpDatabase(HttpReading, Writing[ClusterToken], Reloading):
    """A connection to a gateway. All methods may be called from any thread."""

    def snapshot(self, at: Moment = None, *, timeout: float | None = None) -> HttpSnapshot:
        """Several reads at one epoch: `with db.snapshot() as s: s.get(...); s.scan(...)`."""
        body = dumps({"at": moment_json(at), "seconds": self._leases.seconds}).encode()
        request = Request("POST", "/v1/snapshots", "taking a snapshot", headers={"Content-Type": JSON}, body=body)
        told = self._read(request, self._deadline(timeout), accept=JSON).json()
        return HttpSnapshot(self, int(told["epoch"]), self._leases.hold(told["snapshot"]), self._leases.let_go)

    def subscribe(self, view: str, *, after: After = None, timeout: float | None = None) -> HttpSubscription:
        """Changes of a view, one object per epoch, from after the token (or epoch) on; without one, from now on.

        Goes on for ever, or until nothing happened for `timeout` seconds. A stopped one is resumed with the epoch
        of the last change. Raises EpochExpired when the history does not reach back so far, ViewReplaced when the
        view got other columns.
        """
        start = ClusterToken(self.epoch) if after is None else ClusterToken.parse(after)

        def describe() -> Relation:
            found = self._relations.fresh(view)
            if not found.is_view:
                raise CatalogError(f"{found.name!r} is a base table; this works for views only")
            return found

        return HttpSubscription(self._caller, describe, str(start), timeout, self.timeout)

    def quarantine(self, relation: str) -> pa.Table:
        """Rows that a view cannot show, with the reason; of a base table in HBase, the cells and row keys that cannot
        be read."""
        request = Request("GET", f"{path_of(relation)}/quarantine", f"reading the quarantine of {relation!r}")
        return table_of_reply(self._call(accepting(request, ARROW), self._deadline(None)))

    def status(self) -> dict[str, Any]:
        """What the database behind the gateway tells of itself."""
        reply = self._call(Request("GET", "/v1/status", "asking for the status"), self._deadline(None))
        found: dict[str, Any] = reply.json()["detail"]
        return found

    def _reload(self, id: str, table: str, start: str, stop: str) -> ReloadReport:
        body = dumps({"request": id, "start": start, "stop": stop}).encode()
        headers = {"Content-Type": JSON}
        request = Request("POST", f"{path_of(table)}/reload", f"reading {table!r} again", headers=headers, body=body)
        return ReloadReport(**self._call(request, self._deadline(None)).json())

    def repair(
        self,
        view: str,
        *,
        keys: Sequence[Any] | None = None,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> RepairReport:
        """Put right what is wrong with a view, the state behind it and what reads it: at the gateway."""
        from belvedere.model.repair import DamagedRow, RepairReport

        def check(known: Relation) -> dict[str, Any]:
            first = prefix if isinstance(prefix, tuple | list) else (prefix,)
            low, high = bounds_of(known, start, stop, None, False)
            given = {
                "keys": None if keys is None else [key_of(known, key) for key in keys],
                "prefix": None if prefix is None else prefix_of(known, first, None, False),
                "start": low,
                "stop": high,
            }
            return {name: value for name, value in given.items() if value is not None}

        asked = self._checked(view, check)
        body = dumps({**asked, "everything": everything, "dry_run": dry_run}).encode()
        headers = {"Content-Type": JSON}
        request = Request("POST", f"{path_of(view)}/repair", f"repairing {view!r}", headers=headers, body=body)
        told = self._call(request, self._deadline(None)).json()
        fields = {name: told[name] for name in ("view", "epoch", "dry_run", "mended", "tried_again", "remaining")}
        rows = tuple(DamagedRow(**row) for row in told["rows"])
        return RepairReport(
            **fields, rebuilt=tuple(told["rebuilt"]), problem=told["problem"], tables=told["tables"], rows=rows
        )

    def session(self, *, after: Any = None, timeout: float | None = None) -> Session:
        """Reads that include the session's own writes and never go back: `with db.session() as s: s.put(…); s.get(…)`.

        `after`: go on where another session was, with its token or the token's text. `timeout`: seconds that a read
        waits for what it must include.
        """
        return Session(cast(SessionDatabase, self), self._token, after, timeout)

    def _token(self, value: Any) -> ClusterToken:
        return ClusterToken.parse(value)

    # ------------------------------------------------------------------ writes

    def written(self, name: str) -> ClusterToken | None:
        """The token of a write by the name of its `request`; None if there was none within the last hour."""
        deadline = self._deadline(None)
        for table in self.catalog.tables:
            path = f"/v1/writes/{urllib.parse.quote(name, safe='')}"
            try:
                found = self._call(Request("GET", path, f"looking for write {name!r}", [("relation", table)]), deadline)
            except (AccessDenied, NoSuchResource):
                continue
            return ClusterToken.parse(found.json()["token"])
        return None

    def _write(
        self,
        table: str,
        read: ReadRows,
        ts: Any,
        timeout: float | None,
        *,
        ordered: bool,
        borrowed: bool,
        request: str = "",
    ) -> ClusterToken:
        # the gateway makes a digest of its own, of all that is asked for
        name = parted(request)[0] if request else uuid.uuid4().hex
        deadline = self._deadline(timeout)
        if self.read_only:
            raise Closed("the database is open for reading only: it takes no writes here")

        def body_for(relation: Relation) -> WriteBody | None:
            if relation.is_view:
                raise refuse_view(relation.name)
            reader = self._reader(relation.table())
            changes = read(reader)
            if changes is None:
                return None
            if ts is not None:
                changes.ts = timestamps(ts, len(changes))
            return write_body(reader.table, changes, own_clock=ts is None)

        known = self._relations.get(table)
        body = self._checked(table, body_for)
        if body is None:
            return ClusterToken(self.epoch)
        try:
            return self._send(table, body, name, deadline)
        except RequestReused:
            raise
        except (CatalogError, DataError):
            fresh = self._relations.fresh(table)  # a table of that name may have come anew
            if fresh == known:
                raise
            again = body_for(fresh)
            assert again is not None
            return self._send(table, again, name, deadline)

    def _reader(self, table: TableDef) -> GivenRows:
        found = self._readers.get(table)
        if found is None:
            found = self._readers[table] = GivenRows(table)
        return found

    def _send(self, table: str, body: WriteBody, name: str, deadline: Deadline) -> ClusterToken:
        path, what = f"{path_of(table)}/{body.route}", f"writing to table {table!r}"
        while True:
            wait = deadline.left(MAX_WAIT)
            headers = {"Content-Type": body.media_type, "Idempotency-Key": name, "Belvedere-Wait": f"{wait:.3f}"}
            request = Request("POST", path, what, body.query, headers, body.body, wait)
            try:
                return ClusterToken.parse(self._call(request, deadline).json()["token"])
            except NotYet:  # the backlog is full
                if deadline.over or wait < MAX_WAIT:
                    raise

    # ------------------------------------------------------------------ statements

    def execute(self, sql: str, *, wait: bool = True) -> Result:
        """Carry out one statement. DDL and writes give a token, queries an Arrow table, EXPLAIN and SHOW CREATE text.

        `wait`: CREATE MATERIALIZED VIEW returns when the view is built; writes go on meanwhile.
        """
        if _WRITES.match(sql):
            return self._written_by(sql)
        body = dumps({"sql": sql, "wait": wait}).encode()
        headers = {"Content-Type": JSON, "Accept": f"{ARROW}, {JSON};q=0.5"}
        if self._seen:
            headers["Belvedere-After"] = f"e{self._seen}"
        reply = self._change(Request("POST", "/v1/sql", "carrying out a statement", headers=headers, body=body))
        self._saw(reply)
        if reply.media_type == ARROW:
            return table_of_reply(reply)
        told = reply.json()
        if "text" in told:
            return str(told["text"])
        return ClusterToken.parse(told["token"])

    def _written_by(self, sql: str) -> Result:
        """INSERT and DELETE are read here and sent as rows: these have a name, and can be repeated."""
        from belvedere.sql import parse_statement

        token = self._write_rows(parse_statement(sql, self.catalog))
        if token is None:
            raise AssertionError(f"a statement that is no write: {sql}")
        return token

    def apply_manifest(self, text: str, *, wait: bool = True) -> list[ClusterToken]:
        """Carry out the documents of a YAML manifest. What exists as described is left alone. A table gets its new
        columns, a view its new query; a table that would have to change otherwise is refused.
        """
        if all(not line.strip() or line.strip() == "---" or line.lstrip()[0] == "#" for line in text.splitlines()):
            return []  # as everywhere else; to the gateway it would be a mistake
        told = self.apply(text, wait=wait)
        return [ClusterToken.parse(told["token"])] * len(told["documents"])

    def apply(self, text: str, *, wait: bool = True, dry_run: bool = False, partial: bool = False) -> dict[str, Any]:
        """As `apply_manifest`; what became of each document, and with `dry_run` what would become of it."""
        query = [("wait", _flag(wait)), ("dry_run", _flag(dry_run)), ("partial", _flag(partial))]
        headers = {"Content-Type": "application/yaml", "Accept": JSON}
        found: dict[str, Any] = self._change(
            Request("POST", "/v1/apply", "applying manifests", query, headers, text.encode())
        ).json()
        return found

    def _change(self, request: Request) -> Reply:
        """What may change definitions: as long as it takes, and not repeated if it may have happened."""
        asked = Request(
            request.method,
            request.path,
            request.what,
            request.query,
            request.headers,
            request.body,
            patient=True,
            repeatable=False,
        )
        return self._call(asked, self._deadline(None))

    # ------------------------------------------------------------------ verification

    def verify(self, view: str | None = None, *, state: bool = False, base: bool = False) -> Report:
        """Recompute a view (or all) from base rows with DuckDB and compare, at one epoch: at the gateway."""
        from belvedere.model import verify as verification

        if state or base:
            raise CatalogError("a gateway verifies rows of views; state and base rows, where the coordinators answer")

        body = dumps({} if view is None else {"views": [view]}).encode()
        headers = {"Content-Type": JSON, "Accept": NDJSON}
        request = Request("POST", "/v1/verify", "verifying", headers=headers, body=body)
        self._deadline(None)  # says if it is closed
        reports = [self._report(told["report"]) for told in self._lines(request) if told["event"] == "report"]
        if view is not None:
            return reports[0]
        return verification.together(reports, max((r.epoch for r in reports), default=self.epoch))

    def _report(self, told: Mapping[str, Any]) -> Report:
        from belvedere.model.verify import Report

        fields = {name: told[name] for name in Report.__dataclass_fields__ if name in told and name != "parts"}
        columns = self._relations.get(told["view"]).columns
        for name in ("missing", "extra"):
            fields[name] = tuple(table_of(told[name], columns).to_pylist()) if told.get(name) else ()
        fields["different"] = tuple(
            {side: table_of([row], columns).to_pylist()[0] for side, row in pair.items()}
            for pair in told.get("different", ())
        )
        return Report(**fields)

    def _lines(self, request: Request) -> Iterator[Mapping[str, Any]]:
        """An answer of many lines, which come as it gets on; the last one has the event `done`."""
        stream = self._caller.stream(request, self.timeout)
        try:
            while True:
                line = stream.line(self.timeout)
                if line is None:
                    raise PeerUnavailable(f"{self._caller.url}: {request.what}: nothing came for {self.timeout:g} s")
                told = json.loads(line)
                if told.get("event") == "problem":
                    raise raised(told["problem"])
                yield told
                if told.get("event") == "done":
                    return
        finally:
            stream.close()

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Give up snapshots and connections. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._leases.close()
        self._caller.close()


class HttpSnapshot(SnapshotReads):
    def __init__(self, database: HttpDatabase, epoch: int, pin: Pin, unpin: Callable[[Pin], None]) -> None:
        """`pin`: on the snapshot at the gateway."""
        # it reads with the methods that every database has; how ranges are read is not asked of it
        super().__init__(cast(KeyReads, database), epoch, pin, unpin)
        self.epoch = epoch


def _flag(value: bool) -> str:
    return "true" if value else "false"


__all__ = ["After", "HttpDatabase", "HttpSnapshot", "Moment"]
