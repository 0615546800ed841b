"""`allow_stale`: the rows that a failed view had before it failed, for who asked for them.

They are read below the epoch since which the view has failed, as long as the store keeps what can be seen there; later
at the newest version, where the leader has put them (`cluster/roles/void_rows.py`). The store says which: it refuses
reads below its horizon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from belvedere.cluster.catalog.names import Readable
from belvedere.cluster.client.epochs import CommittedEpochs
from belvedere.cluster.client.token import ClusterToken
from belvedere.cluster.transport.calls import NEWEST
from belvedere.errors import BelowHorizon, ViewFailed
from belvedere.retry import Deadline

T = TypeVar("T")


def read(
    epochs: CommittedEpochs,
    relation: str,
    after: Any,
    deadline: Deadline,
    error: ViewFailed,
    body: Callable[[Readable, int, Deadline, int | None], T],
) -> T:
    """`body` gets the epoch to read at, and that of the rows. `error`: what is raised if the view has no such rows, or
    not those that `after` asks for."""
    committed = epochs.newest(deadline).committed
    failed = epochs.failed(committed, deadline)
    found = next((one for name, one in failed.items() if name.lower() == relation.lower()), None)
    if found is None:
        raise error
    last = found.failure.epoch - 1
    if after is not None and not epochs.covered(ClusterToken.parse(after), last, deadline):
        later = f"{error}; its rows are those of epoch {last}, and the answer is to include later ones"
        raise ViewFailed(later, last + 1)
    try:
        return body(found.view, last, deadline, last)
    except BelowHorizon:
        return body(found.view, NEWEST - 1, deadline, last)
