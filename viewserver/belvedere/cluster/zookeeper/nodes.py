"""The nodes of a pool: where they are, who may use them, and how a session's own are made.

    [prefix]/belvedere/<pool>/members/<id>       ephemeral: a member, as JSON
                              election/<guid>-N  ephemeral, sequential: a candidate
                              clocks/<guid>      ephemeral: one for each session, written to learn the server's time
                              record             the pool's record, changed by compare-and-set

Whatever else a session makes ephemeral, it makes in a transaction that checks its node in `clocks`. That one is gone
when the session is, so nothing is made by mistake in a session that kazoo opened after it, under a name that is spent.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Permissions, make_acl

from belvedere.cluster.zookeeper.link import Link, describe
from belvedere.errors import CoordinationUnavailable, Incompatible

ROOT = "belvedere"


@dataclass(frozen=True)
class Credentials:
    """Digest authentication. Everything in the pool belongs to who has them; `world_read` lets others look."""

    user: str
    password: str = field(repr=False)
    world_read: bool = False

    def __post_init__(self) -> None:
        if not self.user or ":" in self.user:
            raise ValueError(f"the ZooKeeper user {self.user!r} must not be empty or contain ':'")


class PoolNodes:
    """`hosts`: `host:port,host:port`, optionally followed by a path below which everything is kept."""

    def __init__(self, hosts: str, pool: str, credentials: Credentials | None) -> None:
        self.hosts, _, prefix = hosts.partition("/")
        self.pool = pool
        self._above = [part for part in prefix.split("/") if part]
        self._path = "/" + "/".join([*self._above, ROOT, pool])
        self._credentials = credentials
        self.members = f"{self._path}/members"
        self.election = f"{self._path}/election"
        self.clocks = f"{self._path}/clocks"
        self.record = f"{self._path}/record"

    def own(self, link: Link) -> str:
        return f"{self.clocks}/{link.key}"

    def set_up(self, link: Link) -> bool:
        """Make what a new session needs. False: there is no connection any more. `Incompatible`: the pool of others."""
        identity = link.client.client_id
        if identity is None:
            return False
        link.session_id = identity[0]
        try:
            self._make_paths(link)
            self._check_owner(link)
            with contextlib.suppress(NodeExistsError):  # the answer to the first try was lost
                link.ask(lambda client: client.create_async(self.own(link), acl=self.access(), ephemeral=True))
        except Incompatible:
            raise self._not_ours() from None
        return True

    def access(self) -> list[ACL]:
        """What every node of the pool is made with."""
        if self._credentials is None:
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if self._credentials.world_read else [])]

    def create_ephemeral(self, link: Link, path: str, data: bytes, *, sequence: bool = False) -> None:
        """In this link's session or not at all."""

        def create(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.check(self.own(link), -1)
            transaction.create(path, data, acl=self.access(), ephemeral=True, sequence=sequence)
            return transaction.commit_async()

        checked, created = link.ask(create)
        if isinstance(checked, NoNodeError):
            raise CoordinationUnavailable(f"the session at ZooKeeper {self.hosts} ended")
        if isinstance(created, NoAuthError):
            raise self._not_ours()
        if isinstance(created, NodeExistsError):
            raise created
        if isinstance(created, Exception):
            raise CoordinationUnavailable(f"ZooKeeper {self.hosts}: {describe(created)}")

    def _make_paths(self, link: Link) -> None:
        path = ""
        for part in self._above:
            path += f"/{part}"
            self._make(link, path, OPEN_ACL_UNSAFE)
        everyone_makes_pools = [*CREATOR_ALL_ACL, make_acl("world", "anyone", read=True, create=True)]
        self._make(link, f"{path}/{ROOT}", everyone_makes_pools if self._credentials else OPEN_ACL_UNSAFE)
        self._make(link, self._path, self.access())
        for below in (self.members, self.election, self.clocks):
            self._make(link, below, self.access())

    def _make(self, link: Link, path: str, access: list[ACL]) -> None:
        # Looked for first: one may be allowed to use what one is not allowed to make.
        if link.ask(lambda client: client.exists_async(path)) is None:
            with contextlib.suppress(NodeExistsError):
                link.ask(lambda client: client.create_async(path, acl=access))

    def _check_owner(self, link: Link) -> None:
        """With credentials, a pool that anyone may change is not good enough."""
        if self._credentials is None:
            return
        access, _ = link.ask(lambda client: client.get_acls_async(self._path))
        if any(entry.id.scheme == "world" and entry.perms & ~Permissions.READ for entry in access):
            raise self._not_ours()

    def _not_ours(self) -> Incompatible:
        made = "other credentials, or none" if self._credentials else "credentials, and none are given here"
        return Incompatible(
            f"pool {self.pool!r} in ZooKeeper {self.hosts} ({self._path}) belongs to others: "
            f"it was made with {made}; use the credentials of the pool, or give this pool another name"
        )
