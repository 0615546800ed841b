"""`execute` over the tables of views in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from belvedere.embedded.reading import Reading
from belvedere.errors import CatalogError, SqlError
from belvedere.model.statements import Executing, Result
from belvedere.model.token import Token


class Statements(Reading, Executing):
    """Statements over the tables of views in memory."""

    def execute(self, sql: str, *, wait: bool = True) -> Result:
        try:
            return super().execute(sql, wait=wait)
        except (SqlError, CatalogError) as error:
            # names of views that have failed are unknown: whoever uses one is to hear why
            words = set(re.findall(r"\w+", sql.lower()))
            for name, view in self._refused().items():
                if view.failed and name.lower() in words:
                    raise view.error() from error
            raise

    def _token(self, value: Any) -> Token:
        return Token.parse(value)

    def _row_counts(self) -> Mapping[str, int]:
        return {name: len(table) for name, table in self._views().items()}
