"""Rows of another system's table whose keys cannot be read: they are in no view, and not forgotten.

    unreadable/NAME/DIGEST     the row's key there, and why it cannot be read

NAME is that of the pool's store. Such rows have no place in DELTA, which knows rows by the columns of their key; so
they are documents, one for each row whatever was written to it. A table has about `MOST`: one whose mapping is wrong
would have all of its rows here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

_PREFIX = "unreadable/"
MOST = 1000


class ReadableDocuments(Protocol):
    """What reading them needs; `seam.Documents` has more."""

    def get_document(self, name: str) -> bytes | None: ...

    def list_documents(self, prefix: str) -> list[str]: ...


class Documents(ReadableDocuments, Protocol):
    def put_document(self, name: str, data: bytes) -> None: ...

    def remove_documents(self, names: Sequence[str]) -> None: ...


@dataclass(frozen=True)
class UnreadableRow:
    key: bytes
    reason: str


def unreadable_rows(documents: ReadableDocuments, table: str) -> list[UnreadableRow]:
    """In the order of their keys."""
    found = []
    for name in documents.list_documents(f"{_PREFIX}{table}/"):
        data = documents.get_document(name)
        if data is not None:  # it was deleted since
            held = json.loads(data)
            found.append(UnreadableRow(bytes.fromhex(held["key"]), held["reason"]))
    return sorted(found, key=lambda row: row.key)


def count_unreadable(documents: ReadableDocuments, table: str) -> int:
    return len(documents.list_documents(f"{_PREFIX}{table}/"))


def put_unreadable(documents: Documents, table: str, row: UnreadableRow) -> None:
    data = json.dumps({"key": row.key.hex(), "reason": row.reason}).encode()
    documents.put_document(_name(table, row.key), data)


def remove_unreadable(documents: Documents, table: str, keys: Collection[bytes]) -> None:
    documents.remove_documents([_name(table, key) for key in keys])


def forget_unreadable(documents: Documents, table: str) -> None:
    """All of a table that is dropped."""
    documents.remove_documents(documents.list_documents(f"{_PREFIX}{table}/"))


def _name(table: str, key: bytes) -> str:
    return f"{_PREFIX}{table}/{hashlib.blake2b(key, digest_size=16).hexdigest()}"
