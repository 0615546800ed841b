"""Names of a pool's tables in the store: those that keep rows of views, rows that views cannot show, and base rows."""

from __future__ import annotations

from typing import Protocol


class NamedVersion(Protocol):
    """One version of a view: a plan's node, or its shape."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...


def view_table(view: NamedVersion) -> str:
    """The store's table of a view's rows."""
    return f"view {view.name} {view.version}"


def is_view_table(table: str) -> bool:
    """Whether a store's table has the rows of a view."""
    return table.startswith("view ")


def quarantine_table(view: NamedVersion) -> str:
    """The store's table of the rows that a view cannot show because they failed."""
    return f"quarantine {view.name} {view.version}"


def delta_table(name: str) -> str:
    """The store's table of the rows of a base table."""
    return f"delta {name}"
