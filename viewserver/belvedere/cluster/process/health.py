"""The small HTTP server of every process: `/metrics` for Prometheus, `/healthz` and `/readyz` for Kubernetes.

* alive (`/healthz`): the main loop went round lately. If not, the process hangs, and restarting it is the remedy.
* ready (`/readyz`): it takes part. Otherwise the reasons, as JSON; waiting is the remedy, not restarting.

On a port of its own, without TLS: it tells figures and states, never data, and probes need no certificate.
"""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from belvedere import errors

Reasons = Callable[[], Sequence[str]]
"""Why the process is not ready; none: it is."""

REQUEST_TIMEOUT = 5.0
"""Seconds that a client has for its request."""

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PATHS = ("/metrics", "/healthz", "/readyz")


class Health:
    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        metrics: Callable[[], bytes],
        reasons: Reasons,
        metrics_type: str = _TEXT,
        alive_within: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`alive_within`: seconds between two ticks of the main loop after which the process counts as hanging."""
        self._metrics = metrics
        self._metrics_type = metrics_type
        self._reasons = reasons
        self._alive_within = alive_within
        self._monotonic = monotonic
        self._ticked = monotonic()
        health = self

        class Handler(_Handler):
            def answer(self, path: str) -> tuple[int, str, bytes]:
                return health._answer(path)

        try:
            self._server = _Server((host, port), Handler)
        except OSError as error:
            raise errors.Unavailable(f"cannot listen on {host}, port {port}: {error.strerror}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="health", daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """The main loop is alive; to be called in every round, also if there was nothing to do."""
        self._ticked = self._monotonic()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        """(status, content type, body)."""
        if path == "/metrics":
            return 200, self._metrics_type, self._metrics()
        if path == "/healthz":
            return self._alive()
        if path == "/readyz":
            reasons = list(self._reasons())
            return _as_json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})
        return _as_json(404, {"error": f"nothing at {path[:100]}, there is {', '.join(_PATHS)}"})

    def _alive(self) -> tuple[int, str, bytes]:
        since = self._monotonic() - self._ticked
        alive = since <= self._alive_within
        found: dict[str, Any] = {"alive": alive, "seconds_since_tick": round(since, 3)}
        if not alive:
            found["reason"] = f"the main loop has not gone round for {since:.0f} s, allowed are {self._alive_within:g}"
        return _as_json(200 if alive else 503, found)


def _as_json(status: int, content: object) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(content).encode("ascii") + b"\n"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "belvedere"
    sys_version = ""
    timeout = REQUEST_TIMEOUT

    def answer(self, path: str) -> tuple[int, str, bytes]:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        try:
            status, kind, body = self.answer(path)
        except Exception as error:
            status, kind, body = _as_json(503, {"error": f"{path} failed: {type(error).__name__}: {error}"})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not worth a line each."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or did not speak HTTP: its own affair."""
