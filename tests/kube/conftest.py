"""Fixtures of the tests of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.fixtures import control_plane, namespace, node
from tests.kube.installed import SHOP, Installed
from tests.kube.kubernetes import Kubernetes

__all__ = ["control_plane", "namespace", "node", "shop"]


@pytest.fixture(scope="session")
def shop(node: Kubernetes) -> Iterator[Installed]:
    """The chart, and the shop of `examples/` with its pool. Tests share it and leave it as they found it; those of
    `test_uninstalled.py` end it."""
    made = Installed(node)
    made.install()
    made.apply_shop()
    yield made
    made.cluster.kubectl("delete", "namespace", SHOP, "--ignore-not-found", "--wait=false")
