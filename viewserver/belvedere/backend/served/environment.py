"""One LMDB directory, opened by one process: transactions, group commit, growth, and what is said when it fails.

LMDB has one writer at a time and an fsync in every commit. So writers queue up, and whoever finds nobody at work leads:
it runs what is queued in one transaction, commits once, wakes the others, and passes the lead on to the first that
queued up meanwhile.

    run(operation) ──▶ QUEUED ──the leader took it──▶ RUNNING ──committed──▶ result
                          └──the lead was passed on──▶ LEADING ──▶ RUNNING     └──failed──▶ error

Steps of merges and collections (`later=True`) have a queue of their own and a transaction for each: nobody's call takes
as long as a step because it was committed with one. The two queues take turns, so neither starves the other.

Why it is safe: a call returns only after the commit that holds it. An operation is a function of the transaction alone,
so it can be run again: when one of a group fails, the transaction is aborted and each is run by itself, and when the
map is full it is made bigger and the group is run again. The map may be exchanged only while no transaction is open;
readers therefore count themselves in and out, and keep their transactions short.

A commit that fails (no room, I/O error) leaves the last committed state: LMDB writes the page that makes a transaction
visible last. What the disk then holds of that page is not known if the write of this very page failed, hence
`StoreUnavailable`: it may have happened. LMDB refuses to go on after that, so it is opened again:

    HEALTHY ──that page could not be written──▶ BROKEN ──opened, and all that is in memory read anew──▶ HEALTHY
                                                └──▲ the disk still fails: the next writer, or a thread after a second,
                                                     tries again

While it is BROKEN nothing is written, and nothing is read but by those who read anew: what is in memory may lack what
was committed last, and a write on top of that would make it lost for good.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

import lmdb

from belvedere.errors import BelvedereError, Closed, Damaged, DiskError, FormatError, Locked, StoreUnavailable

log = logging.getLogger(__name__)

FORMAT = 3
"""What this version writes and reads."""
_FORMER = {1: "views have no order", 2: "base tables have no order"}
MAX_NAME = 480
"""Bytes of a name that is a key (LMDB allows 511 for a whole key)."""

Txn: TypeAlias = Any
Db: TypeAlias = Any
T = TypeVar("T")
Operation: TypeAlias = Callable[[Txn], T]

_GROUP = 1 << 17
"""Weight (rows) of one transaction at most, if it has more than one operation: it holds changed pages in memory."""
_FIRST_MAP = 1 << 28
_DATABASES = tuple(
    "meta documents index order payloads tables sizes shapes runs versions by_key changed notes graves dropped"
    " base_tables base_sources base_log base_acked base_requests".split()
)
_REPAIR_SECONDS = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _Job(Generic[T]):
    def __init__(self, operation: Operation[T], weight: int, then: Callable[[T], Any] | None) -> None:
        self.operation = operation
        self.weight = weight
        self.then = then
        self.woken = threading.Event()
        self.done = False
        self.result: T | None = None
        self.error: BaseException | None = None


class Environment:
    """An LMDB directory with named databases in `db`. Thread-safe."""

    def __init__(self, path: str | Path, *, map_size: int = _FIRST_MAP) -> None:
        self.path = Path(path)
        self._map_size = map_size
        self._mutex = threading.Lock()
        self._queue: list[_Job[Any]] = []
        self._steps: list[_Job[Any]] = []
        self._turn = self._queue
        """From which of the two the leader takes: it finds its own job there."""
        self._leading = False
        self._gate = threading.Condition()
        self._readers = 0
        self._exchanging = False
        self._closed = False
        self._on_reopen: list[Callable[[], None]] = []
        self._broken = self._repairing = False
        self._reloader: int | None = None
        """The thread that reads anew what is in memory."""
        self._ended = threading.Event()
        self._lock = self._take()
        try:
            self._env = self._open()
            self.db = self._databases()
            self.identity = self._check()
        except BaseException:
            os.close(self._lock)
            raise

    # --- opening

    def _take(self) -> int:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "owner.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DiskError(f"the store's directory {self.path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise Locked(f"the store in {self.path} is open already, here or in another process") from None
        return lock

    def _open(self) -> Any:
        existing = self.path / "data.mdb"
        try:
            if existing.exists():
                self._map_size = max(self._map_size, existing.stat().st_size)
            return lmdb.open(
                str(self.path), map_size=self._map_size, max_dbs=len(_DATABASES), max_readers=512, subdir=True
            )
        except lmdb.Error as error:
            raise self._failure(error) from error
        except OSError as error:
            raise StoreUnavailable(f"the store in {self.path} cannot be opened: {error.strerror}") from error

    def _databases(self) -> dict[str, Db]:
        try:
            with self._env.begin(write=True) as txn:
                return {name: self._env.open_db(name.encode(), txn=txn) for name in _DATABASES}
        except lmdb.Error as error:
            raise self._failure(error) from error

    def _check(self) -> str:
        """The identity; given at the first opening, together with the format."""
        meta = self.db["meta"]
        with self._env.begin(write=True) as txn:
            found = txn.get(b"format", db=meta)
            if found is None:
                txn.put(b"format", b"%d" % FORMAT, db=meta)
                txn.put(b"identity", uuid.uuid4().hex.encode(), db=meta)
            elif int(found) > FORMAT:
                raise FormatError(
                    f"the store in {self.path} has format {int(found)}, this version of belvedere reads up to {FORMAT}"
                )
            elif int(found) < FORMAT:
                raise FormatError(
                    f"the store in {self.path} has format {int(found)}, in which {_FORMER[int(found)]}; this version "
                    f"of belvedere reads format {FORMAT}: write its tables to files with the version that made it "
                    "(belvedere scan TABLE --json --url …), and load them into a new directory (belvedere load)"
                )
            identity: bytes = txn.get(b"identity", db=meta)
        if found is None:
            directory = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return identity.decode()

    # --- reading

    @contextmanager
    def reading(self) -> Iterator[Txn]:
        """A read transaction: the state of one moment. Keep it short: pages that it sees cannot be used again."""
        with self._gate:
            while self._exchanging:
                self._gate.wait()
            self._refuse_closed()
            if self._broken and self._reloader != threading.get_ident():
                raise StoreUnavailable(
                    f"the store in {self.path} has to be opened again after a failure; {self._room()}"
                )
            self._readers += 1
        try:
            with self._env.begin() as txn:
                yield txn
        except lmdb.Error as error:
            raise self._failure(error) from error
        finally:
            with self._gate:
                self._readers -= 1
                if not self._readers:
                    self._gate.notify_all()

    # --- writing

    def run(
        self, operation: Operation[T], weight: int = 1, then: Callable[[T], Any] | None = None, *, later: bool = False
    ) -> T:
        """Runs it in a write transaction, perhaps with others, perhaps more than once; returns when it is durable.

        `weight`: about how many rows it writes. `then` is called with the result when it is durable, before anything
        that is committed later; it must not fail. `later`: a step of work that nobody waits for."""
        job = _Job(operation, weight, then)
        with self._mutex:
            queue = self._steps if later else self._queue
            queue.append(job)
            lead = not self._leading
            if lead:
                self._leading, self._turn = True, queue
        if not lead:
            job.woken.wait()
        if not job.done:
            self._lead()
        if job.error is not None:
            raise job.error
        return cast(T, job.result)

    def _lead(self) -> None:
        with self._mutex:
            batch = self._take_next()
        try:
            self._execute(batch)
        finally:
            for job in batch:
                job.done = True
                job.woken.set()
            with self._mutex:
                self._pass_on()

    def _take_next(self) -> list[_Job[Any]]:
        """What goes into the next transaction."""
        count = 1 if self._turn is self._steps else _fitting([job.weight for job in self._queue])
        batch = self._turn[:count]
        del self._turn[:count]
        return batch

    def _pass_on(self) -> None:
        """The lead goes to the first of the other queue, if somebody waits there, else of the same."""
        other = self._queue if self._turn is self._steps else self._steps
        self._turn = other or self._turn
        self._leading = bool(self._turn)
        if self._turn:
            self._turn[0].woken.set()

    def _execute(self, batch: list[_Job[Any]]) -> None:
        try:
            self._transact(batch)
        except BaseException as error:
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                for job in batch:
                    job.error = error
                return
            for job in batch:
                self._execute([job])

    def _transact(self, batch: list[_Job[Any]]) -> None:
        while True:
            self._refuse_closed()
            if self._broken:
                self._reopen()
            try:
                with self._env.begin(write=True) as txn:
                    results = [job.operation(txn) for job in batch]
                break
            except lmdb.MapFullError:
                self._grow()
            except lmdb.PanicError as error:
                self._reopen()
                raise self._failure(error) from error
            except lmdb.Error as error:
                raise self._failure(error) from error
        for job, result in zip(batch, results, strict=True):
            job.result = result
            if job.then is not None:
                try:
                    job.then(result)
                except BaseException as error:
                    job.error = error  # it has happened all the same, so it must not be run again

    # --- growth, failure, the end

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No read transaction is open, and none begins. Called by the leader, so there is no write transaction."""
        with self._gate:
            self._exchanging = True
            while self._readers:
                self._gate.wait()
        try:
            yield
        finally:
            with self._gate:
                self._exchanging = False
                self._gate.notify_all()

    def _grow(self) -> None:
        with self._alone():
            try:
                self._env.set_mapsize(2 * self._map_size)
            except lmdb.Error as error:
                self._broken = True  # there may be no map at all now: whoever touched it would be killed
                self._repair_later()
                raise self._failure(error) from error
            self._map_size *= 2

    def _failure(self, error: Any) -> BelvedereError:
        code = getattr(error, "code", None)
        if isinstance(error, (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError)):
            return Damaged(f"the store in {self.path} is damaged: {error}")
        if isinstance(error, lmdb.VersionMismatchError):
            return FormatError(f"the store in {self.path} was written by another version of LMDB: {error}")
        if code in _NO_ROOM or isinstance(error, lmdb.DiskError):
            return StoreUnavailable(f"the store in {self.path} cannot write: {error}; {self._room()}")
        return StoreUnavailable(f"the store in {self.path} failed: {error}")

    def _room(self) -> str:
        try:
            found = os.statvfs(self.path)
        except OSError as error:
            return f"its disk does not answer: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        return f"its disk is full or failing, {free >> 20} MiB are free"

    def _reopen(self) -> None:
        """After a failure in the middle of its last write LMDB wants to be opened again. Called by the leader."""
        self._broken = True
        try:
            with self._alone():
                self._env.close()
                self._env = self._open()
                self.db.update(self._databases())
            self._reload()
        except BaseException:
            self._repair_later()
            raise
        self._broken = False

    def _reload(self) -> None:
        self._reloader = threading.get_ident()
        try:
            for listener in self._on_reopen:
                listener()
        except BelvedereError:
            raise
        except Exception as error:
            raise StoreUnavailable(
                f"the store in {self.path} was opened again after a failure, but what is in memory could not be read "
                f"anew: {error!r}; it is tried again"
            ) from error
        finally:
            self._reloader = None

    def _repair_later(self) -> None:
        """Somebody has to try again, and perhaps nobody writes: who cannot read does not get so far."""
        with self._mutex:
            if self._repairing:
                return
            self._repairing = True
        threading.Thread(target=self._repair, name="store-repair", daemon=True).start()

    def _repair(self) -> None:
        log.error("the store in %s failed and cannot be opened again yet; it is tried until it can", self.path)
        while not self._ended.wait(_REPAIR_SECONDS):
            with self._mutex:
                if not self._broken:
                    self._repairing = False
                    break
            with suppress(BelvedereError):  # whoever reads or writes is told
                self.run(lambda txn: None)
        else:
            return
        log.warning("the store in %s is open again", self.path)

    def on_reopen(self, listener: Callable[[], None]) -> None:
        """Called when it is not known what was committed last, and has to be read again; nobody writes meanwhile."""
        self._on_reopen.append(listener)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise Closed(f"the store in {self.path} is closed")

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
        self._ended.set()
        self._drain()
        with self._alone():
            self._env.close()
        os.close(self._lock)

    def _drain(self) -> None:
        """Wait until nobody writes: those that are queued are refused one after the other."""
        try:
            self.run(lambda txn: None)
        except Closed:
            return


def _fitting(weights: list[int]) -> int:
    """How many of the first, at least one, make a transaction."""
    return max(1, sum(total <= _GROUP for total in accumulate(weights)))
