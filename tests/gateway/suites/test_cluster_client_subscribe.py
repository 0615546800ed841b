"""The tests of the same name in tests/cluster, over HTTP."""

from tests.cluster.test_client_subscribe import *  # noqa: F403
