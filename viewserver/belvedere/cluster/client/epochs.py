"""What a client knows of committed epochs: the newest, older ones, and what can be read at each.

The newest one is asked of the leader whenever what is known is older than `max_age`, and of the store while no leader
answers. It never goes back: all reads of one connection are one session. An epoch stands for the catalog and the
view groups that were complete at it, so the same names mean the same rows to everyone who reads at it.

Why a read is right although versions are collected: whoever reads at *e* either holds a pin not above *e*, or read
*e* from the leader as the newest so recently that the retention of its successor cannot have passed, or looks at the
horizon afterwards: if it is not above *e*, nothing that *e* sees was gone before.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from belvedere import errors
from belvedere.cluster.catalog.document import Document, dump
from belvedere.cluster.catalog.names import FailedVersion, Readable, ServedTable, failed_at, names_at
from belvedere.cluster.client.pool import Pool, repeat
from belvedere.cluster.client.stores import Stores
from belvedere.cluster.client.token import ClusterToken
from belvedere.cluster.client.written_rows import WrittenRows
from belvedere.cluster.coordination.clock import now
from belvedere.cluster.transport import calls
from belvedere.model import token as embedded_token
from belvedere.plan.nodes import Plan
from belvedere.protocol.exactly_once import SourceId
from belvedere.protocol.messages import Epoch
from belvedere.protocol.pins import HORIZONS, horizon_of
from belvedere.protocol.reads import ReadSession, covers
from belvedere.protocol.row_marks import RowMark
from belvedere.retry import Deadline
from belvedere.sql.catalog import Catalog, unknown_relation

MAX_AGE = 0.05
SILENT_SECONDS = 1.0
"""After a leader did not answer, the store is asked for so long."""
WAIT_SECONDS = 5.0
"""How long one question may wait for an answer that is newer."""
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)

Names = Mapping[str, Readable]


@dataclass(frozen=True)
class Known:
    """A committed epoch. `asked`: a moment (`now`) at which no later epoch was committed; None if unknown."""

    committed: calls.CommittedRow
    asked: float | None
    stalled: str = ""

    @property
    def epoch(self) -> Epoch:
        return self.committed.epoch

    def same_names(self, other: Known) -> bool:
        """Whether names mean the same in both: the same catalog, of which the same view groups are complete."""
        mine, theirs = self.committed, other.committed
        return (mine.catalog_document, mine.building) == (theirs.catalog_document, theirs.building)


class CommittedEpochs:
    def __init__(self, pool: Pool, stores: Stores, max_age: float = MAX_AGE) -> None:
        """`max_age`: seconds for which the newest epoch is believed to be the newest."""
        self._pool, self._stores, self._max_age = pool, stores, max_age
        self._lock = threading.Lock()
        self._session = ReadSession()
        self._newest = Known(calls.CommittedRow(), None)
        self._heard = float("-inf")
        self._silent_until = float("-inf")
        self.trouble = ""
        """Why nothing was heard at last, for people."""
        self._documents: OrderedDict[str, bytes] = OrderedDict()
        self._ended: OrderedDict[SourceId, Epoch] = OrderedDict()
        self._rows = WrittenRows()

    # ------------------------------------------------------------------ the newest

    def newest(self, deadline: Deadline, max_age: float | None = None) -> Known:
        """What is committed now, or was `max_age` seconds ago."""
        if now() - self._heard >= (self._max_age if max_age is None else max_age):
            repeat("asking for the newest epoch", deadline, lambda timeout: self._ask(-1, 0.0, timeout))
        return self._newest

    def wait(self, condition: Callable[[Known], bool], deadline: Deadline) -> Known | None:
        """The first state heard of that fulfils the condition; None if there was none in time."""
        if condition(self._newest):
            return self._newest
        try:
            self._ask(-1, 0.0, max(deadline.left(WAIT_SECONDS), 0.001))
        except errors.Unavailable as error:
            self.trouble = str(error)
        while not condition(self._newest):
            if deadline.over:
                return None
            wait = deadline.left(WAIT_SECONDS)
            try:
                self._ask(self._newest.epoch, wait, wait + 1.0)
            except errors.Unavailable as error:
                self.trouble = str(error)
                time.sleep(deadline.left(MAX_AGE))
        return self._newest

    @property
    def known(self) -> Known:
        """The newest epoch that was heard of, without asking."""
        return self._newest

    def _ask(self, after: int, wait: float, timeout: float) -> None:
        """Hear of the newest epoch, from the leader or else from the store."""
        asked, deadline = now(), Deadline(timeout)
        if asked >= self._silent_until:
            request = calls.encode(calls.StatusCall(after, int(wait * 1000)))
            # A leader that waits is not silent; one that has nothing to wait for answers at once, and if it does not
            # the store needs time as well.
            patience = min(timeout if wait else timeout / 2, wait + SILENT_SECONDS)
            try:
                data = self._pool.ask_leader(calls.COMMITTED, request, patience)
            except errors.Unavailable:
                self._silent_until = now() + SILENT_SECONDS
            else:
                seen = calls.decode(data, calls.Seen)
                self._hear(Known(seen.committed, asked, seen.stalled))
                if self._pool.outdated(seen.generation):
                    self._pool.refresh(timeout)
                return
        found = calls.read_committed(self._stores(deadline), calls.NEWEST)
        if found is not None:
            self._hear(Known(found, None))
        if wait and self._newest.epoch <= after:
            time.sleep(min(wait, MAX_AGE))  # the store does not wait for something newer

    def _hear(self, known: Known) -> None:
        with self._lock:
            self._heard, self.trouble = now(), ""
            if self._session.at(known.epoch) == known.epoch:
                # An answer that waited was true when it was given, later than it was asked for; too old is safe.
                self._newest = known

    # ------------------------------------------------------------------ tokens and moments

    def includes(self, committed: calls.CommittedRow, token: ClusterToken, deadline: Deadline) -> bool:
        """Whether the epoch includes the write."""
        if committed.epoch < token.epoch:
            return False
        positions = committed.positions
        logs = [(source, seq) for source, seq in token.positions if RowMark.parse(source) is None]
        unknown_last = dict(sorted(logs, key=lambda one: one[0] not in positions))  # they cost a question
        if not covers(unknown_last, positions, _Unended(self, committed.epoch, deadline)):
            return False
        return self._rows.include(committed.epoch, token.positions, self._stores(deadline))

    def covered(self, token: ClusterToken, epoch: int, deadline: Deadline) -> bool:
        """Whether an epoch before the newest is known to include the write."""
        if token.epoch > epoch or not token.positions:
            return token.epoch <= epoch
        found = calls.read_committed(self._stores(deadline), epoch)
        return found is not None and self.includes(found, ClusterToken(0, token.positions), deadline)

    def _ended_by(self, source: SourceId, deadline: Deadline) -> float:
        """An epoch that has all of a source without a position; infinity if it is not known to have ended.

        Such a source is not planned yet, and then the store lists it; or it ended, was committed to its end and
        forgotten. In which epoch it ended nobody knows any more, but whichever is the newest after the store was asked
        is not before it (`reads.covers`), if it is the leader who says so: not all epochs are published."""
        found = self._ended.get(source)
        if found is None:
            looked = now()
            if any(info.id == source for info in self._stores(deadline).sources()):
                return float("inf")
            known = self.newest(deadline, 0.0)
            if known.asked is None or known.asked < looked:
                return float("inf")
            with self._lock:
                found = self._ended.setdefault(source, known.epoch)
                if len(self._ended) > 4096:
                    self._ended.popitem(last=False)
        return found

    def at(self, moment: int | datetime | embedded_token.Token | Known, deadline: Deadline) -> Known:
        """The newest committed epoch at or before a number or time; the first one that includes a token's write. An
        epoch that is known is read as such, also if its commit is never published."""
        if isinstance(moment, Known):
            return moment
        newest = self.newest(deadline)
        if isinstance(moment, embedded_token.Token):
            return self._first_with(ClusterToken.parse(moment), newest, deadline)[0]
        if isinstance(moment, datetime):
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            epoch = (aware - _BEGIN) // timedelta(milliseconds=1)
            if epoch > newest.epoch and epoch <= time.time() * 1000:
                return newest
        else:
            epoch = int(moment)
        if epoch > newest.epoch:
            newest = self.newest(deadline, 0.0)
        if epoch > newest.epoch:
            raise errors.NotYet(
                f"epoch {epoch} is not committed yet; the newest is {newest.epoch}", float(epoch - newest.epoch)
            )
        return newest if epoch == newest.epoch else self.published(epoch, deadline)

    def exactly(self, epoch: int, deadline: Deadline) -> Known:
        """This epoch itself, though its commit may never be published: rows are read by its number, names mean what
        they do in the newest published one up to it. For who was told of it, and sees to it that it is kept."""
        newest = self.newest(deadline)
        if epoch >= newest.epoch:
            return self.at(epoch, deadline)
        try:
            committed = self.as_published(epoch, deadline).committed
        except errors.EpochExpired:
            return self.published(epoch, deadline)  # raises, and says what is kept
        return Known(replace(committed, epoch=Epoch(epoch)), None)

    def first_with(self, token: ClusterToken, deadline: Deadline) -> Known:
        """The first epoch that includes the write, for those who want to hear of everything after it."""
        found, certain = self._first_with(token, self.newest(deadline), deadline)
        if not certain:
            raise errors.EpochExpired(
                f"the write of token {token} was committed before or at epoch {found.epoch}, the oldest that is kept:"
                " what changed since may be gone; read the view, and subscribe from that epoch on"
            )
        return found

    def published(self, epoch: int, deadline: Deadline) -> Known:
        """The newest epoch up to this one that can be read."""
        store = self._stores(deadline)
        found = calls.read_committed(store, epoch)
        if found is None or found.epoch < self.horizon(deadline):
            raise errors.EpochExpired(
                f"epoch {epoch} is older than what is kept; the oldest that can be read is {self.horizon(deadline)}"
            )
        return Known(found, None)

    def as_published(self, epoch: int, deadline: Deadline) -> Known:
        """The newest published epoch up to a committed one. In both names mean the same: epochs are published in their
        order, and none is left out in which that changes, so it is certain once this one or a later one is published.
        Whoever asks makes sure that what `epoch` sees is kept."""
        store = self._stores(deadline)
        found = calls.read_committed(store, epoch)
        while found is None or found.epoch != epoch:
            newest = calls.read_committed(store, calls.NEWEST)
            settled = newest is not None and newest.epoch > epoch
            found = calls.read_committed(store, epoch)
            if settled:
                break
            if deadline.left(MAX_AGE) < MAX_AGE:
                raise errors.NotYet(f"epoch {epoch} is committed, but neither it nor a later one is published yet", 0.0)
            time.sleep(MAX_AGE)
        if found is None:
            raise errors.EpochExpired(f"epoch {epoch} is older than what is kept: nothing is published up to it")
        return Known(found, None)

    def _first_with(self, token: ClusterToken, newest: Known, deadline: Deadline) -> tuple[Known, bool]:
        """The first epoch that is kept and includes the write, and whether no earlier one did that is not kept."""
        if not self.includes(newest.committed, token, deadline):
            newest = self.newest(deadline, 0.0)
        if not self.includes(newest.committed, token, deadline):
            raise errors.NotYet(
                f"the write of token {token} is not committed yet; the newest epoch is {newest.epoch}", 0.0
            )
        store, horizon = self._stores(deadline), self.horizon(deadline)
        epochs = [e for e, _ in store.changed(calls.COMMITTED_TABLE, max(horizon, token.epoch) - 1, newest.epoch)]
        marks = [(source, seq) for source, seq in token.positions if RowMark.parse(source) is not None]
        logs = [one for one in token.positions if one not in marks]
        ended = {source for source, _ in logs if source not in newest.committed.positions}
        last = self._last_with(ended, epochs, deadline)

        def reached(found: calls.CommittedRow, at: int) -> bool:
            for source, seq in logs:
                position = found.positions.get(source)
                if at <= last.get(source, at) if position is None else position < seq:
                    return False
            return not marks or self._rows.include(found.epoch, marks, store)

        first, low, high = newest, 0, len(epochs)
        while low < high:  # what is reached stays reached
            middle = (low + high) // 2
            found = calls.read_committed(store, epochs[middle])
            if found is not None and reached(found, middle):
                first, high = Known(found, None), middle
            else:
                low = middle + 1
        if high > 0 or horizon <= token.epoch:
            return first, True
        before = calls.read_committed(store, first.epoch - 1)
        return first, before is not None and not reached(before, -1)

    def _last_with(self, ended: set[SourceId], epochs: Sequence[int], deadline: Deadline) -> Mapping[SourceId, int]:
        """Where in a list of published epochs sources that ended have their last position: absent behind it they are
        reached, absent before it not planned yet. If there is none, only the newest epoch is sure to include them."""
        store, last = self._stores(deadline), dict.fromkeys(ended, len(epochs) - 1)
        missing = set(ended)
        for at in range(len(epochs) - 1, -1, -1):
            if not missing:
                break
            found = calls.read_committed(store, epochs[at])
            for source in missing & (found.positions.keys() if found is not None else set()):
                last[source] = at
                missing.discard(source)
        return last

    # ------------------------------------------------------------------ what is kept

    def horizon(self, deadline: Deadline) -> int:
        """Epochs below it cannot be read any more, unless they are pinned."""
        return horizon_of(self._stores(deadline).list_documents(HORIZONS))

    def fresh(self, known: Known, deadline: Deadline) -> bool:
        """Whether nothing that the epoch sees can have been collected, as the clock tells."""
        if known.asked is None:
            return False
        kept = self._pool.topology(deadline).retention_ms / 1000 / 2  # half of it: clocks do not run alike
        return now() - known.asked < kept

    # ------------------------------------------------------------------ names

    def document(self, committed: calls.CommittedRow, deadline: Deadline) -> bytes:
        name = committed.catalog_document
        if not name:
            return dump(Document())
        with self._lock:
            found = self._documents.get(name)
        if found is None:
            found = self._stores(deadline).get_document(name)
            if found is None:
                raise errors.EpochExpired(f"the catalog of epoch {committed.epoch} ({name}) is not kept any more")
            with self._lock:
                self._documents[name] = found
                if len(self._documents) > 64:
                    self._documents.popitem(last=False)
        return found

    def names(self, committed: calls.CommittedRow, deadline: Deadline) -> Names:
        """Tables and views that can be read at the epoch."""
        return names_at(self.document(committed, deadline), committed.building)

    def named(self, name: str, committed: calls.CommittedRow, deadline: Deadline) -> Readable:
        """The table or view of that name, whatever its case."""
        names = self.names(committed, deadline)
        found = names.get(name) or next((one for key, one in names.items() if key.lower() == name.lower()), None)
        if found is not None:
            return found
        failed = self.failed(committed, deadline)
        for one in failed.values():
            if one.view.name.lower() == name.lower():
                raise one.error()
        raise unknown_relation(name, [*names, *failed])

    def failed(self, committed: calls.CommittedRow, deadline: Deadline) -> Mapping[str, FailedVersion]:
        """Views that cannot be read at the epoch since they have failed."""
        return failed_at(self.document(committed, deadline), committed.building)

    def catalog(self, committed: calls.CommittedRow, deadline: Deadline) -> Catalog:
        """What names mean at the epoch, those of views that have failed included, with queries that are bound: for
        statements. It takes a parser and a planner."""
        from belvedere.cluster.catalog import plan

        document = self.document(committed, deadline)
        names, failed = plan.names_at(document, committed.building), plan.failed_at(document, committed.building)
        tables = {name: one.definition for name, one in names.items() if isinstance(one, ServedTable)}
        views = {name: one.definition for name, one in names.items() if isinstance(one, plan.ServedView)}
        return Catalog(tables, views | {name: one.view.definition for name, one in failed.items()})

    def plan(self, committed: calls.CommittedRow, deadline: Deadline) -> Plan:
        """What is maintained of the views that can be read."""
        from belvedere.cluster.catalog import plan

        names = plan.names_at(self.document(committed, deadline), committed.building)
        return Plan(tuple(one.node for one in names.values() if isinstance(one, plan.ServedView)))


@dataclass(frozen=True)
class _Unended:
    """Sources that are not known to have ended by an epoch, each asked for when somebody wants to know."""

    epochs: CommittedEpochs
    epoch: Epoch
    deadline: Deadline

    def __contains__(self, source: object) -> bool:
        return self.epoch < self.epochs._ended_by(SourceId(str(source)), self.deadline)
