"""What a shard gives to others: rows for other servers, rows for the store, figures of its zones, and its failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.errors import BelvedereError
from belvedere.types import Schema


@dataclass(frozen=True)
class Outgoing:
    """Rows for the server at position `target`, which needs them before it runs `stage`."""

    target: int
    stage: int
    payload: bytes
    rows: int


@dataclass(frozen=True)
class RowShape:
    """What rows are made of: the columns that a value packs (`decode_view_rows`), and where the key stands in them."""

    schema: Schema
    key: tuple[int, ...]


@dataclass(frozen=True)
class TableWrite:
    """What an epoch changes in one table of the store: ids (each once) and values (binary, null = the row is gone).
    Several for one table if there is very much.

    `logged`: readers will ask which ids an epoch wrote (views, quarantine; state tables do not need it).
    `keys`: of tables that are read in order (views, base rows), the key of each row as bytes in order (`model.keys`),
    of removed rows as well. A table has keys with every write, or never; an id has one key.
    `hidden` (bool, with keys): values that are no rows to those who read in order; DELTA keeps tombstones of base rows
    as such.
    `shape`: of views, for stores that keep columns, or tell others what is in a table.
    `before`: of views, where the store asks for it (`previous_images`), the value of each row before this epoch; null
    where there was no row."""

    table: str
    ids: np.ndarray
    values: pa.BinaryArray
    logged: bool = False
    keys: pa.BinaryArray | None = None
    hidden: np.ndarray | None = None
    shape: RowShape | None = None
    before: pa.BinaryArray | None = None


@dataclass(slots=True)
class Traffic:
    """Rows that came into a zone, and rows that left it for others."""

    received: int = 0
    sent: int = 0


@dataclass(slots=True)
class Held:
    """State of a zone."""

    rows: int = 0
    bytes: int = 0


class StageError(Exception):
    """An operator failed. `views`: names of the views of a view group that it serves. `view_group`: its number if these
    views are to blame, 0 if they are not."""

    def __init__(self, views: tuple[str, ...], reason: str, view_group: int = 0):
        super().__init__(f"view {', '.join(views)}: {reason}" if views else reason)
        self.views, self.reason, self.view_group = views, reason, view_group


@contextmanager
def blaming(views: tuple[str, ...], where: str = "", view_group: int = 0) -> Iterator[None]:
    """Whatever goes wrong inside is told with the names of these views. They are to blame for it if it is a failure of
    computation."""
    try:
        yield
    except BelvedereError:
        raise
    except Exception as error:
        guilty = view_group if is_of_computation(error) else 0
        raise StageError(views, f"{where}{type(error).__name__}: {error}", guilty) from error


def is_of_computation(error: BaseException) -> bool:
    """Whether the same rows will most likely fail again wherever they are computed. A disk, memory, or what a store
    says are not: any view would have met them."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (BelvedereError, OSError, MemoryError)) or not isinstance(cause, Exception):
            return False
        cause = cause.__cause__ or cause.__context__
    return True
