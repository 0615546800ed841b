"""Rows in the three formats of the API: JSON, NDJSON, Arrow; as answers, and as bodies of writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from belvedere.errors import BadRequest, BelvedereError
from belvedere.gateway import values
from belvedere.gateway.api import ARROW, JSON, NDJSON, Answer

ROWS = (JSON, NDJSON, ARROW)


def rows_answer(table: pa.Table, media: str, around: Mapping[str, Any], headers: tuple[tuple[str, str], ...]) -> Answer:
    """`around`: what JSON has beside the rows."""
    if media == ARROW:
        return Answer(arrow(table), ARROW, headers=headers)
    rows = values.rows(table)
    if media == NDJSON:
        return Answer(b"".join([values.dumps(row) + b"\n" for row in rows]), NDJSON, headers=headers)
    return Answer(values.dumps({**around, "rows": rows}), JSON, headers=headers)


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_arrow(body: bytes) -> pa.Table:
    """A stream, checked to the last offset: it comes from anybody."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    except BelvedereError:
        raise
    except Exception as error:  # Arrow raises what it likes for bytes that are no stream
        raise BadRequest(f"the body is no Arrow stream: {str(error)[:200] or type(error).__name__}") from None
    return table


def read_items(body: bytes, content_type: str) -> list[Any]:
    """Items of JSON: an array, one object, or one per line."""
    if content_type == NDJSON:
        lines = body.split(b"\n")
        return [
            values.loads(line, f"line {number}") for number, line in enumerate(lines, 1) if line and not line.isspace()
        ]
    found = values.loads(body, "the body")
    return found if isinstance(found, list) else [found]
