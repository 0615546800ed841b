"""From a URL to a backend: the one place that knows which implementations there are.

    memory:                     in this process, gone with it: for trying out, and for tests
    served://host:port          a process of role store (`served+tls://` with certificates)
    hbase://zk1,zk2/namespace   an HBase; its options: `backend.hbase.opening`

Imports are lazy: who follows one URL loads one implementation.
"""

from __future__ import annotations

import importlib.util

from belvedere.backend.seam import Backend, SinkPlace
from belvedere.errors import DataError
from belvedere.rpc.addresses import Certificates

SERVED = {"served": "grpc", "served+tls": "grpc+tls"}
TIMEOUT = 60.0
"""Seconds that a call to a backend may take. Late writers are not later than this."""
KNOWN = "memory:, served://host:port or hbase://zk1,zk2:2181/namespace"


def open_backend(
    url: str,
    *,
    timeout: float = TIMEOUT,
    certificates: Certificates | None = None,
    base: bool = True,
    state: str = "",
    pool: str = "",
    sink: SinkPlace | None = None,
) -> Backend:
    """The backend that a URL names. `base`: with its base tables, for those who write or administer them. `state`: the
    URL of the backend that has the state, where this one leaves it to another (`leaves_state`). `pool`: whose member
    opens it; clients are none, and make nothing. `sink`: for those who take entries of another system's log."""
    scheme, separator, rest = url.partition(":")
    if scheme == "memory" and separator and not rest:
        from belvedere.backend.memory import MemoryStore

        store = MemoryStore()
        return Backend(url, store, store.base if base else None)
    if scheme in SERVED and rest.startswith("//"):
        return _served(url, _flight_address(url, rest, scheme), timeout, certificates, base)
    if scheme == "hbase" and rest.startswith("//"):
        _need_hbase(url)
        from belvedere.backend.hbase.opening import open_hbase

        beside = open_backend(state, timeout=timeout, certificates=certificates, base=False) if state else None
        return open_hbase(url, timeout, beside, pool, base, sink)
    raise _unknown(url)


def shared_url(url: str) -> str:
    """A URL of a backend that several processes can use, checked before anything is opened: a member or a client whose
    store is misspelt should say so at once, and not wait for it."""
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        raise DataError(
            f"the backend {url!r} is in the memory of one process, and a pool consists of several; give served://host:port"
        )
    if scheme == "hbase" and rest.startswith("//"):
        _need_hbase(url)
        from belvedere.backend.hbase.opening import parse_address

        parse_address(url)
        return url
    if scheme not in SERVED or not rest.startswith("//"):
        raise _unknown(url)
    _flight_address(url, rest, scheme)
    return url


def leaves_state(url: str) -> bool:
    """Whether the state of such a pool is with its member of role store."""
    if not url.startswith("hbase://"):
        return False
    _need_hbase(url)
    from belvedere.backend.hbase.opening import parse_address

    return parse_address(url).served_state


def discard(url: str, pool: str, timeout: float = TIMEOUT) -> str:
    """Remove for ever what a pool that runs no more has in another system; what that was, in words."""
    if not url.startswith("hbase://"):
        raise DataError(
            f"{url!r}: only what a pool has in hbase is removed so; of a store of its own remove the directory"
        )
    _need_hbase(url)
    from belvedere.backend.hbase.opening import discard as discard_hbase

    return discard_hbase(url, pool, timeout)


def inspect_hbase(url: str, table: str, rows: int) -> str:
    """A manifest for a table of the HBase that a URL names, guessed from so many of its rows."""
    shared_url(url)
    if not url.startswith("hbase://"):
        raise DataError(f"{url!r} is no HBase; give hbase://zk1,zk2:2181/namespace")
    from belvedere.backend.hbase.client import connect_hbase
    from belvedere.backend.hbase.inspecting import inspect
    from belvedere.backend.hbase.opening import parse_address

    address = parse_address(url)
    hbase = connect_hbase(address.quorum, base=address.znode, timeout=TIMEOUT)
    try:
        return inspect(hbase, table, rows)
    finally:
        hbase.close()


def _need_hbase(url: str) -> None:
    missing = [name for name in ("fastavro", "google.protobuf", "happybase", "kazoo") if not _is_installed(name)]
    if missing:
        raise DataError(
            f"the backend {url!r} needs {missing[0]}, which is not installed; pip install 'belvedere[hbase]' brings it"
        )


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a part of a package that is not there
        return False


def _unknown(url: str) -> DataError:
    return DataError(f"{url!r} names no backend that is known; there are {KNOWN}")


def _flight_address(url: str, rest: str, scheme: str) -> str:
    _, colon, port = rest.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise DataError(f"{url!r} is no URL of a store: a host and a port are needed, as in served://host:7001")
    return f"{SERVED[scheme]}:{rest}"


def served_url(address: str) -> str:
    """The URL of a store that listens at an address of Arrow Flight."""
    scheme, _, rest = address.partition("://")
    named = {flight: name for name, flight in SERVED.items()} | {"grpc+tcp": "served"}
    if scheme not in named or not rest:
        raise DataError(f"{address!r} is no address of a store; they begin with grpc:// or grpc+tls://")
    return f"{named[scheme]}://{rest}"


def load_served() -> None:
    """What a connection to a served backend needs, before anybody opens one."""
    import belvedere.backend.served.client  # noqa: F401


def _served(url: str, address: str, timeout: float, certificates: Certificates | None, base: bool) -> Backend:
    from belvedere.backend.served.client import FlightStore

    store = FlightStore(address, timeout=timeout, tls=certificates)
    if not base:
        return Backend(url, store, None, store.within)
    from belvedere.backend.served.base_service import BaseClient

    return Backend(url, store, BaseClient(address, timeout=timeout, tls=certificates), store.within)
