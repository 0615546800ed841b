"""Until what was in HBase's log at one moment has reached INPUT, by no clock and no write to a user's table.

Every region server has a queue of log files for each peer, shown in ZooKeeper: the one that it is writing, and those
that are not wholly acknowledged. So: the files that all queues have now; then every region server is told to begin a
new file, as it does every hour by itself; when none of those files is in a queue any more, all that was written before
the first look is acknowledged, which means durable. A queue of a dead server moves to another one with its files, and
is counted like the rest.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.connection import ADMIN
from belvedere.backend.hbase.zookeeper import Nodes
from belvedere.errors import StoreUnavailable
from belvedere.retry import Superseded

_LOOK_S = 0.25
_ROLL_AGAIN_S = 10.0
"""A server that was starting when the others were told."""


class LogFence:
    """`wait`: seconds to sleep; true ends it."""

    def __init__(self, hbase: HBase, peer: str, wait: Callable[[float], bool]) -> None:
        self._hbase, self._peer, self._wait = hbase, peer, wait

    def passed(self) -> None:
        """Returns when everything that was in the log at the call is in INPUT."""
        registry = self._hbase.registry
        with Nodes(registry.quorum) as nodes:
            before = self._files(nodes)
            waited = _ROLL_AGAIN_S
            # Twice: a queue that moves while it is looked for is found by the second look.
            while before & (self._files(nodes) | self._files(nodes)):
                if waited >= _ROLL_AGAIN_S:
                    waited = 0.0
                    self._begin_files()
                if self._wait(_LOOK_S):
                    raise Superseded
                waited += _LOOK_S

    def _files(self, nodes: Nodes) -> set[str]:
        place = posixpath.join(self._hbase.registry.base, "replication/rs")
        found, queues = set(), 0
        for server in nodes.children(place):
            for queue in nodes.children(f"{place}/{server}"):
                if queue == self._peer or queue.startswith(f"{self._peer}-"):
                    queues += 1
                    found |= set(nodes.children(f"{place}/{server}/{queue}"))
        if not queues:
            raise StoreUnavailable(
                f"hbase: no region server has a queue of log files for the peer {self._peer!r} below {place} in"
                " ZooKeeper; it is being made, or this HBase keeps its queues elsewhere (2.6 is what is understood)"
            )
        return found

    def _begin_files(self) -> None:
        for server in self._hbase.admin.servers():
            try:
                with self._hbase.pool.connection(server, ADMIN) as connection:
                    connection.call("RollWALWriter", messages.Empty(), messages.Empty)
            except StoreUnavailable:
                continue  # it is told again, or its queue is taken over by another
