"""The executables of a cluster: compiled from source with Go, once per version, into the cache.

One executable holds every component, so that one build compiles what they share once. A cold build takes some 14
minutes of CPU and is started early, at low priority; whoever needs the result meanwhile waits for it. A directory is
named after the sources (go.sum has the digests of all that is downloaded) and the version of Go, and appears when it is
complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kube.requirements import cache, find

MODULE = Path(__file__).parent / "hyperkube"
PREFIX = "hyperkube-"
KUBERNETES, HELM = "k8s.io/kubernetes", "helm.sh/helm/v3"
RECIPE = b"2"
"""Grows with every change below that gives other executables from the same sources."""
KEEP = 3
"""Versions that are kept, 200 MB each."""
NICENESS = 15
"""Tests that run beside a build must not notice it."""


class NotBuilt(Exception):
    """There are no executables, and they cannot be had here; the message is one line for people."""


@dataclass(frozen=True)
class Binaries:
    directory: Path

    @property
    def hyperkube(self) -> Path:
        return self.directory / "hyperkube"

    @property
    def kubectl(self) -> Path:
        return self.directory / "kubectl"

    @property
    def helm(self) -> Path:
        return self.directory / "helm"

    @property
    def pause(self) -> Path:
        """The first process of every pod; linked statically."""
        return self.directory / "pause"


def existing() -> Binaries | None:
    """What an earlier build left. Without Go, any version's will do."""
    go = _go_version()
    for directory in sorted(cache().glob(f"{PREFIX}{_sources()}-{go or '*'}")):
        return Binaries(directory)
    return None


def build() -> Binaries:
    """Compile, if nobody has; a second one waits for the first."""
    found = existing()
    if found is None:
        go = find("go")
        if go is None:
            raise NotBuilt("Kubernetes is compiled here, and there is no Go: install Go 1.21 or newer")
        with _alone():
            found = existing() or _build(go)
    return found


def _build(go: str) -> Binaries:
    steps = (
        ("hyperkube", ".", _kubernetes_version(go)),
        ("helm", f"{HELM}/cmd/helm", _helm_version(go)),
        ("pause", "./pause", ""),
    )
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}building-", dir=cache()))
    try:
        for executable, package, variables in steps:
            print(f"compiling {executable}", file=sys.stderr, flush=True)
            command = [
                go,
                "build",
                "-trimpath",
                "-ldflags",
                f"-s -w {variables}",
                "-o",
                str(made / executable),
                package,
            ]
            done = subprocess.run(["nice", "-n", str(NICENESS), *command], cwd=MODULE, env=_environment())
            if done.returncode:
                raise NotBuilt(
                    f"Kubernetes could not be compiled: 'go build' of {executable} failed, and said why above"
                )
        (made / "kubectl").symlink_to("hyperkube")
        made.chmod(0o755)
        made.rename(final := cache() / f"{PREFIX}{_sources()}-{_go_version()}")
        _prune()
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return Binaries(final)


def _prune() -> None:
    """Keep those built last: other checkouts may be of other versions."""
    built = sorted(cache().glob(f"{PREFIX}*/hyperkube"), key=lambda path: path.stat().st_mtime, reverse=True)
    for executable in built[KEEP:]:
        shutil.rmtree(executable.parent, ignore_errors=True)


@contextmanager
def _alone() -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{PREFIX}lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0"}


def _sources() -> str:
    files = sorted(path for path in MODULE.rglob("*") if path.suffix in (".go", ".mod", ".sum"))
    whole = hashlib.sha256(RECIPE)
    for path in files:
        whole.update(f"{path.relative_to(MODULE)}\0".encode() + path.read_bytes() + b"\0")
    return whole.hexdigest()[:16]


def _go_version() -> str | None:
    go = find("go")
    if go is None:
        return None
    text = subprocess.run([go, "env", "GOVERSION"], cwd=MODULE, capture_output=True, text=True).stdout
    return re.sub(r"[^\w.]", "-", text.strip()) or None


def _version(go: str, module: str) -> str:
    listed = subprocess.run(
        [go, "list", "-m", "-f", "{{.Version}}", module], cwd=MODULE, capture_output=True, text=True, env=_environment()
    )
    if listed.returncode:
        raise NotBuilt(f"Kubernetes could not be compiled: {listed.stderr.strip().splitlines()[-1]}")
    return listed.stdout.strip()


def _helm_version(go: str) -> str:
    """What helm calls itself, and for which Kubernetes it renders where it asks none."""
    major, minor = _version(go, KUBERNETES).removeprefix("v").split(".")[:2]
    stamps = {"internal/version.version": _version(go, HELM)}
    for package in ("pkg/chartutil", "pkg/lint/rules"):
        stamps |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    return " ".join(f"-X {HELM}/{name}={value}" for name, value in stamps.items())


def _kubernetes_version(go: str) -> str:
    """What the components call themselves; clients compare it."""
    version = _version(go, KUBERNETES)
    major, minor = version.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
