"""What certificates of a pool are called, where pods find them, and what their processes are told of them."""

from __future__ import annotations

from belvedere_operator.build.inputs import Document, PoolInput
from belvedere_operator.names import object_name

MOUNTED = "/etc/belvedere/tls"


def authority_secret(pool: PoolInput) -> str:
    return pool.object_name("authority")


def role_secret(pool: PoolInput, role: str) -> str:
    return pool.object_name("tls", role)


def members_name(pool: PoolInput) -> str:
    """What clients look for in the certificate of whoever they ask: pods have no name of their own that lasts."""
    return f"members.{object_name(pool.name)}.{pool.namespace}.belvedere.internal"


def names(pool: PoolInput, role: str, *, server: bool) -> tuple[str, ...]:
    own = f"{role}.{object_name(pool.name)}.{pool.namespace}.belvedere.internal"
    return (own, members_name(pool)) if server else (own,)


def environment(pool: PoolInput) -> dict[str, str]:
    if not pool.mutual_tls:
        return {}
    files = {"CERTIFICATE": "tls.crt", "KEY": "tls.key", "AUTHORITY": "ca.crt"}
    told = {f"BELVEDERE_TLS_{name}": f"{MOUNTED}/{file}" for name, file in files.items()}
    return told | {"BELVEDERE_TLS_SERVER_NAME": members_name(pool)}


def mounts(pool: PoolInput) -> list[Document]:
    return [{"name": "tls", "mountPath": MOUNTED, "readOnly": True}] if pool.mutual_tls else []


def volumes(pool: PoolInput, role: str) -> list[Document]:
    """The whole Secret, not files of it by `subPath`: those would never change."""
    if not pool.mutual_tls:
        return []
    return [{"name": "tls", "secret": {"secretName": role_secret(pool, role), "defaultMode": 0o440}}]


def members_url(pool: PoolInput, port: int) -> str:
    scheme = "belvedere+tls" if pool.mutual_tls else "belvedere"
    return f"{scheme}://{pool.object_name('coordinator')}.{pool.namespace}.svc:{port}"
