"""A database that is open for writing: its parts, and the thread that opens them, writes the log and closes them.

Users' threads may be interrupted at any bytecode, so nothing that must not be torn happens in them: they hand over
and wait (`belvedere.waiting`). The instance knows its owner, the `Database`, only weakly: if that is gone before it
was closed (an interrupt between opening and the assignment, say), the thread closes everything all the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.pins import PinLeases
from belvedere.embedded.recovery import Recovery
from belvedere.embedded.runtime import Runtime
from belvedere.embedded.snapshots import Checkpointer
from belvedere.embedded.storage.changelog import Changelog
from belvedere.embedded.storage.commit import Committer, GroupEntry, MicroClock
from belvedere.embedded.storage.faulty import MemoryFiles
from belvedere.embedded.storage.files import Files, OsFiles
from belvedere.embedded.storage.log import InputLog
from belvedere.engine.engine import Engine
from belvedere.errors import BelvedereError, Closed, DiskError, Locked
from belvedere.model import ddl, rows
from belvedere.model.requests import Requests
from belvedere.model.token import Token
from belvedere.waiting import Waiters, start_thread

GIVE_UP_SECONDS = 5.0
"""How long an interrupted `open` waits until the files are let go."""


class Instance:
    """Made by the owner's thread, filled by its own: after `open` all parts are there."""

    runtime: Runtime
    committer: Committer
    snapshots: Checkpointer | None = None
    log: InputLog | None = None

    def __init__(
        self, owner: object, path: str | os.PathLike[str] | None, options: DatabaseOptions, files: Files | None
    ):
        self._path, self._options, self._files = path, options, files
        self.in_memory = files is None and (path is None or str(path) == ":memory:")
        self.clock = MicroClock(options.clock)
        self.rows: dict[str, rows.GivenRows] = {}
        """What checks the rows of each table; changed in the order of the log."""
        self.recovered: dict[str, Any] = {}
        self._requests: Requests | None = None
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        # `put` is C: not even a finalizer that is interrupted can lose this message
        self._owner = weakref.ref(owner, self._inbox.put)
        self._changed = Waiters()
        self._begun = threading.Lock()
        self._opened = False
        self._ended = False
        self._closing = False
        self._snapshot = False
        self._error: BaseException | None = None

    # ------------------------------------------------------------------ the owner's thread

    def open(self) -> None:
        """Returns when everything is recovered and running."""
        start_thread(self._run, "belvedere-log", self._end)
        self._changed.wait_for(lambda: self._opened or self._ended)
        self._raise()

    def give_up(self) -> None:
        """After an interrupt of `open`: let go of the files, and wait a little for that."""
        self._closing = True
        self._inbox.put(None)
        if not self._begun.acquire(blocking=False):
            self._changed.wait_for(lambda: self._ended, GIVE_UP_SECONDS)

    def close(self) -> None:
        """Returns when everything is closed; may be called again, also after an interrupt."""
        self._snapshot = self._closing = True
        self._inbox.put(None)
        self._changed.wait_for(lambda: self._ended)
        self._raise()

    def _raise(self) -> None:
        """Whoever waits first hears of the error."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    # ------------------------------------------------------------------ its own thread

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return  # given up before it began
        error: BaseException | None = None
        try:
            with contextlib.ExitStack() as parts:
                self._start(parts)
                self._opened = True
                self._changed.notify()
                self.committer.run()
                while not (self._closing or self._owner() is None):
                    self._inbox.get()  # it stopped by itself: whoever owns it wants to read why
                self._finish()
        except BaseException as failure:
            error = failure
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        self._error, self._ended = error, True
        self._changed.notify()

    def given_up(self) -> bool:
        """While it opens: nobody waits for it any more."""
        return not self._inbox.empty()

    def _start(self, parts: contextlib.ExitStack) -> None:
        options, path = self._options, self._path
        if self._files is None:
            self._files = MemoryFiles() if self.in_memory else _directory(Path(path or ""))
        files = self._files
        lock = files.lock("LOCK")
        if lock is None:
            raise Locked(f"database {str(path)!r} is open for writing in another process; read it with read_only=True")
        parts.callback(lock.release)
        self.leases = PinLeases(None if self.in_memory else files)
        if not self.in_memory:
            self.log = InputLog(files, sync=options.sync, segment_bytes=options.segment_bytes)
            parts.callback(self.log.close)
        engine = Engine(
            memory_limit=options.memory_limit,
            spill_directory=files.root / "spill" if isinstance(files, OsFiles) else None,
            threads=options.threads,
            tombstone_retention_ms=options.tombstone_retention_ms,
        )
        parts.callback(engine.close)
        runtime = self.runtime = Runtime(engine, Changelog(files, segment_bytes=options.segment_bytes), options)
        parts.callback(runtime.changelog.close)
        try:
            history_lost = self._recover(files)
        except OSError as error:
            raise DiskError(f"database {str(path)!r} could not be opened: {error}") from error
        self.rows.update({name: rows.GivenRows(table) for name, table in runtime.catalog.tables.items()})
        self.committer = Committer(
            self.log,
            self.clock,
            runtime.deliver,
            lambda reason: runtime.stop(f"the database stopped: {reason}"),
            backlog_rows=options.backlog_rows,
            backlog_bytes=options.backlog_bytes,
            epoch=runtime.committed,
            sequence=runtime.sequence,
            inbox=self._inbox,
            requests=self._requests,
        )
        runtime.requests = self.committer.requests.to_json
        runtime.processed = self.committer.processed
        runtime.oldest_pin = lambda: self.leases.oldest(self.clock.now() // 1000)
        runtime.on_stop = self.committer.close
        runtime.builds.announce = self._announce
        if history_lost and self.snapshots is not None:
            self.snapshots.take(wait=True, anew=True)
        runtime.start()
        if self.snapshots is not None:
            parts.callback(self.snapshots.join)
        parts.callback(runtime.finish)

    def _recover(self, files: Files) -> bool:
        """True if the history of views began anew, so that reading processes need a snapshot."""
        runtime = self.runtime
        if self.log is None:
            runtime.changelog.open(None, 0)
            return False
        recovery = Recovery(runtime, files, self.log, self.clock, self.given_up)
        recovery.run()
        self._requests = recovery.requests
        taken_over = sum(build["taken_over"] for build in runtime.builds.progress)
        self.recovered = {"records": recovery.records, "rebuilt": recovery.rebuilt, "build_rows": taken_over}
        self.snapshots = Checkpointer(runtime, files, self.log, self.clock, self.leases)
        if recovery.snapshot is not None:
            manifest = recovery.snapshot.manifest
            self.snapshots.epoch, self.snapshots.sequence = manifest["epoch"], manifest["sequence"]
            self.snapshots.size, self.snapshots.count = recovery.snapshot.size, 1
        runtime.between = self.snapshots.between
        runtime.built = self.snapshots.built
        runtime.repairs.files = files
        return recovery.history_lost

    def _announce(self, operation: ddl.Operation) -> Token:
        return self.committer.submit(GroupEntry({"k": "ddl", **operation}, alone=True), unbounded=True)

    def _finish(self) -> None:
        """Bring views up to what was written, and take a snapshot."""
        runtime, snapshots = self.runtime, self.snapshots
        if not self._snapshot or runtime.failure is not None:
            return
        try:
            # a disk without room would be waited for until somebody makes some; the log has everything
            runtime.wait_until(
                lambda: runtime.committed >= self.committer.epoch or runtime.waiting_for_room is not None
            )
            if runtime.waiting_for_room is not None:
                raise DiskError(runtime.waiting_for_room)
            if snapshots is not None and self._options.snapshot:
                runtime.call(lambda: snapshots.take(wait=True))
        except (BelvedereError, OSError) as error:
            raise Closed(f"closed without a snapshot; the log has everything: {error}") from error


def _directory(path: Path) -> OsFiles:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"database directory {str(path)!r} could not be made: {error}") from error
    return OsFiles(path)
