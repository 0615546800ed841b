"""A whole cluster on one machine: ZooKeeper and every role as child processes, watched over by this one.

    directory/local.json     ports, chosen once and kept; how `belvedere scale` reaches the supervisor
             zookeeper/      its data and log          store/    LMDB          logs/NAME.log    of each child

A child that dies is started again, with growing pauses, unless it was told to go. Children hold a pipe to the
supervisor: when that one dies, however it dies, they notice and leave.

Control is one JSON line over a connection to 127.0.0.1, with a secret from `local.json`, which only the owner can read.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from belvedere import errors
from belvedere.backend.opening import leaves_state, shared_url
from belvedere.cluster.process.spares import Spares
from belvedere.protocol.messages import Role
from belvedere.retry import Backoff

log = logging.getLogger(__name__)

CONTROL_FILE = "local.json"
STOP_SECONDS = 12.0
WATCH_SECONDS = 0.2


@dataclass
class RoleProcess:
    """One role process. `wanted`: it is started again when it ends."""

    role: Role
    name: str
    arguments: list[str]
    wanted: bool = True
    process: subprocess.Popen[bytes] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    not_before: float = 0.0
    pauses: Backoff = field(default_factory=lambda: Backoff(0.1, 5.0))

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.running else None


@dataclass(frozen=True)
class ClusterShape:
    """How many of which role, and how they are set."""

    viewservers: int = 3
    spares: int = 0
    """View servers that are started and wait until one is needed."""
    distributors: int = 2
    coordinators: int = 1
    pool: str = "default"
    session_timeout: float = 4.0
    epoch_ms: int = 20
    retention: float = 60.0
    memory_limit: str = "1GiB"
    restart: bool = True
    store: str = ""
    """URL of the backend; if empty, a store of its own."""
    sync: bool = True
    """False: ZooKeeper does not wait for the disk (tests that kill processes, not machines)."""


class LocalCluster:
    """Started by `start`, ended by `stop`. Everything may be called from any thread."""

    def __init__(self, directory: Path, shape: ClusterShape) -> None:
        self.directory, self.shape = directory.resolve(), shape
        self.children: dict[str, RoleProcess] = {}
        self._lock = threading.RLock()
        self._spares = Spares(shape.spares, self._launch_spare)
        self._zookeeper: Any = None
        self._ports: dict[str, int] = {}
        self._secret = secrets.token_hex(16)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._lock_file: IO[bytes] | None = None

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        from belvedere.local.zookeeper import LocalZooKeeper

        if self.shape.store:
            shared_url(self.shape.store)
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "logs").mkdir(exist_ok=True)
        self._take_directory()
        self._ports = self._known_ports()
        tick = max(100, min(500, int(self.shape.session_timeout * 1000) // 4))
        self._zookeeper = LocalZooKeeper(
            self.directory / "zookeeper", self._port("zookeeper"), tick_ms=tick, sync=self.shape.sync
        )
        self._zookeeper.start()
        self._listen()
        self._write_control()
        with self._lock:
            if self.keeps_store:
                self._add(Role.STORE, 1)
            for role, count in (
                (Role.COORDINATOR, self.shape.coordinators),
                (Role.DISTRIBUTOR, self.shape.distributors),
                (Role.VIEWSERVER, self.shape.viewservers),
            ):
                for number in range(1, count + 1):
                    self._add(role, number)
        self._thread("watch", self._watch)

    def stop(self) -> None:
        """Everything, in order: who computes, who leads, the store, ZooKeeper."""
        self._stopping.set()
        with self._lock:
            children = list(self.children.values())
            for child in children:
                child.wanted = False
            self._spares.stop()
        for roles in ((Role.VIEWSERVER, Role.DISTRIBUTOR), (Role.COORDINATOR,), (Role.STORE,)):
            _end([child for child in children if child.role in roles])
        if self._zookeeper is not None:
            self._zookeeper.stop()
        if self._listener is not None:
            self._listener.close()
        for thread in self._threads:
            thread.join(2.0)
        if self._lock_file is not None:  # else the directory is another one's, and so is what is written in it
            with contextlib.suppress(OSError):
                self._forget_control()
            self._lock_file.close()

    @property
    def keeps_store(self) -> bool:
        """Whether one of the children is the store."""
        return not self.shape.store or leaves_state(self.shape.store)

    @property
    def url(self) -> str:
        """For `belvedere.connect`."""
        names = [f"coordinator-{number}" for number in range(1, self.shape.coordinators + 1)]
        return "belvedere://" + ",".join(f"127.0.0.1:{self._port(name)}" for name in names)

    @property
    def coordinators(self) -> list[str]:
        """Addresses."""
        return [f"grpc://{place}" for place in self.url.removeprefix("belvedere://").split(",")]

    @property
    def zookeeper(self) -> Any:
        return self._zookeeper

    def __enter__(self) -> LocalCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ------------------------------------------------------------------ members

    def scale(self, viewservers: int) -> None:
        """So many view servers: new ones are started, the last ones are asked to leave."""
        if viewservers < 1:
            raise errors.DataError(f"{viewservers} view servers: there must be one at least")
        with self._lock:
            present = [child for child in self.children.values() if child.role is Role.VIEWSERVER and child.wanted]
            for child in present[viewservers:]:
                self.retire(child.name)
            number = 1 + max((int(c.name.rsplit("-", 1)[1]) for c in self._of(Role.VIEWSERVER)), default=0)
            for following in range(viewservers - len(present)):
                self._add(Role.VIEWSERVER, number + following)

    def add(self, role: Role, environment: Mapping[str, str] | None = None) -> RoleProcess:
        """One more of the role."""
        with self._lock:
            number = 1 + max((int(c.name.rsplit("-", 1)[1]) for c in self._of(role)), default=0)
            return self._add(role, number, environment or {})

    @property
    def spares(self) -> list[int]:
        """Processes that stand by."""
        with self._lock:
            return self._spares.pids

    def retire(self, name: str) -> None:
        """Ask a child to leave (SIGTERM); it is not started again."""
        with self._lock:
            child = self.children[name]
            child.wanted = False
            if child.running and child.process is not None:
                child.process.terminate()

    def _of(self, role: Role) -> list[RoleProcess]:
        return [child for child in self.children.values() if child.role is role]

    def _add(self, role: Role, number: int, environment: Mapping[str, str] | None = None) -> RoleProcess:
        name = f"{role.value}-{number}"
        child = RoleProcess(role, name, self._arguments(role, name), environment=environment or {})
        self.children[name] = child
        self._launch(child)
        return child

    def _arguments(self, role: Role, name: str) -> list[str]:
        shape = self.shape
        found = [role.value, "--zookeeper", self._zookeeper.hosts, "--pool", shape.pool, "--name", name]
        found += ["--session-timeout", f"{shape.session_timeout:g}", "--memory-limit", shape.memory_limit]
        found += ["--http-port", "0", "--end-with-parent"]
        if shape.store and role is not Role.STORE:
            found += ["--store", shape.store]
        if role is Role.STORE:
            found += ["--port", str(self._port("store")), "--directory", str(self.directory / "store")]
        if role is Role.COORDINATOR:
            found += ["--port", str(self._port(name)), "--epoch-ms", str(shape.epoch_ms)]
            found += ["--retention", f"{shape.retention:g}"]
        return found

    def _launch(self, child: RoleProcess) -> None:
        child.starts += 1
        child.process = None
        path = self.directory / "logs" / f"{child.name}.log"
        if child.role is Role.VIEWSERVER and not child.environment:
            child.process = self._spares.take(child.name, str(path))
        if child.process is None:
            child.process = self._process(child.arguments, path, child.environment)

    def _launch_spare(self) -> subprocess.Popen[bytes]:
        arguments = [*self._arguments(Role.VIEWSERVER, "spare"), "--spare"]
        return self._process(arguments, self.directory / "logs" / "spare.log", {})

    def _process(self, arguments: list[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with open(log, "ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "belvedere.cli.main", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at the terminal is for the supervisor, which stops all in order
                env={**os.environ, "PYTHONPATH": _search_path(), **environment},
            )

    def _watch(self) -> None:
        """Start again what has died."""
        while not self._stopping.wait(WATCH_SECONDS):
            with self._lock:
                if not self._stopping.is_set():
                    self._spares.replenish()
                for child in list(self.children.values()):
                    self._look_after(child)

    def _look_after(self, child: RoleProcess) -> None:
        if child.running or self._stopping.is_set():
            return
        if not child.wanted:
            self.children.pop(child.name, None)
            _reap(child)
            return
        if not self.shape.restart:
            return
        now = time.monotonic()
        if child.not_before == 0.0:
            code = None if child.process is None else child.process.returncode
            child.not_before = now + child.pauses.next()
            log.warning("%s ended with code %s; it is started again", child.name, code)
        elif now >= child.not_before:
            child.not_before = 0.0
            _reap(child)
            self._launch(child)

    # ------------------------------------------------------------------ files

    def _take_directory(self) -> None:
        import fcntl

        self._lock_file = open(self.directory / "lock", "ab")  # noqa: SIM115 held as long as the cluster runs
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            self._lock_file = None
            raise errors.Locked(f"another `belvedere local` runs in {self.directory}") from None

    def _known_ports(self) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError):
            found: dict[str, int] = json.loads((self.directory / CONTROL_FILE).read_text())["ports"]
            return found
        return {}

    def _port(self, name: str) -> int:
        """A port that stays the same from start to start."""
        if name not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[name] = int(probe.getsockname()[1])
        return self._ports[name]

    def _write_control(self) -> None:
        assert self._listener is not None
        content = {
            "pid": os.getpid(),
            "url": self.url,
            "control": self._listener.getsockname()[1],
            "secret": self._secret,
            "ports": self._ports,
        }
        path = self.directory / CONTROL_FILE
        draft = path.with_suffix(".new")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(content))
        draft.replace(path)

    def _forget_control(self) -> None:
        """Only the ports stay; if it did not come to knowing them, those of the last time."""
        if self._ports:
            (self.directory / CONTROL_FILE).write_text(json.dumps({"ports": self._ports}))

    # ------------------------------------------------------------------ control

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread("control", self._serve)

    def _serve(self) -> None:
        assert self._listener is not None
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                connection.settimeout(5.0)
                connection.sendall(json.dumps(self._answer(_line(connection))).encode() + b"\n")

    def _answer(self, request: str) -> dict[str, Any]:
        try:
            asked = json.loads(request)
            if not secrets.compare_digest(str(asked.get("secret")), self._secret):
                return {"error": "wrong secret"}
            if asked["command"] == "scale":
                self.scale(int(asked["viewservers"]))
            return {"children": self.described()}
        except errors.BelvedereError as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not understood: {error}"}

    def described(self) -> list[dict[str, Any]]:
        with self._lock:
            return [
                {"name": c.name, "pid": c.pid, "starts": c.starts, "leaving": not c.wanted}
                for c in self.children.values()
            ]

    def _thread(self, name: str, work: Any) -> None:
        thread = threading.Thread(target=work, name=f"belvedere-local-{name}", daemon=True)
        thread.start()
        self._threads.append(thread)


def control(directory: Path, command: str, **fields: Any) -> dict[str, Any]:
    """Tell the supervisor of a directory something; returns its answer."""
    path = directory / CONTROL_FILE
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = {}
    if "control" not in found:
        raise errors.Unavailable(f"no `belvedere local` runs in {directory}; start one with --directory {directory}")
    request = json.dumps({"secret": found["secret"], "command": command, **fields})
    try:
        with socket.create_connection(("127.0.0.1", found["control"]), timeout=5.0) as connection:
            connection.sendall(request.encode() + b"\n")
            answer: dict[str, Any] = json.loads(_line(connection))
    except OSError as error:
        raise errors.Unavailable(f"the `belvedere local` of {directory} does not answer: {error}") from None
    if "error" in answer:
        raise errors.DataError(answer["error"])
    return answer


def local_url(directory: Path) -> str | None:
    """The URL of the cluster that runs in this directory, if one does."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((directory / CONTROL_FILE).read_text())
        return found.get("url") and str(found["url"])
    return None


def end_with_parent() -> None:
    """In a child: leave the pool when the supervisor's end of stdin is closed."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="belvedere-parent", daemon=True).start()


def _end(children: list[RoleProcess]) -> None:
    """Ask them to leave, and wait; who does not go is killed."""
    for child in children:
        if child.process is not None and child.running:
            child.process.send_signal(signal.SIGCONT)  # a stopped process would not hear the next one
            child.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for child in children:
        if child.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, deadline - time.monotonic()))
            if child.running:
                log.warning("%s did not leave within %g s and is killed; its log shows why", child.name, STOP_SECONDS)
                child.process.send_signal(signal.SIGUSR1)  # it writes down what its threads do
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(0.5)
                child.process.kill()
            _reap(child)


def _reap(child: RoleProcess) -> None:
    if child.process is not None:
        child.process.wait()
        if child.process.stdin is not None:
            child.process.stdin.close()


def _line(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\n") and (part := connection.recv(65_536)):
        data += part
    return data.decode()


def _search_path() -> str:
    return os.pathsep.join(path for path in sys.path if path)
