"""Rows in the three formats of the API: JSON, NDJSON, Arrow; as answers, and as bodies of writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from belvedere.errors import BadRequest, BelvedereError
from belvedere.gateway import values
from belvedere.gateway.api import ARROW, JSON, NDJSON, Answer

ROWS = (JSON, NDJSON, ARROW)
PART_ROWS = 8_192


def rows_answer(table: pa.Table, media: str, around: Mapping[str, Any], headers: tuple[tuple[str, str], ...]) -> Answer:
    """`around`: what JSON has beside the rows."""
    if media == ARROW:
        return Answer(arrow(table), ARROW, headers=headers)
    if media == NDJSON:
        lines = [values.dumps(row) + b"\n" for part in _parts(table) for row in values.rows(part)]
        return Answer(b"".join(lines), NDJSON, headers=headers)
    parts = [values.dumps(values.rows(part))[1:-1] for part in _parts(table)]
    head = values.dumps({**around, "rows": []})
    return Answer(b"".join([head[:-2], b",".join(parts), head[-2:]]), JSON, headers=headers)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A page may have a million rows. As objects of Python they take ten times what they take as text, so only some of
    them are that at a time."""
    return (table.slice(start, PART_ROWS) for start in range(0, table.num_rows, PART_ROWS))


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
