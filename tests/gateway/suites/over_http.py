"""A database behind a gateway, for tests that were written for one in this process."""

from __future__ import annotations

import contextlib
from typing import Any

import belvedere
from belvedere.gateway.client.database import HttpDatabase
from belvedere.gateway.databases import EmbeddedDatabase, PoolDatabase
from tests.gateway.serving import serving


class OverHttp:
    """What the client has is asked of the client, over HTTP; what only the database itself has (its pins, its files),
    of the database. Both end together."""

    def __init__(self, local: Any, *, pool: bool = False, read_only: bool = False, timeout: float = 30.0) -> None:
        self.local = local
        with contextlib.ExitStack() as stack:
            stack.callback(local.close)
            behind = PoolDatabase(local) if pool else EmbeddedDatabase(local, read_only=read_only)
            served = stack.enter_context(serving(behind))
            self.client = stack.enter_context(belvedere.connect(served.url, timeout=timeout))
            self._end = stack.pop_all()

    def __getattr__(self, name: str) -> Any:
        here = hasattr(HttpDatabase, name) or name in vars(self.client)
        return getattr(self.client if here else self.local, name)

    def close(self) -> None:
        self._end.close()

    def __enter__(self) -> OverHttp:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
