"""Administration of a real HBase, and its guard: a user's table is never created, altered, disabled or dropped."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterator

import happybase
import pytest
from kazoo.client import KazooClient

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.admin import Admin, PoolAdmin
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, Peer, TableDescriptor, TableName
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.errors import CatalogError, DataError, StoreUnavailable
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique

DAY = "86400000"


@pytest.fixture
def pool(client: HBase) -> Iterator[PoolAdmin]:
    name = unique("pool")
    admin = PoolAdmin(client.master, name, f"pool {name}")
    admin.create_namespace()
    yield admin
    admin.drop_namespace()


@pytest.fixture(scope="module")
def user_table(users: UserTables) -> Iterator[TableName]:
    name = TableName("default", unique("orders"))
    users.create(TableDescriptor(name, (Family("f"), Family("g", {"REPLICATION_SCOPE": "1"}))))
    yield name
    users.drop(name)


def table(pool: PoolAdmin, name: str = "state", **attributes: str) -> TableDescriptor:
    family = Family("c", {"VERSIONS": "4", **attributes}, {"hbase.hstore.time.to.purge.deletes": DAY})
    return TableDescriptor(TableName(pool.namespace, name), (family, Family("h", {"TTL": "100"})))


def test_tables_of_a_pool_are_created_altered_and_dropped(pool: PoolAdmin) -> None:
    wanted = table(pool)
    pool.create_table(wanted, [b"b", b"c"])
    pool.create_table(wanted)  # somebody else of the pool was faster
    found = pool.descriptor(wanted.name)
    assert found is not None and pool.tables(pool.namespace) == [wanted.name] and wanted.name in pool.tables()
    family = found.family("c")
    assert family is not None and family.attributes["VERSIONS"] == "4" and family.ttl is None
    assert family.configuration == {"hbase.hstore.time.to.purge.deletes": DAY} and family.replication_scope == 0
    assert found.families[1].ttl == 100
    pool.alter_table(table(pool, VERSIONS="7"))
    assert pool.descriptor(wanted.name).family("c").attributes["VERSIONS"] == "7"  # type: ignore[union-attr]
    pool.disable_table(wanted.name)
    assert not pool.is_enabled(wanted.name)
    pool.enable_table(wanted.name)
    assert pool.is_enabled(wanted.name)
    for _ in range(2):
        pool.drop_table(wanted.name)
    assert pool.descriptor(wanted.name) is None and pool.tables(pool.namespace) == []


def test_an_attribute_that_hbase_does_not_understand_is_an_error_of_the_call(pool: PoolAdmin) -> None:
    with pytest.raises(StoreUnavailable, match="hbase"):
        pool.create_table(table(pool, COMPRESSION="NONSENSE"))
    assert pool.tables(pool.namespace) == []


PATHS: dict[str, Callable[[PoolAdmin, TableName], object]] = {
    "create_table": lambda pool, name: pool.create_table(TableDescriptor(name, (Family("c"),))),
    "alter_table": lambda pool, name: pool.alter_table(TableDescriptor(name, (Family("c"),))),
    "disable_table": lambda pool, name: pool.disable_table(name),
    "enable_table": lambda pool, name: pool.enable_table(name),
    "drop_table": lambda pool, name: pool.drop_table(name),
    "replicate": lambda pool, name: pool.replicate(name, ["f"], permitted=False),
}
HARMLESS = {
    "create_namespace", "drop_namespace", "add_peer", "check_peer", "update_peer", "enable_peer", "remove_peer",
}  # fmt: skip


def test_every_path_to_a_table_is_tried_here() -> None:
    """A new method has to be listed above, or below with what it does instead."""
    public = {name for name, _ in inspect.getmembers(PoolAdmin, inspect.isfunction) if not name.startswith("_")}
    asking = {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    assert public - asking == set(PATHS) | HARMLESS


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("there", [True, False])
def test_a_table_of_users_is_never_touched(pool: PoolAdmin, user_table: TableName, path: str, there: bool) -> None:
    name = user_table if there else TableName("default", unique("nobody"))
    before = pool.descriptor(name)
    with pytest.raises(CatalogError, match=f"{name.name}'"):
        PATHS[path](pool, name)
    assert pool.descriptor(name) == before and (not there or pool.is_enabled(name))
    assert pool.tables("default").count(name) == there


def test_no_pool_has_the_namespaces_of_users_or_of_other_pools(client: HBase, pool: PoolAdmin) -> None:
    for name in ("default", "hbase"):
        with pytest.raises(DataError, match=f"namespace '{name}' of hbase belongs to its users"):
            PoolAdmin(client.master, name, "us")
    pool.create_table(table(pool))
    other = PoolAdmin(client.master, pool.namespace, "another pool")
    for call in (
        other.create_namespace,
        other.drop_namespace,
        lambda: other.drop_table(table(pool).name),
        lambda: other.create_table(table(other, "mine")),
    ):
        with pytest.raises(CatalogError, match=f"'{pool.namespace}' of hbase was made by the pool '{pool.owner}'"):
            call()
    assert pool.tables(pool.namespace) == [table(pool).name]


def test_scope_is_set_with_permission_only(client: HBase, pool: PoolAdmin, users: UserTables) -> None:
    name = TableName("default", unique("scoped"))
    users.create(TableDescriptor(name, (Family("f", {"VERSIONS": "3"}), Family("g", {"REPLICATION_SCOPE": "1"}))))
    before = pool.descriptor(name)
    assert pool.replicate(name, ["g"], permitted=False) == []
    with pytest.raises(CatalogError, match=r"family 'f' has REPLICATION_SCOPE 0.*or permit"):
        pool.replicate(name, ["f", "g"], permitted=False)
    with pytest.raises(CatalogError, match="has no column family 'x'; it has f, g"):
        pool.replicate(name, ["x"], permitted=True)
    assert pool.descriptor(name) == before
    assert pool.replicate(name, ["f", "g"], permitted=True) == ["f"]
    after = pool.descriptor(name)
    assert after is not None and before is not None
    assert [family.replication_scope for family in after.families] == [1, 1]
    changed = after.family("f")
    assert changed is not None and changed.attributes["VERSIONS"] == "3"
    assert pool.replicate(name, ["f"], permitted=True) == []


@pytest.fixture
def another_cluster(hbase: LocalHBase) -> str:
    """What the master asks of a peer's ZooKeeper: its cluster has an id."""
    base = "/" + unique("peer")
    zookeeper = KazooClient(hbase.zookeeper)
    zookeeper.start()
    id = messages.ClusterId(cluster_id=str(uuid.uuid4())).SerializeToString()
    zookeeper.create(f"{base}/hbaseid", b"PBUF" + id, makepath=True)
    zookeeper.stop()
    zookeeper.close()
    return f"{hbase.zookeeper}:{base}"


def test_peers_are_added_updated_listed_and_removed(
    client: HBase, pool: PoolAdmin, user_table: TableName, another_cluster: str
) -> None:
    peer = Peer(pool.namespace, another_cluster, {user_table: ("f",)}, enabled=False)
    for _ in range(2):
        pool.add_peer(peer)

    def listed() -> Peer:
        (found,) = [one for one in pool.peers() if one.id == peer.id]
        return found

    assert listed().tables == {user_table: ("f",)} and listed().serial and not listed().enabled
    assert listed().cluster_key == peer.cluster_key
    pool.update_peer(Peer(peer.id, peer.cluster_key, {user_table: ()}, enabled=False))
    assert listed().tables == {user_table: ()} and not listed().enabled
    pool.enable_peer(peer.id)
    pool.enable_peer(peer.id)
    assert listed().enabled
    pool.enable_peer(peer.id, False)
    assert not listed().enabled
    other = PoolAdmin(client.master, unique("other"), "another pool")
    for call in (
        lambda: other.add_peer(peer),
        lambda: other.update_peer(peer),
        lambda: other.enable_peer(peer.id),
        lambda: other.remove_peer(peer.id),
    ):
        with pytest.raises(CatalogError, match=f"peer '{peer.id}' was not made by the pool 'another pool'"):
            call()
    with pytest.raises(CatalogError, match=f"peer '{peer.id}' was not made by the pool 'another pool'"):
        other.check_peer(peer.id)
    pool.check_peer(peer.id)
    for _ in range(2):
        pool.remove_peer(peer.id)
    assert peer.id not in [one.id for one in pool.peers()]
    with pytest.raises(CatalogError, match="there is no hbase replication peer"):
        pool.update_peer(peer)


def test_what_the_master_knows(client: HBase, hbase: LocalHBase) -> None:
    assert client.admin.version().startswith("2.") and len(client.admin.servers()) == 2
    assert {"default", "hbase"} <= set(client.admin.namespaces())
    assert client.registry.cluster_id()
    meta = client.regions.of("hbase:meta")[0]
    assert meta.server in client.admin.servers() and client.registry.master() not in client.admin.servers()


def test_regions_know_where_they_begin_and_who_has_them(client: HBase, hbase: LocalHBase, users: UserTables) -> None:
    """Also the first region, which a scan of `hbase:meta` by prefix leaves out."""
    name, longer = unique("regions"), unique("regions")
    for table in (name, f"{name}-a", f"{name}.b", longer):
        users.create(TableDescriptor(TableName("default", table), (Family("c"),)), [b"\0", b"a,b", b"\xff"])
    found = client.regions.listed(name)
    assert [(one.start, one.stop) for one in found] == [
        (b"", b"\0"), (b"\0", b"a,b"), (b"a,b", b"\xff"), (b"\xff", b""),
    ]  # fmt: skip
    assert all(one.server in client.admin.servers() and one.opened > 0 for one in found)
    connection = happybase.Connection(*hbase.thrift, timeout=60_000)
    assert [one["name"] for one in connection.table(name).regions()] == [one.name for one in found]
    connection.close()
    with pytest.raises(CatalogError, match="there is no hbase table 'nobody'"):
        client.regions.listed("nobody")
