"""The load of pools over the last seconds, asked for when it is needed and not more often than that makes sense."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from belvedere_operator.decide.load import WINDOW_S, Sample
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.reconcile.resources import PoolKey

APART_S = 1.0


class Sampling:
    """May be used by many threads. Errors of the gateway go to whoever asks."""

    def __init__(self, gateways: Gateways, clock: Callable[[], float] = time.monotonic) -> None:
        self._gateways, self._clock = gateways, clock
        self._samples: dict[PoolKey, deque[Sample]] = {}
        self._lock = threading.Lock()

    def of(self, key: PoolKey) -> list[Sample]:
        """With one of now."""
        now = self._clock()
        with self._lock:
            samples = self._samples.setdefault(key, deque())
            if samples and now - samples[-1].at < APART_S:
                return list(samples)
        load = self._gateways.of(key).load()
        with self._lock:
            samples.append(Sample(now, load))
            while samples[0].at < now - WINDOW_S:
                samples.popleft()
            return list(samples)

    def forget(self, key: PoolKey) -> None:
        with self._lock:
            self._samples.pop(key, None)
