"""Memory that is recycled: zero for its next owner, never while somebody still looks at it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from belvedere.engine.state import memory
from belvedere.engine.state.memory import Buffer

ROWS = 1 << 19


def idle() -> int:
    gc.collect()
    return len(memory.POOL._idle)


@pytest.fixture(autouse=True)
def empty_pool() -> None:
    """What other tests of this process left to the collector has come back, and is gone."""
    gc.collect()
    memory.POOL.trim()


def test_a_recycled_buffer_reads_zero() -> None:
    first = Buffer(np.int64)
    first.reserve(ROWS)
    first.array[:ROWS] = 7
    first.array[ROWS + 5000] = 9  # beyond what was reserved: a slip of an owner must not reach the next one
    del first
    assert idle() == 1
    second = Buffer(np.uint8)
    second.reserve(8 * ROWS)
    assert idle() == 0
    assert not second.array[: 16 * ROWS].any()


def test_memory_is_kept_as_long_as_a_view_of_it_lives() -> None:
    buffer = Buffer(np.int64)
    buffer.reserve(ROWS)
    buffer.array[:ROWS] = 3
    part = buffer.array[10:20]
    del buffer
    assert idle() == 0
    assert part.tolist() == [3] * 10
    del part
    assert idle() == 1


def test_what_was_reserved_and_not_touched_is_given_up() -> None:
    buffer = Buffer(np.int64)
    buffer.reserve(64 * ROWS)
    buffer.array[0] = 1
    del buffer
    assert idle() == 0


def test_contents_survive_growth() -> None:
    buffer = Buffer(np.int32, 2)
    rows = 1
    while rows < 1 << 20:
        buffer.reserve(rows)
        buffer.array[rows - 1] = rows, -rows
        rows *= 2
    assert [buffer.array[(1 << i) - 1].tolist() for i in range(20)] == [[1 << i, -(1 << i)] for i in range(20)]
