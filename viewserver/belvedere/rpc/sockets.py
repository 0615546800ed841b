"""Cutting connections that a library holds and cannot be made to give up.

gRPC's blocking calls return when the peer acts or the connection ends. A peer that is frozen does not act, and a
cancelled call whose bytes fill the socket still waits for the socket. When a process closes, it therefore ends such
connections itself: it shuts the sockets down under the library, which then sees that they have ended.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable

_DESCRIPTORS = "/dev/fd"  # on Linux a link to /proc/self/fd

Ends = tuple[tuple[str, int], tuple[str, int]]
"""(host, port) of this side and of the other side."""


def cut_served(port: int) -> int:
    """End the connections that others made to this port of ours; how many there were."""
    return _cut(lambda ends: ends[0][1] == port)


def cut_made(addresses: Iterable[tuple[str, int]]) -> int:
    """End the connections that this process made to these hosts and ports."""
    wanted = {place for host, port in addresses for place in _resolve(host, port)}
    return _cut(lambda ends: ends[1] in wanted)


def _cut(matches: Callable[[Ends], bool]) -> int:
    count = 0
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):  # not connected, or closed meanwhile
            count += _cut_one(descriptor, matches)
    return count


def _cut_one(descriptor: int, matches: Callable[[Ends], bool]) -> bool:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if not matches((_place(connection.getsockname()), _place(connection.getpeername()))):
            return False
        connection.shutdown(socket.SHUT_RDWR)
    return True


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:  # no such thing on this system: connections end when the peer or a timeout ends them
        return []


def _place(address: tuple[str, int]) -> tuple[str, int]:
    """An IPv4 host that an IPv6 socket is connected to is written as one."""
    return address[0].removeprefix("::ffff:"), address[1]


def _resolve(host: str, port: int) -> list[tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [_place((str(address[0]), int(address[1]))) for *_, address in found]
