"""Fixtures that tests of the cluster share."""

from __future__ import annotations

from tests.cluster.zookeeper_server import zookeeper_server

__all__ = ["zookeeper_server"]
