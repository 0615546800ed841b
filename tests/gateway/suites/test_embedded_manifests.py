"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_manifests import *  # noqa: F403
