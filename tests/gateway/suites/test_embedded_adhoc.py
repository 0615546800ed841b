"""The tests of the same name in tests/embedded, over HTTP."""

from tests.embedded.test_adhoc import *  # noqa: F403
from tests.embedded.test_adhoc import _database  # noqa: F401
