"""For tests of rolling upgrades only: the next engine, as this version knows nothing of it.

A process with `BELVEDERE_TEST_ENGINE` has that engine and the one before. The next one writes state that this version
cannot read, and reads what either wrote.
"""

from __future__ import annotations

import pyarrow as pa

from belvedere.engine.formats import Engines
from belvedere.engine.version import ENGINE_VERSION


class ReversedFormat:
    """The bytes of a value from last to first, behind a mark."""

    mark = b"\xffnext engine\xff"

    def pack(self, values: pa.BinaryArray) -> pa.BinaryArray:
        found = values.to_pylist()
        return pa.array([None if value is None else self.mark + value[::-1] for value in found], pa.binary())

    def unpack(self, value: bytes) -> bytes:
        return value[len(self.mark) :][::-1]


def engines_of(oldest: int, newest: int) -> Engines:
    """What a process has that says so."""
    return Engines(oldest, newest, {ENGINE_VERSION + 1: ReversedFormat()} if newest > ENGINE_VERSION else {})
