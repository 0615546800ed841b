"""The processes of a history: who runs where, and who is started again.

A host that crashed, or whose process lost its session, gets a process of the next incarnation. A host that was
withdrawn stays empty.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from belvedere.protocol.messages import Role
from belvedere.protocol.ring import MemberId
from tests.simulator.coordinators import CoordinatorProcess
from tests.simulator.distributors import DistributorProcess
from tests.simulator.process import Process, Surroundings
from tests.simulator.scheduler import MS
from tests.simulator.versions import RELEASES, THIS, Version
from tests.simulator.viewservers import ViewServerProcess

Make = Callable[[str, str, int, Version], Process]
"""(role, host, incarnation, version of the software)"""

LARGEST = {"viewserver": 5, "distributor": 4}


class Cluster:
    def __init__(self, around: Surroundings, rng: random.Random, make: Make) -> None:
        self.around = around
        self.processes: dict[str, Process] = {}
        """By host: the present incarnation."""
        self.hasty = False
        """Restart at once."""
        self.skews: tuple[int, ...] = (0,)
        """How far the clocks of new processes are off, milliseconds."""
        self.release = 0
        """Which of `RELEASES` processes are of that start."""
        self._random = rng
        self._make = make
        self._versions: dict[str, Version] = {}
        self._wanted: set[str] = set()
        self._hosts: dict[str, int] = {}
        around.gone = self._gone

    def start(self, role: str, count: int) -> None:
        for _ in range(count):
            self.add(role)

    def add(self, role: str, version: Version | None = None) -> str | None:
        """The new host, unless there are enough. `version`: of the software on it, if it is a special one."""
        if role in LARGEST and len(self.wanted(role)) >= LARGEST[role]:
            return None
        number = self._hosts[role] = self._hosts.get(role, 0) + 1
        host = f"{role}-{number}"
        self._wanted.add(host)
        if version is not None:
            self._versions[host] = version
        self._start(role, host, 1)
        return host

    def withdraw(self, host: str) -> None:
        """Ask it to leave, unless no other one of its role would be there when special versions have ended."""
        process = self.processes[host]
        others = [other for other in self.wanted(host.split("-")[0]) if other != host and other not in self._versions]
        if others and host in self._wanted and process.alive and not process.paused:
            self._wanted.discard(host)
            process.ask_to_leave()

    def wanted(self, role: str) -> list[str]:
        return sorted(host for host in self._wanted if host.split("-")[0] == role)

    def remove(self, host: str) -> None:
        """Its process ends, and nobody starts another one there."""
        process = self.processes[host]
        self._wanted.discard(host)
        if process.alive:
            process.crash()

    def end_versions(self) -> None:
        """All that run are of one version."""
        for host in sorted(self._versions):
            self.remove(host)
        for process in list(self.processes.values()):
            newest = RELEASES[self.release].engines
            if process.alive and process.engines != (newest.oldest, newest.newest):
                process.crash()

    def _start(self, role: str, host: str, incarnation: int) -> None:
        version = self._versions.get(host) or RELEASES[self.release]
        process = self.processes[host] = self._make(role, host, incarnation, version)
        process.protocols = version.protocols
        told = THIS.engines if version.unsaid else version.engines
        process.engines = (told.oldest, told.newest)
        process.skew = self._random.choice(self.skews)
        process.start()

    def _gone(self, process: Process, for_good: bool) -> None:
        if for_good or process.host not in self._wanted:
            self._wanted.discard(process.host)
            return
        delay = self._random.choice((20, 100, 500, 2_000)) * MS if not self.hasty else 10 * MS
        role = process.host.split("-")[0]

        def restart() -> None:
            if process.host in self._wanted and self.processes[process.host] is process:
                self._start(role, process.host, process.incarnation + 1)

        self.around.scheduler.after(delay, restart)

    def close(self) -> None:
        """The history is over: whoever still runs gives back what it holds."""
        for process in self.processes.values():
            if process.alive:
                process.ended()

    # ------------------------------------------------------------------ who is there

    def alive(self, role: Role) -> list[Process]:
        return [p for p in self.processes.values() if p.alive and p.role is role]

    @property
    def distributors(self) -> list[DistributorProcess]:
        return [p for p in self.alive(Role.DISTRIBUTOR) if isinstance(p, DistributorProcess)]

    @property
    def viewservers(self) -> list[ViewServerProcess]:
        return [p for p in self.alive(Role.VIEWSERVER) if isinstance(p, ViewServerProcess)]

    def leader(self) -> CoordinatorProcess | None:
        """Whom the record names."""
        state = self.around.zookeeper.record.state
        for process in self.alive(Role.COORDINATOR):
            if isinstance(process, CoordinatorProcess) and state is not None and process.name == state.leader:
                return process
        return None

    def members(self) -> set[MemberId]:
        """Those that should have a part in the generation."""
        wanted = [self.processes[host] for host in self._wanted]
        return {p.name for p in wanted if p.role is not Role.COORDINATOR}
