"""The tests of the same name in tests/cluster, over HTTP."""

from tests.cluster.test_client import *  # noqa: F403
