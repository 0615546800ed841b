"""Which engines a process has, and how each of them writes state.

Engines differ in bytes only: what a function means and what a state table is called are decided by the catalog. A value
of state carries its format, so it is read by whoever knows that format, whichever engine the pool has now: state of the
engine before is migrated when it is loaded, a key at a time. DELTA and the rows of views have one form for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.version import ENGINE_VERSION, OLDEST_ENGINE_VERSION


class StateFormat(Protocol):
    """`mark`: the first bytes of every value, by which it is known. The engines up to 2 write values without any."""

    mark: bytes

    def pack(self, values: pa.BinaryArray) -> pa.BinaryArray: ...

    def unpack(self, value: bytes) -> bytes:
        """A value with its mark."""


@dataclass(frozen=True)
class Engines:
    """`formats`: those of engines that do not write values as they are."""

    oldest: int = OLDEST_ENGINE_VERSION
    newest: int = ENGINE_VERSION
    formats: Mapping[int, StateFormat] = field(default_factory=dict)

    def __contains__(self, engine: int) -> bool:
        return self.oldest <= engine <= self.newest

    def __str__(self) -> str:
        return f"engine {self.newest}" if self.oldest == self.newest else f"engines {self.oldest} to {self.newest}"

    def pack(self, engine: int, table: str, values: pa.BinaryArray) -> pa.BinaryArray:
        """Values of a table as this engine writes them."""
        known = self.formats.get(engine)
        return values if known is None or not is_state(table) else known.pack(values)

    def unpack(self, table: str, values: pa.BinaryArray) -> pa.BinaryArray:
        """Values of a table, whichever engine wrote them."""
        if not self.formats or not is_state(table):
            return values
        for known in self.formats.values():
            marked = pc.starts_with(values, known.mark)
            if pc.any(marked).as_py():
                found = values.to_pylist()
                values = pa.array([_unpacked(known, value) for value in found], pa.binary())
        return values


THIS_VERSION = Engines()


def _unpacked(known: StateFormat, value: bytes | None) -> bytes | None:
    return known.unpack(value) if value is not None and value.startswith(known.mark) else value


def is_state(table: str) -> bool:
    """Whether a table of the store holds state of operators: they are called after their view group."""
    return table.partition(" ")[0].isdecimal()
