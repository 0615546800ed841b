"""A real ZooKeeper for tests: one server for the whole run, and a proxy in front of it for each client that has faults.

`zookeeper_server` is a fixture; a `conftest.py` that imports it makes it known. Without Java, or without a way to get
at the server's jars, tests that ask for it are skipped and say what is missing.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from belvedere.errors import CoordinationUnavailable
from belvedere.local.zookeeper import LocalZooKeeper
from belvedere.local.zookeeper_jars import find_classes, find_java


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalZooKeeper]:
    """Shared: use a pool of your own, and do not stop it."""
    require_zookeeper()
    server = LocalZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=100, min_session_timeout=200, sync=False)
    server.start()
    yield server
    server.stop()


def require_zookeeper() -> None:
    """Skip the test if a server cannot be started here."""
    try:
        find_java()
        find_classes()
    except CoordinationUnavailable as missing:
        pytest.skip(str(missing))


def eventually(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


class _Pair:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.swallow_answers_until = 0.0
        self.is_mute = False

    def close(self) -> None:
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """Forwards TCP to `port`. It can cut all connections, freeze them (open, nothing moves), lose one request, or let a
    connection say nothing."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: list[_Pair] = []
        self._is_cut = False
        self._is_frozen = False
        self._lose: tuple[bytes, bool] | None = None
        self._mute_next = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True

    def mend(self) -> None:
        with self._lock:
            self._is_cut = self._is_frozen = False

    def freeze(self) -> None:
        with self._lock:
            self._is_frozen = True

    def lose_next(self, containing: bytes, *, happened: bool) -> None:
        """Break the connection at the next request with these bytes: before it reaches the server, or with its answer
        on the way back."""
        with self._lock:
            self._lose = (containing, happened)

    def mute_next(self) -> None:
        """The next connection is accepted, and nothing that is sent on it reaches the server."""
        with self._lock:
            self._mute_next = True

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    def close(self) -> None:
        self._closed = True
        self._thread.join(timeout=5.0)
        self._listener.close()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                self._step()
            time.sleep(0.002)
        for pair in self._pairs:
            pair.close()

    def _step(self) -> None:
        if self._is_cut:
            for pair in self._pairs:
                pair.close()
            self._pairs.clear()
        if self._is_frozen:
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for pair in self._pairs:
                selector.register(pair.client, selectors.EVENT_READ, (pair, True))
                selector.register(pair.server, selectors.EVENT_READ, (pair, False))
            ready = selector.select(0.005)
        for key, _ in ready:
            if key.data is None:
                self._accept()
            elif key.data[0] in self._pairs:
                self._forward(*key.data)
        for pair in list(self._pairs):
            if pair.swallow_answers_until and time.monotonic() > pair.swallow_answers_until:
                self._end(pair)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._is_cut:
            client.close()
            return
        try:
            self._pairs.append(_Pair(client, socket.create_connection(("127.0.0.1", self._target), timeout=5.0)))
        except OSError:
            client.close()
            return
        self._pairs[-1].is_mute, self._mute_next = self._mute_next, False

    def _forward(self, pair: _Pair, from_client: bool) -> None:
        source, target = (pair.client, pair.server) if from_client else (pair.server, pair.client)
        try:
            data = source.recv(1 << 16)
            if not data:
                self._end(pair)
            elif pair.is_mute:
                pass
            elif from_client and self._lose is not None and self._lose[0] in data:
                happened, self._lose = self._lose[1], None
                if happened:
                    pair.swallow_answers_until = time.monotonic() + 0.1
                    target.sendall(data)
                else:
                    self._end(pair)
            elif from_client or not pair.swallow_answers_until:
                target.sendall(data)
        except OSError:
            self._end(pair)

    def _end(self, pair: _Pair) -> None:
        pair.close()
        self._pairs.remove(pair)
