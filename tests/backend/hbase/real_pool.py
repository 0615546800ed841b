"""Pools of real processes that follow tables of a real HBase."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import belvedere
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from tests.backend.hbase.followed_pool import converge_with
from tests.backend.hbase.server import unique

POOL = "views"


@dataclass(frozen=True)
class RealPool:
    cluster: LocalCluster
    db: ClusterDatabase
    namespace: str
    admin: PoolAdmin

    def rows(self, relation: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row.values()) for row in self.db.scan(relation).to_pylist()), key=repr)

    def converge(self, wanted: Callable[[], Mapping[str, list[Any]]], seconds: float = 60.0) -> None:
        """Wait until the views have the rows that are wanted by then."""
        converge_with(wanted, self.rows, seconds)


@contextmanager
def real_pool(
    hbase: LocalHBase, directory: Path, options: str = "", restart: bool = True, **shape: Any
) -> Iterator[RealPool]:
    """`options`: of the URL of the store."""
    namespace = unique("views")
    client = connect_hbase(hbase.zookeeper)
    admin = PoolAdmin(client.master, namespace, POOL)
    url = f"hbase://{hbase.zookeeper}/{namespace}{options}"
    settings = {"viewservers": 1, "distributors": 2, "coordinators": 1, "sync": False} | shape
    try:
        with (
            LocalCluster(directory, ClusterShape(pool=POOL, store=url, restart=restart, **settings)) as cluster,
            belvedere.connect(cluster.url, timeout=120.0) as db,
        ):
            yield RealPool(cluster, db, namespace, admin)
    finally:
        admin.remove_peer(namespace)
        admin.drop_namespace()
        client.close()
