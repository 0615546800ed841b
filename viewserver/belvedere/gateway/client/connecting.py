"""From a URL to an `HttpDatabase`: what it names, who asks, and whom to trust."""

from __future__ import annotations

import os
import ssl
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from belvedere.errors import DataError, StorageError
from belvedere.gateway.client.caller import Caller
from belvedere.gateway.client.database import HttpDatabase

SCHEMES = ("http", "https")
EXAMPLE = "https://host[:port][/prefix], the address of a gateway or of `belvedere serve`"

File = str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is: below `prefix`, if something in front of it adds one."""

    scheme: str
    host: str
    port: int
    prefix: str


def connect(
    url: str,
    *,
    timeout: float,
    certificate: File = None,
    key: File = None,
    authority: File = None,
    bearer: str | os.PathLike[str] | None = None,
) -> HttpDatabase:
    """See `belvedere.connect`."""
    found = address(url)
    context = _tls(found, certificate, key, authority)
    caller = Caller(found.scheme, found.host, found.port, found.prefix, context, Bearer(bearer))
    try:
        return HttpDatabase(caller, timeout=timeout)
    except BaseException:
        caller.close()
        raise


def address(url: str) -> Address:
    """What a URL names."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise DataError(f"{url!r} is no URL of a gateway: {error}; give {EXAMPLE}") from None
    if parts.scheme not in SCHEMES or not host or port == 0:
        raise DataError(f"{url!r} is no URL of a gateway; give {EXAMPLE}")
    if parts.username is not None or parts.password is not None:
        raise DataError(f"a URL of a gateway has no user and password; give bearer=…: {parts.scheme}://{host}")
    if parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url):
        raise DataError(f"{url!r} is no URL of a gateway: it ends with the path; give {EXAMPLE}")
    default = 443 if parts.scheme == "https" else 80
    return Address(parts.scheme, host, default if port is None else port, parts.path.rstrip("/").removesuffix("/v1"))


def _tls(found: Address, certificate: File, key: File, authority: File) -> ssl.SSLContext | None:
    if found.scheme == "http":
        if certificate or key or authority:
            raise DataError(f"http://{found.host}: certificates are for https:// URLs")
        return None
    if bool(certificate) != bool(key):
        raise DataError(f"https://{found.host}: a certificate needs its key; give certificate and key, or neither")
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate is not None and key is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise StorageError(f"https://{found.host}: the certificates cannot be read: {error}") from error
    return context


class Bearer:
    """The token that says who asks: a text, or a file that is read again when it changes (in Kubernetes it does)."""

    def __init__(self, given: str | os.PathLike[str] | None) -> None:
        self._file = None if given is None or isinstance(given, str) else Path(given)
        self._stamp: tuple[int, int] | None = None
        self._text = "" if not isinstance(given, str) else _checked(given, "bearer")

    def __call__(self) -> str:
        """The token now; empty if there is none."""
        if self._file is not None:
            try:
                found = self._file.stat()
                stamp = (found.st_mtime_ns, found.st_ino)
                if stamp != self._stamp:
                    self._text = _checked(self._file.read_text(encoding="utf-8").strip(), str(self._file))
                    self._stamp = stamp
            except OSError as error:
                raise StorageError(f"the bearer token cannot be read: {error}") from error
        return self._text


def _checked(text: str, where: str) -> str:
    if not text or not all("!" <= c <= "~" for c in text):
        raise DataError(f"{where}: a bearer token is visible ASCII without spaces; for a file, give its Path")
    return text
