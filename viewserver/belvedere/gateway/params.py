"""Query parameters that several routes take, and the reading of a query string."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from belvedere.cluster.client.token import ClusterToken
from belvedere.errors import BadRequest
from belvedere.gateway import values
from belvedere.gateway.api import Param, choice, flag, number, text
from belvedere.model.token import Token

MAX_ROWS = 1_000_000
DEFAULT_ROWS = 1_000
MAX_PAGE_BYTES = 64 << 20
_TOKEN = re.compile(r"e[0-9]{1,18}(,[^,:]+:[0-9]{1,18})*\Z", re.ASCII)
LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def moment(value: str, name: str) -> int | datetime | Token:
    """An epoch, a time, or a token: the first epoch with its write."""
    if value.isascii() and value.isdecimal() and len(value) <= 18:
        return int(value)
    if _TOKEN.match(value):
        return ClusterToken.parse(value)  # which has what a token of an embedded database has
    return time_of(value, name)


def time_of(value: str, name: str) -> datetime:
    """A time; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise BadRequest(f"{name}={value[:60]}: it is a number or a time such as 2024-02-29T12:00:00Z") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def timestamp(value: str, name: str) -> int | datetime:
    """Microseconds since 1970, or a time."""
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdecimal() and len(digits) <= 19:
        return int(value)
    return time_of(value, name)


def names(value: str, name: str) -> list[str]:
    found = values.parameter(value, name) if value.startswith("[") else value.split(",")
    if not found or not all(isinstance(one, str) and one for one in found):
        raise BadRequest(f"{name}={value[:60]}: it is a list of names: a,b or a JSON array")
    return list(found)


def json_key(value: str, name: str) -> Any:
    return values.parameter(value, name)


def json_prefix(value: str, name: str) -> list[Any]:
    found = values.parameter(value, name)
    return found if isinstance(found, list) else [found]


_JSON = {"type": "string", "description": "JSON", "contentMediaType": "application/json"}

KEY = Param("key", "the key: a JSON value, an array, or an object by column", json_key, _JSON, required=True)
CELL_TIMESTAMP = Param(
    "timestamp",
    "the timestamp of a cell, as HBase has it (milliseconds, unless its clients set others)",
    number(0, 2**63 - 1),
    {"type": "integer", "minimum": 0},
    required=True,
)
PREFIX = Param("prefix", "the first values of the key: a JSON value or an array", json_prefix, _JSON)
START = Param("start", "the first key, or its first values, as JSON", json_key, _JSON)
STOP = Param("stop", "the key to stop before, or its first values, as JSON", json_key, _JSON)
LIMIT = Param(
    "limit",
    "rows of the page at most",
    number(1, MAX_ROWS),
    {"type": "integer", "minimum": 1, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
)
BYTES = Param(
    "bytes",
    "bytes of the page at most, in memory; one row comes anyway",
    number(1, MAX_PAGE_BYTES),
    {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_BYTES, "default": MAX_PAGE_BYTES},
)
REVERSE = Param("reverse", "from the greatest key down", flag, {"type": "boolean", "default": False})
COLUMNS = Param("columns", "only these columns: a,b or a JSON array", names, {"type": "string"})
AT = Param("at", "an epoch, a time in ISO 8601, or the token of a write", moment, {"type": "string"})
ALLOW_STALE = Param(
    "allow_stale", "of a view that has failed, what it had before", flag, {"type": "boolean", "default": False}
)
CURSOR = Param("cursor", "goes on where a page ended", text, {"type": "string"})
KIND = Param(
    "kind", "only tables, or only views", choice("table", "view"), {"type": "string", "enum": ["table", "view"]}
)
WAIT = Param("wait", "until views are built", flag, {"type": "boolean", "default": True})
DRY_RUN = Param("dry_run", "compile and plan, and change nothing", flag, {"type": "boolean", "default": False})
PARTIAL = Param("partial", "apply what can be accepted, and name the rest", flag, {"type": "boolean", "default": False})
IF_EXISTS = Param("if_exists", "no error if it is not there", flag, {"type": "boolean", "default": False})
TS = Param("ts", "cell timestamp of all rows: microseconds since 1970, or ISO 8601", timestamp, {"type": "string"})
TS_COLUMN = Param("ts_column", "a column with a timestamp per row, which is taken off", text, {"type": "string"})
DELETES = Param("deletes", "of Arrow: the boolean column that says which rows are deletes", text, {"type": "string"})
FROM = Param(
    "from", "now, or all rows first", choice("now", "snapshot"), {"type": "string", "enum": ["now", "snapshot"]}
)
AFTER = Param("after", "changes after this token or epoch", text, {"type": "string"})
ACCESS_TOKEN = Param("access_token", "the bearer token of who cannot set headers", text, {"type": "string"})
RELATION = Param("relation", "the table of the write", text, {"type": "string"}, required=True)


def read_query(query: bytes, known: Sequence[Param]) -> dict[str, Any]:
    """Parameters by name. What is unknown, given twice, or missing is refused."""
    found: dict[str, Any] = {}
    if query:
        by_name = {param.name: param for param in known}
        for piece in query.split(b"&"):
            if not piece:
                continue
            name, _, value = piece.partition(b"=")
            name_text, value_text = _decoded(name), _decoded(value)
            param = by_name.get(name_text)
            if param is None:
                listed = ", ".join(by_name) or "none"
                raise BadRequest(f"unknown parameter {name_text[:60]!r}; there is {listed}")
            if name_text in found:
                raise BadRequest(f"parameter {name_text!r} is given twice")
            found[name_text] = param.parse(value_text, name_text)
    for param in known:
        if param.required and param.name not in found:
            raise BadRequest(f"parameter {param.name!r} is missing: {param.meaning}")
    return found


def _decoded(piece: bytes) -> str:
    if b"%" in piece or b"+" in piece:
        piece = unquote_to_bytes(piece.replace(b"+", b" "))
    try:
        decoded = piece.decode()
    except UnicodeDecodeError:
        raise BadRequest("the query is no UTF-8 behind its percent signs") from None
    if "\0" in decoded:
        raise BadRequest("the query has a NUL character")
    return decoded
