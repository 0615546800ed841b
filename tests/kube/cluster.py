"""A cluster from outside: up, down, its kubeconfig, and commands in its network.

`up_control_plane` is an API server with controllers and scheduler (about 5 s, 0.6 GB), enough for everything that is
decided by objects. `up_node` has containers, a network and DNS as well. Each takes a directory; there may be several at
a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kube import certificates, components
from tests.kube.binaries import Binaries
from tests.kube.components import Layout
from tests.kube.kubernetes import Kubernetes
from tests.kube.supervisor import PRIVATE, cgroup_hierarchies

ROOT = Path(__file__).parents[2]
UP_SECONDS, DOWN_SECONDS = 600.0, 60.0


class ClusterFailed(Exception):
    """The cluster did not come up, or is not up; the message is for people."""


@dataclass(frozen=True)
class Cluster(Kubernetes):
    """One that runs: of this process, or of one that is gone."""

    layout: Layout
    process: subprocess.Popen[bytes] | None = None
    """Our child, to be waited for when it ends; None: another process started it."""

    @staticmethod
    def of(layout: Layout, binaries: Binaries, process: subprocess.Popen[bytes] | None = None) -> Cluster:
        return Cluster(layout.admin, binaries.directory, layout, process)

    def inside(self, *command: str) -> list[str]:
        """The command line that runs a command in the cluster's network and with its DNS. It keeps the machine's files
        and processes, so that tests reach pods and Services by name."""
        if not self.layout.node:
            return list(command)
        bind = 'mount --bind "$0" /etc/resolv.conf; exec "$@"'
        resolver = f"{self.layout.state}/inside-resolv.conf"
        network = ("nsenter", "--target", str(require_pid(self.layout.state)), "--net", "--")
        return [*network, "unshare", "--mount", "sh", "-ec", bind, resolver, *command]

    def import_image(self, archive: Path) -> None:
        """Have pods find it; there is no registry."""
        self._images(f"image {archive} was not taken", "import", str(archive))

    def tag_image(self, name: str, other: str) -> None:
        """Have pods find it under another name as well."""
        self._images(f"image {name} was not tagged", "tag", "--force", name, other)

    def _images(self, problem: str, *words: str) -> None:
        socket_file = str(self.layout.containerd_socket)
        command = ("ctr", "--address", socket_file, "--namespace", "k8s.io", "images", *words)
        mounts = ("nsenter", "--target", str(require_pid(self.layout.state)), "--mount", "--")
        done = subprocess.run([*mounts, *command], capture_output=True, text=True)
        if done.returncode:
            raise ClusterFailed(f"{problem}: {done.stderr.strip()}")

    def down(self) -> None:
        down(self.layout.state)
        if self.process is not None:
            self.process.wait(DOWN_SECONDS)

    @property
    def times(self) -> dict[str, float]:
        """Seconds from the start until each part was ready."""
        found: dict[str, float] = json.loads((self.layout.state / "ready").read_text())
        return found


def up_control_plane(state: Path, binaries: Binaries, *, ends_with_parent: bool = False) -> Cluster:
    api, etcd, peer = (ports := _Ports(3)).numbers
    layout = Layout(state, binaries.hyperkube, api, etcd, peer, node=False, name=_new_name())
    _prepare(layout, ("127.0.0.1",))
    ports.close()
    return _up(layout, binaries, (), None, ends_with_parent)


def up_node(
    state: Path, binaries: Binaries, images: Sequence[Path], *, ends_with_parent: bool = False, port: int = 0
) -> Cluster:
    """`images`: archives that are there when it is up, the pause image among them. `port`: of the API server."""
    if any(state.resolve().is_relative_to(directory) for directory in PRIVATE):
        raise ClusterFailed(f"the state of a cluster cannot be in {state}: it has its own {', '.join(PRIVATE)}")
    with socket.create_server(("127.0.0.1", port)) as listener:
        number = listener.getsockname()[1]
        layout = Layout(state, binaries.hyperkube, number, 2379, 2380, True, _new_name(), tuple(images))
        _prepare(layout, ("127.0.0.1", components.NODE_IP, components.SERVICE_IP))
        (state / "inside-resolv.conf").write_text(components.resolver())
        components.VOLUMES.mkdir(exist_ok=True)
        own = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
        return _up(layout, binaries, own, listener, ends_with_parent)


def existing(state: Path, binaries: Binaries) -> Cluster | None:
    """The one that was brought up in this directory, if it still runs."""
    if _pid(state) is None or not (state / "ready").exists():
        return None
    return Cluster.of(Layout.load((state / "layout.json").read_text()), binaries)


def down(state: Path) -> None:
    """End it, and remove what it made; also if it is gone already."""
    pid = _pid(state)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: _pid(state) is None, DOWN_SECONDS, "the end of every process")
    if (state / "layout.json").exists():
        layout = Layout.load((state / "layout.json").read_text())
        if layout.node:
            with contextlib.suppress(ClusterFailed):  # empty ones cost nothing
                until(lambda: _remove_cgroups(layout.cgroup), 20.0, "the end of every cgroup")
            with contextlib.suppress(OSError):
                components.VOLUMES.rmdir()  # others may use it
    shutil.rmtree(state, ignore_errors=True)


def require_pid(state: Path) -> int:
    pid = _pid(state)
    if pid is None:
        raise ClusterFailed(f"there is no cluster in {state}: 'make kube-up' starts one")
    return pid


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterFailed(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def _up(
    layout: Layout,
    binaries: Binaries,
    own: tuple[str, ...],
    listener: socket.socket | None,
    ends_with_parent: bool,
) -> Cluster:
    state = layout.state
    tied = ("setpriv", "--pdeathsig", "KILL", "--") if ends_with_parent else ()
    descriptors = () if listener is None else (listener.fileno(),)
    command = [*tied, *own, sys.executable, "-m", "tests.kube.supervisor", str(state), *map(str, descriptors)]
    with open(state / "log" / "supervisor.log", "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=descriptors,
        )
    try:
        until(lambda: process.poll() is not None or _first_process(process.pid, bool(own)), 20.0, "the first process")
        pid = _first_process(process.pid, bool(own)) or process.pid
        (state / "pid").write_text(f"{pid} {_started(pid)}")
        until(lambda: (state / "ready").exists() or process.poll() is not None, UP_SECONDS, "the cluster")
        if process.poll() is not None:
            said = state / "failed" if (state / "failed").exists() else state / "log" / "supervisor.log"
            raise ClusterFailed(f"the cluster did not come up: {said.read_text().strip()[-2000:]}")
    except BaseException:
        shutil.copytree(state / "log", state.with_name(f"{state.name}-failed"), dirs_exist_ok=True)
        down(state)
        process.kill()
        process.wait(DOWN_SECONDS)
        raise
    return Cluster.of(layout, binaries, process)


def _prepare(layout: Layout, addresses: tuple[str, ...]) -> None:
    down(layout.state)  # what one that was killed left
    (layout.state / "log").mkdir(parents=True)
    certificates.create(layout.pki, layout.server, components.NODE, addresses)
    (layout.state / "layout.json").write_text(layout.dump())


def _first_process(pid: int, is_unshared: bool) -> int | None:
    """The supervisor: the child of `unshare`, or the process itself."""
    if not is_unshared:
        return pid
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return None


def _pid(state: Path) -> int | None:
    """Of the supervisor, if it runs. A number may have gone to another process: it counts with its time of start."""
    with contextlib.suppress(OSError, ValueError):
        pid, started = (state / "pid").read_text().split()
        return int(pid) if _started(int(pid)) == started else None
    return None


def _started(pid: int) -> str:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "gone" if fields[0] in "ZX" else fields[19]
    return "gone"


def _remove_cgroups(name: str) -> bool:
    tops = [hierarchy / name for hierarchy in cgroup_hierarchies()]
    for top in tops:
        for directory, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
    return not any(top.exists() for top in tops)


def _new_name() -> str:
    return uuid.uuid4().hex[:8]


class _Ports:
    """Free ports of loopback; they are held until the moment when somebody else is to have them."""

    def __init__(self, count: int) -> None:
        self._sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.numbers = tuple(found.getsockname()[1] for found in self._sockets)

    def close(self) -> None:
        for held in self._sockets:
            held.close()
