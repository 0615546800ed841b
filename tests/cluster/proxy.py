"""A TCP proxy that cuts connections when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading


class Proxy:
    """Forwards to a local port. `sever` cuts what is open; while `closed`, new connections are cut at once, too."""

    def __init__(self, target: int) -> None:
        self.closed = False
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def sever(self) -> None:
        with self._lock:
            found, self._open = self._open, set()
        for connection in found:
            _cut(connection)

    def stop(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.sever()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.closed:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), name="proxy", daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for connection in (source, sink):
            with self._lock:
                self._open.discard(connection)
            _cut(connection)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
