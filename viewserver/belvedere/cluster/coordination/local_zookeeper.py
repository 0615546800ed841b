"""A real ZooKeeper server on this machine, as a child process: for `belvedere local` and for tests.

It listens on 127.0.0.1 only, without admin server, with a small heap. It does not outlive the process that started it:
`stop` runs at exit, and should that process be killed, a watchdog (a shell that waits for the end of a pipe) ends
it. (PR_SET_PDEATHSIG would do it on Linux only, and already when the *thread* that started the child ends.)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from belvedere.cluster.coordination.zookeeper_jars import find_classes, find_java
from belvedere.errors import CoordinationUnavailable

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
_WATCHDOG = 'read -r _; kill -9 "$1" 2>/dev/null'
_PORT_TRIES = 5


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
    ) -> None:
        self.directory = Path(directory)
        self._wanted_port = port
        self.port = port
        self._tick_ms = tick_ms
        self._min_session_timeout = 2 * tick_ms if min_session_timeout is None else min_session_timeout
        self._max_session_timeout = max_session_timeout
        self._sync = sync
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, timeout: float = 30.0) -> None:
        """Returns when it serves requests. The port, if it was not given, is chosen at the first start and kept."""
        if self.pid is not None:
            return
        java, classes = find_java(), find_classes()
        self.directory.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout
        for attempt in range(1, _PORT_TRIES + 1):
            if self.port == 0:
                self.port = _free_port()
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
        process, self._process = self._process, None
        watchdog, self._watchdog = self._watchdog, None
        atexit.unregister(self.stop)
        if watchdog is not None:  # first: it must not hit a process that gets this pid later
            _end(watchdog, kill=True)
        if process is not None:
            _end(process, kill=kill)

    def restart(self, timeout: float = 30.0) -> None:
        """On the same data and port; sessions live on if they find it in time."""
        self.stop()
        self.start(timeout)

    def __enter__(self) -> LocalZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, java: str, classes: list[Path], deadline: float) -> bool:
        """False: the port is in use."""
        command = [java, *_JVM, f"-Dzookeeper.forceSync={'yes' if self._sync else 'no'}"]
        command += ["-cp", os.pathsep.join(map(str, classes)), _MAIN, str(self._write_configuration())]
        log_file = self.directory / "zookeeper.log"
        with open(log_file, "ab") as log:
            begin = log.tell()
            # A session of its own: Ctrl-C at the terminal is for the parent, which stops it when the others have gone.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.directory
            )
        self._process = process
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self.stop)
        while not self._serves():
            if process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            ended = process.poll() is not None
            self.stop(kill=True)
            said = _tail(log_file, begin)
            if "BindException" in said or "Address already in use" in said:
                return False
            what = "ended at once" if ended else "did not serve requests in time"
            raise CoordinationUnavailable(f"the ZooKeeper server {what}; its log {log_file} ends with: {said[-600:]}")
        return True

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
        }
        file = self.directory.resolve() / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def _serves(self) -> bool:
        # `ruok` is answered by a server that has no database yet; `srvr` tells its mode only when it serves.
        return self._process is not None and self._process.poll() is None and "Mode:" in self.command("srvr")

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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(file: Path, begin: int) -> str:
    with open(file, "rb") as log:
        log.seek(begin)
        return log.read()[-20_000:].decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    """It is gone and its pid is free when this returns."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None and not kill:
        process.send_signal(signal.SIGCONT)  # a stopped process would not hear the next one
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5.0)
    if process.poll() is None:
        process.kill()
    process.wait()
