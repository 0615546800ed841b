"""A store belongs to one pool."""

from __future__ import annotations

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.roles import store_owner
from belvedere.errors import Incompatible
from belvedere.protocol.messages import Epoch


def test_a_store_is_claimed_once_and_stays_with_its_pool() -> None:
    store = MemoryStore()
    store_owner.claim(store, "shop", recorded=False)
    store_owner.claim(store, "shop", recorded=False)
    store.put_document("plan/1-1", b"")
    store_owner.claim(store, "shop", recorded=True)
    with pytest.raises(Incompatible, match="belongs to pool 'shop', this is pool 'bank'"):
        store_owner.claim(store, "bank", recorded=False)
    with pytest.raises(Incompatible, match="belongs to pool 'shop'"):
        store_owner.claim(store, "bank", recorded=True)


def test_state_without_a_record_is_not_counted_twice() -> None:
    store = MemoryStore()
    store.put_document("catalog/1-1", b"")
    with pytest.raises(Incompatible, match="no record of that pool: restore ZooKeeper's data"):
        store_owner.claim(store, "shop", recorded=False)
    store_owner.claim(store, "shop", recorded=True)


def test_two_pools_that_begin_at_once_are_both_refused_or_one_wins() -> None:
    store = MemoryStore()
    listed = store.list_documents
    raced = []

    def race(prefix: str) -> list[str]:
        found = listed(prefix)
        if not raced:
            raced.append(store.put_document("owner/bank", b""))  # between the look and the claim
        return found

    store.list_documents = race  # type: ignore[method-assign]
    with pytest.raises(Incompatible, match="belongs to pool 'bank'"):
        store_owner.claim(store, "shop", recorded=False)


def test_a_record_behind_what_is_published_is_refused_by_name() -> None:
    store_owner.check_committed("shop", Epoch(10), Epoch(10))
    store_owner.check_committed("shop", Epoch(10), Epoch(11))
    with pytest.raises(Incompatible, match=r"published epoch 11 of pool 'shop', .* says that 10 "):
        store_owner.check_committed("shop", Epoch(11), Epoch(10))
