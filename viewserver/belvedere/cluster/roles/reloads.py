"""What a leader does when somebody asks for a table of another system to be read again."""

from __future__ import annotations

import re
from collections.abc import Callable

from belvedere import errors
from belvedere.backend.seam import Follower
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.transport import calls
from belvedere.model.reloads import DONE, ReloadReport

_ID = re.compile(r"[A-Za-z0-9_.]{1,64}")


def reload(follower: Follower | None, catalog: Callable[[], bytes], request: calls.ReloadCall) -> ReloadReport:
    """Ask for it, unless that has happened; how far it is."""
    following, name = _asked(follower, catalog, request, "read again")
    following.reload(request.id, name, request.start, request.stop)
    state = next(one for one in following.reloads() if one.id == request.id)
    at = following.load_progress().get(name)
    if at is None or state.phase != "scan":
        share = 0.0 if state.phase == "scan" else 1.0
        return ReloadReport(
            state.id, request.table, state.phase, share=share, corrected=state.corrected, undecided=state.undecided
        )
    return ReloadReport(state.id, request.table, state.phase, at.rows, at.share, at.remaining_s)


def look(follower: Follower | None, catalog: Callable[[], bytes], request: calls.LookCall) -> calls.LookSeen:
    """The same for a comparison."""
    following, name = _asked(follower, catalog, request, "compared")
    following.look(request.id, name)
    state = next(one for one in following.reloads() if one.id == request.id)
    return calls.LookSeen(state.phase == DONE, *state.counts, state.undecided, state.examples)


def _asked(
    follower: Follower | None, catalog: Callable[[], bytes], request: calls.ReloadCall | calls.LookCall, what: str
) -> tuple[Follower, str]:
    """Who follows the table, and its name there."""
    if follower is None:
        raise errors.CatalogError(
            f"{request.table!r} cannot be {what}: base tables of this pool are its own, and nothing passes it by"
        )
    if not _ID.fullmatch(request.id):
        raise errors.DataError(f"{request.id!r} is no name for a request: up to 64 letters, digits, _ and . are")
    tables = catalogs.compile(catalog()).tables
    table = next((one for name, one in tables.items() if name.lower() == request.table.lower()), None)
    if table is None:
        known = ", ".join(sorted(tables)) or "none"
        raise errors.UnknownRelation(f"there is no base table {request.table!r}; there are: {known}")
    return follower, table.stored.name
