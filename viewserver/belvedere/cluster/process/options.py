"""What a process of a pool is told when it starts."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from belvedere.engine.version import ENGINE_VERSION, OLDEST_ENGINE_VERSION
from belvedere.errors import DataError
from belvedere.protocol.membership import OLDEST_PROTOCOL
from belvedere.protocol.messages import PROTOCOL, Role
from belvedere.protocol.pins import LARGEST_STEP_MS
from belvedere.rpc.addresses import Certificates

TEST_PROTOCOL = "BELVEDERE_TEST_PROTOCOL"
"""For tests of rolling upgrades only: a process that speaks this protocol and the one before it, and that adds a field
to its messages which this version does not know."""

TEST_ENGINE = "BELVEDERE_TEST_ENGINE"
"""The same for engines: a process that has this engine and the one before it (`next_engine`)."""
TEST_FAILING_VIEW = "BELVEDERE_TEST_FAILING_VIEW"
"""For tests of failed views only: name and view group of a view that a process cannot compute (`failing_view`)."""


@dataclass(frozen=True)
class ProcessOptions:
    """`name` is what people see; each incarnation adds a suffix to it."""

    role: Role
    zookeeper: str
    zookeeper_credentials: Path | None = None
    """A file with USER:PASSWORD; with it the pool's nodes belong to that user alone."""
    zookeeper_tls: Certificates | None = None
    """Speak TLS with ZooKeeper: who must have signed its servers, and perhaps what is shown to them."""
    pool: str = "default"
    name: str = ""
    store: str = ""
    """URL of the backend; if empty, the member with role store."""
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    sink_port: int = 0
    sink_advertise: str = ""
    """Where a distributor takes the log of another system; by which host that one reaches it (else `advertise`)."""
    http_port: int | None = None
    """Of /metrics, /healthz and /readyz; 0 chooses one, None serves nothing."""
    directory: Path | None = None
    """The store's data; in other roles where to spill."""
    tls: Certificates | None = None
    session_timeout: float = 4.0
    memory_limit: int = 1 << 30
    backlog_limit: int | None = None
    """Bytes that the store keeps for views that have not caught up, before it refuses rows of base tables; 0: without
    limit, None: 16 GiB, or half of the file system if that is less."""
    epoch_ms: int = 20
    retention: float = 60.0
    leave_within: float = 7.0
    """Seconds from SIGTERM until it leaves, drained or not; closing everything takes a moment more."""
    log_form: Literal["text", "json"] | None = None
    """None: text on a terminal, else JSON."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Debug: a line for each epoch, with what it was and how long it took."""
    protocols: tuple[int, int] = field(default_factory=lambda: spoken_protocols(os.environ.get(TEST_PROTOCOL)))
    """The oldest and the newest that this process speaks."""
    engines: tuple[int, int] = field(default_factory=lambda: present_engines(os.environ.get(TEST_ENGINE)))
    """The oldest and the newest that this process has."""

    def __post_init__(self) -> None:
        if not self.zookeeper:
            raise DataError("no ZooKeeper: give its hosts with --zookeeper HOST:PORT[,…] or BELVEDERE_ZOOKEEPER")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.pool):
            raise DataError(f"pool {self.pool!r}: a name has letters, digits, '.', '_' and '-'")
        if self.role is Role.STORE and self.directory is None:
            raise DataError("role store: give the directory of its data with --directory or BELVEDERE_DIRECTORY")
        if not 1.0 <= self.session_timeout <= 60.0:
            raise DataError(f"session timeout {self.session_timeout:g} s: it can be 1 to 60 s")
        if not 0.0 <= self.leave_within <= 3600.0:
            raise DataError(f"leave within {self.leave_within:g} s: it can be 0 to 3600 s")
        least = self.session_timeout + LARGEST_STEP_MS / 1000
        if self.role is Role.COORDINATOR and self.retention < least:
            raise DataError(
                f"retention {self.retention:g} s: with a session timeout of {self.session_timeout:g} s it is at least"
                f" {least:g} s; nobody notices who stands still for less than the session timeout, and steps of a clock"
                f" take up to {LARGEST_STEP_MS / 1000:g} s off"
            )
        if self.backlog_limit is not None and self.backlog_limit < 0:
            raise DataError(f"backlog limit {self.backlog_limit}: a number of bytes, 0 for none")
        if not self.name:
            host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname().split(".")[0]) or "host"
            object.__setattr__(self, "name", f"{self.role.value}-{host}")
        elif not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise DataError(f"name {self.name!r}: a name has letters, digits, '.', '_' and '-'")


def present_engines(newest: str | None) -> tuple[int, int]:
    """The oldest and newest engine: this version's, or those of a test-only next one."""
    if newest is None or not newest.isdigit() or int(newest) <= ENGINE_VERSION:
        return OLDEST_ENGINE_VERSION, ENGINE_VERSION
    return int(newest) - 1, int(newest)


def spoken_protocols(newest: str | None) -> tuple[int, int]:
    """The oldest and newest protocol: this version's, or those of a test-only next one."""
    if newest is None or not newest.isdigit() or int(newest) <= PROTOCOL:
        return OLDEST_PROTOCOL, PROTOCOL
    return int(newest) - 1, int(newest)
