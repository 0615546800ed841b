"""One look at the store for all who ask at the same time.

Whoever asks needs an answer that is not older than the question. So a look that has begun before is of no use, but the
next one serves all who have come by then: requests of a hundred regions cost two looks, and not a hundred.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Thread-safe. A look that fails is the failure of the one who did it; the others look again."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._changed = threading.Condition()
        self._begun = 0
        self._under_way = False
        self._seen: tuple[int, T] | None = None

    def __call__(self) -> T:
        with self._changed:
            needed = self._begun + 1
            while True:
                if self._seen is not None and self._seen[0] >= needed:
                    return self._seen[1]
                if not self._under_way:
                    break
                self._changed.wait()
            self._begun += 1
            number, self._under_way = self._begun, True
        try:
            found = self._look()
            with self._changed:
                self._seen = number, found
            return found
        finally:
            with self._changed:
                self._under_way = False
                self._changed.notify_all()
