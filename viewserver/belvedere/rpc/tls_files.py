"""The PEM files of a process, read again when they change: certificates that are renewed need no restart.

gRPC takes texts, once, for a port and for a connection. So somebody has to notice that the files have changed. Files
of a mounted Secret change together (a link is switched), those that a person copies change one after the other: they
are taken when a certificate fits its key and nothing changed while they were read. Until then those before stay.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from belvedere.errors import DiskError
from belvedere.rpc.addresses import Certificates

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it is looked whether files have changed."""

_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class TlsTexts:
    """What the files said when they were read."""

    certificate: bytes | None
    key: bytes | None
    authority: bytes | None
    server_name: str | None

    def server_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"tls_certificates": [(self.certificate, self.key)]}
        if self.authority is not None:
            options |= {"verify_client": True, "root_certificates": self.authority}
        return options

    def client_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.authority is not None:
            options["tls_root_certs"] = self.authority
        if self.certificate is not None and self.key is not None:
            options |= {"cert_chain": self.certificate, "private_key": self.key}
        if self.server_name:
            options["override_hostname"] = self.server_name
        return options


class TlsFiles:
    """The newest texts that are good. Thread-safe."""

    def __init__(self, files: Certificates, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Files that are missing are reported at once."""
        self._files, self._monotonic = files, monotonic
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._looked = monotonic()
        self.texts = self._read()

    def changed(self) -> bool:
        """Whether `texts` is new since the last call that said so; the files are looked at every `LOOK_SECONDS`."""
        with self._lock:
            if self._monotonic() - self._looked < LOOK_SECONDS:
                return False
            self._looked = self._monotonic()
            stamps = self._stamps()
            if stamps == self._seen:
                return False
            try:
                texts = self._read()
                self._check()
            except (DiskError, ssl.SSLError, OSError) as error:
                log.warning("TLS files have changed and are no good, those before stay in force: %s", error)
                return False  # and it is tried again: whoever writes them may not be done
            if self._stamps() != stamps:
                return False
            before, self.texts, self._seen = self.texts, texts, stamps
            return texts != before

    def _read(self) -> TlsTexts:
        files = self._files
        return TlsTexts(_content(files.certificate), _content(files.key), _content(files.authority), files.server_name)

    def _check(self) -> None:
        """OpenSSL refuses a key that is not of the certificate, and what is no certificate at all."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._files.certificate is not None and self._files.key is not None:
            context.load_cert_chain(self._files.certificate, self._files.key)
        if self._files.authority is not None:
            context.load_verify_locations(self._files.authority)

    def _stamps(self) -> _Stamps:
        return tuple(_stamp(path) for path in (self._files.certificate, self._files.key, self._files.authority))


def _stamp(path: str | Path | None) -> tuple[int, int, int] | None:
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


def _content(path: str | Path | None) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise DiskError(f"TLS file {path} cannot be read: {error.strerror}") from error
