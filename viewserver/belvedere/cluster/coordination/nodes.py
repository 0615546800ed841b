"""The nodes of a pool: where they are, who may use them, and how a session's own are made.

    [prefix]/belvedere/<pool>/members/<id>       ephemeral: a member, as JSON
                              election/<guid>-N  ephemeral, sequential: a candidate
                              clocks/<guid>      ephemeral: one for each session, written to learn the server's time
                              record             the pool's record, changed by compare-and-set

Whatever else a session makes ephemeral, it makes in a transaction that checks its node in `clocks`. That one is gone
when the session is, so nothing is made by mistake in a session that the client library opened after it, under a name
that is spent.
"""

from __future__ import annotations

import contextlib

from belvedere.cluster.coordination.requests import (
    ChangeableByAll,
    CreateIf,
    CreateNode,
    Exists,
    NodeAccess,
    NodeExists,
    NoNode,
    ZooKeeperLink,
)
from belvedere.errors import CoordinationUnavailable, Incompatible

ROOT = "belvedere"


class PoolNodes:
    """`hosts`: `host:port,host:port`, optionally followed by a path below which everything is kept."""

    def __init__(self, hosts: str, pool: str, *, protected: bool) -> None:
        self.hosts, _, prefix = hosts.partition("/")
        self.pool = pool
        self._above = [part for part in prefix.split("/") if part]
        self.path = "/" + "/".join([*self._above, ROOT, pool])
        self._protected = protected
        """With credentials."""
        self.members = f"{self.path}/members"
        self.election = f"{self.path}/election"
        self.clocks = f"{self.path}/clocks"
        self.record = f"{self.path}/record"

    def own(self, link: ZooKeeperLink) -> str:
        return f"{self.clocks}/{link.key}"

    def set_up(self, link: ZooKeeperLink) -> bool:
        """Make what a new session needs. False: there is no connection any more. `Incompatible`: the pool of others."""
        if link.identity is None:
            return False
        try:
            self._make_paths(link)
            # With credentials, a pool that anyone may change is not good enough.
            if self._protected and link.ask(ChangeableByAll(self.path)):
                raise self._not_ours()
            with contextlib.suppress(NodeExists):  # the answer to the first try was lost
                link.ask(CreateNode(self.own(link), ephemeral=True))
        except Incompatible:
            raise self._not_ours() from None
        return True

    def create_ephemeral(self, link: ZooKeeperLink, path: str, data: bytes, *, sequence: bool = False) -> None:
        """In this link's session or not at all."""
        try:
            link.ask(CreateIf(self.own(link), path, data, sequence))
        except NoNode:
            raise CoordinationUnavailable(f"the session at ZooKeeper {self.hosts} ended") from None

    def _make_paths(self, link: ZooKeeperLink) -> None:
        path = ""
        for part in self._above:
            path += f"/{part}"
            self._make(link, path, NodeAccess.EVERYONE)
        self._make(link, f"{path}/{ROOT}", NodeAccess.POOLS)
        for path in (self.path, self.members, self.election, self.clocks):
            self._make(link, path, NodeAccess.POOL)

    def _make(self, link: ZooKeeperLink, path: str, access: NodeAccess) -> None:
        # Looked for first: one may be allowed to use what one is not allowed to make.
        if link.ask(Exists(path)) is None:
            with contextlib.suppress(NodeExists):
                link.ask(CreateNode(path, access=access))

    def _not_ours(self) -> Incompatible:
        made = "other credentials, or none" if self._protected else "credentials, and none are given here"
        return Incompatible(
            f"pool {self.pool!r} in ZooKeeper {self.hosts} ({self.path}) belongs to others: "
            f"it was made with {made}; use the credentials of the pool, or give this pool another name"
        )
