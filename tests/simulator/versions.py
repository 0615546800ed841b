"""Members of other versions of the software, among those of this one.

Another engine writes other bytes, another ring places buckets elsewhere: a pool that does not notice has wrong views.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.cluster.roles import work
from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol.messages import PROTOCOL
from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion


@dataclass(frozen=True)
class Version:
    """`engine`, `ring`: whether it is another one."""

    engine: bool = False
    ring: bool = False
    protocols: tuple[int, int] = (PROTOCOL, PROTOCOL)


THIS = Version()
NEXT = Version(protocols=(PROTOCOL, PROTOCOL + 1))


@functools.lru_cache(maxsize=64)
def _other_ring(version: RingVersion, servers: tuple[MemberId, ...]) -> Ring:
    ring = Ring.of(version, servers)
    return Ring(version, ring.members, np.roll(ring.table, BUCKETS // 3))


@contextlib.contextmanager
def running(version: Version) -> Iterator[None]:
    """While code of that version runs."""
    with contextlib.ExitStack() as stack:
        if version.engine:
            stack.enter_context(mock.patch.object(work, "ENGINE_VERSION", ENGINE_VERSION + 1))
        if version.ring:
            stack.enter_context(mock.patch.object(work, "_ring", _other_ring))
        yield


class OtherWork:
    """`ServerWork` or `DistributorWork` of another version."""

    def __init__(self, inner: Any, version: Version) -> None:
        self._inner, self._version = inner, version

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._as_it_is_there(found) if callable(found) else found

    def finish(self, persist: Any) -> list[TableWrite]:
        with running(self._version):
            writes: list[TableWrite] = self._inner.finish(persist)
        return (
            [replace(write, values=_other_bytes(write.values)) for write in writes] if self._version.engine else writes
        )

    def distribute(self, distribute: Any) -> Any:
        """All of it at once: what is made later would be made by this version."""
        with running(self._version):
            distribution = self._inner.distribute(distribute)
            return _Distribution(list(distribution), distribution.distributed())

    def _as_it_is_there(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            with running(self._version):
                return call(*arguments)

        return called


@dataclass(frozen=True)
class _Distribution:
    dispatches: list[Any]
    report: Any

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dispatches)

    def distributed(self) -> Any:
        return self.report


def _other_bytes(values: pa.BinaryArray) -> pa.BinaryArray:
    found = values.to_pylist()
    return pa.array([None if value is None else value[:-1] + bytes([value[-1] ^ 1]) for value in found], pa.binary())
