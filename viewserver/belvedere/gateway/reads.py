"""Reads: one row, pages of rows, several reads at one epoch, snapshots, descriptions."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from belvedere.errors import BadRequest, DataError, EpochExpired, NoSuchResource, UnknownRelation
from belvedere.gateway import formats, params, values
from belvedere.gateway.api import ARROW, JSON, Access, Answer, Call, Endpoint, Right, accepted
from belvedere.gateway.cursor import Cursor
from belvedere.gateway.describing import describe
from belvedere.model.key_reads import RowPage
from belvedere.model.token import Token

PART_ROWS = 1 << 16
"""Rows that are read at a time for a large page: so many, and what they take is known."""
MAX_READS = 100
CURSOR_SECONDS = 60.0


def token_header(call: Call) -> tuple[str, str]:
    """An epoch that is at least that of the answer."""
    return "belvedere-token", f"e{call.database.newest()}"


def key_of(call: Call, relation: str, given: Any) -> Any:
    """A key of JSON, as `get` takes it."""
    if values.needs_types(given) or isinstance(given, dict):
        try:
            columns = call.database.db.key_columns(relation)
        except UnknownRelation:
            if "at" not in call.params and not call.params.get("cursor"):
                raise
            columns = ()  # it was there, perhaps, and had another key
        return values.key(given, columns, f"key of {relation!r}")
    return tuple(given) if isinstance(given, list) else given


# ---------------------------------------------------------------------- one row


def get_now(call: Call) -> Answer | None:
    """Without waiting for anybody, if the database can."""
    if "at" in call.params or not call.database.can_answer_now(call.relation, call.after):
        return None
    return _row_answer(call, call.database.db.get(call.relation, key_of(call, call.relation, call.params["key"])))


def get_row(call: Call) -> Answer:
    database = call.database
    key = key_of(call, call.relation, call.params["key"])
    after = None if call.after is None else database.token(call.after)
    at, stale = database.moment(call.get("at")), call.get("allow_stale", False)
    row = database.db.get(call.relation, key, after=after, timeout=call.wait, at=at, allow_stale=stale)
    return _row_answer(call, row)


def get_together(calls: Sequence[Call]) -> Sequence[Answer | Exception]:
    """Rows of one relation, in one call to the pool."""
    if len(calls) > 1:
        first = calls[0]
        try:
            keys = [key_of(call, call.relation, call.params["key"]) for call in calls]
            rows = first.database.db.get_many(first.relation, keys, timeout=max(call.wait for call in calls))
        except DataError:
            pass  # one of the keys: each hears of its own
        else:
            return [_outcome(_row_answer, call, row) for call, row in zip(calls, rows, strict=True)]
    return [_outcome(get_row, call) for call in calls]


def _outcome(answer: Callable[..., Answer], *given: Any) -> Answer | Exception:
    try:
        return answer(*given)
    except Exception as error:
        return error


def _row_answer(call: Call, row: Mapping[str, Any] | None) -> Answer:
    if row is None:
        raise NoSuchResource(f"{call.relation!r} has no row of that key", "row")
    media = accepted(call.accept, formats.ROWS)
    if media == ARROW:
        return Answer(formats.arrow(_one_row(call, row)), ARROW, headers=(token_header(call),))
    end = b"" if media == JSON else b"\n"
    return Answer(values.dumps(values.row(row)) + end, media, headers=(token_header(call),))


def _one_row(call: Call, row: Mapping[str, Any]) -> pa.Table:
    """The row as a table, with the types that the columns have now, or had at that epoch."""
    stale = call.get("allow_stale", False)
    if "at" not in call.params and not stale:
        types = {column.name: column.type.arrow for column in call.database.relation(call.relation).columns}
        try:
            return pa.table({name: pa.array([value], types[name]) for name, value in row.items()})
        except (KeyError, pa.ArrowException):
            pass  # it became another view just now
    key = key_of(call, call.relation, call.params["key"])
    prefix = [key if isinstance(key, (tuple, dict)) else (key,)]
    at = call.database.moment(call.get("at"))
    table = call.database.db.page(call.relation, limit=1, prefix=prefix, at=at, allow_stale=stale).rows
    if not table.num_rows:
        raise NoSuchResource(f"{call.relation!r} has no row of that key", "row")
    return table


# ---------------------------------------------------------------------- pages


def get_rows(call: Call) -> Answer:
    given = call.params.get("cursor")
    if given is None:
        asked = _first(call)
        after = None if call.after is None else call.database.token(call.after)
        page, end = _read(call, asked, call.get("at"), after)
    else:
        others = sorted(set(call.params) - {"cursor", "limit", "bytes"})
        if others:
            raise BadRequest(f"cursor= takes the place of {', '.join(others)}: leave that out")
        asked = Cursor.parse(given, call.relation)
        page, end = _read(call, asked, None if asked.stale else asked.epoch, None)
        if asked.epoch is not None and page[1] != asked.epoch:
            raise EpochExpired(f"epoch {asked.epoch} of the cursor cannot be read any more; begin again")
    table, epoch = page
    headers = [("belvedere-epoch", str(epoch)), token_header(call)]
    cursor = None
    if end is not None:
        keeps = asked.stale or asked.epoch is not None or _keeps(call, call.get("at"))
        cursor = _going_on(asked, epoch if keeps else None, end)
        headers.append(("belvedere-cursor", cursor))
        if keeps and not asked.stale:
            call.snapshots.keep(epoch, CURSOR_SECONDS)
    media = accepted(call.accept, formats.ROWS)
    return formats.rows_answer(table, media, {"epoch": epoch, "cursor": cursor}, tuple(headers))


def _first(call: Call) -> Cursor:
    prefix, start, stop = call.get("prefix"), call.get("start"), call.get("stop")
    if prefix is not None and (start is not None or stop is not None):
        raise BadRequest("prefix= says where the range begins and ends: leave start= and stop= out")
    reverse, columns, stale = call.get("reverse", False), call.get("columns"), call.get("allow_stale", False)
    return Cursor(call.relation, None, "", reverse, prefix, start, stop, columns, stale)


def _going_on(asked: Cursor, epoch: int | None, end: bytes) -> str:
    return replace(asked, epoch=epoch, end=base64.b64encode(end).decode()).text()


def _read(call: Call, asked: Cursor, at: Any, after: Any) -> tuple[tuple[pa.Table, int], bytes | None]:
    """Rows up to the limits, their epoch, and where they end if there are more."""
    limit, most = call.get("limit", params.DEFAULT_ROWS), call.get("bytes", params.MAX_PAGE_BYTES)
    beyond = asked.beyond if asked.end else None
    parts: list[pa.Table] = []
    epoch = 0
    # what has no history is read at once: parts of it would be of different epochs
    keeps = asked.stale or _keeps(call, at)
    while True:
        page = _page(call, asked, min(limit, PART_ROWS) if keeps else limit, beyond, at, after)
        rows = page.rows
        if rows.nbytes > most and rows.num_rows > 1:
            kept = max(1 if not parts else 0, rows.num_rows * most // rows.nbytes)
            end = page.end(kept) if kept else beyond
            return (_together([*parts, rows.slice(0, kept)]), page.epoch), end
        parts.append(rows)
        limit, most, epoch = limit - rows.num_rows, most - rows.nbytes, page.epoch
        if not page.more:
            return (_together(parts), epoch), None
        beyond = page.end(rows.num_rows)
        if limit <= 0 or most <= 0 or call.gone.is_set():
            return (_together(parts), epoch), beyond
        if keeps and not asked.stale:
            at = epoch  # also where a time was asked for: a later epoch may have come before it
        after = None


def _keeps(call: Call, at: Any) -> bool:
    """Whether its older epochs can be read. It need not be there any more, if an older one is asked for."""
    return at is not None or call.database.reads_at_epochs(call.relation)


def _page(call: Call, asked: Cursor, limit: int, beyond: bytes | None, at: Any, after: Any) -> RowPage:
    found: RowPage = call.database.db.page(
        call.relation,
        limit=limit,
        prefix=None if asked.prefix is None else [key_of(call, call.relation, asked.prefix)],
        start=None if asked.start is None else key_of(call, call.relation, asked.start),
        stop=None if asked.stop is None else key_of(call, call.relation, asked.stop),
        beyond=beyond,
        reverse=asked.reverse,
        columns=asked.columns,
        allow_stale=asked.stale,
        at=call.database.moment(at),
        after=after,
        timeout=call.wait if after is not None else None,
    )
    return found


def _together(parts: list[pa.Table]) -> pa.Table:
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


# ---------------------------------------------------------------------- several at one epoch

_READ_FIELDS = frozenset("relation key prefix start stop limit reverse columns".split())


def read_many(call: Call) -> Answer:
    asked = _object(values.loads(call.body, "the body"), {"reads", "at"}, "the body")
    reads = asked.get("reads")
    if not isinstance(reads, list) or not 1 <= len(reads) <= MAX_READS:
        raise BadRequest(f"reads is an array of 1 to {MAX_READS} reads")
    for read in reads:
        _object(read, _READ_FIELDS, "a read")
        if not isinstance(read.get("relation"), str):
            raise BadRequest('a read names its relation: {"relation": "spend", "key": 7}')
        call.allowed(Right.READ, read["relation"])
    db = call.database.db
    if call.after is not None:
        db.wait(call.database.token(call.after), call.wait)
    with db.snapshot(_at_of(asked.get("at"))) as snapshot:
        # a read by itself needs no epoch that others share: what has no history is read as it is now
        alone = len(reads) == 1 and asked.get("at") is None and not call.database.reads_at_epochs(reads[0]["relation"])
        results = [_one_read(call, db if alone else snapshot, read) for read in reads]
        epoch = snapshot.epoch
    headers = (("belvedere-epoch", str(epoch)), token_header(call))
    return Answer(values.dumps({"epoch": epoch, "results": results}), headers=headers)


def _one_read(call: Call, reads: Any, read: dict[str, Any]) -> dict[str, Any]:
    relation = read["relation"]
    if "key" in read:
        _object(read, {"relation", "key"}, "a read by key")
        row = reads.get(relation, key_of(call, relation, read["key"]))
        return {"row": None if row is None else values.row(row)}
    limit = read.get("limit", params.DEFAULT_ROWS)
    if type(limit) is not int or not 1 <= limit <= params.MAX_ROWS:
        raise BadRequest(f"limit is a number from 1 to {params.MAX_ROWS}")
    columns, reverse = read.get("columns"), read.get("reverse", False)
    if type(reverse) is not bool or not (columns is None or isinstance(columns, list)):
        raise BadRequest("reverse is true or false, columns an array of names")
    options: dict[str, Any] = {"limit": limit + 1, "reverse": reverse, "columns": columns}
    if "prefix" in read:
        if "start" in read or "stop" in read:
            raise BadRequest("prefix says where the range begins and ends: leave start and stop out")
        prefix = read["prefix"] if isinstance(read["prefix"], list) else [read["prefix"]]
        table = reads.lookup(relation, key_of(call, relation, prefix), **options)
    else:
        start, stop = (None if read.get(f) is None else key_of(call, relation, read[f]) for f in ("start", "stop"))
        table = reads.scan(relation, start=start, stop=stop, **options)
    return {"rows": values.rows(table.slice(0, limit)), "truncated": table.num_rows > limit}


def _object(value: Any, fields: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is a JSON object with {', '.join(sorted(fields))}")
    unknown = sorted(set(value) - set(fields))
    if unknown:
        raise BadRequest(f"{what} has no field {unknown[0][:60]!r}; there is {', '.join(sorted(fields))}")
    return value


def _at_of(value: Any) -> int | datetime | Token | None:
    if value is None:
        return None
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    if isinstance(value, str):
        return params.moment(value, "at")
    raise BadRequest("at is an epoch, a time in ISO 8601, the token of a write, or null")


# ---------------------------------------------------------------------- snapshots


def make_snapshot(call: Call) -> Answer:
    asked = _object(values.loads(call.body or b"{}", "the body"), {"at", "seconds"}, "the body")
    seconds = _seconds(asked.get("seconds", 60))
    db = call.database.db
    if call.after is not None:
        db.wait(call.database.token(call.after), call.wait)
    with db.snapshot(_at_of(asked.get("at"))) as snapshot:
        epoch = int(snapshot.epoch)
        name = call.snapshots.hold(epoch, seconds)
    found = {"snapshot": name, "epoch": epoch, "seconds": seconds}
    return Answer(values.dumps(found), status=201, headers=(("belvedere-epoch", str(epoch)), token_header(call)))


def renew_snapshot(call: Call) -> Answer:
    asked = _object(values.loads(call.body or b"{}", "the body"), {"seconds"}, "the body")
    seconds = _seconds(asked.get("seconds", 60))
    epoch = call.snapshots.renew(call.name, seconds)
    return Answer(values.dumps({"snapshot": call.name, "epoch": epoch, "seconds": seconds}))


def drop_snapshot(call: Call) -> Answer:
    call.snapshots.drop(call.name)
    return Answer(b"", status=204)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 600:
        raise BadRequest("seconds is a number from 1 to 600")
    return float(value)


# ---------------------------------------------------------------------- catalog


def list_relations(call: Call) -> Answer:
    catalog, kind = call.database.db.catalog, call.get("kind")
    found = []
    for group, name in (("table", catalog.tables), ("view", catalog.views)):
        if kind in (None, group):
            found += [describe(call.database, catalog, d) for d in name.values() if call.may(Right.READ, d.name)]
    epoch = call.database.newest()
    return Answer(values.dumps({"epoch": epoch, "relations": found}), headers=(token_header(call),))


def describe_relation(call: Call) -> Answer:
    relation = call.database.relation(call.relation)
    return Answer(values.dumps(describe(call.database, call.database.db.catalog, relation)))


def get_quarantine(call: Call) -> Answer:
    table = call.database.db.quarantine(call.relation)
    media = accepted(call.accept, formats.ROWS)
    return formats.rows_answer(table, media, {"epoch": call.database.newest()}, (token_header(call),))


def wait(call: Call) -> Answer:
    if call.after is None:
        raise BadRequest("Belvedere-After is missing: it has the token to wait for")
    call.database.db.wait(call.database.token(call.after), call.wait)
    epoch = int(call.database.db.epoch)  # who waits for nothing asks how far it is
    return Answer(values.dumps({"epoch": epoch}), headers=(token_header(call),))


_R = "/v1/relations/{relation}"
ENDPOINTS = (
    Endpoint(
        "GET",
        f"{_R}/row",
        "One row by its key",
        Access.READ,
        get_row,
        (params.KEY, params.AT, params.ALLOW_STALE),
        produces=formats.ROWS,
        answer="Row",
        quick=get_now,
        together=get_together,
        reads_after=True,
    ),
    Endpoint(
        "GET",
        f"{_R}/rows",
        "A page of rows in key order",
        Access.READ,
        get_rows,
        (
            params.PREFIX,
            params.START,
            params.STOP,
            params.LIMIT,
            params.BYTES,
            params.REVERSE,
            params.COLUMNS,
            params.AT,
            params.ALLOW_STALE,
            params.CURSOR,
        ),
        produces=formats.ROWS,
        answer="Page",
        reads_after=True,
    ),
    Endpoint(
        "POST",
        "/v1/read",
        "Several reads at one epoch",
        Access.KNOWN,
        read_many,
        consumes=(JSON,),
        body="ReadMany",
        answer="ReadResults",
        reads_after=True,
    ),
    Endpoint(
        "POST",
        "/v1/snapshots",
        "Keep an epoch readable",
        Access.KNOWN,
        make_snapshot,
        consumes=(JSON,),
        body="SnapshotWanted",
        answer="Snapshot",
        status=201,
        reads_after=True,
        optional_body=True,
    ),
    Endpoint(
        "PUT",
        "/v1/snapshots/{name}",
        "Keep it longer",
        Access.KNOWN,
        renew_snapshot,
        consumes=(JSON,),
        body="SnapshotRenewed",
        answer="Snapshot",
        optional_body=True,
    ),
    Endpoint("DELETE", "/v1/snapshots/{name}", "Let go of it", Access.KNOWN, drop_snapshot, answer="", status=204),
    Endpoint(
        "GET",
        "/v1/relations",
        "Tables and views that the caller may read",
        Access.KNOWN,
        list_relations,
        (params.KIND,),
        answer="Relations",
    ),
    Endpoint("GET", _R, "A table or view", Access.READ, describe_relation, answer="Description"),
    Endpoint(
        "GET",
        f"{_R}/quarantine",
        "Rows that a view cannot show, or cells and row keys of HBase that cannot be read",
        Access.READ,
        get_quarantine,
        produces=formats.ROWS,
        answer="Page",
    ),
    Endpoint(
        "POST", "/v1/wait", "Until a write is in every view", Access.KNOWN, wait, answer="Waited", reads_after=True
    ),
)
