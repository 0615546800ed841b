"""The store: LMDB behind a Flight port of its own, base tables included, which push their changes to distributors.

It has no machine: what it does is decided by who calls it. It is a member so that others find it. The directory stays
open from incarnation to incarnation; a session that is lost costs nothing but a new name.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from belvedere import errors
from belvedere.cluster.flight import FlightClient
from belvedere.cluster.flight import Tls as FlightTls
from belvedere.cluster.options import Options
from belvedere.cluster.process import Incarnation, Surroundings
from belvedere.cluster.roles.push import PUSH
from belvedere.cluster.transport import Handler, Payload, Receiver
from belvedere.protocol.exactly_once import SourceId
from belvedere.protocol.messages import Member, Message, Role
from belvedere.protocol.ring import MemberId
from belvedere.source.pusher import Pushers, pack_request
from belvedere.store.seam import Store
from belvedere.store.served.base_service import BaseService
from belvedere.store.served.lmdb_store import LmdbStore
from belvedere.store.served.server import StoreServer, Tls
from belvedere.store.served.service import StoreService

PUSH_SECONDS = 30.0
CLOSE_SECONDS = 3.0
NODES = tuple(f"node-{number}" for number in range(4))
"""Threads that push; each has some of the key ranges."""


class StoreDirectory(LmdbStore):
    """The store's data, and the threads that push changes of base tables; open as long as the process."""

    def __init__(self, options: Options) -> None:
        assert options.directory is not None
        options.directory.mkdir(parents=True, exist_ok=True)
        super().__init__(options.directory, nodes=NODES)
        tls = options.tls
        self._client = FlightClient(tls=None if tls is None else FlightTls(tls.certificate, tls.key, tls.authority))
        self._distributors: Sequence[str] = ()
        self.pushers = Pushers(self.base, NODES, self._push, lambda: self._distributors)
        self.pushers.start()

    def push_to(self, distributors: Sequence[str]) -> None:
        """From now on these are there."""
        self._distributors = tuple(distributors)
        self.base.wake()

    def _push(self, address: str, source: SourceId, table: str, payload: bytes) -> None:
        self._client.call(address, PUSH, pack_request(source, table, payload), PUSH_SECONDS)

    def close(self) -> None:
        self._client.close()  # what is on its way fails, so that the pushers can end
        self.pushers.close(2.0)
        super().close()


class StoreListener:
    """The store's port as a `Transport`: it listens, and has nobody to send messages to."""

    def __init__(self, options: Options, store: Store) -> None:
        assert isinstance(store, StoreDirectory)
        tls = options.tls
        self._server = StoreServer(
            [StoreService(store), BaseService(store.base)],
            options.host,
            options.port,
            None if tls is None else Tls(tls.certificate, tls.key, tls.authority),
        )

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

    def backlog(self) -> int:
        return 0

    def drain(self, timeout: float) -> bool:
        return True

    def troubles(self) -> dict[MemberId, str]:
        return {}

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes:
        raise errors.PeerUnavailable("the store calls nobody")

    def close(self) -> None:
        # In a thread: it returns when the last call has ended, and a caller that is frozen does not end its own.
        closing = threading.Thread(target=self._server.close, name="close the store's port", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


class StoreMember(Incarnation):
    role = Role.STORE

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        assert isinstance(around.store, StoreDirectory)
        self.directory = around.store

    @property
    def released(self) -> bool:
        return True  # nobody can do its work; what it has acknowledged is durable

    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        raise AssertionError("nobody sends messages to a store")

    def members_changed(self, members: list[Member]) -> None:
        present = [m.address for m in members if m.role is Role.DISTRIBUTOR and m.cluster == self.around.cluster]
        staying = [m.address for m in members if m.address in present and not m.leaving]
        self.directory.push_to(staying or present)
