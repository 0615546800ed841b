"""The server: an address, TLS, probes, and an orderly end.

starting ──database answers──▶ ready ──SIGTERM──▶ not ready ──after a moment──▶ draining ──all done──▶ closed
                                ▲ └─database gone─▶ not ready
                                └──────it is back──────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from belvedere import errors
from belvedere.gateway import problems, values
from belvedere.gateway.app import Application, Settings
from belvedere.gateway.audit import AuditLog
from belvedere.gateway.auth import Authenticator, Authorizer, ByPattern, Credentials, NoAuthentication, is_loopback
from belvedere.gateway.connections import Connection, Connections, affordable
from belvedere.gateway.databases import GatewayDatabase
from belvedere.gateway.limits import Limits
from belvedere.gateway.metrics import CONTENT_TYPE, GatewayMetrics, Sources
from belvedere.gateway.routes import ENDPOINTS

LOOK_SECONDS = 1.0
"""How often it is looked whether the database answers, and whether certificates changed."""


@dataclass(frozen=True)
class TlsPaths:
    """PEM files. `authority`: who must have signed certificates of clients; `optional`: they may do without."""

    certificate: Path
    key: Path
    authority: Path | None = None
    optional: bool = False


@dataclass(frozen=True)
class ServerOptions:
    """`notice_seconds`: from SIGTERM until no connection is taken any more, so that load balancers notice.
    `drain_seconds`: for requests that are at work then."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls: TlsPaths | None = None
    notice_seconds: float = 0.0
    drain_seconds: float = 20.0
    audit: Path | None = None
    cors_origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


class GatewayServer:
    """One listening server. `run` returns when it was stopped and drained."""

    def __init__(
        self,
        database: GatewayDatabase,
        options: ServerOptions,
        authenticator: Authenticator | None = None,
        authorizer: Authorizer | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Without an authenticator everybody is welcome, and only this machine is listened to."""
        if authenticator is None and not is_loopback(options.host):
            raise errors.DataError(
                f"{options.host} is no loopback address, and nobody would be authenticated: give --tokens FILE (client"
                " certificates are listed there, too), or listen on 127.0.0.1"
            )
        self.database, self.options, self._say = database, options, say
        self._authenticator, self._authorizer = authenticator or NoAuthentication(), authorizer or ByPattern()
        self._open = authenticator is None
        self.metrics = GatewayMetrics()
        self.port = 0
        self.started = False
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[object, ...] = ()

    def run(self, on_start: Callable[[str], None] = lambda url: None) -> None:
        """Until SIGTERM, SIGINT or `stop`. Signals are taken in the main thread only."""
        uvloop.run(self._serve(on_start))

    def stop(self) -> None:
        """From any thread."""
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # it ended by itself
                loop.call_soon_threadsafe(stop.set)

    # ------------------------------------------------------------------ its life

    async def _serve(self, on_start: Callable[[str], None]) -> None:
        options, limits = self.options, self.options.limits
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        context = None if options.tls is None else self._listening(options.tls)
        audit = AuditLog(options.audit, self._say)
        try:
            sockets = [_bound(options.host, options.port)]
        except BaseException:
            audit.close()
            raise
        settings = Settings(limits, options.cors_origins, loopback_only=self._open)
        app = Application(
            self.database, ENDPOINTS, self._authenticator, self._authorizer, audit, self.metrics, settings, self._say
        )
        connections = Connections(affordable(limits.connections))
        if connections.most < limits.connections:
            self._say(f"{connections.most} connections are taken at most: the limit of open files allows no more")
        self._read_gauges(app, connections)
        kind = type("BoundConnection", (Connection,), {"shared": connections})
        config = uvicorn.Config(
            _Front(self, app),
            host=options.host,
            port=options.port,
            http=kind,
            loop="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=max(1, int(limits.idle_seconds)),
            timeout_graceful_shutdown=max(1, int(options.drain_seconds)),
            backlog=4096,
            ws="none",
            ssl_context_factory=None if context is None else lambda *_: context,
        )
        config.load()
        server = _Quiet(config)
        self.port = sockets[0].getsockname()[1]
        watching = asyncio.ensure_future(self._watch(app))
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                self._loop.add_signal_handler(signal_, self._stop.set)
        serving = asyncio.ensure_future(server.serve(sockets))
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            self.started = True
            scheme = "http" if options.tls is None else "https"
            host = f"[{options.host}]" if ":" in options.host else options.host
            on_start(f"{scheme}://{host}:{self.port}")
            stopped = asyncio.ensure_future(self._stop.wait())
            await asyncio.wait([stopped, serving], return_when=asyncio.FIRST_COMPLETED)
            await self._drain(app, server, serving)
        finally:
            watching.cancel()
            app.close()
            audit.close()

    async def _drain(self, app: Application, server: uvicorn.Server, serving: asyncio.Future[None]) -> None:
        app.draining.set()
        if self.options.notice_seconds:
            await asyncio.wait([serving], timeout=self.options.notice_seconds)
        app.fanouts.drain()
        server.should_exit = True
        await serving

    async def _watch(self, app: Application) -> None:
        """Whether the database answers; what time has ended."""
        while True:
            try:
                app.trouble = await app.waiting(self.database.trouble)
                await app.waiting(app.snapshots.expire)
                self._reload()
            except Exception as error:
                app.trouble = [f"{type(error).__name__}: {error}"]
            await asyncio.sleep(LOOK_SECONDS)

    # ------------------------------------------------------------------ TLS

    def _listening(self, paths: TlsPaths) -> ssl.SSLContext:
        """What the listener has for all its life. It gives each handshake the context that is the newest then."""

        def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            if self._context is not None:
                connection.context = self._context

        self._stamps = _stamps(paths)
        self._context = self._tls(paths)
        listening = self._tls(paths)
        listening.sni_callback = choose
        return listening

    def _tls(self, paths: TlsPaths) -> ssl.SSLContext:
        """Made as a whole or not at all: a certificate without its key would make a context that refuses everybody."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(paths.certificate, paths.key)
            if paths.authority is not None:
                context.load_verify_locations(paths.authority)
                context.verify_mode = ssl.CERT_OPTIONAL if paths.optional else ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise errors.DataError(f"TLS: certificate {paths.certificate}, key {paths.key}: {error}") from None
        if paths.authority is not None:  # a session that is resumed would not be asked for its certificate again
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    def _reload(self) -> None:
        """New connections get a certificate that was replaced, and are asked for one that the authorities of now have
        signed; those that are open keep theirs."""
        paths = self.options.tls
        if paths is None or (stamps := _stamps(paths)) == self._stamps:
            return
        self._stamps = stamps
        try:
            self._context = self._tls(paths)
        except errors.DataError as error:
            self._say(f"the certificate was replaced and cannot be read, the one before stays in force: {error}")
        else:
            self._say("the certificate was replaced and read again")

    def _read_gauges(self, app: Application, connections: Connections) -> None:
        self.metrics.read_from(
            Sources(
                lambda: app.places.busy,
                lambda: app.places.waiting,
                lambda: connections.open,
                lambda: app.seats.taken,
                lambda: len(app.fanouts),
                lambda: len(app.snapshots),
                lambda: 0.0 if app.trouble or app.draining.is_set() else 1.0,
            )
        )


class _Front:
    """Probes before everything else: they must answer when nothing else does."""

    def __init__(self, server: GatewayServer, app: Application) -> None:
        self._server, self._app = server, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if path == "/healthz":
            await _plain(send, 200, values.dumps({"alive": True}))
        elif path == "/readyz":
            reasons = [*self._app.trouble, *(["it is stopping"] if self._app.draining.is_set() else [])]
            await _plain(send, 503 if reasons else 200, values.dumps({"ready": not reasons, "reasons": reasons}))
        elif path == "/metrics":
            await self._metrics(scope, send)
        else:
            await self._app(scope, receive, send)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        """Figures are for this machine, and for whoever has a token of any right."""
        client = scope.get("client")
        if client is None or not is_loopback(str(client[0])):
            headers = dict(scope["headers"])
            given = (headers.get(b"belvedere-authorization") or headers.get(b"authorization", b"")).decode("latin-1")
            bearer = given[7:].strip() if given[:7].lower() == "bearer " else ""
            shown = Credentials(bearer, scope.get("belvedere.certificate"), "" if client is None else str(client[0]))
            try:
                await self._app.principal(shown)
            except errors.NotAuthenticated as error:
                document = values.dumps(problems.document(error))
                await _plain(send, 401, document, problems.MEDIA_TYPE)
                return
        await _plain(send, 200, self._server.metrics.render(), CONTENT_TYPE)


async def _plain(send: Send, status: int, body: bytes, kind: str = "application/json") -> None:
    head = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


class _Quiet(uvicorn.Server):
    """Signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _stamps(paths: TlsPaths) -> tuple[object, ...]:
    found: list[object] = []
    for path in (paths.certificate, paths.key, paths.authority):
        try:
            stat = None if path is None else os.stat(path)
        except OSError:
            stat = None
        found.append(None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind)
    except OSError as error:
        raise errors.Unavailable(f"cannot listen on {host}: {error.strerror or error}") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise errors.Unavailable(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return made
