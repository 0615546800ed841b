"""The store: LMDB behind a Flight port of its own, base tables included, which push their changes to distributors.

It has no machine: what it does is decided by who calls it. It is a member so that others find it. The directory stays
open from incarnation to incarnation; a session that is lost costs nothing but a new name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from belvedere import errors
from belvedere.backend.pusher import Pushers
from belvedere.backend.seam import Store
from belvedere.backend.served.base_service import BaseService
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.process.process import Incarnation, Surroundings
from belvedere.cluster.transport.seam import Handler, Payload, Receiver
from belvedere.model.pushes import PUSH, pack_request
from belvedere.protocol.exactly_once import SourceId
from belvedere.protocol.messages import Member, Message, Role
from belvedere.protocol.ring import MemberId
from belvedere.rpc.client import RpcClient
from belvedere.rpc.watch import SLOWEST_BYTES_PER_SECOND, Watch, cut

PUSHERS_CLOSE_SECONDS = 2.0
NODES = tuple(f"node-{number}" for number in range(4))
"""Threads that push; each has some of the key ranges."""


class StoreDirectory(LmdbStore):
    """The store's data, and the threads that push changes of base tables; open as long as the process."""

    def __init__(self, options: ProcessOptions) -> None:
        assert options.directory is not None
        options.directory.mkdir(parents=True, exist_ok=True)
        super().__init__(options.directory, nodes=NODES, backlog_limit=options.backlog_limit)
        self._client = RpcClient(tls=options.tls)
        self._watch = Watch()
        self._patience = options.session_timeout
        self._distributors: Sequence[str] = ()
        self._present: frozenset[str] = frozenset()
        self.pushers = Pushers(self.base, NODES, self._push, lambda: self._distributors)
        self.pushers.start()

    def push_to(self, distributors: Sequence[str], present: Sequence[str] | None = None) -> None:
        """From now on these are there. `present`: others as well, to whom nothing new is pushed. Requests to those that
        are not present any more are given up: a host that lost its power answers nothing, not even that it is gone."""
        self._distributors = tuple(distributors)
        before, self._present = self._present, frozenset(distributors if present is None else present)
        if before - self._present:
            cut(before - self._present)
        self.base.wake()

    def _push(self, address: str, source: SourceId, table: str, payload: bytes) -> None:
        """A distributor that is frozen loses its session meanwhile; what is pushed again to another one counts once."""
        request = pack_request(source, table, payload)
        seconds = self._patience + len(request) / SLOWEST_BYTES_PER_SECOND
        delivery = object()
        self._watch.begin(delivery, address, seconds)
        try:
            self._client.call(address, PUSH, request, seconds)
        finally:
            self._watch.end(delivery)

    def close(self) -> None:
        self.pushers.stop()
        self._client.close()
        self._watch.close()  # what is on its way fails, so that the pushers can end
        self.pushers.close(PUSHERS_CLOSE_SECONDS)
        super().close()


class StoreListener:
    """The store's port as a `Transport`: it listens, and has nobody to send messages to."""

    def __init__(self, options: ProcessOptions, store: Store) -> None:
        assert isinstance(store, StoreDirectory)
        services = [StoreService(store), BaseService(store.base)]
        self._server = StoreServer(services, options.host, options.port, options.tls, options.advertise)

    @property
    def address(self) -> str:
        return self._server.address

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None:
        """It listens already."""

    def know(self, peer: MemberId, address: str) -> None:
        """It sends no messages."""

    def send(self, peer: MemberId, message: Message, payload: Payload | None = None) -> None:
        """It sends no messages."""

    def forget(self, peer: MemberId) -> None:
        """It sends no messages."""

    def backlog(self, peers: Iterable[MemberId] | None = None) -> int:
        return 0

    def drain(self, timeout: float) -> bool:
        return True

    def troubles(self) -> dict[MemberId, str]:
        return {}

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        raise errors.PeerUnavailable("the store calls nobody")

    def close(self) -> None:
        self._server.close()


class StoreMember(Incarnation):
    role = Role.STORE

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        assert isinstance(around.store, StoreDirectory)
        self.directory = around.store
        self._cpu = time.process_time()
        self._held_up, self._scanned = 0.0, 0
        self.metrics.backlog(self.directory.backlog.last_size, self.directory.backlog.limit)
        self.metrics.merging(self.directory.unmerged_rows)

    def figures(self) -> None:
        """It works in threads of its port and its own: their CPU time is what it was busy for."""
        before, self._cpu = self._cpu, time.process_time()
        self.metrics.worked(self._cpu - before)
        before, self._held_up = self._held_up, self.directory.held_up_seconds
        self.metrics.held_up(self._held_up - before)
        scanned, self._scanned = self._scanned, self.directory.scanned_rows
        self.metrics.scanned(self._scanned - scanned)

    @property
    def released(self) -> bool:
        return True  # nobody can do its work; what it has acknowledged is durable

    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        raise AssertionError("nobody sends messages to a store")

    def members_changed(self, members: list[Member]) -> None:
        present = [m.address for m in members if m.role is Role.DISTRIBUTOR and m.cluster == self.around.cluster]
        staying = [m.address for m in members if m.address in present and not m.leaving]
        self.directory.push_to(staying or present, present)
