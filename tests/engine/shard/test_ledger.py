"""What a shard has written is seen by its loads until the store has it, whatever else is known of the epoch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.ledger import Ledger
from belvedere.engine.shard import BUCKETS, TableWrite
from tests.engine.shard.pool import MemoryStore

IDS = np.array([[1, 1], [2, 2], [3, 3]], np.uint64)


def written(store: MemoryStore, epoch: int, *values: bytes | None) -> tuple[Ledger, list[TableWrite]]:
    """A ledger whose epoch has just ended, and what the store has to get of it."""
    ledger = Ledger(store)
    ledger.epoch = epoch
    ledger.save("t", IDS[: len(values)], pa.array(values, pa.binary()))
    made = [TableWrite(t, w.ids, w.values, False) for t, pieces in ledger.close_epoch().items() for w in pieces]
    ledger.epoch = epoch + 1
    return ledger, made


def scanned(ledger: Ledger) -> dict[bytes, bytes]:
    found = ledger.scan("t", 0, BUCKETS, np.ones(BUCKETS, np.bool_))
    return {id.tobytes(): value for ids, values in found for id, value in zip(ids, values.to_pylist(), strict=True)}


@pytest.mark.parametrize("committed", [False, True])
def test_writes_are_seen_until_they_are_durable(committed: bool) -> None:
    """Also when others know already that the epoch is committed."""
    store = MemoryStore()
    store.write(1, [TableWrite("t", IDS, pa.array([b"old", b"gone", b"other"], pa.binary()), False)])
    ledger, made = written(store, 2, b"new", None)
    if committed:
        ledger.committed(2)
    assert ledger.load("t", IDS).to_pylist() == [b"new", None, b"other"]
    assert sorted(scanned(ledger).values()) == [b"new", b"other"]
    store.write(2, made)
    ledger.persisted(2)
    assert ledger.load("t", IDS).to_pylist() == [b"new", None, b"other"]
    assert [one.epoch for one in ledger.open] == ([] if committed else [2]), "what may be undone is remembered"


def test_writes_of_an_attempt_that_failed_are_not_seen() -> None:
    store = MemoryStore()
    ledger, _ = written(store, 2, b"new")
    (undone,) = ledger.undo(1)
    assert [ids.tolist() for ids in undone.touched["t"]] == [IDS[:1].tolist()]
    assert ledger.load("t", IDS[:1]).to_pylist() == [None] and not scanned(ledger)
