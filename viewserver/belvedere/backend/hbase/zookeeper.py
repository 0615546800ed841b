"""What HBase publishes in ZooKeeper: the active master, the region of `hbase:meta`, the cluster's id.

The only module of this folder that knows kazoo. HBase's own nodes begin with a magic byte, the name of the writer, and
the letters PBUF.
"""

from __future__ import annotations

import contextlib
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import Server
from belvedere.errors import StoreUnavailable

BASE = "/hbase"
_MAGIC = b"\xff"
_PROTOBUF = b"PBUF"


class Registry:
    """Asks ZooKeeper anew at each call, on a session of its own: this is needed at the start, and when the master or
    `hbase:meta` has moved. Thread-safe."""

    def __init__(self, quorum: str, base: str = BASE, timeout: float = 10.0) -> None:
        self.quorum, self.base = quorum, base
        self._timeout = timeout

    def master(self) -> Server:
        return _server(messages.MasterNode.FromString(self._read("master")).master)

    def meta(self) -> Server:
        """Where `hbase:meta` is open."""
        return _server(messages.MetaNode.FromString(self._read("meta-region-server")).server)

    def cluster_id(self) -> str:
        return str(messages.ClusterId.FromString(self._read("hbaseid")).cluster_id)

    def sinks(self, base: str) -> list[Server]:
        """Sinks that are registered below `base` now."""
        client = KazooClient(self.quorum, timeout=self._timeout)
        try:
            client.start(timeout=self._timeout)
            named = [name.split(",") for name in client.get_children(f"{base}/rs")]
            return [Server(host, int(port), int(code)) for host, port, code in named]
        except NoNodeError:
            return []
        except (KazooException, KazooTimeoutError) as problem:
            raise StoreUnavailable(f"hbase: the ZooKeeper {self.quorum} does not answer: {problem!r}") from problem
        finally:
            client.stop()
            client.close()

    def _read(self, name: str) -> bytes:
        client = KazooClient(self.quorum, timeout=self._timeout)
        try:
            client.start(timeout=self._timeout)
            return protobuf_of(client.get(f"{self.base}/{name}")[0])
        except NoNodeError:
            raise StoreUnavailable(
                f"hbase at {self.quorum}: {self.base}/{name} is not in ZooKeeper; HBase does not run, or has another "
                "zookeeper.znode.parent"
            ) from None
        except (KazooException, KazooTimeoutError) as problem:
            raise StoreUnavailable(f"hbase: the ZooKeeper {self.quorum} does not answer: {problem!r}") from problem
        finally:
            client.stop()
            client.close()


class Nodes:
    """Nodes of others, read on one session for as long as it is open."""

    def __init__(self, quorum: str, timeout: float = 10.0) -> None:
        self._quorum, self._timeout = quorum, timeout
        self._client = KazooClient(quorum, timeout=timeout)

    def __enter__(self) -> Nodes:
        self._ask(lambda: self._client.start(timeout=self._timeout))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def children(self, path: str) -> list[str]:
        """Their names; none if there is no such node."""
        try:
            found: list[str] = self._ask(lambda: self._client.get_children(path))
        except NoNodeError:
            return []
        return found

    def _ask(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except NoNodeError:
            raise
        except (KazooException, KazooTimeoutError) as problem:
            raise StoreUnavailable(f"hbase: the ZooKeeper {self._quorum} does not answer: {problem!r}") from problem


class SinkRegistration:
    """Shows a replication sink to region servers, as a region server of a cluster whose nodes are below `base`. HBase
    chooses among those that are there; this one goes with its session, and comes back with the next."""

    def __init__(self, quorum: str, base: str, host: str, port: int, timeout: float = 10.0) -> None:
        self._name = f"{base}/rs/{host},{port},{int(time.time() * 1000)}"
        self._base = base
        self._client = KazooClient(quorum, timeout=timeout)
        self._client.add_listener(self._listen)
        try:
            self._client.start(timeout=timeout)
            self._register()
        except (KazooException, KazooTimeoutError) as problem:
            self.close()
            raise StoreUnavailable(f"hbase: the ZooKeeper {quorum} does not answer: {problem!r}") from problem

    def _register(self) -> None:
        self._client.ensure_path(f"{self._base}/rs")
        with contextlib.suppress(NodeExistsError):
            named = messages.ClusterId(cluster_id=str(uuid.uuid4())).SerializeToString()
            self._client.create(f"{self._base}/hbaseid", _PROTOBUF + named)
        with contextlib.suppress(NodeExistsError):
            self._client.create(self._name, b"", ephemeral=True)

    def _listen(self, state: str) -> None:
        """From kazoo's own thread, which must not wait for an answer."""
        if state == KazooState.LOST:
            self._lost = True
        elif state == KazooState.CONNECTED and self._lost:
            self._lost = False
            self._client.handler.spawn(self._register)

    _lost = False

    def claim(self, what: str) -> bool:
        """Whether this one may do it: nobody else has claimed it and lives."""
        try:
            self._client.create(f"{self._base}/claims/{what}", b"", ephemeral=True, makepath=True)
        except NodeExistsError:
            return False
        except (KazooException, KazooTimeoutError) as problem:
            raise StoreUnavailable(f"hbase: the ZooKeeper does not answer: {problem!r}") from problem
        return True

    def release(self, what: str) -> None:
        with contextlib.suppress(KazooException, KazooTimeoutError):  # it ends with the session
            self._client.delete(f"{self._base}/claims/{what}")

    def close(self) -> None:
        self._client.stop()
        self._client.close()


def cluster_key(quorum: str, base: str) -> str:
    """How HBase names the cluster of a peer: hosts, the client port, and where its nodes are."""
    hosts = quorum.split(",")
    port = hosts[0].rpartition(":")[2]
    return f"{quorum if len(hosts) > 1 else hosts[0].rpartition(':')[0]}:{port}:{base}"


def protobuf_of(data: bytes) -> bytes:
    """A node's content without what HBase puts before it."""
    if data[:1] == _MAGIC:
        (length,) = struct.unpack_from(">i", data, 1)
        data = data[5 + length :]
    if data[:4] != _PROTOBUF:
        raise StoreUnavailable(f"hbase: a node in ZooKeeper begins with {data[:8]!r}, and not with {_PROTOBUF!r}")
    return data[4:]


def _server(named: Any) -> Server:
    return Server(named.host_name, named.port, named.start_code)
