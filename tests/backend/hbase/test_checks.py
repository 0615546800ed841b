"""What stands in the way of a view is said before it starts: one sentence for each, with what would work."""

from __future__ import annotations

import re

import pytest

from belvedere.backend.hbase.admin import Admin, PoolAdmin
from belvedere.backend.hbase.checks import obstacles
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.master import Master
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique

FAMILIES = {
    "good": {"REPLICATION_SCOPE": "1"},
    "scope": {},
    "ttl": {"REPLICATION_SCOPE": "1", "TTL": "86400"},
    "mob": {"REPLICATION_SCOPE": "1", "IS_MOB": "true", "MOB_THRESHOLD": "100000"},
    "new": {"REPLICATION_SCOPE": "1", "NEW_VERSION_BEHAVIOR": "true"},
}


@pytest.fixture(scope="module")
def orders(users: UserTables) -> TableName:
    name = TableName("default", unique("orders"))
    users.create(TableDescriptor(name, tuple(Family(family, given) for family, given in FAMILIES.items())))
    return name


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("scope", "column family 'scope' of hbase table '{}' has REPLICATION_SCOPE 0.*permit Belvedere"),
        ("ttl", "column family 'ttl' of hbase table '{}' has a TTL of 86400 s.*delete rows instead"),
        ("mob", "column family 'mob' of hbase table '{}' keeps big cells elsewhere"),
        ("new", "column family 'new' of hbase table '{}' has NEW_VERSION_BEHAVIOR"),
        ("none", "hbase table '{}' has no column family 'none'; it has good, mob, new, scope, ttl"),
    ],
)
def test_a_family_that_cannot_be_followed(client: HBase, orders: TableName, family: str, reason: str) -> None:
    (found,) = obstacles(client.admin, orders, ["good", family])
    assert re.fullmatch(reason.format(orders) + ".*", found)
    assert obstacles(client.admin, orders, ["good"]) == []
    assert (obstacles(client.admin, orders, [family], permitted=True) == []) == (family == "scope")


def test_a_table_that_is_missing_disabled_or_not_of_users(client: HBase, orders: TableName, users: UserTables) -> None:
    (found,) = obstacles(client.admin, TableName("default", orders.name[:-1] + "x"), ["f"])
    assert found.startswith("there is no hbase table 'orders_") and str(orders) in found
    assert obstacles(client.admin, TableName(unique("nobody"), "t"), ["f"])[0].startswith("there is no hbase table")
    assert "belongs to HBase itself" in obstacles(client.admin, TableName("hbase", "meta"), ["info"])[0]
    pool = PoolAdmin(client.master, unique("pool"), "us")
    pool.create_namespace()
    disabled = TableName(pool.namespace, "t")
    pool.create_table(TableDescriptor(disabled, (Family("f", {"REPLICATION_SCOPE": "1"}),)))
    pool.disable_table(disabled)
    assert obstacles(client.admin, disabled, ["f"]) == [f"hbase table '{disabled}' is disabled; enable it first"]
    pool.drop_namespace()


@pytest.mark.parametrize("version", ["1.7.2", "3.0.0-beta-1"])
def test_an_hbase_of_another_generation(client: HBase, orders: TableName, version: str) -> None:
    class Other(Admin):
        def version(self) -> str:
            return version

    master: Master = client.master
    assert obstacles(Other(master), orders, ["good"]) == [
        f"this is HBase {version}: its log was not tried; HBase 2.x is needed"
    ]
