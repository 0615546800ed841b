"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run, whoever runs them, and no limit on the clock: machines are busy at times.
settings.register_profile("belvedere", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("belvedere")
