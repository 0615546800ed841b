"""The operator's HTTP servers: probes and figures in plain text, and what the API server asks over TLS.

From the standard library: a handful of requests per second, each in a thread. Handlers are functions of a request to an
answer, so that they are tested without a network.
"""

from __future__ import annotations

import http.server
import json
import logging
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

log = logging.getLogger(__name__)
MOST_BYTES = 8 << 20
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: dict[str, list[str]] = field(default_factory=dict)
    body: bytes = b""
    peer_names: tuple[str, ...] = ()
    """Common name of the client's certificate, if it showed one that was verified."""

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: bytes
    content_type: str = "application/json"

    @staticmethod
    def of(code: int, told: Any) -> Answer:
        return Answer(code, json.dumps(told).encode())


Handler = Callable[[Request], Answer]


class Server:
    """Listens from the start; `run` answers until `close`."""

    def __init__(self, host: str, port: int, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self._server = _Threaded((host, port), _bound(handler))
        self._server.context = context
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name=f"http {self.port}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Threaded(http.server.ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake is made here, in the thread of the connection: who hangs in it holds up nobody else."""
        request.settimeout(TIMEOUT_S)
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        if self.context is not None:
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a connection of %s broke", client_address, exc_info=True)


def _bound(handler: Handler) -> type[http.server.BaseHTTPRequestHandler]:
    class Bound(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "belvedere-operator"
        sys_version = ""

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > MOST_BYTES:
                self._send(Answer.of(413, {"message": f"a body of {length} bytes; at most {MOST_BYTES}"}))
                self.close_connection = True
                return
            body = self.rfile.read(length) if length else b""
            url = urlsplit(self.path)
            request = Request(self.command, url.path, parse_qs(url.query), body, self._names())
            try:
                answer = handler(request)
            except Exception:
                log.exception("%s %s", self.command, url.path)
                answer = Answer.of(500, {"message": "internal error; see the log of the operator"})
            self._send(answer)

        def _names(self) -> tuple[str, ...]:
            if not isinstance(self.connection, ssl.SSLSocket):
                return ()
            shown: Any = self.connection.getpeercert() or {}
            return tuple(value for part in shown.get("subject", ()) for name, value in part if name == "commonName")

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.code)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = _handle

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

    return Bound
