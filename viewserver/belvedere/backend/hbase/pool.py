"""Connections to the servers of an HBase, kept for the next call. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from belvedere.backend.hbase.connection import Connection, Server
from belvedere.backend.hbase.faults import RemoteFault

_IDLE = 8
"""Connections that one server and service keeps without work."""


class ConnectionPool:
    """`timeout`: seconds that a server may be silent."""

    def __init__(self, timeout: float = 60.0, user: str | None = None) -> None:
        self.timeout = timeout
        self._user = user
        self._lock = threading.Lock()
        self._idle: dict[tuple[Server, str], list[Connection]] = {}
        self._closed = False

    @contextmanager
    def connection(self, server: Server, service: str, timeout: float | None = None) -> Iterator[Connection]:
        """One that nobody else uses meanwhile. After a `RemoteFault` it is as good as before, after anything else it
        is closed, and so are the idle ones to that server: they are most likely broken, too. One that waits for an
        answer still is closed in any case."""
        connection = self._take(server, service)
        if connection is None:
            connection = Connection(server, service, self.timeout, self._user)
        connection.set_timeout(self.timeout if timeout is None else timeout)
        try:
            yield connection
        except (RemoteFault, GeneratorExit):
            self._give_back(server, service, connection)
            raise
        except BaseException:
            connection.close()
            self.forget(server)
            raise
        self._give_back(server, service, connection)

    def forget(self, server: Server) -> None:
        """Close what is idle to this server."""
        with self._lock:
            gone = [key for key in self._idle if key[0] == server]
            idle = [connection for key in gone for connection in self._idle.pop(key)]
        for connection in idle:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _take(self, server: Server, service: str) -> Connection | None:
        with self._lock:
            idle = self._idle.get((server, service))
            return idle.pop() if idle else None

    def _give_back(self, server: Server, service: str, connection: Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault((server, service), [])
            if not self._closed and connection.is_quiet and len(idle) < _IDLE:
                idle.append(connection)
                return
        connection.close()
