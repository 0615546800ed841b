"""Addresses of processes, and the certificates with which they meet."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belvedere.errors import DataError, DiskError


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


def server_options(tls: Certificates | None) -> dict[str, Any]:
    if tls is None:
        return {}
    if tls.certificate is None or tls.key is None:
        raise DataError("a server with TLS needs a certificate and a key")
    options: dict[str, Any] = {"tls_certificates": [(_content(tls.certificate), _content(tls.key))]}
    if tls.authority is not None:
        options |= {"verify_client": True, "root_certificates": _content(tls.authority)}
    return options


def client_options(tls: Certificates | None) -> dict[str, Any]:
    if tls is None:
        return {}
    options: dict[str, Any] = {}
    if tls.authority is not None:
        options["tls_root_certs"] = _content(tls.authority)
    if tls.certificate is not None and tls.key is not None:
        options |= {"cert_chain": _content(tls.certificate), "private_key": _content(tls.key)}
    if tls.server_name:
        options["override_hostname"] = tls.server_name
    return options


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DiskError(f"TLS file {path} cannot be read: {error.strerror}") from error
