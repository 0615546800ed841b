"""What a pool that runs no more has left in ZooKeeper: its nodes, above all its record.

A record says which epochs are committed in a store. When what the pool had in the store is removed, the record has to
go as well: a pool of the same name would go on from epochs of which nothing is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import Children, DeleteNode, NoNode, ZooKeeperCredentials, ZooKeeperLink
from belvedere.cluster.coordination.zookeeper import KazooLink
from belvedere.errors import CoordinationUnavailable, Incompatible
from belvedere.rpc.addresses import Certificates

SESSION_S = 10.0
_EVERY_S = 0.05


class PoolRemains:
    """As a context manager: one session."""

    def __init__(
        self,
        hosts: str,
        pool: str,
        credentials: ZooKeeperCredentials | None = None,
        tls: Certificates | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._nodes = PoolNodes(hosts, pool, protected=credentials is not None)
        self._timeout = timeout
        self._link: ZooKeeperLink = KazooLink(
            self._nodes.hosts, SESSION_S, credentials, tls, threading.RLock(), lambda *_: None
        )

    def __enter__(self) -> PoolRemains:
        self._link.open()
        deadline = time.monotonic() + self._timeout
        while self._link.identity is None or self._link.identity[0] == 0:
            if time.monotonic() > deadline:
                self._link.stop()
                raise CoordinationUnavailable(
                    f"ZooKeeper {self._nodes.hosts} did not answer within {self._timeout:g} s: {self._link.problem}"
                )
            time.sleep(_EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._link.stop()

    def refuse_members(self) -> None:
        """Raise if members of the pool are there, or left so suddenly that ZooKeeper still believes it."""
        try:
            found = self._link.ask(Children(self._nodes.members))
        except NoNode:
            return
        if found:
            raise Incompatible(
                f"pool {self._nodes.pool!r} has members ({', '.join(sorted(found)[:3])} …): end its processes first"
            )

    def remove(self) -> bool:
        """Whether there was anything. Interrupted, it goes on where it was."""
        there = False
        for path in self._bottom_up(self._nodes.path):
            try:
                self._link.ask(DeleteNode(path))
                there = True
            except NoNode:
                continue
        return there

    def _bottom_up(self, path: str) -> Iterator[str]:
        try:
            children = self._link.ask(Children(path))
        except NoNode:
            return
        for name in children:
            yield from self._bottom_up(f"{path}/{name}")
        yield path
