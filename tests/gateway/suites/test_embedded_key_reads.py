"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_key_reads import *  # noqa: F403
