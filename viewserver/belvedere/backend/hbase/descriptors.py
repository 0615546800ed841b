"""Tables, families, namespaces and peers as HBase describes them: names, and attributes that are texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from belvedere.backend.hbase import messages

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, order=True)
class TableName:
    """`namespace:name`, or the name alone in the namespace `default`."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        namespace, colon, name = text.partition(":")
        return cls(namespace, name) if colon else cls(DEFAULT_NAMESPACE, namespace)

    def __str__(self) -> str:
        return self.name if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}:{self.name}"

    def message(self) -> Any:
        return messages.TableName(namespace=self.namespace.encode(), qualifier=self.name.encode())

    @classmethod
    def of(cls, message: Any) -> TableName:
        return cls(message.namespace.decode(), message.qualifier.decode())


@dataclass(frozen=True)
class Family:
    """A column family. `attributes`: VERSIONS, TTL, REPLICATION_SCOPE and the like; `configuration`: settings of the
    server that this family overrides."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def replication_scope(self) -> int:
        return int(self.attributes.get("REPLICATION_SCOPE", "0"))

    @property
    def ttl(self) -> int | None:
        """Seconds after which cells expire; None: never."""
        seconds = int(self.attributes.get("TTL", str(_FOREVER)))
        return None if seconds >= _FOREVER else seconds

    def message(self) -> Any:
        described = messages.FamilySchema(name=self.name.encode())
        _add_pairs(described, self.attributes, self.configuration)
        return described

    @classmethod
    def of(cls, message: Any) -> Family:
        return cls(message.name.decode(), *_pairs(message))


@dataclass(frozen=True)
class TableDescriptor:
    """A table as HBase has it."""

    name: TableName
    families: tuple[Family, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)

    def family(self, name: str) -> Family | None:
        return next((family for family in self.families if family.name == name), None)

    def message(self) -> Any:
        described = messages.TableSchema(table_name=self.name.message())
        described.families.extend(family.message() for family in self.families)
        _add_pairs(described, self.attributes, self.configuration)
        return described

    @classmethod
    def of(cls, message: Any) -> TableDescriptor:
        return cls(TableName.of(message.table_name), tuple(map(Family.of, message.families)), *_pairs(message))


@dataclass(frozen=True)
class Peer:
    """A replication peer. `tables`: the families that it gets, all of a table if none is named."""

    id: str
    cluster_key: str
    tables: Mapping[TableName, tuple[str, ...]]
    serial: bool = True
    enabled: bool = True
    configuration: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""

    def message(self) -> Any:
        peer = messages.ReplicationPeer(serial=self.serial, replicate_all=not self.tables, clusterkey=self.cluster_key)
        if self.endpoint:
            peer.endpoint = self.endpoint
        for table, families in self.tables.items():
            peer.table_cfs.add(table_name=table.message(), families=[family.encode() for family in families])
        for name, value in self.configuration.items():
            peer.configuration.add(name=name, value=value)
        return peer

    @classmethod
    def of(cls, message: Any) -> Peer:
        peer = message.config
        tables = {
            TableName.of(one.table_name): tuple(family.decode() for family in one.families) for one in peer.table_cfs
        }
        configuration = {pair.name: pair.value for pair in peer.configuration}
        return cls(
            message.id, peer.clusterkey, tables, peer.serial, message.state.state == 0, configuration, peer.endpoint
        )


_FOREVER = 2**31 - 1


def _add_pairs(message: Any, attributes: Mapping[str, str], configuration: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        message.attributes.add(first=name.encode(), second=value.encode())
    for name, value in configuration.items():
        message.configuration.add(name=name, value=value)


def _pairs(message: Any) -> tuple[dict[str, str], dict[str, str]]:
    return (
        {pair.first.decode(): pair.second.decode() for pair in message.attributes},
        {pair.name: pair.value for pair in message.configuration},
    )
