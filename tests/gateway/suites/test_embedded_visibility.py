"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_visibility import *  # noqa: F403
