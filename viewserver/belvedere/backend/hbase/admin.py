"""Administration of an HBase: what is there, namespaces and tables of our own, replication peers.

The guard: tables are created, altered, disabled and dropped in the namespace of one pool only, and only if that pool
made the namespace (it says so in the namespace's configuration). A name of another namespace cannot reach HBase from
here. Of a user's table one thing is ever changed, REPLICATION_SCOPE, and only with permission. Peers of others are not
touched either.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import Server
from belvedere.backend.hbase.descriptors import Family, Peer, TableDescriptor, TableName
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.master import Master
from belvedere.backend.seam import KeptLog
from belvedere.errors import CatalogError, DataError

MARK = "belvedere.pool"
"""In the configuration of namespaces and peers: whose they are."""
_SYSTEM = frozenset({"default", "hbase"})
_ENABLED, _DISABLED = 0, 1
_SCOPE = "REPLICATION_SCOPE"


@dataclass(frozen=True)
class ServerReport:
    """`clock_ms`: the server's clock when it reported. `info_port`: of its web pages; 0: it has none."""

    server: Server
    clock_ms: int
    info_port: int


class Admin:
    """What every user of an HBase may ask."""

    def __init__(self, master: Master) -> None:
        self._master = master

    def version(self) -> str:
        return str(self._status(0).hbase_version.version)

    def servers(self) -> list[Server]:
        """Region servers that live."""
        live = [one.server for one in self._status(2).live_servers]
        return sorted((Server(one.host_name, one.port, one.start_code) for one in live), key=str)

    def reports(self) -> list[ServerReport]:
        """What each region server that lives said of itself last, a few seconds ago."""
        return [
            ServerReport(
                Server(one.server.host_name, one.server.port, one.server.start_code),
                one.server_load.report_end_time,
                one.server_load.info_server_port,
            )
            for one in self._status(2).live_servers
        ]

    def regions_in_transition(self) -> int:
        return len(self._status(7).regions_in_transition)

    def logs_kept(self) -> dict[str, KeptLog]:
        """What region servers keep for each peer."""
        kept: dict[str, KeptLog] = {}
        for one in self._status(2).live_servers:
            for load in one.server_load.shipping:
                before = kept.get(load.peer_id, KeptLog(0, 0))
                kept[load.peer_id] = KeptLog(before.files + load.log_files, max(before.lag_ms, load.lag_ms))
        return kept

    def _status(self, option: int) -> Any:
        request = messages.ClusterStatusRequest(options=[option])
        return self._master.call("GetClusterStatus", request, messages.ClusterStatusAnswer).cluster_status

    def namespaces(self) -> list[str]:
        return sorted(self._master.call("ListNamespaces", messages.Empty(), messages.NamespacesAnswer).names)

    def namespace_configuration(self, name: str) -> dict[str, str]:
        request = messages.NamespaceRequest(name=name)
        answer = self._master.call("GetNamespaceDescriptor", request, messages.NamespaceAnswer)
        return {pair.name: pair.value for pair in answer.descriptor.configuration}

    def tables(self, namespace: str | None = None) -> list[TableName]:
        """Of one namespace, or of all but the system's."""
        request = messages.TableNamesRequest(include_sys_tables=False)
        if namespace is not None:
            request.namespace = namespace
        answer = self._master.call("GetTableNames", request, messages.TableNamesAnswer)
        return sorted(map(TableName.of, answer.table_names))

    def descriptor(self, table: TableName) -> TableDescriptor | None:
        """None: there is no such table."""
        request = messages.DescriptorsRequest(table_names=[table.message()], include_sys_tables=True)
        found = self._master.call("GetTableDescriptors", request, messages.DescriptorsAnswer).table_schema
        return TableDescriptor.of(found[0]) if found else None

    def is_enabled(self, table: TableName) -> bool:
        request = messages.TableRequest(table_name=table.message())
        answer = self._master.call("GetTableState", request, messages.TableStateAnswer)
        return bool(answer.table_state.state == _ENABLED)

    def peers(self) -> list[Peer]:
        answer = self._master.call("ListReplicationPeers", messages.PeersRequest(), messages.PeersAnswer)
        return [Peer.of(one) for one in answer.peer_desc]


class PoolAdmin(Admin):
    """What the pool `owner` may do in its namespace, and with its peers."""

    def __init__(self, master: Master, namespace: str, owner: str) -> None:
        super().__init__(master)
        if namespace in _SYSTEM:
            raise DataError(f"the namespace {namespace!r} of hbase belongs to its users; a pool needs one of its own")
        self.namespace, self.owner = namespace, owner

    # --- the namespace

    def create_namespace(self) -> None:
        """No effect if this pool has made it already."""
        if self.namespace not in self.namespaces():
            described = messages.NamespaceDescriptor(name=self.namespace.encode())
            described.configuration.add(name=MARK, value=self.owner)
            request = messages.CreateNamespaceRequest(descriptor=described, **_nonce())
            try:
                self._master.run("CreateNamespace", request)
            except Refused as fault:  # another member was faster
                if fault.name != "NamespaceExistException":
                    raise
        self._check_owner()

    def drop_namespace(self) -> None:
        """With all tables of it. No effect if it is not there."""
        if self.namespace not in self.namespaces():
            return
        self._check_owner()
        for table in self.tables(self.namespace):
            self.drop_table(table)
        self._master.run("DeleteNamespace", messages.DeleteNamespaceRequest(name=self.namespace, **_nonce()))

    def _check_owner(self) -> None:
        found = self.namespace_configuration(self.namespace).get(MARK)
        if found != self.owner:
            whose = "no pool of Belvedere" if found is None else f"the pool {found!r}"
            raise CatalogError(
                f"the namespace {self.namespace!r} of hbase was made by {whose}, and this is the pool {self.owner!r}; "
                "give the pool another namespace"
            )

    def _check_own(self, table: TableName, action: str) -> None:
        if table.namespace != self.namespace:
            raise CatalogError(
                f"hbase table {str(table)!r} cannot be {action}: it is not in the namespace {self.namespace!r} of this "
                "pool, and tables of users are never created, altered, disabled or dropped"
            )
        self._check_owner()

    # --- tables

    def create_table(self, table: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        """No effect if it is there, as somebody else of this pool may have made it."""
        self._check_own(table.name, "created")
        request = messages.CreateTableRequest(table_schema=table.message(), split_keys=splits, **_nonce())
        try:
            self._master.run("CreateTable", request)
        except Refused as fault:
            if fault.name != "TableExistsException":
                raise

    def alter_table(self, table: TableDescriptor) -> None:
        """All of its families and attributes are replaced by these."""
        self._check_own(table.name, "altered")
        request = messages.ModifyTableRequest(table_name=table.name.message(), table_schema=table.message(), **_nonce())
        self._master.run("ModifyTable", request)

    def disable_table(self, table: TableName) -> None:
        self._check_own(table, "disabled")
        self._run_on("DisableTable", table)

    def enable_table(self, table: TableName) -> None:
        self._check_own(table, "enabled")
        self._run_on("EnableTable", table)

    def drop_table(self, table: TableName) -> None:
        """No effect if it is not there."""
        self._check_own(table, "dropped")
        try:
            if self.is_enabled(table):
                self._run_on("DisableTable", table)
            self._run_on("DeleteTable", table)
        except Refused as fault:
            if fault.name != "TableNotFoundException":
                raise

    def _run_on(self, method: str, table: TableName) -> None:
        self._master.run(method, messages.TableRequest(table_name=table.message(), **_nonce()))

    # --- what is asked of a user's table

    def replicate(self, table: TableName, families: Sequence[str], *, permitted: bool) -> list[str]:
        """Have HBase write these families of a user's table to its log for others, REPLICATION_SCOPE 1. Returns which
        were changed; without permission there must be nothing to change."""
        found = self.descriptor(table)
        if found is None:
            raise CatalogError(f"there is no hbase table {str(table)!r}")
        missing = [name for name in families if found.family(name) is None]
        if missing:
            names = ", ".join(family.name for family in found.families)
            raise CatalogError(f"hbase table {str(table)!r} has no column family {missing[0]!r}; it has {names}")
        wanted = [family for family in found.families if family.name in families and family.replication_scope != 1]
        if wanted and not permitted:
            raise CatalogError(
                f"hbase table {str(table)!r}: column family {wanted[0].name!r} has {_SCOPE} "
                f"{wanted[0].replication_scope}, so its changes are not in the log for others; set it to 1, or permit "
                "Belvedere to do so in the manifest"
            )
        for family in wanted:
            self._change_scope(table, family)
        return [family.name for family in wanted]

    def _change_scope(self, table: TableName, family: Family) -> None:
        changed = replace(family, attributes={**family.attributes, _SCOPE: "1"})
        request = messages.ModifyColumnRequest(table_name=table.message(), family=changed.message(), **_nonce())
        self._master.run("ModifyColumn", request)

    # --- peers

    def add_peer(self, peer: Peer) -> None:
        """No effect if this pool has made it already, as it is."""
        ours = replace(peer, configuration={**peer.configuration, MARK: self.owner})
        state = messages.ReplicationState(state=_ENABLED if peer.enabled else _DISABLED)
        request = messages.AddPeerRequest(peer_id=peer.id, peer_config=ours.message(), peer_state=state)
        if self._own_peer(peer.id) is None:
            self._master.run("AddReplicationPeer", request)

    def update_peer(self, peer: Peer) -> None:
        """Another configuration; whether it is enabled stays as it is."""
        if self._own_peer(peer.id) is None:
            raise CatalogError(f"there is no hbase replication peer {peer.id!r}")
        ours = replace(peer, configuration={**peer.configuration, MARK: self.owner})
        request = messages.UpdatePeerRequest(peer_id=peer.id, peer_config=ours.message())
        self._master.run("UpdateReplicationPeerConfig", request)

    def enable_peer(self, id: str, enabled: bool = True) -> None:
        """Or disable it: HBase keeps its log until it is enabled again."""
        found = self._own_peer(id)
        if found is None:
            raise CatalogError(f"there is no hbase replication peer {id!r}")
        if found.enabled != enabled:
            method = "EnableReplicationPeer" if enabled else "DisableReplicationPeer"
            self._master.run(method, messages.PeerRequest(peer_id=id))

    def check_peer(self, id: str) -> None:
        """Raises if there is one of that name that this pool did not make."""
        self._own_peer(id)

    def remove_peer(self, id: str) -> None:
        """No effect if it is not there."""
        if self._own_peer(id) is not None:
            self._master.run("RemoveReplicationPeer", messages.PeerRequest(peer_id=id))

    def _own_peer(self, id: str) -> Peer | None:
        found = next((peer for peer in self.peers() if peer.id == id), None)
        if found is not None and found.configuration.get(MARK) != self.owner:
            raise CatalogError(
                f"the hbase replication peer {id!r} was not made by the pool {self.owner!r}; remove it, or give the "
                "pool another name"
            )
        return found


def _nonce() -> Mapping[str, int]:
    """A repeated call with the same nonce is one call to HBase."""
    return {"nonce_group": secrets.randbits(62), "nonce": secrets.randbits(62) | 1}
