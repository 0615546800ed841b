"""Which engines a process of Spark has: driver and executors come from images of their own, and may be of another
version than the pool. Bytes that they read or write are those of the pool's engine."""

from __future__ import annotations

from belvedere.engine.version import ENGINE_VERSION, OLDEST_ENGINE_VERSION
from belvedere.errors import DataError
from belvedere.protocol.engines import engine_objection

UNTOLD = 0
"""The engine of a pool that did not tell it."""


def require_engine(engine: int, oldest: int = OLDEST_ENGINE_VERSION, newest: int = ENGINE_VERSION) -> None:
    """Raise if this process lacks the engine of a pool; called in tasks, too, as executors may be of another image."""
    objection = "" if engine == UNTOLD else engine_objection(engine, oldest, newest)
    if objection:
        raise DataError(
            f"this process of Spark cannot work on the pool: {objection}. Driver and executors need an image "
            "(belvedere-spark) of a version that members of the pool have"
        )
