"""uvicorn's HTTP protocol with what it leaves open: connections that never ask, endless heads, client certificates."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import ssl
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from belvedere.gateway.auth import Certificate

HEAD_BYTES = 64 << 10
_SPECIAL, _ESCAPED = re.compile(r'([,+"\\<>;])'), r"\\\1"
HEAD_SECONDS = 10.0
"""How long a client may take for the head of a request that it has begun, and for the first one."""


RESERVED_FILES = 512
"""File descriptors that connections leave to the database: a log that cannot open its next file stops."""


def affordable(wanted: int) -> int:
    """How many connections there can be beside the files of this process. Raises its soft limit if that helps."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, soft - min(RESERVED_FILES, soft // 2))


class Connections:
    """What all connections of a server share."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0


class Connection(HttpToolsProtocol):
    """One connection. `shared` is set by the server, on a subclass of its own."""

    shared: Connections

    def connection_made(self, transport: Any) -> None:
        self._counted = False
        self._head = 0
        self._hurry: asyncio.TimerHandle | None = None
        self._certificate: Certificate | None = None
        if self.shared.open >= self.shared.most:
            transport.abort()
            return
        self.shared.open += 1
        self._counted = True
        super().connection_made(transport)
        found = transport.get_extra_info("ssl_object")
        if found is not None:
            self._certificate = certificate_of(found)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._counted:
            return
        self._counted = False
        self.shared.open -= 1
        self._calm()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._calm()
        self._hurry = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _calm(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None

    def _too_slow(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self._refuse(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")

    def _refuse(self, answer: bytes) -> None:
        self.transport.write(answer)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._hurry is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()
        self.scope["belvedere.transport"] = self.transport  # type: ignore[typeddict-unknown-key]
        if self._certificate is not None:
            self.scope["belvedere.certificate"] = self._certificate  # type: ignore[typeddict-unknown-key]

    def on_url(self, url: bytes) -> None:
        self._grown(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grown(len(name) + len(value))
        super().on_header(name, value)

    def _grown(self, size: int) -> None:
        self._head += size
        if self._head > HEAD_BYTES:
            self._refuse(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            raise ValueError("the head of the request is too large")

    def on_headers_complete(self) -> None:
        self._calm()
        super().on_headers_complete()


def certificate_of(tls: ssl.SSLObject | ssl.SSLSocket) -> Certificate | None:
    """Of the client, if it showed one; TLS has verified it."""
    shown = tls.getpeercert()
    if not shown:
        return None
    short = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C"}
    parts: Any = shown.get("subject", ())
    # a comma inside a value must not pass for the end of it (RFC 4514)
    subject = ",".join(
        f"{short.get(name, name)}={_SPECIAL.sub(_ESCAPED, value)}" for part in reversed(parts) for name, value in part
    )
    names: Any = shown.get("subjectAltName", ())
    return Certificate(subject, tuple(str(value) for kind, value in names if kind in ("DNS", "URI")))
