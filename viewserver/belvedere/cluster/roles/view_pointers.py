"""Which version of each view is served, for readers that know nothing of catalogs: a small document per view.

    views/NAME     the number of the version

A backend whose view tables others can read keeps every version in a table of its own; this says which one to read. The
leader writes it after the epoch from which a version is served: a reader that follows it never meets a version under
construction, and may meet the former one a moment longer. It is looked at again now and then: a leader that was paused
may have written what it knew.
"""

from __future__ import annotations

from collections.abc import Callable

from belvedere.backend.seam import VIEW_POINTERS, Documents
from belvedere.cluster.catalog.names import ReadableView, names_at
from belvedere.cluster.transport.calls import CommittedRow


class ViewPointers:
    """What the leader has written, in its term."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._written: tuple[object, ...] | None = None

    def look_again(self) -> None:
        self._written = None

    def due(self, newest: CommittedRow) -> Callable[[], None] | None:
        """What is to be done since this was committed; nothing if it was done already."""
        served = (newest.catalog_document, newest.building)
        if not newest.catalog or served == self._written:
            return None

        def write() -> None:
            self._write(newest)
            self._written = served

        return write

    def _write(self, newest: CommittedRow) -> None:
        document = self._documents.get_document(newest.catalog_document)
        if document is None:
            return
        wanted = {
            VIEW_POINTERS + name: str(served.shape.version).encode()
            for name, served in names_at(document, newest.building).items()
            if isinstance(served, ReadableView)
        }
        there = self._documents.list_documents(VIEW_POINTERS)
        for name, version in wanted.items():
            if name not in there or self._documents.get_document(name) != version:
                self._documents.put_document(name, version)
        gone = [name for name in there if name not in wanted]
        if gone:
            self._documents.remove_documents(gone)
