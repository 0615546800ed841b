"""What the torture test shares with the tests of the cluster."""

from tests.cluster.conftest import kernels_are_compiled

__all__ = ["kernels_are_compiled"]
