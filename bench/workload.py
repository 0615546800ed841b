"""The paper's workload: a stream of inserts, updates and deletes over R, and a smaller one over S for the join.

R(k BIGINT key, a BIGINT, x BIGINT in 0..groups, f DOUBLE, s STRING of 30 characters). Of all operations 80 % insert, 15
% update (the whole row, with a new x, so rows move between groups) and 5 % delete. Updates and deletes pick a live row,
uniformly or by Zipf's law (exponent 1.0). f is a multiple of 2^-10, so even the naive engine's float sums are exact and
results can be compared with ==. S(k BIGINT key in 0..100k, v DOUBLE): 100k inserts first, then 100k mixed operations
spread over R's stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa

INSERT, UPDATE, DELETE = 0, 1, 2


@dataclass
class Stream:
    """Operations in order: what, and the row (for deletes only the key counts)."""

    op: np.ndarray
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.op)

    def batches(self, size: int) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """(rows, mask of deletes) in pieces."""
        for start in range(0, len(self), size):
            yield self.rows.slice(start, size), self.op[start : start + size] == DELETE

    def tuples(self, *names: str) -> list[tuple[Any, ...]]:
        """(op, column, ...) per operation, decoded: what the naive engine takes."""
        return list(zip(self.op.tolist(), *(self.rows[n].to_pylist() for n in names), strict=True))


@numba.njit(cache=True)
def _keys(count, zipf, seed, inserts):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    op = np.empty(count, np.int8)
    key = np.empty(count, np.int64)
    live = np.empty(count, np.int64)
    alive = 0
    following = np.int64(1)
    for i in range(count):
        u = np.random.random()
        if u < inserts or alive < 10:
            op[i] = 0
            key[i] = (following * np.int64(0x9E3779B97F4A7C15 >> 2)) & np.int64(0x7FFFFFFFFFFFFFFF)
            live[alive] = key[i]
            alive += 1
            following += 1
            continue
        if zipf:
            p = min(int(np.exp(np.random.random() * np.log(alive + 1.0))) - 1, alive - 1)
        else:
            p = np.random.randint(0, alive)
        key[i] = live[p]
        if u < inserts + (1 - inserts) * 0.75:
            op[i] = 1
        else:
            op[i] = 2
            alive -= 1
            live[p] = live[alive]
    return op, key


def stream_r(count: int, groups: int, *, zipf: bool = False, seed: int = 7, inserts: float = 0.8) -> Stream:
    """`count` operations over R."""
    op, key = _keys(count, zipf, seed, inserts)
    rng = np.random.default_rng(seed + 1)
    letters = rng.integers(97, 123, count * 30, dtype=np.uint8)
    offsets = np.arange(0, 30 * count + 1, 30, dtype=np.int32)
    text = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])
    rows = pa.table(
        {
            "k": key,
            "a": rng.integers(0, 1_000_000, count),
            "x": rng.integers(0, groups, count),
            "f": rng.integers(0, 1 << 20, count) / 1024.0,
            "s": text,
        }
    )
    return Stream(op, rows)


def stream_s(size: int = 100_000, mixed: int = 100_000, seed: int = 11) -> tuple[Stream, Stream]:
    """(the first inserts, the mixed operations: 80 % update, 10 % delete, 10 % insert again)."""
    rng = np.random.default_rng(seed)
    live = list(range(size))
    dead: list[int] = []
    op: list[int] = []
    keys: list[int] = []
    choice, pick = rng.random(mixed), rng.random(mixed)
    for u, r in zip(choice, pick, strict=True):
        if u < 0.8 or (u >= 0.9 and not dead):
            op.append(UPDATE)
            keys.append(live[int(r * len(live))])
        elif u < 0.9:
            p = int(r * len(live))
            key, live[p] = live[p], live[-1]
            live.pop()
            dead.append(key)
            op.append(DELETE)
            keys.append(key)
        else:
            key = dead.pop(int(r * len(dead)))
            live.append(key)
            op.append(INSERT)
            keys.append(key)
    values = rng.integers(0, 1 << 20, size + mixed) / 1024.0
    first = Stream(np.zeros(size, np.int8), pa.table({"k": np.arange(size), "v": values[:size]}))
    rest = Stream(np.array(op, np.int8), pa.table({"k": np.array(keys, np.int64), "v": values[size:]}))
    return first, rest
