"""Processes that are gone before their session is: where a connection is refused, nobody listens any more.

    deliveries that were refused ─────────────────────────────┐
    members that an epoch waits for ──a connection, refused───┴──▶ Unreachable, once for each member

A session lasts for seconds after a crash; commits need not wait for it. Whoever does not answer for another reason (a
pause, a slow network) is no matter of this: only ZooKeeper can tell whether it is gone.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from belvedere.protocol.messages import Member
from belvedere.protocol.ring import MemberId

REFUSED = "connection refused"
PROBE_SECONDS = 0.25
CONNECT_SECONDS = 0.5


class Does(Protocol):
    """What is needed of a `Worker`."""

    def do(self, call: Callable[[], None]) -> None: ...

    def waiting(self) -> int: ...


class GoneProcesses:
    """Asked by the loop, again and again; connections are tried by a worker."""

    def __init__(
        self,
        worker: Does,
        died: Callable[[MemberId], None],
        refused: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`died` is called by the worker, or by whoever looks. `refused`: whether nobody listens at an address."""
        self._worker, self._died = worker, died
        self._refuses, self._clock = refused or refuses, clock
        self._known: set[MemberId] = set()
        self._probe_at = 0.0

    def look(self, troubles: Mapping[MemberId, str], waited_for: Iterable[Member]) -> None:
        """`troubles`: why deliveries failed. `waited_for`: members that hold something up."""
        for member, reason in troubles.items():
            if REFUSED in reason.lower():
                self._found(member)
        now = self._clock()
        if now >= self._probe_at and self._worker.waiting() == 0:
            self._probe_at = now + PROBE_SECONDS
            wanted = [member for member in waited_for if member.id not in self._known]
            if wanted:
                self._worker.do(lambda: self._probe(wanted))

    def _probe(self, members: Iterable[Member]) -> None:
        for member in members:
            if self._refuses(member.address):
                self._found(member.id)

    def _found(self, member: MemberId) -> None:
        if member not in self._known:
            self._known.add(member)
            self._died(member)


def refuses(address: str) -> bool:
    """Whether the host is there and says that nobody listens at this port."""
    place = urlsplit(address)
    if place.hostname is None or place.port is None:
        return False  # not of this kind: members in one process
    try:
        socket.create_connection((place.hostname, place.port), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
