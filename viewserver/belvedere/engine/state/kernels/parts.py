"""Kernels that read the parts of row keys, and numbers of varying length, where they stand in a block of bytes."""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel

_VALUE, _NULL, _UNREADABLE = 1, 0, 7
_SCALE_BYTES, _WORDS_BYTES = 4, 16


@kernel("u1[:] i8[:] i8[:] u1[:] i8[:]")
def find_mark(data, at, size, mark, out):  # type: ignore[no-untyped-def]
    """How many bytes stand before the first `mark` of each; -1 where there is none."""
    width = mark.shape[0]
    for i in range(at.shape[0]):
        out[i] = -1
        for start in range(size[i] - width + 1):
            j = 0
            while j < width and data[at[i] + start + j] == mark[j]:
                j += 1
            if j == width:
                out[i] = start
                break


@kernel("u1[:] i8[:] i8[:] i8 u1[:]")
def begin_with(data, at, size, byte, out):  # type: ignore[no-untyped-def]
    """Which of them begin with this byte."""
    for i in range(at.shape[0]):
        out[i] = size[i] > 0 and data[at[i]] == byte


@kernel("u1[:] i8[:] i8[:] i8[:] i8[:,:] u1[:]")
def read_decimals(data, at, size, scales, words, status):  # type: ignore[no-untyped-def]
    """Numbers as four bytes for the scale and up to 16 in two's complement: scales, and low and high words. A negative
    position is no value; another length cannot be read."""
    for i in range(at.shape[0]):
        scales[i] = 0
        words[i, 0] = 0
        words[i, 1] = 0
        count = size[i] - _SCALE_BYTES
        if at[i] < 0:
            status[i] = _NULL
        elif count < 1 or count > _WORDS_BYTES:
            status[i] = _UNREADABLE
        else:
            status[i] = _VALUE
            scale = np.int64(0)
            for j in range(_SCALE_BYTES):
                scale = (scale << 8) | np.int64(data[at[i] + j])
            scales[i] = (scale << 32) >> 32
            start = at[i] + _SCALE_BYTES
            high = np.int64(-1) if data[start] >= 128 else np.int64(0)
            low = high
            for j in range(count):
                high = (high << 8) | ((low >> 56) & 255)
                low = (low << 8) | np.int64(data[start + j])
            words[i, 0] = low
            words[i, 1] = high
