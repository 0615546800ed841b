"""`execute` over the tables of views in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belvedere.embedded.reading import Reading
from belvedere.model.statements import Executing
from belvedere.model.token import Token


class Statements(Reading, Executing):
    """Statements over the tables of views in memory."""

    def _token(self, value: Any) -> Token:
        return Token.parse(value)

    def _row_counts(self) -> Mapping[str, int]:
        return {name: len(table) for name, table in self._views().items()}
