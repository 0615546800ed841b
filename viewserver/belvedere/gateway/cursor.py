"""Cursors: where a page ended, for whichever gateway gets the next request.

A cursor holds what was asked for, the epoch, and the key of the last row: nothing that its holder might not ask for
anyway, so it is not signed. Rights are looked at with every page.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from belvedere.errors import BadRequest

_FORM = 1
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Cursor:
    """`epoch`: None where the relation is read as it is now. `end`: the encoded key, in base64."""

    relation: str
    epoch: int | None
    end: str
    reverse: bool = False
    prefix: Any = None
    start: Any = None
    stop: Any = None
    columns: list[str] | None = None
    stale: bool = False
    """Of a view that may have failed: what it had before is read as it is, not by its epoch."""

    @property
    def beyond(self) -> bytes:
        return base64.b64decode(self.end)

    def text(self) -> str:
        body = orjson.dumps([_FORM, asdict(self)])
        return base64.urlsafe_b64encode(body).decode().rstrip("=")

    @staticmethod
    def parse(text: str, relation: str) -> Cursor:
        """Of this relation; raises BadRequest."""
        try:
            if len(text) > _MOST or not text.isascii():
                raise ValueError("its length")
            body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            form, fields = orjson.loads(body)
            if form != _FORM:
                raise ValueError("its form")
            found = Cursor(**fields)
            found.beyond  # noqa: B018  raises if it is no base64
            if not _sound(found):
                raise ValueError("its fields")
        except (ValueError, TypeError, binascii.Error, RecursionError):
            raise BadRequest(f"cursor={text[:40]}… is none: give what an answer had as Belvedere-Cursor") from None
        if found.relation.lower() != relation.lower():
            raise BadRequest(f"the cursor is one of {found.relation!r}, not of {relation!r}")
        return found


def _sound(cursor: Cursor) -> bool:
    columns = cursor.columns
    return (
        isinstance(cursor.relation, str)
        and (cursor.epoch is None or type(cursor.epoch) is int)
        and type(cursor.reverse) is bool
        and type(cursor.stale) is bool
        and (columns is None or (isinstance(columns, list) and all(isinstance(name, str) for name in columns)))
    )
