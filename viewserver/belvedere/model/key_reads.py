"""`lookup` and `scan`, the same for every kind of database and for its snapshots; how a range is read is theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from belvedere.model import order
from belvedere.model.closing import Closing
from belvedere.model.keys import KeyCodec
from belvedere.model.pin import Pin
from belvedere.model.ranges import KeyRange

Wanted: TypeAlias = Callable[[KeyCodec, str], KeyRange]
"""The range that is asked for, once the key of the relation (and what to call it in errors) is known."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows of a range, all at one epoch. `more`: there are others behind them."""

    rows: pa.Table
    epoch: int
    more: bool
    keys: pa.Table
    codec: KeyCodec

    def end(self, count: int) -> bytes:
        """Where a page of only the first `count` rows ends."""
        last = self.keys.slice(count - 1, 1).combine_chunks()
        arrays = [column.chunk(0) for column in last.columns]
        return bytes(self.codec.encode(arrays, 1)[0].as_py())


class KeyReads(ABC):
    """Reads in key order."""

    @abstractmethod
    def get(
        self, relation: str, key: Any, *, after: Any = None, at: Any = None, allow_stale: bool = False
    ) -> dict[str, Any] | None:
        """The row of a key."""

    @abstractmethod
    def _range(
        self,
        relation: str,
        wanted: Wanted,
        columns: Sequence[str] | None,
        at: Any,
        after: Any,
        timeout: float | None,
        allow_stale: bool = False,
        keyed: bool = False,
    ) -> tuple[int, pa.Table]:
        """The rows of a range, in its order, and their epoch. `keyed`: with the columns of the key behind the others,
        hidden ones included."""

    def lookup(
        self,
        relation: str,
        *prefix: Any,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
        at: Any = None,
        after: Any = None,
        timeout: float | None = None,
        allow_stale: bool = False,
    ) -> pa.Table:
        """All rows whose key begins with these values, in key order; None is NULL. The rest is as with `scan`."""

        def wanted(codec: KeyCodec, owner: str) -> KeyRange:
            return order.prefix_range(codec, prefix, limit, reverse, owner)

        return self._range(relation, wanted, columns, at, after, timeout, allow_stale)[1]

    def scan(
        self,
        relation: str,
        *,
        start: Any = None,
        stop: Any = None,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        at: Any = None,
        after: Any = None,
        timeout: float | None = None,
        allow_stale: bool = False,
    ) -> pa.Table:
        """Rows in key order, from the key `start` to the key `stop` (not included); a prefix of a key will do.

        `reverse`: from the greatest key down; `start` and `stop` mean the same. `columns`: only these, in this order.
        `allow_stale`: of a view that has failed, the rows that it had before, as with `get`.
        """

        def wanted(codec: KeyCodec, owner: str) -> KeyRange:
            return order.key_range(codec, start, stop, limit, reverse, owner)

        return self._range(relation, wanted, columns, at, after, timeout, allow_stale)[1]

    def read_range(
        self, relation: str, range: KeyRange, *, columns: Sequence[str] | None = None, at: Any = None
    ) -> tuple[int, pa.Table]:
        """Rows whose encoded keys are in a range, in its order, and their epoch: for who has the keys as bytes."""
        return self._range(relation, lambda codec, owner: range, columns, at, None, None)

    def page(
        self,
        relation: str,
        *,
        limit: int,
        prefix: Sequence[Any] | None = None,
        start: Any = None,
        stop: Any = None,
        beyond: bytes | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        at: Any = None,
        after: Any = None,
        timeout: float | None = None,
        allow_stale: bool = False,
    ) -> RowPage:
        """Rows as `lookup` (with a prefix) or `scan` gives them, and how to go on. `beyond`: where another page ended
        (`RowPage.end`); at its epoch the pages are one answer."""
        codecs: list[KeyCodec] = []

        def wanted(codec: KeyCodec, owner: str) -> KeyRange:
            codecs.append(codec)
            if prefix is not None:
                asked = order.prefix_range(codec, prefix, limit + 1, reverse, owner)
            else:
                asked = order.key_range(codec, start, stop, limit + 1, reverse, owner)
            return asked if beyond is None else asked.beyond(beyond)

        epoch, rows = self._range(relation, wanted, columns, at, after, timeout, allow_stale, keyed=True)
        codec, visible = codecs[-1], rows.num_columns - len(codecs[-1].columns)
        return RowPage(
            rows.select(range(visible)).slice(0, limit),
            epoch,
            rows.num_rows > limit,
            rows.select(range(visible, rows.num_columns)),
            codec,
        )


class SnapshotReads(Closing):
    """Reads of a database at one moment, which is pinned until the end."""

    def __init__(self, database: KeyReads, at: Any, pin: Pin, unpin: Callable[[Pin], None]) -> None:
        self._reads, self._at = database, at
        self._pin: Pin | None = pin
        self._unpin = unpin

    def get(self, relation: str, key: Any) -> dict[str, Any] | None:
        return self._reads.get(relation, key, at=self._at)

    def lookup(
        self,
        relation: str,
        *prefix: Any,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> pa.Table:
        return self._reads.lookup(relation, *prefix, columns=columns, limit=limit, reverse=reverse, at=self._at)

    def scan(
        self,
        relation: str,
        *,
        start: Any = None,
        stop: Any = None,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        return self._reads.scan(
            relation, start=start, stop=stop, limit=limit, reverse=reverse, columns=columns, at=self._at
        )

    def close(self) -> None:
        if self._pin is not None:
            self._unpin(self._pin)
            self._pin = None
