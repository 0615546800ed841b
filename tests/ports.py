"""Ports of servers that end and start again on the same one."""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 20_000, 32_000
"""Below those that the kernel gives to connections (from 32,768 on): one of those may be taken while the server is
away, even by a client that tries to reach it, which then talks to itself."""


def lasting_port() -> int:
    """A port of 127.0.0.1 that is free, and that nobody is given by chance."""
    for _ in range(1000):
        port = random.SystemRandom().randrange(LOWEST, HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port from {LOWEST} to {HIGHEST} is free")
