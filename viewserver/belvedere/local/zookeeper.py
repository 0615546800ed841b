"""A real ZooKeeper server on this machine, as a child process: for `belvedere local` and for tests.

It listens on 127.0.0.1 only, without admin server, with a small heap. Unless the leash says otherwise it does not
outlive the process that started it (`local.child`).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from belvedere.errors import CoordinationUnavailable
from belvedere.local.child import Child, Leash, free_port
from belvedere.local.zookeeper_jars import find_classes, find_java
from belvedere.retry import Backoff, Deadline, poll

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM = (
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # starts in half the time; a server this small does not need the second compiler
    "-Djava.awt.headless=true",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dzookeeper.preAllocSize=1024",  # KiB; the default takes 64 MiB of disk at once
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)
_PORT_TRIES = 5
_PROBE_S = 0.5
"""A server that has just begun to listen may accept a connection and never speak on it: ask again on another one."""


class LocalZooKeeper:
    """`directory` holds the data, the configuration and the log (`zookeeper.log`). `sync=False`: do not wait for the
    disk at every write, for tests that kill the server but not the machine. Times are in milliseconds."""

    def __init__(
        self,
        directory: str | Path,
        port: int = 0,
        *,
        tick_ms: int = 500,
        min_session_timeout: int | None = None,
        max_session_timeout: int = 60_000,
        sync: bool = True,
        leash: Leash | Path = Leash.OURS,
        classes: Sequence[Path] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`classes`, `settings`: beside those that every server has here, for tests of what ZooKeeper can do."""
        self.directory = Path(directory)
        self._wanted_port = port
        self.port = port
        self._tick_ms = tick_ms
        self._min_session_timeout = 2 * tick_ms if min_session_timeout is None else min_session_timeout
        self._max_session_timeout = max_session_timeout
        self._sync = sync
        self._leash = leash
        self._classes, self._settings = tuple(classes), dict(settings)
        self._child: Child | None = None

    @property
    def hosts(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def child(self) -> Child | None:
        """None while it does not run."""
        return self._child if self._child is not None and self._child.runs else None

    @property
    def pid(self) -> int | None:
        return None if self.child is None else self.child.pid

    def start(self, timeout: float = 30.0) -> None:
        """Returns when it serves requests. The port, if it was not given, is chosen at the first start and kept."""
        if self.pid is not None:
            return
        java, classes = find_java(), [*find_classes(), *self._classes]
        self.directory.mkdir(parents=True, exist_ok=True)
        deadline = Deadline(timeout)
        for attempt in range(1, _PORT_TRIES + 1):
            if self.port == 0:
                self.port = free_port()
            if self._launch(java, classes, deadline):
                return
            # Between choosing a port and binding it someone else can take it.
            if self._wanted_port != 0 or attempt == _PORT_TRIES:
                break
            self.port = 0
        raise CoordinationUnavailable(
            f"the ZooKeeper server in {self.directory} cannot be started: port {self.port} of 127.0.0.1 is in use"
        )

    def stop(self, *, kill: bool = False) -> None:
        """`kill`: without warning, as a crash would. No effect on one that does not run."""
        child, self._child = self._child, None
        if child is not None:
            child.stop(kill=kill)

    def restart(self, timeout: float = 30.0) -> None:
        """On the same data and port; sessions live on if they find it in time."""
        self.stop()
        self.start(timeout)

    def __enter__(self) -> LocalZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, java: str, classes: list[Path], deadline: Deadline) -> bool:
        """False: the port is in use."""
        command = [java, *_JVM, f"-Dzookeeper.forceSync={'yes' if self._sync else 'no'}"]
        command += [
            "-cp",
            os.pathsep.join(map(str, classes)),
            _MAIN,
            str(self._write_configuration()),
        ]
        child = self._child = Child(command, self.directory, self.directory / "zookeeper.log", self._leash)
        serves = False

        def decided() -> bool:
            nonlocal serves
            serves = self._serves()
            return serves or not child.runs

        poll(decided, deadline, Backoff(0.02, 0.02))
        if serves:
            return True
        ended = not child.runs
        self.stop(kill=True)
        said = child.said()
        if "BindException" in said or "Address already in use" in said:
            return False
        what = "ended at once" if ended else "did not serve requests in time"
        raise CoordinationUnavailable(
            f"the ZooKeeper server {what}; its log {self.directory / 'zookeeper.log'} ends with: {said[-600:]}"
        )

    def _write_configuration(self) -> Path:
        settings = {
            "tickTime": self._tick_ms,
            "dataDir": (self.directory / "data").resolve(),
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "minSessionTimeout": self._min_session_timeout,
            "maxSessionTimeout": self._max_session_timeout,
            "maxClientCnxns": 0,  # no limit: everything comes from one address here
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,stat,mntr,cons,conf,wchs,wchp",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            **self._settings,
        }
        file = self.directory.resolve() / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def _serves(self) -> bool:
        # `ruok` is answered by a server that has no database yet; `srvr` tells its mode only when it serves.
        return self.pid is not None and "Mode:" in self.command("srvr", _PROBE_S)

    def command(self, word: str, timeout: float = 2.0) -> str:
        """The answer to a four letter word, empty if there is none."""
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection,
        ):
            connection.sendall(word.encode())
            while part := connection.recv(65_536):
                answer += part
        return answer.decode(errors="replace")
