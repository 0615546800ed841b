"""Scans that break off and go on: rows come ordered by bucket and id, so what came last says where to begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from belvedere.protocol.ring import buckets_of
from belvedere.retry import Retry

Piece: TypeAlias = tuple[np.ndarray, pa.BinaryArray]


def resumed_scan(begin: Callable[[int], Iterator[Piece]], first: int, retry: Retry) -> Iterator[Piece]:
    """The pieces of a scan that `begin` starts at a bucket; no row twice, however often it breaks off."""
    last: np.ndarray | None = None
    while True:
        retry.begin()
        try:
            for piece in begin(first if last is None else int(buckets_of(last[None])[0])):
                ids, values = _behind(last, *piece)
                if len(ids):
                    last = ids[-1].copy()
                    retry.progressed()
                    yield ids, values
        except retry.on as error:
            retry.failed(error)
        else:
            retry.succeeded()
            return


def _behind(last: np.ndarray | None, ids: np.ndarray, values: pa.BinaryArray) -> Piece:
    """Without rows that came before."""
    if last is None or not len(ids):
        return ids, values
    bucket, buckets = buckets_of(last[None])[0], buckets_of(ids)
    later = (ids[:, 0] > last[0]) | ((ids[:, 0] == last[0]) & (ids[:, 1] > last[1]))
    start = int(np.count_nonzero((buckets < bucket) | ((buckets == bucket) & ~later)))
    return ids[start:], values.slice(start)
