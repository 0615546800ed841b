"""The engine's thread: takes durable groups from the log, steps the engine, applies views, writes history, commits.

Everything that touches the engine runs here, between epochs, so nothing in the engine needs a lock: other threads
hand over closures (`call`) and wait. A view that cannot be computed is set aside (`FailedViews`). Any other failure
stops the whole database and is given to everyone who waits; nothing goes on silently.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from belvedere import allocator
from belvedere.embedded.builds import Builds, no_room
from belvedere.embedded.failed_views import FailedViews
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.repairs import Repairs
from belvedere.embedded.storage.changelog import Changelog
from belvedere.embedded.storage.commit import Group
from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.delta import Changes, Delta
from belvedere.engine.engine import Engine, ViewsFailed
from belvedere.engine.operators.view import Quarantined, ViewDelta
from belvedere.engine.vec import concat
from belvedere.errors import BelvedereError, Closed, Damaged, DiskError
from belvedere.model import change_codec as codec
from belvedere.model.describe import ViewShape
from belvedere.plan.nodes import ViewNode
from belvedere.sql.catalog import Catalog
from belvedere.waiting import Latch, Waiters, Wakeup

T = TypeVar("T")
_RECORD_BYTES = 8 << 20
RETRY_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
GATHER_SECONDS = 0.0005
"""How long the engine gathers groups after it has just computed: one step for several costs little more than for one,
and writers do not wait for the interpreter meanwhile. A reader that waits for an epoch ends it."""

Extra = dict[str, Any]


class _Task:
    """A closure for the engine's thread, and what became of it."""

    def __init__(self, function: Callable[[], Any]):
        self._function = function
        self.done = Latch()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error
        finally:
            self.done.open()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.done.open()


class Runtime:
    """State of a database at its committed epoch, and the thread that moves it on."""

    def __init__(self, engine: Engine, changelog: Changelog, options: DatabaseOptions):
        self.engine, self.changelog, self.options = engine, changelog, options
        self.catalog = Catalog()
        self.tables: dict[str, ViewTable] = {}
        """Tables of the views in service, by name."""
        self.retired: list[ViewTable] = []
        """Versions that are gone, for those who pinned an epoch at which they were there."""
        self.oldest_pin: Callable[[], int | None] = lambda: None
        self.shapes: dict[tuple[str, int], ViewShape] = {}
        self.builds = Builds(self)
        self.failed_views = FailedViews(self)
        self.repairs = Repairs(self)
        self.committed = 0
        self.sequence = 0
        self.steps = 0
        self.processed: Callable[[int, int], None] = lambda rows, size: None
        self.on_stop: Callable[[str], None] = lambda reason: None
        self.between: Callable[[], None] = lambda: None
        """Called between epochs: snapshots and collection."""
        self.built: Callable[[float], None] = lambda seconds: None
        """Called after each piece of a build, with the time that it took."""
        self.requests: Callable[[int], list[Any]] = lambda epoch: []
        """Names of writes up to an epoch that may be repeated, for snapshots."""
        self.failure: str | None = None
        self.waiting_for_room: str | None = None
        self._work = Wakeup()
        self._commits = Waiters()
        self._hurry = Wakeup()
        self._stepped = 0.0
        self._groups: deque[Group] = deque()
        self._tasks: deque[_Task] = deque()
        self._stopping = False
        self._ended = False
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ other threads

    def start(self) -> None:
        # A reader waits for the interpreter's lock up to this long while the engine computes; the default is 5 ms.
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        allocator.keep_freed_memory()
        self._thread = threading.Thread(target=self._run, name="belvedere-epochs", daemon=True)
        self._thread.start()

    def deliver(self, group: Group) -> None:
        """A durable group; called in the order of the log."""
        self._groups.append(group)
        self._work.set()

    def call(self, function: Callable[[], T]) -> T:
        """Run it in the engine's thread between epochs."""
        if self._thread is None or threading.current_thread() is self._thread:
            return function()
        if self._stopping or self.failure is not None:
            raise self.closed()
        task = _Task(function)
        self._tasks.append(task)
        self._work.set()
        self._hurry.set()
        if self._ended and self._withdraw(task):
            raise self.closed()
        task.done.wait()
        if task.error is not None:
            raise task.error
        result: T = task.result
        return result

    def _withdraw(self, task: _Task) -> bool:
        """False if somebody has taken the task, and so answers it."""
        try:
            self._tasks.remove(task)
        except ValueError:
            return False
        return True

    def closed(self) -> Closed:
        return Closed(self.failure or "the database is closed")

    def wait_for(self, epoch: int, timeout: float | None) -> bool:
        """Until the epoch is committed; false if that took too long."""
        if self.committed >= epoch:
            return True
        self._hurry.set()
        done = self._commits.wait_for(lambda: self.committed >= epoch or self.failure is not None, timeout)
        if self.committed < epoch and self.failure is not None:
            raise self.closed()
        return done

    def wait_until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Until the condition, looked at after every commit, holds."""
        self._hurry.set()
        done = self._commits.wait_for(lambda: condition() or self.failure is not None, timeout)
        if self.failure is not None and not condition():
            raise self.closed()
        return done

    def stop(self, reason: str) -> None:
        """Refuse everything from now on, for this reason."""
        if self.failure is None:
            self.failure = reason
        self._work.set()
        self._fail_tasks(self.closed)
        self.notify()

    def _fail_tasks(self, error: Callable[[], BaseException]) -> None:
        for task in self._waiting_tasks():
            task.fail(error())

    def _waiting_tasks(self) -> list[_Task]:
        taken: list[_Task] = []
        try:
            while True:
                taken.append(self._tasks.popleft())
        except IndexError:
            return taken

    def finish(self, timeout: float | None = None) -> None:
        """Process all that was delivered, then end the thread."""
        self._stopping = True
        self._work.set()
        if self._thread is not None:
            self._thread.join(timeout)

    @property
    def backlog(self) -> int:
        return sum(g.rows for g in list(self._groups))

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self.failed_views.announce_late()
            while self._turn():
                pass
        except BaseException as error:
            reason = f"the database stopped: {type(error).__name__}: {error}"
            self.stop(reason)
            self.on_stop(reason)
            if not isinstance(error, (OSError, BelvedereError)):
                raise  # a bug: its traceback helps
        finally:
            # in this order: a task that is handed over later is withdrawn by its caller
            self._ended = True
            self._fail_tasks(self.closed)

    def _turn(self) -> bool:
        """One piece of work; false when there is none and none will come."""
        while not (self._groups or self._tasks or self._stopping or self.failure or self.builds.busy):
            self._work.wait()
        self._gather()
        if self.failure is not None:
            return False
        stopping, tasks, groups = self._stopping, self._waiting_tasks(), self._take()
        idle = stopping and not groups and not tasks
        if idle:
            return False
        for task in tasks:
            task.run()
        if groups:
            self.process(groups)
            self.between()
        if self.builds.busy:
            started = time.monotonic()
            self.builds.advance()
            self.built(time.monotonic() - started)
        return True

    def _gather(self) -> None:
        """Under load, let more groups come. One that comes alone is computed at once."""
        if self._tasks or self._stopping or self.failure or self.builds.busy or self._commits.waiting:
            return
        left = self._stepped + GATHER_SECONDS - time.monotonic()
        if left > 0:
            self._hurry.wait(left)

    def _take(self) -> list[Group]:
        """Groups for one step: several at once when the engine lags, DDL alone."""
        taken: list[Group] = []
        rows = 0
        while self._groups:
            group = self._groups[0]
            if taken and (is_ddl(group) or rows + group.rows > self.options.epoch_rows):
                break
            taken.append(self._groups.popleft())
            rows += group.rows
            if is_ddl(group):
                break
        return taken

    def process(self, groups: Sequence[Group]) -> None:
        """One epoch: that of the last group."""
        last = groups[-1]
        if is_ddl(groups[0]):
            self.builds.apply(last.epoch, groups[0].entries[0].meta)
        else:
            changes = self._merge(groups)
            try:
                deltas = self.engine.step(last.epoch, changes)
            except ViewsFailed as failure:
                self.failed_views.set_aside(groups, failure)
            else:
                self.commit(last.epoch, deltas, self.failed_views.take_extra())
        self.sequence = last.sequence
        self.steps += 1
        self._stepped = time.monotonic()
        self.processed(sum(g.rows for g in groups), sum(g.nbytes for g in groups))

    def _merge(self, groups: Sequence[Group]) -> dict[str, Changes]:
        """Changes by table, in the order of the log."""
        parts: dict[str, list[Changes]] = {}
        for group in groups:
            for entry in group.entries:
                assert entry.table is not None and entry.changes is not None
                table = self.catalog.tables.get(entry.table)
                if table is None:
                    raise Damaged(f"the input log writes to table {entry.table!r}, which does not exist at that point")
                parts.setdefault(entry.table, []).append(codec.widen(table, entry.changes))
        return {name: merge_changes(found) for name, found in parts.items()}

    def commit(
        self,
        epoch: int,
        deltas: Mapping[ViewNode, ViewDelta],
        extra: Extra | None = None,
        before_publishing: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply what a step gave, write it to the history, and let readers see it."""
        touched: list[tuple[ViewTable, ViewDelta]] = []
        for node, delta in deltas.items():
            table = self.builds.hidden(node)
            if table is not None:
                table.apply_now(delta.chunks, delta.quarantine)
                continue
            table = self.tables[node.name]
            touched.append((table, delta))
            table.begin(epoch, delta.chunks, delta.quarantine, spilled=delta.chunks.spilled)
        if epoch > self.changelog.epoch:
            rows = ((t.shape, chunk) for t, d in touched for chunk in d.chunks)
            self.record(epoch, rows, [(t.shape, q) for t, d in touched for q in d.quarantine], extra)
        before_publishing()
        self.publish(epoch)
        for table, _ in touched:
            table.finish()
        for delta in deltas.values():
            delta.chunks.close()

    def retire(self, tables: Sequence[ViewTable], epoch: int) -> None:
        """Versions that end with this epoch; kept while somebody holds a pin on an older one."""
        pin = self.oldest_pin()
        for table in tables:
            table.until = epoch
        kept = [*self.retired, *tables] if pin is not None else []
        self.retired = [t for t in kept if t.until is not None and pin is not None and pin < t.until]

    def publish(self, epoch: int) -> None:
        """The epoch is committed."""
        self.committed = epoch
        self._commits.notify()

    def notify(self) -> None:
        """Wake those who wait for a condition."""
        self._commits.notify()

    # ------------------------------------------------------------------ history

    def record(
        self,
        epoch: int,
        rows: Iterator[tuple[ViewShape, Delta]],
        quarantine: Sequence[tuple[ViewShape, Quarantined]] = (),
        extra: Extra | None = None,
    ) -> None:
        """Write one epoch to the changelog, in records of bounded size."""
        parts: list[tuple[ViewShape, Delta]] = []
        size = 0
        for part in rows:
            parts.append(part)
            size += part[1].nbytes()
            if size >= _RECORD_BYTES:
                self._append(epoch, parts, None, (), more=True)
                parts, size = [], 0
        self._append(epoch, parts, extra, quarantine, more=False)

    def _append(
        self,
        epoch: int,
        parts: list[tuple[ViewShape, Delta]],
        extra: Extra | None,
        quarantine: Sequence[tuple[ViewShape, Quarantined]],
        more: bool,
    ) -> None:
        while True:
            try:
                self.changelog.append(epoch, parts, extra, quarantine=quarantine, more=more)
            except OSError as error:
                if not no_room(error):
                    raise
                # views wait until there is room again; their input is durable, so nothing is lost
                self.pause(f"the history of views cannot be written: {error}")
            else:
                self.waiting_for_room = None
                return

    def pause(self, reason: str) -> None:
        """Wait a little for room on the disk; ends the thread if the database is closed meanwhile."""
        self.waiting_for_room = reason
        self.notify()
        self._fail_tasks(lambda: DiskError(f"the database waits for room on the disk: {reason}"))
        end = time.monotonic() + RETRY_SECONDS
        while (left := end - time.monotonic()) > 0:
            if self.failure is not None or self._stopping:
                raise Closed(self.failure or reason)
            self._work.wait(left)


def is_ddl(group: Group) -> bool:
    return group.entries[0].alone


def merge_changes(parts: Sequence[Changes]) -> Changes:
    """Changes of one table, one after the other."""
    if len(parts) == 1:
        return parts[0]
    columns = tuple(concat([p.columns[i] for p in parts]) for i in range(len(parts[0].columns)))
    present = tuple(_masks([(p.present[i], len(p)) for p in parts], True) for i in range(len(columns)))
    delete = _masks([(p.delete, len(p)) for p in parts], False)
    return Changes(columns, present, delete, np.concatenate([p.ts for p in parts]))


def _masks(parts: Sequence[tuple[np.ndarray | None, int]], default: bool) -> np.ndarray | None:
    if all(mask is None for mask, _ in parts):
        return None
    return np.concatenate([np.full(n, default) if mask is None else mask for mask, n in parts])
