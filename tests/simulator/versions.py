"""Members of other versions of the software, among those of this one.

Another engine writes other bytes, another ring places buckets elsewhere: a pool that does not notice has wrong views.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from belvedere.cluster.process.next_engine import engines_of
from belvedere.cluster.roles import work
from belvedere.engine.formats import THIS_VERSION, Engines
from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol.messages import PROTOCOL
from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion


@dataclass(frozen=True)
class Version:
    """`ring`: whether it is another one."""

    ring: bool = False
    protocols: tuple[int, int] = (PROTOCOL, PROTOCOL)
    engines: Engines = THIS_VERSION
    unsaid: bool = False
    """Whether it does not say which engines it has, as members of old did not."""


THIS = Version()
NEXT = Version(protocols=(PROTOCOL, PROTOCOL + 1), engines=engines_of(ENGINE_VERSION, ENGINE_VERSION + 1))
AFTER_NEXT = Version(protocols=(PROTOCOL, PROTOCOL + 1), engines=engines_of(ENGINE_VERSION + 1, ENGINE_VERSION + 2))
"""Its engine rebuilds."""
RELEASES = (THIS, NEXT, AFTER_NEXT)
REBUILDING = AFTER_NEXT.engines.rebuilding
ONLY_AFTER_NEXT = Version(engines=engines_of(ENGINE_VERSION + 2, ENGINE_VERSION + 2))
ONLY_NEXT = Version(engines=engines_of(ENGINE_VERSION + 1, ENGINE_VERSION + 1))
UNSAID = Version(engines=engines_of(ENGINE_VERSION + 1, ENGINE_VERSION + 1), unsaid=True)


@functools.lru_cache(maxsize=64)
def _other_ring(version: RingVersion, servers: tuple[MemberId, ...]) -> Ring:
    ring = Ring.of(version, servers)
    return Ring(version, ring.members, np.roll(ring.table, BUCKETS // 3))


@contextlib.contextmanager
def running(version: Version) -> Iterator[None]:
    """While code of that version runs."""
    with contextlib.ExitStack() as stack:
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
