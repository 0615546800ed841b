"""Belvedere keeps materialized views over key-value tables exact and fresh while the tables change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, overload

from belvedere import allocator, errors

if TYPE_CHECKING:
    from belvedere.cluster.client.database import ClusterDatabase
    from belvedere.embedded.database import Database
    from belvedere.embedded.reader import Reader
    from belvedere.gateway.client.database import HttpDatabase

allocator.before_arrow_is_loaded()

__version__ = "0.1.0"
__all__ = ["__version__", "connect", "errors", "open"]


@overload
def open(
    path: str | os.PathLike[str] | None = None, *, read_only: Literal[False] = False, **options: Any
) -> Database: ...


@overload
def open(path: str | os.PathLike[str] | None = None, *, read_only: Literal[True], **options: Any) -> Reader: ...


def open(path: str | os.PathLike[str] | None = None, *, read_only: bool = False, **options: Any) -> Database | Reader:
    """Open the database in directory `path` (made if missing); None or ":memory:" for one without files.

    read_only       read beside a writing process; runs no engine
    sync            False: writes return before they are durable (a power cut may lose the last ones, in order)
    snapshot        False: never take snapshots; opening replays the whole log
    retention       seconds (or timedelta) for which older epochs can be read, where a view does not say itself
    history_bytes   most bytes that this history may take; pinned epochs are kept beyond it
    epoch_rows      most rows that the engine takes into one step when it lags
    memory_limit    bytes of deltas on their way; more spill to disk
    backlog_rows    `put` waits while more rows than this are not yet in the views
    threads         how many operators may run at once
    tombstone_retention_ms   how long a delete masks puts with older timestamps, from when it came
    clock           microseconds since 1970, for tests
    """
    from belvedere.embedded.opening import open_database

    return open_database(path, read_only, options)


def connect(
    url: str,
    *,
    timeout: float = 30.0,
    certificate: str | os.PathLike[str] | None = None,
    key: str | os.PathLike[str] | None = None,
    authority: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
    store: str = "",
    bearer: str | os.PathLike[str] | None = None,
) -> ClusterDatabase | HttpDatabase:
    """Connect to a pool of a cluster, or to a gateway; the result has the methods of an embedded database.

    url         belvedere://host:port[,host:port…]: coordinators, any of them; belvedere+tls://… with certificates.
                https://host[:port][/prefix] or http://…: a gateway of a pool, or `belvedere serve`
    timeout     seconds that a call may take, retries included, where it does not say itself
    certificate, key, authority   PEM files for TLS: this client's own, and who must have signed the members'. For
                https:// all of them may be left out: then public authorities are trusted
    server_name the name in the members' certificates, if it is not the host in their addresses (belvedere+tls://)
    store       served://host:port: the backend of the pool, if no member of it has the role store
    bearer      for http(s)://: the token that says who asks, or the Path of a file with it, which may change
    """
    from belvedere.errors import DataError

    if url.partition("://")[0].lower() in ("http", "https"):
        from belvedere.gateway.client.connecting import connect as connect_to_gateway

        if store:
            raise DataError(f"{url!r}: store=… is for belvedere:// URLs; a gateway knows its pool's store")
        if server_name:
            raise DataError(f"{url!r}: server_name=… is for belvedere+tls:// URLs; a gateway is known by its host")
        return connect_to_gateway(
            url, timeout=timeout, certificate=certificate, key=key, authority=authority, bearer=bearer
        )
    from belvedere.cluster.client.connecting import connect as connect_to

    if bearer is not None:
        raise DataError(f"{url!r}: bearer=… is for https:// URLs; members of a cluster show certificates")
    return connect_to(
        url,
        timeout=timeout,
        certificate=certificate,
        key=key,
        authority=authority,
        server_name=server_name,
        store=store,
    )
