"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_failing_calls import *  # noqa: F403
