"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_failed_views import *  # noqa: F403
