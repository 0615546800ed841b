"""`belvedere.connect`: from a URL to a `ClusterDatabase` over Arrow Flight."""

from __future__ import annotations

import os
from pathlib import Path

from belvedere.backend.opening import open_backend, served_url, shared_url
from belvedere.backend.seam import Backend
from belvedere.cluster.client.database import TIMEOUT, ClusterDatabase
from belvedere.errors import DataError
from belvedere.rpc.addresses import Certificates
from belvedere.rpc.client import RpcClient

SCHEMES = {"belvedere": "grpc", "belvedere+tls": "grpc+tls"}
EXAMPLE = "belvedere://host:port[,host:port…], the addresses of one or more coordinators"

File = str | os.PathLike[str] | None


def connect(
    url: str,
    *,
    timeout: float = TIMEOUT,
    certificate: File = None,
    key: File = None,
    authority: File = None,
    server_name: str | None = None,
    store: str = "",
) -> ClusterDatabase:
    """See `belvedere.connect`."""
    seeds = addresses(url)
    if store:
        shared_url(store)
    tls = _tls(url, certificate, key, authority, server_name)
    caller = RpcClient(tls=tls)

    def open_store(url: str, address: str) -> Backend:
        member = served_url(address) if address else ""
        return open_backend(url or member, timeout=timeout, certificates=tls, state=member if url else "")

    try:
        return ClusterDatabase(seeds, caller, open_store, timeout=timeout, on_close=caller.close, store=store)
    except BaseException:
        caller.close()
        raise


def addresses(url: str) -> list[str]:
    """The coordinators that a URL names, as addresses for Flight."""
    scheme, separator, rest = url.partition("://")
    hosts = [host.strip() for host in rest.rstrip("/").split(",")]
    if not separator or scheme not in SCHEMES:
        begins = " or ".join(f"{s}://" for s in SCHEMES)
        raise DataError(
            f"{url!r} is no URL of a cluster; it begins with {begins}; a gateway's begins with https:// or http://"
        )
    for host in hosts:
        name, colon, port = host.rpartition(":")
        if not name or not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise DataError(f"{url!r} is no URL of a cluster: {host!r} is no host with a port; give {EXAMPLE}")
    return [f"{SCHEMES[scheme]}://{host}" for host in hosts]


def _tls(url: str, certificate: File, key: File, authority: File, server_name: str | None) -> Certificates | None:
    if not url.startswith("belvedere+tls:"):
        if certificate or key or authority or server_name:
            raise DataError(f"{url!r}: certificates are for belvedere+tls:// URLs")
        return None
    if not (certificate and key and authority):
        raise DataError(f"{url!r}: members show certificates to each other; give certificate, key and authority")
    return Certificates(Path(certificate), Path(key), Path(authority), server_name)
