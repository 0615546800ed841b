"""A real process of a pool: ZooKeeper, Flight and the served store put together for one role.

Imports are lazy: a process loads what its role needs, and joins in a second or two.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from belvedere.backend.opening import leaves_state, load_served, open_backend, served_url, shared_url
from belvedere.backend.seam import Backend, SinkPlace, Store
from belvedere.cluster.coordination.seam import Coordination
from belvedere.cluster.process import logs
from belvedere.cluster.process.options import TEST_FAILING_VIEW, TEST_PROTOCOL, ProcessOptions
from belvedere.cluster.process.process import Incarnation, Process, Surroundings
from belvedere.cluster.transport.seam import Transport
from belvedere.errors import DataError
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import MemberId

if TYPE_CHECKING:
    from belvedere.cluster.coordination.zookeeper import ZooKeeperCredentials


def run(options: ProcessOptions) -> int:
    """Be this role until SIGTERM; returns the exit code."""
    if os.environ.get(TEST_PROTOCOL):
        from belvedere.cluster.process.next_protocol import speak_next

        speak_next()
    if which := os.environ.get(TEST_FAILING_VIEW):
        from belvedere.cluster.process.failing_view import let_fail

        let_fail(which)
    log = logs.get(options.pool, options.role.value, options.name, form=options.log_form, level=options.log_level)
    credentials(options)  # now: what cannot be read will not be readable later
    if options.store:
        shared_url(options.store)
    for library in ("belvedere", "kazoo"):
        log.adopt(library)
    process = Process(options, maker(options.role), connect, transport, open_store, log)
    with contextlib.ExitStack() as undo:
        undo.callback(log.flush)
        undo.callback(process.close)
        return process.main()


def maker(role: Role) -> Callable[[Surroundings], Incarnation]:
    """What makes members of this role."""
    match role:
        case Role.COORDINATOR:
            from belvedere.cluster.roles.coordinator import CoordinatorMember

            return CoordinatorMember
        case Role.VIEWSERVER:
            from belvedere.cluster.roles.viewserver import ViewServerMember
            from belvedere.engine.warm import warm

            warm()  # now, and not in its first epoch, for which everyone waits
            return ViewServerMember
        case Role.DISTRIBUTOR:
            from belvedere.cluster.roles.distributor import DistributorMember

            return DistributorMember
        case Role.STORE:
            from belvedere.cluster.roles.store import StoreMember

            return StoreMember


def load(role: Role) -> None:
    """All that a process of the role will need, before anybody needs it."""
    import belvedere.cluster.coordination.zookeeper
    import belvedere.cluster.transport.flight  # noqa: F401

    load_served()

    maker(role)


def connect(options: ProcessOptions) -> Coordination:
    from belvedere.cluster.coordination.zookeeper import ZooKeeperCoordination

    return ZooKeeperCoordination(
        options.zookeeper,
        options.pool,
        session_timeout=options.session_timeout,
        credentials=credentials(options),
        tls=options.zookeeper_tls,
    )


def credentials(options: ProcessOptions) -> ZooKeeperCredentials | None:
    """Who owns the pool's nodes in ZooKeeper."""
    return read_credentials(options.zookeeper_credentials)


def read_credentials(file: Path | None) -> ZooKeeperCredentials | None:
    """From a file of one line."""
    from belvedere.cluster.coordination.requests import ZooKeeperCredentials

    if file is None:
        return None
    user, colon, password = file.read_text().strip().partition(":")
    if not (user and colon and password):
        raise DataError(f"ZooKeeper credentials in {str(file)!r}: one line USER:PASSWORD is needed")
    return ZooKeeperCredentials(user, password)


def transport(options: ProcessOptions, member: MemberId, store: Store) -> Transport:
    if options.role is Role.STORE:
        from belvedere.cluster.roles.store import StoreListener

        return StoreListener(options, store)
    from belvedere.cluster.transport.flight import FlightTransport

    return FlightTransport(options.host, options.port, member=member, advertise=options.advertise, tls=options.tls)


def open_store(options: ProcessOptions, address: str) -> Backend:
    if options.role is Role.STORE:
        from belvedere.cluster.roles.store import StoreDirectory

        return Backend(str(options.directory), StoreDirectory(options))
    own = shared_url(options.store) if options.store else ""
    return open_backend(
        own or served_url(address),
        certificates=options.tls,
        base=options.role is Role.COORDINATOR,
        state=served_url(address) if leaves_state(own) else "",
        pool=options.pool,
        sink=_sink_place(options) if options.role is Role.DISTRIBUTOR else None,
    )


def _sink_place(options: ProcessOptions) -> SinkPlace:
    """Others are reached by the name that region servers resolve; this machine is `localhost` to itself."""
    reached = options.sink_advertise or options.advertise or options.host
    return SinkPlace(options.host, options.sink_port, "localhost" if reached == "127.0.0.1" else reached)
