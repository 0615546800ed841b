"""Which keys each source has, as the one who splits and merges them knows it.

The store tells who descends from whom, not where a source begins and ends. That is known here because the keys at
which sources are split are chosen here, one change at a time, and a change whose answer was lost is found in the
listing afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from belvedere.backend.seam import SourceInfo
from belvedere.protocol.exactly_once import SourceId

LEAST, MOST = -(1 << 63), 1 << 63


@dataclass(frozen=True)
class Keys:
    """From `first` to `stop`, not included."""

    table: str
    first: int
    stop: int


class Ranges:
    """Thread-safe. `observe` must be called between two changes at least, and before the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: dict[SourceId, Keys] = {}
        self._parents: dict[SourceId, frozenset[SourceId]] = {}
        self._cut: dict[SourceId, int] = {}

    def will_split(self, source: SourceId, key: int) -> None:
        with self._lock:
            self._cut[source] = key

    def observe(self, listing: Iterable[SourceInfo]) -> None:
        with self._lock:
            for info in sorted(listing, key=lambda info: number(info.id)):
                if info.id not in self._keys:
                    self._keys[info.id] = self._keys_of(info)
                    self._parents[info.id] = frozenset(info.parents)

    def _keys_of(self, info: SourceInfo) -> Keys:
        parents = sorted((self._keys[parent] for parent in info.parents), key=lambda keys: keys.first)
        if not parents:
            return Keys(info.table, LEAST, MOST)
        if len(parents) == 2:
            return Keys(info.table, parents[0].first, parents[1].stop)
        (parent,) = info.parents
        cut = self._cut[parent]
        elder = any(parent in parents for parents in self._parents.values())
        return Keys(info.table, *((cut, parents[0].stop) if elder else (parents[0].first, cut)))

    def keys(self, source: SourceId) -> Keys:
        with self._lock:
            return self._keys[source]

    def knows(self, sources: Iterable[SourceId]) -> bool:
        with self._lock:
            return all(source in self._keys for source in sources)

    def children(self, source: SourceId) -> set[SourceId]:
        with self._lock:
            return {child for child, parents in self._parents.items() if source in parents}


def number(source: SourceId) -> int:
    return int(source.rpartition("/")[2])
