"""`belvedere.connect`: from a URL to a `ClusterDatabase` over Arrow Flight."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from belvedere.backend.served import server as served
from belvedere.backend.served.base_service import BaseClient
from belvedere.backend.served.client import FlightStore
from belvedere.cluster.client.database import TIMEOUT, ClusterDatabase
from belvedere.cluster.client.stores import Connection
from belvedere.cluster.transport.flight import FlightClient, Tls
from belvedere.engine.delta import Changes
from belvedere.errors import DataError
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.sql.catalog import TableDef

SCHEMES = {"belvedere": "grpc", "belvedere+tls": "grpc+tls"}
EXAMPLE = "belvedere://host:port[,host:port…], the addresses of one or more coordinators"

File = str | os.PathLike[str] | None


def connect(
    url: str, *, timeout: float = TIMEOUT, certificate: File = None, key: File = None, authority: File = None
) -> ClusterDatabase:
    """See `belvedere.connect`."""
    seeds = addresses(url)
    tls = _tls(url, certificate, key, authority)
    caller = FlightClient(tls=tls)

    def open_store(address: str) -> Connection:
        files = None if tls is None else served.Tls(tls.certificate, tls.key, tls.authority)
        store = FlightStore(address, timeout=timeout, tls=files)
        return Connection(address, store, ServedBase(BaseClient(address, timeout=timeout, tls=files)), store.within)

    try:
        return ClusterDatabase(seeds, caller, open_store, timeout=timeout, on_close=caller.close)
    except BaseException:
        caller.close()
        raise


def addresses(url: str) -> list[str]:
    """The coordinators that a URL names, as addresses for Flight."""
    scheme, separator, rest = url.partition("://")
    hosts = [host.strip() for host in rest.rstrip("/").split(",")]
    if not separator or scheme not in SCHEMES:
        raise DataError(f"{url!r} is no URL of a cluster; it begins with {' or '.join(f'{s}://' for s in SCHEMES)}")
    for host in hosts:
        name, colon, port = host.rpartition(":")
        if not name or not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise DataError(f"{url!r} is no URL of a cluster: {host!r} is no host with a port; give {EXAMPLE}")
    return [f"{SCHEMES[scheme]}://{host}" for host in hosts]


def _tls(url: str, certificate: File, key: File, authority: File) -> Tls | None:
    if not url.startswith("belvedere+tls:"):
        if certificate or key or authority:
            raise DataError(f"{url!r}: certificates are for belvedere+tls:// URLs")
        return None
    if not (certificate and key and authority):
        raise DataError(f"{url!r}: members show certificates to each other; give certificate, key and authority")
    return Tls(Path(certificate), Path(key), Path(authority))


class ServedBase:
    """Base tables of the store role."""

    def __init__(self, client: BaseClient) -> None:
        self.client = client

    def write(
        self, table: TableDef, changes: Changes, *, own_clock: bool, request: str, timeout: float
    ) -> Mapping[SourceId, Seq]:
        return self.client.within(timeout).put(table, changes, own_clock=own_clock, request=request)

    def table(self, name: str, timeout: float) -> TableDef | None:
        return self.client.within(timeout).tables().get(name)

    def close(self) -> None:
        self.client.close()
