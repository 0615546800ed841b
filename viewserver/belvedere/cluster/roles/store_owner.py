"""A store belongs to one pool, for good.

Nothing in a store is named after a pool, and what a pool knows of its store is in ZooKeeper: which epochs are
committed, and which plans are open. Two pools on one store would write into each other's state, and a pool that begins
anew on a store with state of an earlier life would add all rows to it once more. Both are refused here, before anyone
leads.

    no record, no owner ──▶ owner/POOL is written ──nobody else's is there──▶ ours
    owner/POOL, a record ──▶ ours
    owner/OTHER, or plans without a record ──▶ Incompatible
"""

from __future__ import annotations

from belvedere.backend.seam import Store
from belvedere.errors import Incompatible
from belvedere.protocol.messages import Epoch

OWNER = "owner/"


def claim(store: Store, pool: str, *, recorded: bool) -> None:
    """`recorded`: ZooKeeper has a record of the pool."""
    mine = OWNER + pool
    found = store.list_documents(OWNER)
    _refuse_others(found, mine)
    if not recorded and any(store.list_documents(prefix) for prefix in ("plan/", "catalog/")):
        raise Incompatible(
            f"the store holds state of pool {pool!r}, and ZooKeeper has no record of that pool: restore ZooKeeper's"
            " data from the same moment, or begin with an empty store"
        )
    if mine not in found:
        store.put_document(mine, b"")
        _refuse_others(store.list_documents(OWNER), mine)  # two that began at once: each sees the other


def check_committed(pool: str, published: Epoch, committed: Epoch) -> None:
    """Refuse to lead when the record has gone back behind what the store has published: ZooKeeper has lost writes that
    it had acknowledged. `published` was read before the record."""
    if published > committed:
        raise Incompatible(
            f"the store has published epoch {published} of pool {pool!r}, and ZooKeeper's record says that {committed}"
            " is the last one committed: ZooKeeper has lost what it acknowledged. To plan from there again would count"
            " changes twice: restore ZooKeeper's data with its newest transactions, or begin with an empty store and"
            " load it anew"
        )


def _refuse_others(found: list[str], mine: str) -> None:
    for other in found:
        if other != mine:
            raise Incompatible(
                f"the store belongs to pool {other.removeprefix(OWNER)!r}, this is pool {mine.removeprefix(OWNER)!r}:"
                " each pool needs a store of its own"
            )
