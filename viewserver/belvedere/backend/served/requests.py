"""Writes that have happened, by the names that clients gave them: one whose answer was lost can be repeated.

A request is remembered in the transaction that carries it out, so either both are there or neither is. It is forgotten
when nobody can still be repeating it; each new request takes a few old ones with it.

    base_requests: "i" name -> when (microseconds), what was answered (a list: with its digest)
                   "t" when, name -> nothing
"""

from __future__ import annotations

import json

from belvedere.backend.base_layout import check_request
from belvedere.backend.served.environment import Db, Txn
from belvedere.model.requests import check_same, parted
from belvedere.protocol.exactly_once import Seq, SourceId

KEPT_US = 3_600_000_000
_FORGOTTEN_AT_ONCE = 4
_WORD = 8


def find(txn: Txn, db: dict[str, Db], request: str) -> dict[SourceId, Seq] | None:
    """What was answered to the request, if it has happened; raises RequestReused."""
    check_request(request)
    name, digest = parted(request)
    found = txn.get(b"i" + name.encode(), db=db["base_requests"]) if name else None
    if found is None:
        return None
    known = json.loads(bytes(found[_WORD:]))
    if isinstance(known, list):
        known, before = known
        check_same(name, digest, before)
    return {SourceId(source): Seq(seq) for source, seq in known.items()}


def remember(txn: Txn, db: dict[str, Db], request: str, written: dict[SourceId, Seq], now: int) -> None:
    name, digest = parted(request)
    if not name:
        return
    _forget(txn, db["base_requests"], now - KEPT_US)
    when = max(now, 0).to_bytes(_WORD, "big")
    txn.put(
        b"i" + name.encode(),
        when + json.dumps([written, digest] if digest else written).encode(),
        db=db["base_requests"],
    )
    txn.put(b"t" + when + name.encode(), b"", db=db["base_requests"])


def _forget(txn: Txn, requests: Db, before: int) -> None:
    cursor = txn.cursor(requests)
    limit = b"t" + max(before, 0).to_bytes(_WORD, "big")
    for _ in range(_FORGOTTEN_AT_ONCE):
        if not cursor.set_range(b"t") or cursor.key() >= limit:
            return
        name = bytes(cursor.key())[1 + _WORD :]
        cursor.delete()
        txn.delete(b"i" + name, db=requests)
