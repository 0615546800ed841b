"""What a machine must have for a cluster, and one line about what it lacks.

The control plane alone needs nothing but the executables (`binaries.py`): it is a handful of processes on loopback. A
node needs root, for namespaces and containers, and a few packages of Debian.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CNI_PLUGINS = Path("/usr/lib/cni")
NODE_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
}
IMAGE_PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""Executables, and the Debian packages that they are in."""


def cache() -> Path:
    """Where everything is kept that outlives a checkout; the Makefile and the tests agree on it."""
    given = os.environ.get("BELVEDERE_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "belvedere"


def find(executable: str) -> str | None:
    """As `which`, but also where Debian keeps what only root needs."""
    return shutil.which(executable, path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin:/usr/sbin:/sbin")


def missing_packages() -> list[str]:
    needed = NODE_PACKAGES | IMAGE_PACKAGES
    return sorted({package for executable, package in needed.items() if find(executable) is None})


def missing_for_node() -> str | None:
    """One line about why no node can run here; None: it can."""
    lacking = sorted({package for executable, package in NODE_PACKAGES.items() if find(executable) is None})
    if os.name != "posix" or os.uname().sysname != "Linux":
        return f"a Kubernetes node needs Linux, and this is {os.uname().sysname}"
    if os.geteuid() != 0:
        return "a Kubernetes node needs root, for namespaces and containers; BELVEDERE_E2E_KUBECONFIG names another"
    if lacking:
        return f"a Kubernetes node needs the packages {', '.join(lacking)}: 'make kube-packages' installs them"
    return None


def missing_for_images() -> str | None:
    lacking = sorted({package for executable, package in IMAGE_PACKAGES.items() if find(executable) is None})
    if os.geteuid() != 0:
        return "images are built by root"
    if lacking:
        return f"images need the packages {', '.join(lacking)}: 'make kube-packages' installs them"
    return None
