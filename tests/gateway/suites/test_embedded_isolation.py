"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_isolation import *  # noqa: F403
