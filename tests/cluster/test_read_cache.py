"""What a view server remembers of its writes, against a plain dict of versions."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.cluster.roles.read_cache import ReadCache


def write(rows: dict[tuple[int, int], bytes | None], *, logged: bool = True) -> TableWrite:
    ids = np.array(list(rows), np.uint64).reshape(-1, 2)
    return TableWrite("v", ids, pa.array([rows[(int(a), int(b))] for a, b in ids], pa.binary()), logged)


def test_reads_equal_the_newest_version_that_an_epoch_sees() -> None:
    rng = random.Random(7)
    keys = [(a << 50, b) for a in range(12) for b in (0, 1, 1 << 63)]
    recent = ReadCache(1 << 20)
    versions: dict[tuple[int, int], list[tuple[int, bytes | None]]] = {}
    for epoch in range(1, 40):
        chosen = rng.sample(keys, rng.randrange(1, 8))
        rows = {key: None if rng.random() < 0.2 else f"{epoch} {key}".encode() for key in chosen}
        recent.add(epoch, [write(rows)])
        for key, value in rows.items():
            versions.setdefault(key, []).append((epoch, value))
        at = rng.randrange(1, epoch + 1)
        asked = rng.sample(keys, 20)
        known, values = recent.read("v", np.array(asked, np.uint64), at)
        for key, is_known, value in zip(asked, known, values.to_pylist(), strict=True):
            seen = [found for version, found in versions.get(key, []) if version <= at]
            assert bool(is_known) == bool(seen)
            assert value == (seen[-1] if seen else None)


def test_an_epoch_may_write_a_table_in_pieces() -> None:
    recent = ReadCache(1 << 20)
    recent.add(1, [write({(1, 1): b"old", (2, 2): b"old"})])
    recent.add(2, [write({(1, 1): b"new"}), write({(2, 2): b"new"}), write({(3, 3): b"new"})])
    known, values = recent.read("v", np.array([(1, 1), (2, 2), (3, 3)], np.uint64), 2)
    assert known.all() and values.to_pylist() == [b"new"] * 3
    assert recent.read("v", np.array([(1, 1), (2, 2)], np.uint64), 1)[1].to_pylist() == [b"old"] * 2


def test_the_oldest_epochs_are_given_up_first() -> None:
    recent = ReadCache(100)
    for epoch in range(1, 10):
        recent.add(epoch, [write({(epoch, 0): b"x" * 20})])
    known, _ = recent.read("v", np.array([(epoch, 0) for epoch in range(1, 10)], np.uint64), 9)
    assert known.tolist() == [False] * 7 + [True] * 2


def test_epochs_that_are_undone_are_not_remembered() -> None:
    recent = ReadCache(1 << 20)
    for epoch in (1, 2, 3):
        recent.add(epoch, [write({(1, 1): str(epoch).encode()})])
    recent.undo(2)
    assert recent.read("v", np.array([(1, 1)], np.uint64), 9)[1].to_pylist() == [b"2"]
    recent.clear()
    assert recent.read("v", np.array([(1, 1)], np.uint64), 9)[0].tolist() == [False]


def test_state_is_not_remembered() -> None:
    recent = ReadCache(1 << 20)
    recent.add(1, [write({(1, 1): b"state"}, logged=False)])
    assert recent.read("v", np.array([(1, 1)], np.uint64), 1)[0].tolist() == [False]


def test_ids_may_come_in_any_order() -> None:
    recent = ReadCache(1 << 20)
    ids = np.array([[9, 1], [2, 7], [5, 0], [2, 3]], np.uint64)
    values = pa.array([b"9-1", b"2-7", None, b"2-3"], pa.binary())
    recent.add(1, [TableWrite("v", ids, values, logged=True)])
    known, found = recent.read("v", ids, 1)
    assert known.all()
    assert found.to_pylist() == [b"9-1", b"2-7", None, b"2-3"]
