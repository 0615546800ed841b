"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_refused_views import *  # noqa: F403
