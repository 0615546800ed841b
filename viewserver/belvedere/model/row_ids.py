"""The id of one row, from its key: the 128-bit hash of `belvedere.engine.state.hashing`, for those who have no engine.

A client hashes the one key of a `get`; whole columns are the engine's business, whose kernels take seconds to load. The
constants are part of the format of what is stored, and `tests/model/test_stored_rows.py` compares the two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.vec import Vec
from belvedere.types import Kind

_MASK = (1 << 64) - 1
_SEED_A, _SEED_B = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_NULL_A, _NULL_B = 0xA0761D6478BD642F, 0xE7037ED1A0B428DB
_K1, _K2, _K3, _K4 = 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3, 0x1D8E4E27C47D124F, 0xEB44ACCAB455D165
_SIGN, _INF, _NAN = 1 << 63, 0x7FF0000000000000, 0x7FF8000000000000


def row_id(columns: Sequence[Vec]) -> np.ndarray:
    """The id (uint64[1, 2]) of the one row of these columns, in this order."""
    a, b = _SEED_A, _SEED_B
    for column in columns:
        status = 1 if column.status is None else int(column.status[0])
        if status != 1:
            for _ in range(2 if column.type.wide else 1):  # as often as it has words
                a, b = _mix_a(a ^ (_NULL_A + status & _MASK)), _mix_b(b ^ (_NULL_B + status & _MASK))
        elif column.type.varlen:
            s, t = _text(column.data[0].as_buffer().to_pybytes())
            a, b = _mix_a(a ^ s), _mix_b(b + t & _MASK)
        else:
            for word in _words(column):
                a, b = _mix_a(a ^ word), _mix_b(b + (word << 32 & _MASK | word >> 32) & _MASK)
                if a == b == 0:
                    b = 1
        if a == b == 0:
            b = 1
    return np.array([[a, b]], np.uint64)


def _words(column: Vec) -> list[int]:
    if column.type.wide:
        return [int(word) & _MASK for word in column.data[0]]
    if column.type.kind is not Kind.DOUBLE:
        return [int(column.data[0]) & _MASK]
    bits = int(column.data[:1].view(np.uint64)[0])
    if bits == _SIGN:
        return [0]
    return [_NAN if bits & ~_SIGN > _INF else bits]


def _mix_a(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & _MASK
    x ^= x >> 29
    x = x * 0xC4CEB9FE1A85EC53 & _MASK
    return x ^ x >> 32


def _mix_b(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def _folded(x: int, y: int) -> int:
    product = x * y
    return product & _MASK ^ product >> 64


def _text(value: bytes) -> tuple[int, int]:
    """A text reduced to two words."""
    n, at = len(value), 0
    s, t = _K1 ^ n, _K2 + n & _MASK
    while n - at > 16:
        x, y = _load(value, at, 8), _load(value, at + 8, 8)
        s, t = _folded(x ^ _K3, y ^ s), _folded(x ^ t, y ^ _K4)
        at += 16
    rest, x, y = n - at, 0, 0
    if rest >= 8:
        x, y = _load(value, at, 8), _load(value, n - 8, 8)
    elif rest >= 4:
        x, y = _load(value, at, 4), _load(value, n - 4, 4)
    elif rest > 0:
        x, y = value[at] << 32 | value[at + (rest >> 1)], value[n - 1]
    return _folded(x ^ _K3, y ^ s), _folded(x ^ t, y ^ _K4)


def _load(value: bytes, at: int, width: int) -> int:
    return int.from_bytes(value[at : at + width], "little")
