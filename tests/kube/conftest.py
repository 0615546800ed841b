"""Fixtures of the tests of Kubernetes."""

from __future__ import annotations

from tests.kube.fixtures import control_plane, namespace, node

__all__ = ["control_plane", "namespace", "node"]
