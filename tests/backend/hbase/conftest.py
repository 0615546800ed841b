"""Fixtures of tests against a real HBase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.client import HBase, connect_hbase
from belvedere.backend.hbase.descriptors import TableDescriptor, TableName
from belvedere.backend.hbase.local.cluster import LocalHBase


class UserTables:
    """Tables as users of HBase make them: Belvedere has no call for it."""

    def __init__(self, client: HBase) -> None:
        self._client = client

    def create(self, table: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        request = messages.CreateTableRequest(table_schema=table.message(), split_keys=splits)
        self._client.master.run("CreateTable", request)

    def drop(self, table: TableName) -> None:
        for method in ("DisableTable", "DeleteTable"):
            self._client.master.run(method, messages.TableRequest(table_name=table.message()))


@pytest.fixture(scope="module")
def client_of_module(hbase: LocalHBase) -> Iterator[HBase]:
    client = connect_hbase(hbase.zookeeper)
    yield client
    client.close()


@pytest.fixture
def client(client_of_module: HBase) -> HBase:
    return client_of_module


@pytest.fixture(scope="module")
def users(client_of_module: HBase) -> UserTables:
    return UserTables(client_of_module)
