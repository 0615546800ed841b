"""The first process of a cluster: it starts every component, and its end is the end of all of them.

With a node it is process 1 of a process namespace, and has a network and mounts of its own, which nobody sees outside:
the kernel ends the processes, links, rules and mounts with it. Without a node there is nothing to hide: the components
are its children, and are killed when it dies.

    python -m tests.kube.supervisor STATE [SOCKET]

STATE/layout.json says what to start. When all of it is ready, STATE/ready appears; if something ends before or after
that, STATE/failed says what, and the cluster is over.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kube import components
from tests.kube.components import Command, Layout
from tests.kube.requirements import CNI_PLUGINS

API_SECONDS, CONTAINERD_SECONDS, NODE_SECONDS = 240.0, 120.0, 240.0
"""Generous: the machine may be busy with other tests, or with compiling the next cluster."""
PRIVATE = ("/run", "/var/lib", "/var/log")
"""Where containerd, CNI plugins and the kubelet write, whatever their settings say."""
IN_MEMORY = ("containerd", "kubelet", "pod-logs")
KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet would set for the whole machine. Where it differs, the kubelet is shown a file that agrees with it."""


class Failed(Exception):
    """The cluster cannot be; the message is for people."""


class Supervisor:
    def __init__(self, layout: Layout) -> None:
        self._at = layout
        self._components: dict[int, str] = {}
        self._began = time.monotonic()
        self._times: dict[str, float] = {}

    def run(self, listener: socket.socket | None) -> None:
        at = self._at
        if at.node:
            make_mounts(at)
            make_network()
            self._start_containerd()
        self._start("etcd", components.etcd(at))
        write(at.state / "audit.json", components.audit_policy())
        self._start("kube-apiserver", components.api_server(at))
        self._until(lambda: self._ask("/readyz") == "ok", API_SECONDS, "the API server")
        self._start("kube-controller-manager", components.controller_manager(at))
        self._start("kube-scheduler", components.scheduler(at))
        self._note("control plane")
        if listener is not None:
            forward = (sys.executable, "-m", "tests.kube.forward", str(listener.fileno()), str(at.api_port))
            self._start("forward", forward, pass_fds=(listener.fileno(),))
        if at.node:
            self._start_node()
        write(at.state / "ready", self._times)
        self._reap()

    def _start_containerd(self) -> None:
        at = self._at
        write(at.state / "containerd.toml", components.containerd_config(at, CNI_PLUGINS))
        write(at.state / "cni" / "10-pods.conflist", components.cni(at))
        self._start("containerd", components.containerd(at))

    def _start_node(self) -> None:
        at = self._at
        self._until(lambda: self._ctr("version").returncode == 0, CONTAINERD_SECONDS, "containerd")
        for archive in at.images:
            done = self._ctr("images", "import", str(archive))
            if done.returncode:
                raise Failed(f"image {archive} was not taken: {done.stderr.strip()}")
        self._note("images")
        most_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        write(at.state / "kubelet.json", components.kubelet_config(at, most_files))
        write(at.state / "proxy.json", components.kube_proxy_config(at))
        write(at.state / "Corefile", components.corefile(at))
        write(at.state / "resolv.conf", "")  # of pods with dnsPolicy Default: there is nobody to ask
        self._start("kubelet", components.kubelet(at))
        self._start("kube-proxy", components.kube_proxy(at))
        self._start("coredns", components.coredns(at))
        self._until(self._is_node_ready, NODE_SECONDS, "the node")
        self._ask("/apis/storage.k8s.io/v1/storageclasses", components.storage_class())
        self._note("node")

    def _start(self, name: str, command: Command, pass_fds: tuple[int, ...] = ()) -> None:
        with open(self._at.state / "log" / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self._components[process.pid] = name

    def _until(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            for pid, name in self._components.items():
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    raise Failed(f"{name} ended: {last_line(self._at.state / 'log' / f'{name}.log')}")
            if time.monotonic() > deadline:
                raise Failed(f"{what} was not ready within {seconds:g} s")
            time.sleep(0.1)

    def _note(self, what: str) -> None:
        self._times[what] = round(time.monotonic() - self._began, 1)

    def _reap(self) -> None:
        """Wait for children; as process 1 also for orphans, such as those of the container runtime."""
        while True:
            pid, status = os.wait()
            if pid in self._components:
                name = self._components[pid]
                code = os.waitstatus_to_exitcode(status)
                raise Failed(f"{name} ended with {code}: {last_line(self._at.state / 'log' / f'{name}.log')}")

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "--address", str(self._at.containerd_socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, capture_output=True, text=True)

    def _is_node_ready(self) -> bool:
        answer = self._ask(f"/api/v1/nodes/{components.NODE}")
        conditions = json.loads(answer)["status"].get("conditions", []) if answer else []
        return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> str | None:
        """The API server, as administrator; None while it does not answer."""
        pki = self._at.pki
        try:
            context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
            context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
            https = urllib.request.HTTPSHandler(context=context)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(self._at.server + path, data, {"Content-Type": "application/json"})
            with opener.open(request, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None


def make_mounts(at: Layout) -> None:
    # A /sys with the devices of this network, and the machine's cgroups in it.
    (at.state / "sys").mkdir()
    run("mount", "-t", "sysfs", "sysfs", f"{at.state}/sys")
    run("mount", "--rbind", "/sys/fs/cgroup", f"{at.state}/sys/fs/cgroup")
    run("mount", "--move", f"{at.state}/sys", "/sys")
    for directory in PRIVATE:
        run("mount", "-t", "tmpfs", "tmpfs", directory)
    # Images and what containers write: in memory, since it is many files, whose removal took most of a minute.
    for directory in IN_MEMORY:
        (at.state / directory).mkdir()
        run("mount", "-t", "tmpfs", "-o", "mode=0755,size=100%", "tmpfs", f"{at.state}/{directory}")
    volumes = at.state / "volumes"
    volumes.mkdir(mode=0o755)
    os.chown(volumes, components.APP_USER, components.APP_USER)
    run("mount", "--bind", str(volumes), str(components.VOLUMES))
    for key, value in KERNEL_SETTINGS.items():
        if Path("/proc/sys", key).read_text().strip() != value:
            write(at.state / "sysctl" / key, value + "\n")
            run("mount", "--bind", f"{at.state}/sysctl/{key}", f"/proc/sys/{key}")
    for hierarchy in cgroup_hierarchies():
        (hierarchy / at.cgroup).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # version 1 begins with none, and takes no process then
            inherited = hierarchy / file
            if inherited.exists() and inherited.read_text().strip():
                (hierarchy / at.cgroup / file).write_text(inherited.read_text())
    run("mount", "--make-rshared", "/")  # inside only; for volumes with mountPropagation


def cgroup_hierarchies() -> list[Path]:
    top = Path("/sys/fs/cgroup")
    if (top / "cgroup.controllers").exists():
        return [top]
    return sorted(path for path in top.iterdir() if path.is_dir() and not path.is_symlink())


def make_network() -> None:
    run("ip", "link", "add", components.NODE_LINK, "type", "bridge")
    run("ip", "addr", "add", f"{components.NODE_IP}/24", "dev", components.NODE_LINK)
    for link in ("lo", components.NODE_LINK):
        run("ip", "link", "set", link, "up")
    # Services need a route before kube-proxy's rules turn them into pods. There is no other way out: a pod that asks
    # for one is told so at once.
    run("ip", "route", "add", components.SERVICE_CIDR, "dev", components.NODE_LINK)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # The answer of a pod to its neighbour on the bridge must pass the translation of addresses again.
    Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")


def write(path: Path, content: str | dict[str, Any]) -> None:
    """As a whole: who sees the name sees all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))
    beside.rename(path)


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1].strip()[-400:] if lines else 'it said nothing'} ({log})"


def main(state: Path, descriptor: int | None) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    layout = Layout.load((state / "layout.json").read_text())
    listener = None if descriptor is None else socket.socket(fileno=descriptor)
    try:
        Supervisor(layout).run(listener)
    except (Failed, OSError) as failure:
        write(state / "failed", str(failure))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
