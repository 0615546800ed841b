"""The gateways of pools, one client each, found by a rule: the Service that the operator has made."""

from __future__ import annotations

import threading
from collections.abc import Callable

from belvedere_operator.build.network import gateway_url
from belvedere_operator.gateway import Credentials, Gateway
from belvedere_operator.reconcile.resources import PoolKey

Locate = Callable[[PoolKey], str]


def by_service(key: PoolKey) -> str:
    namespace, pool = key
    return gateway_url(pool, namespace)


class Gateways:
    """May be used by many threads."""

    def __init__(
        self, credentials: Credentials | None = None, locate: Locate = by_service, timeout: float = 20.0
    ) -> None:
        self._credentials, self._locate, self._timeout = credentials or Credentials(), locate, timeout
        self._found: dict[PoolKey, Gateway] = {}
        self._lock = threading.Lock()

    def of(self, key: PoolKey) -> Gateway:
        with self._lock:
            if key not in self._found:
                self._found[key] = Gateway(self._locate(key), self._credentials, timeout=self._timeout)
            return self._found[key]

    def forget(self, key: PoolKey) -> None:
        with self._lock:
            found = self._found.pop(key, None)
        if found is not None:
            found.close()
