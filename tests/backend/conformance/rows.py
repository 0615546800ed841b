"""Rows as the conformance tests write them: ids from small numbers, values from Python, and what a scan gives back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import Store, TableWrite

BUCKETS = 16_384
LAST = 2**62
"""A version that no test reaches."""


def ids(*numbers: int) -> np.ndarray:
    """One id for each small number: bucket `number`, whatever else in the other bits."""
    return np.array([id_of(number) for number in numbers], np.uint64).reshape(-1, 2)


def id_of(number: int) -> tuple[int, int]:
    mixed = number * 0x9E3779B97F4A7C15 % 2**49
    return (mixed << 14) % 2**64 + number % BUCKETS, number * 0xD6E8FEB86659FD93 % 2**64


def values(*content: bytes | None) -> pa.BinaryArray:
    return pa.array(content, pa.binary())


def write(store: Store, epoch: int, rows: dict[int, bytes | None], table: str = "t", logged: bool = False) -> None:
    store.write(epoch, [TableWrite(table, ids(*rows), values(*rows.values()), logged)])


def read(store: Store, numbers: Sequence[int], below: int = LAST, table: str = "t") -> list[bytes | None]:
    found = store.read(table, ids(*numbers), below)
    assert isinstance(found, pa.BinaryArray)
    return found.to_pylist()


def scan(store: Store, first: int = 0, stop: int = BUCKETS, below: int = LAST, table: str = "t") -> dict:
    """Rows by id; fails if they do not come in order of bucket and id."""
    found: list[tuple[tuple[int, int], bytes]] = []
    for keys, content in store.scan(table, first, stop, below):
        assert keys.dtype == np.uint64 and len(keys) == len(content) > 0
        found += zip(map(tuple, keys.tolist()), content.to_pylist(), strict=True)
    order = [(key[0] % BUCKETS, *key) for key, _ in found]
    assert order == sorted(set(order))
    return dict(found)


def changed(store: Store, after: int, upto: int, table: str = "t") -> dict[int, list[tuple[int, int]]]:
    found = [(epoch, [tuple(id) for id in keys.tolist()]) for epoch, keys in store.changed(table, after, upto)]
    assert [epoch for epoch, _ in found] == sorted({epoch for epoch, _ in found})
    for _, keys in found:
        assert keys == sorted(set(keys)) and keys
    return dict(found)


def collect(store: Store, horizon: int, tombstones: int = 0) -> None:
    """Returns when everything that may go has gone."""
    store.collect(horizon, tombstones)
    deadline = time.monotonic() + 60
    while store.collected() < horizon:
        assert time.monotonic() < deadline, "the collection does not come to its end"
        time.sleep(0.002)


def by_id(rows: Iterable[tuple[int, bytes]]) -> dict[tuple[int, int], bytes]:
    return {id_of(number): value for number, value in rows}
