"""For tests of rolling upgrades only: the engines after this one, as this version knows nothing of them.

A process with `BELVEDERE_TEST_ENGINE` has that engine and the one before. The next one writes state that this version
cannot read, and reads what either wrote. The one after it reads nothing but its own: views are rebuilt for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from belvedere.engine.formats import Engines
from belvedere.engine.version import ENGINE_VERSION

NEXT = ENGINE_VERSION + 1
REBUILDS = ENGINE_VERSION + 2


@dataclass
class ReversedFormat:
    """The bytes of a value from last to first, behind a mark."""

    mark: bytes

    def pack(self, values: pa.BinaryArray) -> pa.BinaryArray:
        found = values.to_pylist()
        return pa.array([None if value is None else self.mark + value[::-1] for value in found], pa.binary())

    def unpack(self, value: bytes) -> bytes:
        return value[len(self.mark) :][::-1]


FORMATS = {NEXT: ReversedFormat(b"\xffnext engine\xff"), REBUILDS: ReversedFormat(b"\xffengine that rebuilds\xff")}


def engines_of(oldest: int, newest: int) -> Engines:
    """What a process has that says so."""
    if newest <= ENGINE_VERSION:
        return Engines(oldest, newest)
    formats = {engine: form for engine, form in FORMATS.items() if engine <= newest}
    return Engines(oldest, newest, formats, frozenset({REBUILDS} if newest >= REBUILDS else ()))
