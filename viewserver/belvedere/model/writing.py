"""`put`, `delete` and `write`, the same for every database that can be written to; how changes become durable is
theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from belvedere.engine.delta import Changes
from belvedere.errors import CatalogError
from belvedere.model.rows import GivenRows, is_frame
from belvedere.model.token import Token
from belvedere.sql import statements as st

TokenT = TypeVar("TokenT", bound=Token)
ReadRows: TypeAlias = Callable[[GivenRows], Changes | None]
"""What was given, read as rows of a table. None: no rows."""


class Writing(ABC, Generic[TokenT]):
    """Writes of rows that users give."""

    @abstractmethod
    def written(self, name: str) -> TokenT | None:
        """The token of a write by the name of its `request`; None if there was none within the last hour."""

    @abstractmethod
    def _write(
        self,
        table: str,
        read: ReadRows,
        ts: Any,
        timeout: float | None,
        *,
        ordered: bool,
        borrowed: bool,
        request: str = "",
    ) -> TokenT:
        """Make the changes durable, all or none. `ordered`: puts and deletes are mixed, and a later one of a key wins.
        `borrowed`: the rows may be arrays of the caller, who may change them afterwards."""

    def put(self, table: str, rows: Any, *, ts: Any = None, timeout: float | None = None, request: str = "") -> TokenT:
        """Insert or update rows (dicts, Arrow, pandas, polars). Missing columns are unchanged, None is NULL.

        Atomic; returns when durable. `ts`: cell timestamps (microseconds or datetime, for all rows or one per row).
        `request`: a name, or NAME:DIGEST, under which the call can be repeated within an hour: then nothing is written,
        and the answer is the same. Another digest under a name is `RequestReused`.
        """
        return self._write(
            table, lambda to: to.puts(rows), ts, timeout, ordered=False, borrowed=is_frame(rows), request=request
        )

    def delete(
        self, table: str, keys: Any, *, ts: Any = None, timeout: float | None = None, request: str = ""
    ) -> TokenT:
        """Delete rows by key: values, tuples or dicts, or a table with the key columns."""
        return self._write(
            table, lambda to: to.deletes(keys), ts, timeout, ordered=False, borrowed=is_frame(keys), request=request
        )

    def write(
        self, table: str, rows: Any, *, deletes: Any, ts: Any = None, timeout: float | None = None, request: str = ""
    ) -> TokenT:
        """Puts and deletes in one atomic, ordered batch: `deletes` has a boolean per row."""
        return self._write(
            table, lambda to: to.mixed(rows, deletes), ts, timeout, ordered=True, borrowed=True, request=request
        )

    def _write_rows(self, statement: st.Statement) -> TokenT | None:
        """INSERT and DELETE; None for other statements."""
        match statement:
            case st.Insert():
                return self.put(statement.table, [dict(zip(statement.columns, r, strict=True)) for r in statement.rows])
            case st.Delete():
                return self.delete(statement.table, list(statement.keys))
        return None


def refuse_view(name: str) -> CatalogError:
    return CatalogError(f"{name!r} is a view; rows are written to base tables")
