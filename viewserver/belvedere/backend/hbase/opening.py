"""A pool's HBase from its URL: its store, and the tables there that it follows.

hbase://ZOOKEEPER[,ZOOKEEPER...][:PORT]/NAMESPACE[?OPTION=VALUE&...]

thrift=HOST:PORT    cells through this Thrift gateway, and not by RPC to the region servers
history=SECONDS     how long previous images of views stay (3600)
state=served        everything but the views is with the pool's member of role store (hbase)
znode=/PATH         HBase's node in ZooKeeper (/hbase)

The log is decoded by compiled kernels. They are loaded by those who take log entries, and not by clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.cells import Cells
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.followed import FollowedBook
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.backend.hbase.row_writer import RowWriter
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.store import HISTORY_S, HBaseStore
from belvedere.backend.hbase.thrift_cells import ThriftCells
from belvedere.backend.hbase.zookeeper import BASE
from belvedere.backend.seam import Backend, SinkPlace, Store
from belvedere.backend.split_store import SplitStore
from belvedere.errors import DataError

_FORM = "hbase://zk1,zk2:2181/namespace"
_PORT = 2181
_NAME = re.compile(r"[A-Za-z0-9_]+")
_OPTIONS = ("history", "state", "thrift", "znode")
_STATES = ("hbase", "served")


@dataclass(frozen=True)
class HBaseAddress:
    """What a URL says."""

    quorum: str
    namespace: str
    thrift: tuple[str, int] | None = None
    history_s: int = HISTORY_S
    znode: str = BASE
    served_state: bool = False


def parse_address(url: str) -> HBaseAddress:
    rest, _, query = url.removeprefix("hbase://").partition("?")
    hosts, slash, namespace = rest.partition("/")
    if not hosts or not slash or not _NAME.fullmatch(namespace):
        raise DataError(
            f"{url!r} is no URL of an HBase: the quorum and a namespace of letters, digits and _ are needed, as in "
            f"{_FORM}"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise DataError(f"{url!r}: there is no option {unknown[0]!r}; there are {', '.join(_OPTIONS)}")
    history = options.get("history", str(HISTORY_S))
    if not history.isdecimal() or not int(history):
        raise DataError(f"{url!r}: history is {history!r}; a number of seconds is needed, as in history=3600")
    state = options.get("state", _STATES[0])
    if state not in _STATES:
        raise DataError(f"{url!r}: state is {state!r}; it is in {' or '.join(_STATES)}")
    thrift = _host_and_port(url, options["thrift"]) if "thrift" in options else None
    served = state == "served"
    return HBaseAddress(_quorum(url, hosts), namespace, thrift, int(history), options.get("znode", BASE), served)


def _quorum(url: str, hosts: str) -> str:
    """Each host with its port; those without have the last one's, as HBase writes it."""
    named = hosts.split(",")
    _, colon, port = named[-1].rpartition(":")
    port = port if colon else str(_PORT)
    every = [host if ":" in host else f"{host}:{port}" for host in named]
    for host in every:
        _host_and_port(url, host)
    return ",".join(every)


def _host_and_port(url: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise DataError(f"{url!r}: {text!r} is no host with a port, as in host:{_PORT}")
    return host, int(port)


def open_hbase(
    url: str, timeout: float, state: Backend | None, pool: str, base: bool, sink: SinkPlace | None
) -> Backend:
    """`state`: where everything but the views is, if not here. `pool`: who opens it is a member of this pool, and makes
    what is not there. `base`: who administers the tables that are followed; `sink`: who takes entries of their log."""
    address = parse_address(url)
    hbase = connect_hbase(address.quorum, base=address.znode, timeout=timeout)
    cells: Cells = RpcCells(hbase.regions, hbase.pool, timeout)
    if address.thrift is not None:
        cells = ThriftCells(*address.thrift, timeout)
    admin = PoolAdmin(hbase.master, address.namespace, pool or address.namespace)
    views = HBaseStore(
        cells,
        admin,
        history_s=address.history_s,
        compact=RegionAdmin(hbase, timeout).request_compaction,
        closing=hbase.close,
    )
    store: Store = views
    bounded: Callable[[float, float | None], Store] = views.within
    if state is not None:
        there = state

        def bounded(seconds: float, stream: float | None = None) -> Store:
            return SplitStore(there.within(seconds, stream), views.within(seconds, stream))

        store = SplitStore(state.store, views)
    try:
        if pool:
            views.open()
            if isinstance(store, SplitStore):
                store.check_owner()
        if not pool or (not base and sink is None):
            return Backend(url, store, None, bounded, FollowedBook(store), rows=RowWriter(cells))
        from belvedere.backend.hbase.log import HBaseLog

        log = HBaseLog(hbase, admin, store, peer=address.namespace, place=sink)
    except BaseException:
        store.close()
        raise
    return Backend(url, store, log, bounded, log, log)


def discard(url: str, pool: str, timeout: float) -> str:
    """Remove what a pool has in HBase: its peer first, as nobody takes its log any more. What was removed, in words."""
    address = parse_address(url)
    hbase = connect_hbase(address.quorum, base=address.znode, timeout=timeout)
    try:
        admin = PoolAdmin(hbase.master, address.namespace, pool)
        found = []
        if any(peer.id == address.namespace for peer in admin.peers()):
            admin.remove_peer(address.namespace)
            found.append(f"the replication peer {address.namespace}")
        if address.namespace in admin.namespaces():
            tables = len(admin.tables(address.namespace))
            admin.drop_namespace()
            found.append(f"the namespace {address.namespace} with {tables} tables")
        return " and ".join(found)
    finally:
        hbase.close()
