"""Fixtures that tests of the cluster share."""

from __future__ import annotations

import pytest

from tests.cluster.client_pool import db, pool
from tests.cluster.coordination_worlds import world
from tests.cluster.zookeeper_server import zookeeper_server

__all__ = ["db", "pool", "world", "zookeeper_server"]


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled() -> None:
    """Once, before any process needs them: in a new checkout each would compile them for itself, for minutes."""
    from belvedere.engine.warm import warm

    warm()
