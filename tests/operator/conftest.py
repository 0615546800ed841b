"""Fixtures of the operator's tests: a real API server that has the definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kube.cluster import Cluster
from tests.kube.fixtures import control_plane, namespace

CRDS = Path(__file__).resolve().parents[2] / "crds"

__all__ = ["control_plane", "crds", "namespace"]


@pytest.fixture(scope="session")
def crds(control_plane: Cluster) -> Cluster:
    """The control plane with our definitions."""
    control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    control_plane.established(*(f"{kind}.belvedere.dev" for kind in ("basetables", "materializedviews", "viewpools")))
    return control_plane
