"""A store in HBase from its URL.

hbase://ZOOKEEPER[,ZOOKEEPER...][:PORT]/NAMESPACE[?OPTION=VALUE&...]

thrift=HOST:PORT    cells through this Thrift gateway, and not by RPC to the region servers
history=SECONDS     how long previous images of views stay (3600)
znode=/PATH         HBase's node in ZooKeeper (/hbase)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.cells import Cells
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.store import HISTORY_S, HBaseStore
from belvedere.backend.hbase.thrift_cells import ThriftCells
from belvedere.backend.hbase.zookeeper import BASE
from belvedere.errors import DataError

_FORM = "hbase://zk1,zk2:2181/namespace"
_PORT = 2181
_NAME = re.compile(r"[A-Za-z0-9_]+")
_OPTIONS = ("history", "thrift", "znode")


@dataclass(frozen=True)
class HBaseAddress:
    """What a URL says."""

    quorum: str
    namespace: str
    thrift: tuple[str, int] | None = None
    history_s: int = HISTORY_S
    znode: str = BASE


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
    thrift = _host_and_port(url, options["thrift"]) if "thrift" in options else None
    return HBaseAddress(_quorum(url, hosts), namespace, thrift, int(history), options.get("znode", BASE))


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


def open_store(url: str, timeout: float) -> HBaseStore:
    """Its namespace and tables are made if they are not there."""
    address = parse_address(url)
    hbase = connect_hbase(address.quorum, base=address.znode, timeout=timeout)
    cells: Cells = RpcCells(hbase.regions, hbase.pool, timeout)
    if address.thrift is not None:
        cells = ThriftCells(*address.thrift, timeout)
    store = HBaseStore(
        cells,
        PoolAdmin(hbase.master, address.namespace, address.namespace),
        history_s=address.history_s,
        compact=RegionAdmin(hbase, timeout).request_compaction,
        closing=hbase.close,
    )
    try:
        store.open()
    except BaseException:
        store.close()
        raise
    return store
