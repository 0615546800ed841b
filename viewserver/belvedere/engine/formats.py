"""Which engines a process has, and how each of them writes state.

Engines differ in bytes only: what a function means and what a state table is called are decided by the catalog. A value
of state carries its format, so it is read by whoever knows that format, whichever engine the pool has now: state of the
engine before is migrated when it is loaded, a key at a time. DELTA and the rows of views have one form for ever.

An engine that does not know the format before it *rebuilds*. Then state of a view group is in the form of one engine as
long as the group exists (`belvedere.protocol.engines`), and is read and written by that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.version import ENGINE_VERSION, OLDEST_ENGINE_VERSION, REBUILDING
from belvedere.errors import FormatError


class StateFormat(Protocol):
    """`mark`: the first bytes of every value, by which it is known. The engines up to 3 write values without any."""

    mark: bytes

    def pack(self, values: pa.BinaryArray) -> pa.BinaryArray: ...

    def unpack(self, value: bytes) -> bytes:
        """A value with its mark."""


@dataclass(frozen=True)
class Engines:
    """`formats`: those of engines that do not write values as they are. `rebuilding`: those that cannot read what the
    one before wrote; each has a format of its own."""

    oldest: int = OLDEST_ENGINE_VERSION
    newest: int = ENGINE_VERSION
    formats: Mapping[int, StateFormat] = field(default_factory=dict)
    rebuilding: frozenset[int] = REBUILDING

    def __contains__(self, engine: int) -> bool:
        return self.oldest <= engine <= self.newest

    def __str__(self) -> str:
        return f"engine {self.newest}" if self.oldest == self.newest else f"engines {self.oldest} to {self.newest}"

    def pack(self, engine: int, values: pa.BinaryArray) -> pa.BinaryArray:
        """Values of state as this engine writes them."""
        known = self.formats.get(engine)
        return values if known is None else known.pack(values)

    def unpack(self, engine: int, values: pa.BinaryArray) -> pa.BinaryArray:
        """Values of state as this engine reads them: its own, and those of engines before it that it knows."""
        if not self.formats:
            return values
        first = max((one for one in self.rebuilding if one <= engine), default=0)
        readable = [known for number, known in self.formats.items() if first <= number <= engine]
        if not first and not any(pc.any(pc.starts_with(values, known.mark)).as_py() for known in readable):
            return values
        return pa.array([_unpacked(value, readable, engine, first) for value in values.to_pylist()], pa.binary())


THIS_VERSION = Engines()


def _unpacked(value: bytes | None, readable: list[StateFormat], engine: int, first: int) -> bytes | None:
    """`first`: the oldest engine whose state this one reads; 0: all, those without a mark too."""
    if value is None:
        return None
    for known in readable:
        if value.startswith(known.mark):
            return known.unpack(value)
    if first:
        raise FormatError(f"state in a form that engine {engine} does not read: it begins with that of engine {first}")
    return value


def view_group_of(table: str) -> int | None:
    """The view group whose state a table of the store holds, which is called after it; None if it holds none."""
    number = table.partition(" ")[0]
    return int(number) if number.isdecimal() else None
