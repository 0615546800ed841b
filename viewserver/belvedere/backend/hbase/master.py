"""Calls to the active master: found in ZooKeeper, found again when it has moved; procedures are waited for."""

from __future__ import annotations

import threading
from typing import Any

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import MASTER, Server
from belvedere.backend.hbase.faults import Refused, RemoteFault, remote_fault
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.zookeeper import Registry
from belvedere.errors import StoreUnavailable
from belvedere.retry import Backoff, Deadline, Retry, poll

_RUNNING = 1


class Master:
    """`timeout`: seconds that a call may take with its repetitions, and a procedure until it has ended."""

    def __init__(self, registry: Registry, pool: ConnectionPool, timeout: float = 60.0) -> None:
        self._registry, self._pool, self._timeout = registry, pool, timeout
        self._lock = threading.Lock()
        self._server: Server | None = None

    def call(self, method: str, request: Any, answer: Any) -> Any:
        """A call that may be repeated: it asks, or carries a nonce, or repeats to the same effect."""

        def attempt() -> Any:
            server = self._where()
            try:
                with self._pool.connection(server, MASTER) as connection:
                    return connection.call(method, request, answer)[0]
            except Refused:
                raise
            except RemoteFault as fault:
                raise _Again(str(fault)) from fault
            except StoreUnavailable as problem:
                with self._lock:
                    self._server = None
                raise _Again(str(problem)) from problem

        retry = Retry(f"hbase {method}", on=(_Again,), deadline=Deadline(self._timeout), backoff=Backoff(0.05, 1.0))
        return retry.run(attempt)

    def run(self, method: str, request: Any) -> None:
        """A call that starts a procedure; returns when that has ended, raises why it failed."""
        self.wait(self.call(method, request, messages.ProcedureAnswer).proc_id, method)

    def wait(self, procedure: int, what: str) -> None:
        result: Any = None

        def ended() -> bool:
            nonlocal result
            request = messages.ProcedureRequest(proc_id=procedure)
            result = self.call("getProcedureResult", request, messages.ProcedureResult)
            return bool(result.state != _RUNNING)

        if not poll(ended, Deadline(self._timeout), Backoff(0.02, 0.2)):
            raise StoreUnavailable(f"hbase {what}: procedure {procedure} runs for more than {self._timeout:g} s")
        if result.HasField("exception"):
            problem = result.exception.generic_exception
            raise remote_fault(what, problem.class_name, problem.message, True)

    def _where(self) -> Server:
        with self._lock:
            if self._server is None:
                try:
                    self._server = self._registry.master()
                except StoreUnavailable as problem:
                    raise _Again(str(problem)) from problem
            return self._server


class _Again(StoreUnavailable):
    """The master may have moved, or may not be ready; ask again."""
