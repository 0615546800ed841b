"""Addresses of processes, and the certificates with which they meet."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from pathlib import Path


def location(scheme: str, host: str, port: int) -> str:
    """As Flight wants it, with IPv6 hosts in brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    parts = urllib.parse.urlsplit(address)
    return parts.hostname or "", parts.port or 0


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files. Server: its certificate and key, and with `authority` only clients signed by it are let in.
    Client: `authority` is who must have signed the server; certificate and key are for servers that ask for them."""

    certificate: str | Path | None = None
    key: str | Path | None = None
    authority: str | Path | None = None
    server_name: str | None = None
    """The name that certificates of servers have to carry, where it is not the host in their address."""


def scheme(tls: Certificates | None) -> str:
    return "grpc" if tls is None else "grpc+tls"
