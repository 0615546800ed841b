"""What the store keeps for views that have not caught up, and where that ends: logs of base tables, and INPUT.

A pool that stands still takes nothing away, while users go on writing. On a full disk nothing could be written that
would free room again: no state of an epoch, so no chunk of INPUT goes; no merged base rows, so no log is trimmed. So
room is left for that: rows of base tables are refused at the limit, chunks of INPUT a good deal above it. An entry that
is pushed leaves its log for INPUT, so what was taken in can be worked off to its end.

    0 ──▶ rows and chunks are taken ──▶ limit ──▶ chunks are taken ──▶ limit and slack ──▶ nothing is taken

Counted are the pages that these databases have, which LMDB knows at any moment; neither the size of its file, which
never shrinks, nor the room on the disk would tell what can be freed.
"""

from __future__ import annotations

import os
from contextlib import suppress

from belvedere.backend.served.environment import Environment, Txn
from belvedere.errors import Closed, StoreUnavailable

MOST = 16 << 30
"""Bytes; the limit if none is given, or half of the file system if that is less."""
SLACK = 256 << 20
"""Bytes that INPUT may have more than the limit, beside a quarter of it: one entry of a log may have as many, and
requests that are pushed twice are in INPUT twice for a while."""
_INPUT = ("payloads", "index", "order")
_MIB = 1 << 20


class Backlog:
    """`limit`: bytes; 0: none; None: what suits the file system. Operations ask in their transaction, and tell their
    caller what it said as their result: an error would end the transactions of others with it."""

    def __init__(self, environment: Environment, limit: int | None = None) -> None:
        self._environment, self._db = environment, environment.db
        self.limit = _fitting(environment) if limit is None else limit
        self._last = 0

    def size(self) -> int:
        """Bytes of all of it."""
        with self._environment.reading() as txn:
            self._last = self._size(txn, "base_log", *_INPUT)
        return self._last

    def last_size(self) -> int:
        """For people: the same, or what it was when the store could be read."""
        with suppress(StoreUnavailable, Closed):
            self.size()
        return self._last

    def refuse_rows(self, txn: Txn) -> str:
        """Why no row of a base table can be written now; empty if it can."""
        found = self._size(txn, "base_log", *_INPUT) if self.limit else 0
        return self._reason(found, self.limit) if found >= self.limit > 0 else ""

    def refuse_chunk(self, txn: Txn) -> str:
        """Why INPUT takes nothing now; empty if it does. Logs do not count: they get shorter by it."""
        found = self._size(txn, *_INPUT) if self.limit else 0
        most = self.limit + self.limit // 4 + SLACK
        return self._reason(found, most) if self.limit and found >= most else ""

    def _size(self, txn: Txn, *names: str) -> int:
        found = 0
        for name in names:
            stat = txn.stat(self._db[name])
            found += stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
        return found

    def _reason(self, found: int, most: int) -> str:
        return (
            f"{found / _MIB:.1f} MiB of changes are not in the views yet, {most / _MIB:.1f} MiB are allowed; nothing "
            "was written: write again when the pool has caught up (are its distributors, view servers and coordinator "
            "there?), or let the store keep more (--backlog-limit)"
        )


def _fitting(environment: Environment) -> int:
    try:
        found = os.statvfs(environment.path)
    except OSError:
        return MOST
    return min(MOST, found.f_blocks * found.f_frsize // 2) or MOST
