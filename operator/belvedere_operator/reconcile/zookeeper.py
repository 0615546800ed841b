"""Where a pool lies in ZooKeeper, and whose it is there.

Pools that name no ZooKeeper share that of the operator. So that none can touch another's nodes, each has credentials of
its own: a password that follows from a key of the installation and from the pool's path. So it is the same again when a
pool comes back to the volume that it left, whatever happened to its Secret. The path says whether its nodes are
protected: credentials for nodes that were made without them, or the reverse, would be refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path

from belvedere_operator.api.view_pool import ViewPoolSpec, ZooKeeperTlsSpec
from belvedere_operator.build.inputs import Document, PoolInput
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.settings import Settings

OWNED = ".owned"
"""What the last part of a path ends with if its nodes belong to the pool's credentials."""
USER = "belvedere"
KEY = "key"


def path_of(base: str, namespace: str, name: str, *, protect: bool) -> str:
    parts = (base.strip("/"), "belvedere", namespace, name + (OWNED if protect else ""))
    return "/".join(part for part in parts if part)


def shares(spec: ViewPoolSpec, settings: Settings) -> bool:
    """Whether the pool is in the operator's ZooKeeper, and gets credentials there."""
    return spec.zookeeper is None and settings.zookeeper_credentials


def password(key: bytes, path: str) -> str:
    return hmac.new(key, path.encode(), hashlib.sha256).hexdigest()


class ZooKeeperCredentials:
    """Of all pools."""

    def __init__(self, kube: Kube, settings: Settings) -> None:
        self._kube, self._settings = kube, settings
        self._key: bytes | None = None

    def secret_of(self, pool: PoolInput) -> str:
        """The name of the Secret that the pool's processes read; empty: there are no credentials."""
        if pool.spec.zookeeper is not None:
            return pool.spec.zookeeper.credentials_secret or ""
        return pool.object_name("zookeeper") if pool.zookeeper.endswith(OWNED) else ""

    def tls_of(self, pool: PoolInput) -> ZooKeeperTlsSpec | None:
        """How it speaks TLS: as it says itself, or as everybody in the operator's ZooKeeper."""
        if pool.spec.zookeeper is not None:
            return pool.spec.zookeeper.tls
        if not self._settings.zookeeper_authority:
            return None
        return ZooKeeperTlsSpec(pool.object_name("zookeeper", "authority"))

    def documents(self, pool: PoolInput) -> list[Document]:
        """The Secrets that are ours to make."""
        if pool.spec.zookeeper is not None:
            return []
        return [*self._credentials(pool), *self._authority(pool)]

    def _authority(self, pool: PoolInput) -> list[Document]:
        """Read each time: files of a mounted Secret change."""
        if pool.zookeeper_tls is None:
            return []
        try:
            content = Path(self._settings.zookeeper_authority).read_bytes()
        except OSError as error:
            text = f"{self._settings.zookeeper_authority} cannot be read: {error.strerror}"
            raise KubeError(422, "Unreadable", text) from error
        data = {"ca.crt": base64.b64encode(content).decode()}
        meta = pool.meta(pool.zookeeper_tls.secret)
        return [{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data}]

    def _credentials(self, pool: PoolInput) -> list[Document]:
        if not pool.zookeeper_secret:
            return []
        path = pool.zookeeper.partition("/")[2]
        line = f"{USER}:{password(self._installation_key(), path)}\n"
        data = {"credentials": base64.b64encode(line.encode()).decode()}
        meta = pool.meta(pool.zookeeper_secret)
        return [{"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data}]

    def _installation_key(self) -> bytes:
        """In a Secret beside the operator, made by whichever replica needs it first."""
        if self._key is not None:
            return self._key
        namespace, name = self._settings.namespace, f"{self._settings.name}-zookeeper"
        for _ in range(2):
            found = self._kube.get("v1", "Secret", namespace, name)
            if found is not None:
                self._key = base64.b64decode((found.get("data") or {}).get(KEY, ""))
                if len(self._key) < 16:
                    raise KubeError(422, "Invalid", f"secret {namespace}/{name} has no key of 16 bytes or more")
                return self._key
            data = {KEY: base64.b64encode(secrets.token_bytes(32)).decode()}
            meta = {"name": name, "namespace": namespace}
            try:
                self._kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
            except KubeError as error:
                if not error.conflict:
                    raise
        raise KubeError(409, "Conflict", f"secret {namespace}/{name} comes and goes")
