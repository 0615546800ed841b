"""SQL front end: text to bound queries and statements, DuckDB text, manifests.

`parse_statement`, `parse_script` and `bind_query` are found here, and loaded when first asked for: the engine needs
only the dataclasses of `expr` and `query`, not a parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from belvedere.sql.ddl import bind_query, parse_script, parse_statement

__all__ = ["bind_query", "parse_script", "parse_statement"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from belvedere.sql import ddl

        return getattr(ddl, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
