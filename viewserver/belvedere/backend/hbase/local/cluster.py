"""An HBase of separate processes on this machine: ZooKeeper, a master, region servers, the Thrift gateway.

What runs is in `directory/state.json`: ports, and the pids by name. So whoever knows the directory can use the cluster,
end one of its processes as a crash would, start it again, or stop them all; a pid is believed only while its process
was started for this directory.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import happybase
from thriftpy2.thrift import TException

from belvedere.backend.hbase.admin import Admin
from belvedere.backend.hbase.local.jars import find_classes
from belvedere.backend.hbase.local.settings import FAST_START, HEAP, JVM, write_configuration
from belvedere.backend.hbase.master import Master
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.zookeeper import Registry
from belvedere.errors import StoreUnavailable
from belvedere.local.child import Child, Leash, end_by_pid, free_port, is_running, tail
from belvedere.local.java import java_command
from belvedere.local.zookeeper import LocalZooKeeper
from belvedere.retry import Backoff, Deadline, poll

START_S = 180.0
"""Seconds that a start may take; it takes about 15 on an idle machine."""
_HBASE = "org.apache.hadoop.hbase"
_MAIN = {
    "master": f"{_HBASE}.master.HMaster",
    "regionserver": f"{_HBASE}.regionserver.HRegionServer",
    "thrift": f"{_HBASE}.thrift.ThriftServer",
}
_TAIL = 1500


@dataclass
class RunningHBase:
    """What `state.json` says."""

    zookeeper: int = 0
    thrift: int = 0
    region_servers: int = 2
    pids: dict[str, int] = field(default_factory=dict)
    watchdogs: dict[str, int] = field(default_factory=dict)


class LocalHBase:
    """`leash`: how long its processes live (`local.child`); `Leash.NONE`: until `stop`. `region_servers`: how many,
    if it is not known from an earlier start."""

    def __init__(
        self,
        directory: str | Path,
        *,
        region_servers: int | None = None,
        leash: Leash | Path = Leash.NONE,
        jvm: Sequence[str] = (FAST_START,),
    ) -> None:
        self.directory = Path(directory).resolve()
        self._leash, self._jvm = leash, tuple(jvm)
        self._children: dict[str, Child] = {}
        self._state = self._load()
        if region_servers is not None:
            self._state.region_servers = region_servers

    @property
    def names(self) -> list[str]:
        """Of its processes, in the order in which they are started."""
        return ["zookeeper", "master", *(f"regionserver-{n}" for n in range(self._state.region_servers)), "thrift"]

    @property
    def zookeeper(self) -> str:
        """The quorum, for clients."""
        return f"127.0.0.1:{self._state.zookeeper}"

    @property
    def thrift(self) -> tuple[str, int]:
        return "127.0.0.1", self._state.thrift

    def pids(self) -> dict[str, int]:
        """Of the processes that run."""
        return {name: pid for name, pid in self._state.pids.items() if is_running(pid, self._mark(name))}

    def start(self, timeout: float = START_S) -> None:
        """Start what does not run; returns when all of it answers."""
        deadline = Deadline(timeout)
        classes, java = find_classes(), java_command()
        assert java is not None  # find_classes has looked
        self.directory.mkdir(parents=True, exist_ok=True)
        running = self.pids()
        if "zookeeper" not in running:
            self._start_zookeeper(deadline)
        write_configuration(self.directory, self._state.zookeeper)
        if "thrift" not in running:
            self._state.thrift = free_port()
        for name in self.names[1:]:
            if name not in running:
                self._launch(name, java, classes)
        self._wait(deadline)

    def start_one(self, name: str) -> None:
        """Start a process again that was killed, without waiting for it; the gateway keeps its port."""
        if name not in self.names:
            raise StoreUnavailable(f"this HBase has no process {name!r}; it has {', '.join(self.names)}")
        if name in self.pids():
            return
        if name == "zookeeper":
            self._start_zookeeper(Deadline(START_S))
            return
        java = java_command()
        assert java is not None
        self._launch(name, java, find_classes())

    def kill(self, name: str) -> None:
        """As a crash would: kill -9, and it is gone when this returns."""
        self._end(name, kill=True)

    def stop(self) -> None:
        """All of it, gateway first. What is stored stays."""
        for name in reversed([*self.names, *self._state.pids.keys() - set(self.names)]):
            self._end(name, kill=name.startswith(("thrift", "regionserver")))
        if self.directory.exists():
            self._save()

    def disown(self) -> None:
        """Others, or a leash, look after its processes from now on."""
        for child in self._children.values():
            child.disown()
        self._children.clear()

    def answers(self, timeout: float = 10.0) -> str | None:
        """Whether clients can work with it: None, or what is not so."""
        gone = [name for name in self.names if name not in self.pids()]
        if gone:
            return f"{gone[0]} does not run"
        pool = ConnectionPool(timeout)
        try:
            servers = Admin(Master(Registry(self.zookeeper, timeout=timeout), pool, timeout)).servers()
            if len(servers) < self._state.region_servers:
                return f"{len(servers)} of {self._state.region_servers} region servers have reported to the master"
            self._ask_gateway(timeout)
        except (StoreUnavailable, TException, OSError) as problem:
            return str(problem)
        finally:
            pool.close()
        return None

    def log(self, name: str) -> Path:
        return self.directory / (f"zookeeper/{name}.log" if name == "zookeeper" else f"{name}.log")

    def __enter__(self) -> LocalHBase:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _ask_gateway(self, timeout: float) -> None:
        """Thrift's socket waits for ever by default. The names of tables come from the master and `hbase:meta`."""
        host, port = self.thrift
        with socket.create_connection((host, port), timeout):
            pass
        connection = happybase.Connection(host, port, timeout=int(timeout * 1000))
        try:
            connection.tables()
        finally:
            connection.close()

    def _start_zookeeper(self, deadline: Deadline) -> None:
        server = LocalZooKeeper(
            self.directory / "zookeeper", self._state.zookeeper, tick_ms=500, sync=False, leash=self._leash
        )
        server.start(deadline.left(60.0))
        self._state.zookeeper = server.port
        assert server.child is not None
        self._know("zookeeper", server.child)

    def _launch(self, name: str, java: str, classes: Path) -> None:
        kind = name.partition("-")[0]
        command = [java, *JVM, *self._jvm, f"-Xmx{HEAP[kind]}", f"-D{self._mark(name)}"]
        command += ["-cp", f"{self.directory / 'conf'}{os.pathsep}{classes}/*", _MAIN[kind]]
        command += ["-p", str(self._state.thrift), "start"] if kind == "thrift" else ["start"]
        self._know(name, Child(command, self.directory, self.log(name), self._leash))

    def _know(self, name: str, child: Child) -> None:
        self._children[name] = child
        self._state.pids[name] = child.pid
        if child.watchdog_pid is not None:
            self._state.watchdogs[name] = child.watchdog_pid
        self._save()

    def _wait(self, deadline: Deadline) -> None:
        lacking: str | None = "nothing was asked yet"

        def decided() -> bool:
            nonlocal lacking
            if any(not child.runs for child in self._children.values()):
                return True
            lacking = self.answers(deadline.left(10.0))
            return lacking is None

        poll(decided, deadline, Backoff(0.2, 0.5))
        ended = [name for name, child in self._children.items() if not child.runs]
        if lacking is None and not ended:
            return
        blamed = ended[0] if ended else "master"
        what = f"{ended[0]} ended at once" if ended else f"it did not answer in time ({lacking})"
        raise StoreUnavailable(
            f"the HBase in {self.directory} cannot be started: {what}; {self.log(blamed)} ends with: "
            f"{tail(self.log(blamed), most=_TAIL)}"
        )

    def _end(self, name: str, *, kill: bool) -> None:
        child = self._children.pop(name, None)
        if child is not None:
            child.stop(kill=kill)
        elif name in self._state.pids:
            if name in self._state.watchdogs:  # first: it must not hit a process that gets this pid later
                end_by_pid(self._state.watchdogs[name], "watchdog", kill=True)
            end_by_pid(self._state.pids[name], self._mark(name), kill=kill)
        self._state.pids.pop(name, None)
        self._state.watchdogs.pop(name, None)

    def _mark(self, name: str) -> str:
        """What the command line of a process of this cluster has, and no other."""
        return str(self.directory / "zookeeper") if name == "zookeeper" else f"belvedere.hbase={self.directory}/{name}"

    def _load(self) -> RunningHBase:
        try:
            return RunningHBase(**json.loads((self.directory / "state.json").read_text()))
        except FileNotFoundError:
            return RunningHBase()

    def _save(self) -> None:
        file = self.directory / "state.json"
        file.with_suffix(".new").write_text(json.dumps(asdict(self._state), indent=1) + "\n")
        os.replace(file.with_suffix(".new"), file)
