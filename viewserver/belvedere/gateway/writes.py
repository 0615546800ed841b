"""Writes: puts, deletes, and both in one order. A body is read as a whole before anything of it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.errors import BadRequest, NoSuchResource, ReadOnly
from belvedere.gateway import formats, params, values
from belvedere.gateway.api import ARROW, JSON, NDJSON, Access, Answer, Call, Endpoint, Right
from belvedere.gateway.databases import write_name
from belvedere.model.writing import refuse_view
from belvedere.sql.catalog import TableDef

BODIES = (JSON, NDJSON, ARROW)


def _table(call: Call) -> TableDef:
    if call.database.read_only:
        raise ReadOnly("the database is open for reading only here; write through the process that has it open")
    found = call.database.relation(call.relation)
    if not isinstance(found, TableDef):
        raise refuse_view(found.name)
    return found


def put_rows(call: Call) -> Answer:
    table = _table(call)
    if call.content_type == ARROW:
        given = formats.read_arrow(call.body)
        ts, given = _arrow_timestamps(call, given)
        return _written(call, table, "put", given.num_rows, ts, rows=given)
    reader = values.RowReader(table.columns, f"table {table.name!r}")
    rows = [reader.row(item, f"row {n}") for n, item in enumerate(formats.read_items(call.body, call.content_type))]
    return _written(call, table, "put", len(rows), _timestamps(call, rows), rows=rows)


def delete_rows(call: Call) -> Answer:
    table = _table(call)
    if call.content_type == ARROW:
        given = formats.read_arrow(call.body)
        ts, given = _arrow_timestamps(call, given)
        return _written(call, table, "delete", given.num_rows, ts, keys=given)
    items = values.loads(call.body, "the body") if call.content_type == JSON else None
    if items is not None and not isinstance(items, list):
        raise BadRequest("the body is an array of keys: a value, an array or an object each")
    keys = [_key(call, table, item) for item in items or formats.read_items(call.body, call.content_type)]
    return _written(call, table, "delete", len(keys), _timestamps(call, keys), keys=keys)


def change_rows(call: Call) -> Answer:
    table = _table(call)
    if call.content_type == ARROW:
        return _change_arrow(call, table)
    if "deletes" in call.params:
        raise BadRequest("deletes= names a column of Arrow; in JSON each change says itself what it is")
    items = formats.read_items(call.body, call.content_type)
    reader = values.RowReader(table.columns, f"table {table.name!r}")
    rows: list[dict[str, Any]] = []
    deletes: list[bool] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict) or len(item) != 1 or not {"put", "delete"} & set(item):
            raise BadRequest(f'change {number}: it is {{"put": ROW}} or {{"delete": KEY}}')
        deletes.append("delete" in item)
        if "put" in item:
            rows.append(reader.row(item["put"], f"change {number}"))
        else:
            key = _key(call, table, item["delete"])
            rows.append(key if isinstance(key, dict) else dict(zip(table.key, key, strict=False)))
    ts = _timestamps(call, rows)
    return _written(call, table, "write", len(rows), ts, rows=rows, deletes=np.array(deletes, np.bool_))


def _change_arrow(call: Call, table: TableDef) -> Answer:
    given = formats.read_arrow(call.body)
    name = call.get("deletes")
    if name is None or name not in given.schema.names:
        raise BadRequest("deletes= names the boolean column of the body that says which rows are deletes")
    ts, given = _arrow_timestamps(call, given)
    column = given.column(name)
    if not pa.types.is_boolean(column.type) or column.null_count:
        raise BadRequest(f"column {name!r} says which rows are deletes: boolean, without NULL; found {column.type}")
    rows = given.drop_columns([name])
    deletes = column.combine_chunks().to_numpy(zero_copy_only=False)
    return _written(call, table, "write", given.num_rows, ts, rows=rows, deletes=np.asarray(deletes, np.bool_))


def _key(call: Call, table: TableDef, given: Any) -> Any:
    columns = [table.columns[at] for at in table.key_positions]
    key = values.key(given, columns, f"key of table {table.name!r}")
    if not isinstance(key, dict) and len(key) != len(columns):
        raise BadRequest(f"the key of table {table.name!r} is ({', '.join(table.key)}), found {len(key)} values")
    return key


def _timestamps(call: Call, rows: Sequence[Any]) -> Any:
    """For all rows (or keys), or one each, from a column that is taken off."""
    column = _one_of(call)
    if column is None:
        return call.get("ts")
    found = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.get(column) is None:
            raise BadRequest(f"row {number} has no {column!r}, which ts_column names")
        value = row.pop(column)
        found.append(params.timestamp(value, column) if isinstance(value, str) else value)
    return found or None


def _arrow_timestamps(call: Call, given: pa.Table) -> tuple[Any, pa.Table]:
    column = _one_of(call)
    if column is None:
        return call.get("ts"), given
    if column not in given.schema.names:
        raise BadRequest(f"the body has no column {column!r}, which ts_column names")
    values_of = given.column(column)
    if pa.types.is_integer(values_of.type) and not values_of.null_count:
        return values_of.to_pylist(), given.drop_columns([column])
    if pa.types.is_timestamp(values_of.type) and not values_of.null_count:
        return values_of.to_pylist(), given.drop_columns([column])
    raise BadRequest(f"column {column!r} has timestamps: integers or timestamps without NULL, found {values_of.type}")


def _one_of(call: Call) -> str | None:
    column: str | None = call.get("ts_column")
    if column is not None and "ts" in call.params:
        raise BadRequest("ts= and ts_column= say both when: give one")
    return column


def _written(call: Call, table: TableDef, action: str, count: int, ts: Any, **what: Any) -> Answer:
    options: dict[str, Any] = {"ts": ts, "timeout": call.wait}
    call.attempted = {"action": action, "rows": count, "key": call.idempotency_key}
    replayed = False
    if call.idempotency_key:
        name = write_name(call.principal.name, table.name, call.idempotency_key)
        before = call.database.db.written(name)
        replayed = before is not None
        options["request"] = f"{name}:{_digest(call, action)}"
    database = call.database.db
    match action:
        case "put":
            token = database.put(table.name, what["rows"], **options)
        case "delete":
            token = database.delete(table.name, what["keys"], **options)
        case _:
            token = database.write(table.name, what["rows"], deletes=what["deletes"], **options)
    said = str(token)
    joined = said if call.after is None else str(call.database.token(call.after).joined_with(token))
    headers = [("belvedere-token", joined)]
    if replayed:
        headers.append(("idempotency-replayed", "true"))
    told = {**call.attempted, "token": said, "replayed": replayed or ""}
    return Answer(values.dumps({"token": said, "rows": count}), headers=tuple(headers), audit=told)


def _digest(call: Call, action: str) -> str:
    """Of what was asked for: the same key with another body is a mistake, and so is the same body as another action."""
    digest = hashlib.blake2b(call.body, digest_size=8)
    asked = {name: str(value) for name, value in sorted(call.params.items())}
    digest.update(values.dumps([action, call.content_type, asked]))
    return digest.hexdigest()


def find_write(call: Call) -> Answer:
    relation = call.params["relation"]
    call.allowed(Right.WRITE, relation)
    table = call.database.relation(relation)
    token = call.database.db.written(write_name(call.principal.name, table.name, call.name))
    if token is None:
        raise NoSuchResource(
            f"nothing was written to {relation!r} by the idempotency key {call.name[:60]!r}, or over an hour ago",
            "write",
        )
    return Answer(values.dumps({"token": str(token)}), headers=(("belvedere-token", str(token)),))


def wait_for_write(call: Call) -> Answer:
    """For clients that write to a table of HBase by another way."""
    database = call.database.db
    waiting = getattr(database, "wait_for", None)
    if waiting is None:
        raise BadRequest("rows get here through this database only; its writes return tokens, for Belvedere-After")
    token = str(waiting(call.relation, call.params["key"], call.params["timestamp"], timeout=call.wait))
    return Answer(values.dumps({"token": token}), headers=(("belvedere-token", token),))


_R = "/v1/relations/{relation}"
ENDPOINTS = (
    Endpoint(
        "POST",
        f"{_R}/rows",
        "Insert or update rows",
        Access.WRITE,
        put_rows,
        (params.TS, params.TS_COLUMN),
        consumes=BODIES,
        body="Rows",
        answer="Written",
        reads_after=True,
        idempotent=True,
        changes=True,
    ),
    Endpoint(
        "POST",
        f"{_R}/deletes",
        "Delete rows by key",
        Access.WRITE,
        delete_rows,
        (params.TS, params.TS_COLUMN),
        consumes=BODIES,
        body="Keys",
        answer="Written",
        reads_after=True,
        idempotent=True,
        changes=True,
    ),
    Endpoint(
        "POST",
        f"{_R}/changes",
        "Puts and deletes in one order",
        Access.WRITE,
        change_rows,
        (params.TS, params.TS_COLUMN, params.DELETES),
        consumes=BODIES,
        body="Changes",
        answer="Written",
        reads_after=True,
        idempotent=True,
        changes=True,
    ),
    Endpoint(
        "GET",
        f"{_R}/written",
        "Wait until views have what was written to a row by another way",
        Access.READ,
        wait_for_write,
        (params.KEY, params.CELL_TIMESTAMP),
        answer="FoundWrite",
        reads_after=True,
    ),
    Endpoint(
        "GET",
        "/v1/writes/{name}",
        "What became of a write, by its idempotency key",
        Access.KNOWN,
        find_write,
        (params.RELATION,),
        answer="FoundWrite",
        changes=True,
    ),
)
