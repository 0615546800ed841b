"""The ASGI application: from a request to a `Call`, to an `Answer`, to a response.

    name ─▶ route ─▶ who asks ─▶ may it ─▶ a place ─▶ body ─▶ handler (at once, or in a thread) ─▶ answer, audit

Routing is Starlette's. Everything else is one function after the other here rather than a stack of middlewares, each of
which would cost a point read some of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from belvedere import errors
from belvedere.gateway import fanout, head, params, problems, values
from belvedere.gateway.api import (
    EVENTS,
    Access,
    Answer,
    Call,
    Endpoint,
    Right,
    accepted,
    read_only,
)
from belvedere.gateway.audit import AuditLog
from belvedere.gateway.auth import Authenticator, Authorizer, Credentials, Decision, Principal, is_loopback
from belvedere.gateway.batches import Batches
from belvedere.gateway.databases import GatewayDatabase
from belvedere.gateway.fanout import Fanouts
from belvedere.gateway.limits import Limits, Places, Seats
from belvedere.gateway.metrics import GatewayMetrics
from belvedere.gateway.snapshots import Snapshots
from belvedere.sql.catalog import TableDef, unknown_relation

T = TypeVar("T")
_REQUEST = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
STREAM_BYTES = 128 << 10
_PROBLEM = problems.MEDIA_TYPE


@dataclass(frozen=True)
class Settings:
    """How the application behaves; what is bound to an address is in `server`."""

    limits: Limits = field(default_factory=Limits)
    cors_origins: tuple[str, ...] = ()
    loopback_only: bool = False
    """Nobody is authenticated: requests must be meant for this machine, and come from no other page of a browser."""


class Application:
    """Owns the threads that wait for the database."""

    def __init__(
        self,
        database: GatewayDatabase,
        endpoints: Sequence[Endpoint],
        authenticator: Authenticator,
        authorizer: Authorizer,
        audit: AuditLog,
        metrics: GatewayMetrics,
        settings: Settings,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        limits = settings.limits
        self.database, self.metrics, self.audit, self.settings, self._say = database, metrics, audit, settings, say
        self._authenticator, self._authorizer = authenticator, authorizer
        self.snapshots = Snapshots(database)
        self.fanouts = Fanouts(database, limits.change_bytes)
        self.verified: dict[str, dict[str, Any]] = {}
        self.places = Places(limits.requests, limits.requests_of_caller, limits.queue)
        self.seats = Seats(limits.subscriptions, limits.subscriptions_of_caller)
        self.batches = Batches(self.in_thread)
        self.draining = asyncio.Event()
        self.trouble: list[str] = ["the database was not asked yet"]
        self._threads = ThreadPoolExecutor(limits.threads, "gateway")
        # What waits for epochs, builds or others' rights takes no thread from reads that could be answered.
        self._waiting = ThreadPoolExecutor(limits.requests, "gateway-waiting")
        self._router = Router(list(self._routes(endpoints)), redirect_slashes=False, default=self._nothing_there)

    def _routes(self, endpoints: Sequence[Endpoint]) -> Iterator[Route]:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        for path, methods in by_path.items():
            yield Route(path, _Path(self, methods), methods=None)

    def close(self) -> None:
        self.snapshots.close()
        self.fanouts.close()
        for threads in (self._threads, self._waiting):
            threads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers, twice = head.headers(scope)
        request = headers.get(b"belvedere-request", b"").decode("latin-1")
        if not _REQUEST.match(request):
            request = secrets.token_hex(8)
        exchange = Exchange(self, scope, receive, send, headers, request)
        try:
            if twice:
                raise errors.BadRequest(f"{twice} is there twice, with different values")
            exchange.check_origin()
            # the router sees the path as it came: a slash that was escaped is part of a name
            scope["path"] = scope["raw_path"].decode("ascii", "replace")
            scope["exchange"] = exchange
            await self._router(scope, receive, send)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await exchange.fail(error)
        finally:
            exchange.finished()

    async def _nothing_there(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise errors.NoSuchResource(f"there is nothing at {scope['path'][:100]}; /v1/openapi.json has what there is")

    # ------------------------------------------------------------------ threads

    async def in_thread(self, function: Callable[[], T], *, waits: bool = False) -> T:
        threads = self._waiting if waits else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, function)

    def begin(self, function: Callable[[], None]) -> None:
        """In a thread, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # it is closing, and so is the database
            self._threads.submit(function)

    async def waiting(self, function: Callable[[], T]) -> T:
        return await self.in_thread(function, waits=True)

    # ------------------------------------------------------------------ who may what

    async def principal(self, credentials: Credentials) -> Principal:
        found = self._authenticator.recall(credentials)
        if found is None:
            found = await self.waiting(lambda: self._authenticator.authenticate(credentials))
        return found

    async def require(self, principal: Principal, right: Right, relation: str) -> None:
        found = self._authorizer.recall(principal, right, relation)
        if found is None:
            await self.waiting(lambda: self.require_now(principal, right, relation))
        elif not found.allowed:
            raise errors.AccessDenied(found.reason)

    def decide(self, principal: Principal, right: Right, relation: str) -> Decision:
        """May block: an authorizer may ask elsewhere, and the kind of the relation is asked of the database."""
        found = self._authorizer.recall(principal, right, relation)
        return found or self._authorizer.decide(principal, right, self._kind(relation), relation)

    def _kind(self, relation: str) -> str:
        if relation == "*":
            return ""
        found = None
        with contextlib.suppress(errors.BelvedereError):
            found = self.database.db.catalog.find(relation)
        return "" if found is None else "table" if isinstance(found, TableDef) else "view"

    def may(self, principal: Principal, right: Right, relation: str) -> bool:
        return self.decide(principal, right, relation).allowed

    def may_see(self, principal: Principal, relation: str) -> bool:
        """By any right."""
        return any(self.may(principal, right, relation) for right in Right)

    def require_now(self, principal: Principal, right: Right, relation: str) -> None:
        found = self.decide(principal, right, relation)
        if not found.allowed:
            raise errors.AccessDenied(found.reason or f"{principal.name!r} may not {right} {relation!r}")


class _Path:
    """Everything at one path: an ASGI application, so that Starlette leaves methods to us."""

    def __init__(self, app: Application, methods: dict[str, Endpoint]) -> None:
        self._app, self._methods = app, methods
        self._allow = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        method = scope["method"]
        endpoint = self._methods.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            await exchange.carry_out(endpoint, scope["path_params"])
        elif method == "OPTIONS" and exchange.origin_is_welcome:
            await exchange.preflight(self._allow)
        else:
            exchange.extra.append((b"allow", self._allow.encode()))
            raise errors.BadRequest(f"{method[:20]} is no method here; there is {self._allow}", 405)


class Exchange:
    """One request and its response."""

    def __init__(
        self, app: Application, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], request: str
    ) -> None:
        self._app, self._scope, self._receive, self._send = app, scope, receive, send
        self._headers, self.request = headers, request
        self.extra: list[tuple[bytes, bytes]] = [(b"belvedere-request", request.encode())]
        self._began = time.perf_counter()
        self._route = "none"
        self._status = 0
        self._principal: Principal | None = None
        self._relation = ""
        self.origin_is_welcome = False
        self._streams_events = False
        self._credentials = Credentials()

    # ------------------------------------------------------------------ the whole

    async def carry_out(self, endpoint: Endpoint, path: dict[str, str]) -> None:
        app = self._app
        self._route = f"{endpoint.method} {endpoint.path}"
        call_params = self._query(endpoint)
        principal = EVERYBODY_OPEN if endpoint.access is Access.OPEN else await self._who(call_params)
        self._principal = principal
        names = {name: head.path_part(value) for name, value in path.items()}
        self._relation = names.get("relation", "")
        await self._may(endpoint, principal)
        if endpoint.changes and app.database.read_only:
            raise read_only()
        call = self._call(endpoint, principal, names, call_params)
        if EVENTS in endpoint.produces:
            app.seats.take(principal.name)
            try:
                waits = bool(call.last_event or call.get("after"))
                await self._answer(await app.in_thread(lambda: endpoint.run(call), waits=waits), call)
            finally:
                app.seats.free(principal.name)
            return
        if not app.places.take(principal.name):
            await app.places.wait(principal.name, app.settings.limits.request_seconds)
        try:
            if endpoint.consumes:
                await self._read_body(endpoint, call)
            try:
                answer = None if endpoint.quick is None else endpoint.quick(call)
                if answer is None:
                    answer = await self._in_time(endpoint, call)
            except Exception as error:
                if call.attempted is not None:  # a failure may hide that it happened after all
                    self._audit({**call.attempted, "problem": problems.kind_of(error).name})
                raise
            if answer.audit is not None:
                self._audit(answer.audit)
            await self._answer(answer, call)
        finally:
            app.places.free(principal.name)

    def finished(self) -> None:
        self._app.metrics.answered(self._route, self._status, time.perf_counter() - self._began)

    async def _in_time(self, endpoint: Endpoint, call: Call) -> Answer:
        app, work = self._app, None
        if (
            endpoint.together is not None
            and app.database.kind == "pool"
            and call.after is None
            and call.params.keys() == {"key"}
        ):
            work = app.batches.ask(call.relation.lower(), call, endpoint.together)
        waits = endpoint.patient or call.after is not None
        work = work or app.in_thread(lambda: _begun(endpoint, call), waits=waits)
        if endpoint.patient:
            return await work
        seconds = self._app.settings.limits.request_seconds + (call.wait if endpoint.reads_after else 0.0)
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            call.gone.set()
            raise errors.OutOfTime(f"the request took longer than {seconds:g} s") from None

    # ------------------------------------------------------------------ what came

    def check_origin(self) -> None:
        settings, origin = self._app.settings, self._headers.get(b"origin", b"").decode("latin-1")
        host = self._headers.get(b"host", b"").decode("latin-1")
        if origin and origin in settings.cors_origins:
            self.origin_is_welcome = True
            self.extra += [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"origin"),
            ]
        elif settings.loopback_only:
            if not is_loopback(head.without_port(host)):
                raise errors.BadRequest(
                    f"Host: {host[:60]!r} is no name of this machine, and nobody is authenticated", 421
                )
            if origin and origin.partition("://")[2] != host:
                raise errors.AccessDenied(f"pages of {origin[:60]!r} may not ask: --cors-origin names those that may")

    async def preflight(self, allow: str) -> None:
        self.extra += [
            (b"access-control-allow-methods", allow.encode()),
            (
                b"access-control-allow-headers",
                b"authorization, content-type, belvedere-after, belvedere-wait,"
                b" belvedere-request, idempotency-key, last-event-id",
            ),
            (b"access-control-max-age", b"600"),
        ]
        self._route = "OPTIONS"
        await self._respond(Answer(status=204))

    def _query(self, endpoint: Endpoint) -> dict[str, Any]:
        return params.read_query(self._scope["query_string"], endpoint.params)

    async def _who(self, call_params: dict[str, Any]) -> Principal:
        scope = self._scope
        bearer = ""
        # A proxy may keep `Authorization` for itself, as the API server of Kubernetes does.
        given = self._headers.get(b"belvedere-authorization") or self._headers.get(b"authorization")
        if given is not None:
            kind, _, bearer = given.decode("latin-1").partition(" ")
            bearer = bearer.strip()
            if kind.lower() != "bearer" or not bearer:
                raise errors.NotAuthenticated("Authorization is of another kind: send Authorization: Bearer TOKEN")
        bearer = call_params.pop("access_token", None) or bearer
        client = scope.get("client")
        self._credentials = Credentials(bearer, scope.get("belvedere.certificate"), client[0] if client else "")
        return await self._app.principal(self._credentials)

    async def _recheck(self, endpoint: Endpoint) -> None:
        await self._may(endpoint, await self._app.principal(self._credentials))

    async def _may(self, endpoint: Endpoint, principal: Principal) -> None:
        right = _RIGHTS.get(endpoint.access)
        if right is not None:
            await self._app.require(principal, right, "*" if endpoint.access is Access.ALL else self._relation)

    def _call(self, endpoint: Endpoint, principal: Principal, names: dict[str, str], found: dict[str, Any]) -> Call:
        app, headers = self._app, self._headers
        call = Call(
            app.database,
            app.snapshots,
            app.fanouts,
            app.verified,
            principal,
            lambda right, relation: app.require_now(principal, right, relation),
            lambda right, relation: app.may(principal, right, relation),
            app.in_thread,
            lambda: self._recheck(endpoint),
            app.metrics.subscriber_ended,
            relation=self._relation,
            name=names.get("name", ""),
            params=found,
            accept=headers.get(b"accept", b"").decode("latin-1"),
            request=self.request,
        )
        accepted(call.accept, endpoint.produces)  # refused before anything is done
        if b"belvedere-after" in headers:
            if not endpoint.reads_after:
                raise errors.BadRequest("Belvedere-After has no meaning here")
            call.after = headers[b"belvedere-after"].decode("latin-1")
        if b"belvedere-wait" in headers:
            call.wait = head.seconds(headers[b"belvedere-wait"].decode("latin-1"))
        if b"idempotency-key" in headers:
            call.idempotency_key = head.idempotency_key(endpoint, headers[b"idempotency-key"].decode("latin-1"))
        call.last_event = headers.get(b"last-event-id", b"").decode("latin-1")
        return call

    async def _read_body(self, endpoint: Endpoint, call: Call) -> None:
        limits, headers = self._app.settings.limits, self._headers
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limits.body_bytes:
            raise head.too_large(limits.body_bytes)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise errors.BadRequest("Content-Encoding: bodies are taken as they are, without encoding", 415)
        parts, size = [], 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneAway
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limits.body_bytes:
                        raise head.too_large(limits.body_bytes)
                    parts.append(part)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise errors.BadRequest(f"the body did not come within {limits.body_seconds:g} s", 408) from None
        call.body = b"".join(parts)
        media = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if media not in endpoint.consumes and not (endpoint.optional_body and not call.body):
            listed = ", ".join(endpoint.consumes)
            raise errors.BadRequest(
                f"Content-Type: {media[:60] or 'missing'}; there is {listed}; hint: send the header, as in"
                f" -H 'Content-Type: {endpoint.consumes[0]}'",
                415,
            )
        call.content_type = media

    # ------------------------------------------------------------------ what goes

    async def _answer(self, answer: Answer, call: Call) -> None:
        if answer.parts is None:
            await self._respond(answer)
            return
        try:
            await self._stream(answer, answer.parts, call)
        finally:
            if answer.close is not None:
                self._app.begin(answer.close)

    async def _stream(self, answer: Answer, parts: Callable[[], AsyncGenerator[bytes, None]], call: Call) -> None:
        await self._start(answer.status, answer.media_type, answer.headers, None)
        self._streams_events = answer.media_type == EVENTS
        self._bound_buffer()
        watching = asyncio.ensure_future(self._watch(call))
        try:
            if self._scope["method"] != "HEAD":
                async with contextlib.aclosing(parts()) as coming:
                    async for part in coming:
                        if call.gone.is_set():
                            break
                        await self._send_part(part, call)
            await self._tell({"type": "http.response.body", "body": b""})
        finally:
            call.gone.set()
            watching.cancel()

    async def _send_part(self, part: bytes, call: Call) -> None:
        """A client that takes nothing for too long is told so behind what it has not read, and that is all it gets."""
        seconds = self._app.settings.limits.send_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._tell({"type": "http.response.body", "body": part, "more_body": True})
        except TimeoutError:
            call.gone.set()
            call.ended("slow-reader")
            self._last_word(f"nothing was read for {seconds:g} s", seconds)
            raise _GoneAway from None

    async def _tell(self, message: Message) -> None:
        """To the client; one that is gone is nobody's failure."""
        try:
            await self._send(message)
        except (OSError, RuntimeError):
            transport = self._scope.get("belvedere.transport")
            if transport is None or transport.is_closing():
                raise _GoneAway from None
            raise

    def _bound_buffer(self) -> None:
        """What the kernel keeps for a reader that does not read; by itself it would be megabytes for each."""
        transport = self._scope.get("belvedere.transport")
        found = None if transport is None else transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES)

    def _last_word(self, reason: str, seconds: float) -> None:
        """Past the flow control, which waits for the reader: it finds the reason if it goes on within that time."""
        transport = self._scope.get("belvedere.transport")
        if transport is None:
            return
        asyncio.get_running_loop().call_later(seconds, transport.abort)
        if self._streams_events and self._scope["http_version"] == "1.1":  # in chunks, so this ends the body
            told = fanout.end_event(errors.SlowReader(f"{reason}; go on with Last-Event-ID"), self.request, True)
            transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(told), told))
        transport.close()

    async def _watch(self, call: Call) -> None:
        """A client that goes away while it is told something."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        call.gone.set()

    async def _respond(self, answer: Answer) -> None:
        await self._start(answer.status, answer.media_type, answer.headers, len(answer.body))
        body = b"" if self._scope["method"] == "HEAD" else answer.body
        await self._tell({"type": "http.response.body", "body": body})

    async def _start(self, status: int, media: str, headers: Sequence[tuple[str, str]], length: int | None) -> None:
        self._status = status
        head = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        if length is not None and status != 204:
            head.append((b"content-length", str(length).encode()))
        if status != 204:
            head.append((b"content-type", media.encode()))
        head += [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"), *self.extra]
        await self._tell({"type": "http.response.start", "status": status, "headers": head})

    async def _as_told(self, error: errors.UnknownRelation, principal: Principal) -> errors.UnknownRelation:
        """Names that the caller may not know are not listed."""
        app = self._app

        def told() -> errors.UnknownRelation:
            seen: list[str] = []
            with contextlib.suppress(errors.BelvedereError):  # whoever decides may be gone: then nothing is listed
                if app.may(principal, Right.READ, "*"):
                    return error
                seen = [name for name in error.known if app.may_see(principal, name)]
            if not seen:
                return errors.UnknownRelation(f"no table or view {error.relation!r}", error.relation)
            return unknown_relation(error.relation, seen)

        return await app.waiting(told)

    async def fail(self, error: Exception) -> None:
        """The problem, if the response has not begun."""
        if isinstance(error, _GoneAway):
            self._status = 499
            return
        if self._status:
            self._app._say(f"request {self.request}: its answer broke off: {type(error).__name__}: {error}")
            raise error
        if isinstance(error, errors.UnknownRelation) and error.known and self._principal is not None:
            error = await self._as_told(error, self._principal)
        if isinstance(error, errors.AccessDenied | errors.NotAuthenticated):
            self._audit({"action": "refused", "what": self._route, "reason": str(error)})
        document = problems.document(error, self.request)
        if document["status"] == 500:
            import traceback

            self._app._say(f"request {self.request} failed: {''.join(traceback.format_exception(error))}")
        if document["status"] in (408, 413):
            self.extra.append((b"connection", b"close"))  # the rest of the body is not read
        with contextlib.suppress(_GoneAway):
            await self._respond(
                Answer(values.dumps(document), _PROBLEM, document["status"], tuple(problems.headers(error)))
            )

    def _audit(self, told: Any) -> None:
        client = self._scope.get("client")
        self._app.audit.record(
            request=self.request,
            principal="" if self._principal is None else self._principal.name,
            address=client[0] if client else "",
            **{"relation": self._relation, **told},
        )


def _begun(endpoint: Endpoint, call: Call) -> Answer:
    """In a thread. What nobody waits for any more is not begun: it was told that it took too long."""
    if call.gone.is_set():
        raise errors.OutOfTime("the request was given up before it was begun")
    return endpoint.run(call)


class _GoneAway(Exception):
    """The client did not send all of its request."""


EVERYBODY_OPEN = Principal("anybody")
_EXPOSED = b"belvedere-token, belvedere-epoch, belvedere-cursor, belvedere-request, idempotency-replayed, retry-after"
_RIGHTS = {Access.READ: Right.READ, Access.WRITE: Right.WRITE, Access.ADMIN: Right.ADMIN, Access.ALL: Right.READ}
