"""Certificates of the operator: made by itself and kept in a Secret that all replicas share, or files that cert-manager
writes.

The authority lives ten years and signs one certificate at a time, for ninety days; it is renewed thirty days before its
end by whichever replica notices first. The key of the authority is in the Secret, too: who may read that Secret may
answer the API server in the operator's place, with or without it.
"""

from __future__ import annotations

import base64
import datetime
import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belvedere_operator import pki
from belvedere_operator.kube.client import Kube, KubeError

AUTHORITY_DAYS, DAYS, RENEW_DAYS = 3650, 90, 30
PARTS = ("ca.crt", "ca.key", "tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts. `authority` is what the API server is to trust."""

    authority: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes

    def bundle(self) -> str:
        """As Kubernetes wants it."""
        return base64.b64encode(self.authority).decode()

    def load_into(self, context: ssl.SSLContext) -> None:
        """New connections get this certificate; those that are open keep theirs."""
        handle, name = tempfile.mkstemp(prefix="belvedere-", suffix=".pem")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.certificate + self.key)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()


def make(names: Sequence[str], now: datetime.datetime, before: Certificates | None = None) -> Certificates:
    """A certificate for these names, by the authority of before if there is one that lasts."""
    if before is not None and _left(before.authority, now).days > DAYS:
        authority = pki.Pair(before.authority, before.authority_key)
    else:
        authority = pki.authority("belvedere-operator authority", now, datetime.timedelta(days=AUTHORITY_DAYS))
    made = pki.issue(authority, names, now, datetime.timedelta(days=DAYS), server=True, client=False)
    return Certificates(authority.certificate, authority.key, made.certificate, made.key)


def due(found: Certificates, names: Sequence[str], now: datetime.datetime) -> bool:
    """Whether another one is to be made: it ends soon, or does not have every name."""
    if _left(found.certificate, now).days < RENEW_DAYS or _left(found.authority, now).days < DAYS:
        return True
    return not set(names) <= pki.facts(found.certificate).names


class CertificateSecret:
    """The Secret. Whoever writes first wins; the others read."""

    def __init__(self, kube: Kube, namespace: str, name: str, names: Sequence[str]) -> None:
        self._kube, self._namespace, self._name, self._names = kube, namespace, name, tuple(names)

    def get(self, now: datetime.datetime | None = None) -> Certificates:
        """What is in force, made or renewed if that is due."""
        now = now or datetime.datetime.now(datetime.UTC)
        for _ in range(5):
            secret = self._kube.get("v1", "Secret", self._namespace, self._name)
            found = _read(secret)
            if found is not None and not due(found, self._names, now):
                return found
            made = make(self._names, now, found)
            try:
                self._write(secret, made)
            except KubeError as error:
                if error.conflict:
                    continue  # another replica was faster: its certificate is ours
                raise
            return made
        raise KubeError(409, "Conflict", f"secret {self._namespace}/{self._name} changes all the time")

    def _write(self, secret: dict[str, Any] | None, made: Certificates) -> None:
        values = (made.authority, made.authority_key, made.certificate, made.key)
        data = {part: base64.b64encode(value).decode() for part, value in zip(PARTS, values, strict=True)}
        if secret is not None:
            version = {"resourceVersion": secret["metadata"]["resourceVersion"]}
            self._kube.merge(secret, {"metadata": version, "data": data})
            return
        meta = {"name": self._name, "namespace": self._namespace}
        self._kube.create(
            {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": meta, "data": data}
        )


def from_files(folder: Path) -> Certificates:
    """As cert-manager writes them: ca.crt, tls.crt, tls.key."""
    authority, certificate, key = ((folder / name).read_bytes() for name in ("ca.crt", "tls.crt", "tls.key"))
    return Certificates(authority, b"", certificate, key)


def _read(secret: dict[str, Any] | None) -> Certificates | None:
    data = (secret or {}).get("data") or {}
    if any(not data.get(part) for part in PARTS):
        return None
    return Certificates(*(base64.b64decode(data[part]) for part in PARTS))


def _left(pem: bytes, now: datetime.datetime) -> datetime.timedelta:
    return datetime.timedelta(seconds=pki.facts(pem).ends - now.timestamp())
