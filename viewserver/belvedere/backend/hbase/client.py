"""One HBase as its clients see it: where its servers are, connections to them, the regions of tables, the master."""

from __future__ import annotations

from dataclasses import dataclass

from belvedere.backend.hbase.admin import Admin
from belvedere.backend.hbase.master import Master
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.regions import Regions
from belvedere.backend.hbase.zookeeper import BASE, Registry


@dataclass(frozen=True)
class HBase:
    """All of it is thread-safe."""

    registry: Registry
    pool: ConnectionPool
    regions: Regions
    master: Master

    @property
    def admin(self) -> Admin:
        return Admin(self.master)

    def close(self) -> None:
        self.pool.close()


def connect_hbase(quorum: str, *, base: str = BASE, timeout: float = 60.0, user: str | None = None) -> HBase:
    """Nothing is asked before the first call. `timeout`: seconds that a server may be silent, and a call to the master
    may take."""
    registry, pool = Registry(quorum, base), ConnectionPool(timeout, user)
    return HBase(registry, pool, Regions(registry, pool), Master(registry, pool, timeout))
