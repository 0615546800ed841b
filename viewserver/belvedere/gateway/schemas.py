"""JSON schemas of bodies and answers, by name. What JSON makes of values of SQL is `Value`."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": "object"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: str = "", closed: bool = False, **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = required.split()
    if closed:
        found["additionalProperties"] = False
    return found


_COLUMN = _object("name type nullable", name=STRING, type=STRING, nullable=BOOLEAN)
_READ = _object(
    "relation",
    closed=True,
    relation=STRING,
    key=_ref("Key"),
    prefix=_ref("Key"),
    start=_ref("Key"),
    stop=_ref("Key"),
    limit=INTEGER,
    reverse=BOOLEAN,
    columns=_array(STRING),
)
_ZONES = _array(_object("key nodes", key=_array(STRING), nodes=INTEGER))
_SECONDS = {"type": "number", "minimum": 1, "maximum": 600}
_REPORT = _object("view epoch ok rows complete", view=STRING, epoch=INTEGER, ok=BOOLEAN, rows=INTEGER, complete=BOOLEAN)

SCHEMAS: dict[str, Schema] = {
    "Value": {
        "description": "boolean; int, bigint up to 2^53 - 1: number; bigint beyond: string of digits; double: number"
        ' or "NaN", "Infinity", "-Infinity"; decimal: string; string; binary: base64; date: "2024-02-29"; timestamp:'
        ' "2024-02-29T12:00:00Z"; NULL: null',
        "type": ["boolean", "number", "string", "null"],
    },
    "Key": {
        "description": "a value, an array of values in key order, or an object by column",
        "anyOf": [_ref("Value"), _array(_ref("Value")), _ref("Row")],
    },
    "Row": {"type": "object", "additionalProperties": _ref("Value")},
    "Rows": {"anyOf": [_ref("Row"), _array(_ref("Row"))]},
    "Keys": _array(_ref("Key")),
    "Changes": _array(
        {"anyOf": [_object("put", closed=True, put=_ref("Row")), _object("delete", closed=True, delete=_ref("Key"))]}
    ),
    "Page": _object("epoch rows", epoch=INTEGER, rows=_array(_ref("Row")), cursor=_or_null(STRING)),
    "ReadMany": _object(
        "reads",
        closed=True,
        reads={"type": "array", "items": _READ, "minItems": 1, "maxItems": 100},
        at=_or_null({"anyOf": [INTEGER, STRING]}),
    ),
    "ReadResults": _object("epoch results", epoch=INTEGER, results=_array(ANYTHING)),
    "SnapshotWanted": _object(closed=True, at=_or_null({"anyOf": [INTEGER, STRING]}), seconds=_SECONDS),
    "SnapshotRenewed": _object(closed=True, seconds=_SECONDS),
    "Snapshot": _object("snapshot epoch seconds", snapshot=STRING, epoch=INTEGER, seconds=NUMBER),
    "Description": _object(
        "name kind columns key key_columns sql dependants",
        name=STRING,
        kind={"enum": ["table", "view"]},
        columns=_array(_COLUMN),
        key=_array(STRING),
        key_columns=_array(_COLUMN),
        sql=STRING,
        dependants=_array(STRING),
        ties=STRING,
        reads=_array(STRING),
        version=INTEGER,
        retention_ms=_or_null(INTEGER),
        state={"enum": ["Ready", "Failed"]},
        reason=STRING,
    ),
    "Relations": _object("epoch relations", epoch=INTEGER, relations=_array(_ref("Description"))),
    "Waited": _object("epoch", epoch=INTEGER),
    "Token": _object("token", token=STRING),
    "Written": _object("token rows", token=STRING, rows=INTEGER),
    "FoundWrite": _object("token", token=STRING),
    "Statement": _object("sql", closed=True, sql=STRING, wait=BOOLEAN),
    "StatementResult": _object(
        token=STRING, text=STRING, rows=_array(_ref("Row")), columns=_array(_object(name=STRING, type=STRING))
    ),
    "Forecast": _object(
        "zones state bytes",
        zones=_ZONES,
        state=_array(_object("table of rows bytes", table=STRING, of=STRING, rows=INTEGER, bytes=INTEGER)),
        bytes=INTEGER,
    ),
    "Applied": _object(
        "token documents",
        token=_or_null(STRING),
        documents=_array(
            _object(
                "kind name action problem",
                kind=STRING,
                name=STRING,
                action={"enum": ["created", "changed", "unchanged", "refused"]},
                problem=_or_null(_ref("Problem")),
                forecast=_ref("Forecast"),
            )
        ),
    ),
    "Plan": _object("views nodes zones", views=_array(ANYTHING), nodes=_array(ANYTHING), zones=_array(ANYTHING)),
    "Lag": _object(
        "database epoch",
        database=STRING,
        epoch=INTEGER,
        age_ms=_or_null(NUMBER),
        lag_ms=_or_null(NUMBER),
        backlog_rows=_or_null(INTEGER),
    ),
    "RelationStatus": {"anyOf": [_ref("TableStatus"), _ref("ViewStatus")]},
    "TableStatus": _object("kind rows bytes", kind={"const": "table"}, rows=_or_null(INTEGER), bytes=_or_null(INTEGER)),
    "ViewStatus": _object(
        "kind state reason zones reads dependants",
        kind={"const": "view"},
        state={"enum": ["Ready", "Building", "Failed"]},
        reason=STRING,
        since=_or_null(INTEGER),
        version=_or_null(INTEGER),
        epoch=_or_null(INTEGER),
        lag_ms=_or_null(NUMBER),
        rows=_or_null(INTEGER),
        bytes=_or_null(INTEGER),
        quarantined=_or_null(INTEGER),
        complete=_or_null(BOOLEAN),
        zones=_ZONES,
        reads=_array(STRING),
        dependants=_array(STRING),
        failed_build=STRING,
        verified=_or_null(ANYTHING),
    ),
    "Status": _object(
        "database epoch problems tables views detail",
        database={"enum": ["embedded", "pool"]},
        epoch=INTEGER,
        age_ms=_or_null(NUMBER),
        lag_ms=_or_null(NUMBER),
        backlog_rows=_or_null(INTEGER),
        problems=_array(STRING),
        tables={"type": "object", "additionalProperties": _ref("TableStatus")},
        views={"type": "object", "additionalProperties": _ref("ViewStatus")},
        building=_array({}),
        detail=ANYTHING,
    ),
    "Pool": _object("pool members view_servers queue_rows", pool=STRING, members=_array(ANYTHING)),
    "Verification": _object(closed=True, views=_or_null(_array(STRING))),
    "Verified": _object("ok reports", ok=BOOLEAN, reports=_array(_REPORT)),
    "Reload": _object(closed=True, request=STRING, start=STRING, stop=STRING),
    "Reloaded": _object(
        "id table phase rows share remaining_s corrected undecided",
        id=STRING,
        table=STRING,
        phase={"enum": ["scan", "compare", "done"]},
        rows=INTEGER,
        share=NUMBER,
        remaining_s=_or_null(NUMBER),
        corrected=INTEGER,
        undecided=INTEGER,
    ),
    "Repair": _object(
        closed=True,
        keys=_array(_array(ANYTHING)),
        prefix=_array(ANYTHING),
        start=_array(ANYTHING),
        stop=_array(ANYTHING),
        everything=BOOLEAN,
        dry_run=BOOLEAN,
    ),
    "Repaired": _object(
        "view epoch ok dry_run found mended tried_again rebuilt remaining problem tables rows",
        view=STRING,
        epoch=INTEGER,
        ok=BOOLEAN,
        dry_run=BOOLEAN,
        found=INTEGER,
        mended=INTEGER,
        tried_again=INTEGER,
        rebuilt=_array(STRING),
        remaining=INTEGER,
        problem=STRING,
        tables={"type": "object", "additionalProperties": INTEGER},
        rows=_array(
            _object("table id problem", table=STRING, id=STRING, problem={"enum": ["missing", "extra", "different"]})
        ),
    ),
    "Service": _object(
        "service version api database read_only",
        service={"const": "belvedere"},
        version=STRING,
        api=INTEGER,
        database={"enum": ["embedded", "pool"]},
        read_only=BOOLEAN,
    ),
    "Object": ANYTHING,
}
ITEMS = {"Rows": "row", "Keys": "key", "Changes": "change"}
