"""Clusters for tests. A `conftest.py` that imports these names makes them known:

    from tests.kube.fixtures import control_plane, namespace, node

Each is started once per process that runs tests, and ends with it. What is missing on a machine is said in one line,
and the test is skipped. Nothing is compiled here: `make test` does that before, `make kube-build` by itself.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.zookeeper_server import require_zookeeper
from tests.kube import binaries, cluster, images, requirements
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import CommandFailed, Kubernetes


def require_binaries() -> binaries.Binaries:
    found = binaries.existing()
    if found is None:
        pytest.skip("Kubernetes is not compiled yet: 'make kube-build' does it, in about 8 minutes, with Go")
    return found


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """API server, controllers and scheduler on this machine's loopback; no nodes, so pods stay Pending.

    Shared: work in a `namespace`. Webhooks are reached by URL; the API server reaches what listens on 127.0.0.1.
    """
    state = tmp_path_factory.mktemp("control-plane") / "state"
    running = cluster.up_control_plane(state, require_binaries(), ends_with_parent=True)
    yield running
    running.down()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A Kubernetes that runs pods, with the project's images: the one that BELVEDERE_E2E_KUBECONFIG names, or a node of
    this run."""
    named = os.environ.get("BELVEDERE_E2E_KUBECONFIG")
    if named:
        yield Kubernetes(Path(named), None)
        return
    executables = require_binaries()
    for missing in (requirements.missing_for_node(), requirements.missing_for_images()):
        if missing:
            pytest.skip(missing)
    require_zookeeper()
    archives = [images.pause_archive(executables), images.zookeeper_archive()]
    archives += [images.archive_of(image) for image in (images.BELVEDERE, images.OPERATOR)]
    state = tmp_path_factory.mktemp("node") / "state"
    running = cluster.up_node(state, executables, archives, ends_with_parent=True)
    yield running
    running.down()


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A namespace of its own; it is deleted afterwards, which nobody waits for."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.kubectl("create", "namespace", name)
    yield name
    with contextlib.suppress(CommandFailed):
        control_plane.kubectl("delete", "namespace", name, "--wait=false")
