"""`repair` of a pool: look, offer what should be there to the leader, look again, until nothing is wrong any more.

Whatever happens to this process, what it has offered either takes effect wholly or not at all, and what it has not
offered did not happen; asking again goes on where it was.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.client.pool import pauses, repeat
from belvedere.cluster.transport import calls
from belvedere.errors import DataError, EpochExpired, Unavailable
from belvedere.model import order
from belvedere.model.keys import key_codec
from belvedere.model.ranges import KeyRange
from belvedere.model.repair import MOST_TRIES, DamagedRow, RepairReport
from belvedere.protocol.messages import Epoch, Repair
from belvedere.retry import Retry

if TYPE_CHECKING:
    from belvedere.cluster.client.database import ClusterDatabase
    from belvedere.cluster.roles.repairing import Found, Look

EXAMPLES = 100
MOST_LOOKS = 20
"""A pool whose catalog changes all the time, or a store that is damaged faster than it is repaired."""
OFFER_SECONDS = 35.0
"""How long one try of an offer may take: a leader gives up after 30 s."""

Row = tuple[str, str]
"""Table and id."""


@dataclass
class PoolRepair:
    database: ClusterDatabase
    view: str
    keys: Sequence[Any] | None = None
    prefix: Any = None
    start: Any = None
    stop: Any = None
    dry_run: bool = False
    _tries: Counter[Row] = field(default_factory=Counter)
    _wrong: dict[Row, DamagedRow] = field(default_factory=dict)
    """All that was found."""
    _mended: set[Row] = field(default_factory=set)
    _again: int = 0
    _epoch: int = 0

    def run(self) -> RepairReport:
        """A store that does not answer for a while is a delay: what was looked at is looked at again."""
        return Retry(f"repairing {self.view!r}", deadline=self.database.deadline(), backoff=pauses()).run(self._run)

    def _run(self) -> RepairReport:
        tried: set[Row] = set()
        for _ in range(MOST_LOOKS):
            with self._look() as (look, known, building):
                found = list(look.differences())
                self.database.require_kept(known.epoch)
                rows = {(row.table, row.id): row for one in found for row in one.rows()}
                self._epoch = self._epoch or known.epoch
                self._wrong |= {key: row for key, row in rows.items() if key not in self._wrong}
                self._mended = (self._mended | tried) - rows.keys()
                self._again += len(tried & rows.keys())
                if self.dry_run or not rows:
                    return self._report(rows)
                if building:  # it may be reading what is wrong just now
                    tried = set()
                    self._wait_for_builds(building)
                    continue
                if any(self._tries[row] >= MOST_TRIES for row in rows):
                    return self._rebuilt()
                tried = self._offer_all(look, found, set(rows), known.committed.catalog)
        return self._report(rows, f"something new was found at each of {MOST_LOOKS} looks")

    # ------------------------------------------------------------------ a look

    @contextlib.contextmanager
    def _look(self) -> Any:
        from belvedere.cluster.roles.repairing import Look, affected  # it computes: only who repairs needs the engine

        database = self.database
        known, pin = database._pinned(database.deadline())
        try:
            served = database.served_view(self.view, known)
            document = database.epochs.document(known.committed, database.deadline())
            groups = affected(document, served.view_group)
            complete = [group for group in groups if group not in known.committed.building]
            store, epoch = database.stores.connection(database.deadline()).store, Epoch(known.epoch)
            look = Look(store, document, self._engine(), epoch, complete, served.name, self._chosen(served))
            yield look, known, set(groups) & set(known.committed.building)
        finally:
            database.pins.unpin(pin)

    def _engine(self) -> int:
        """Of the pool."""

        def ask(timeout: float) -> int:
            generation = self.database.pool.refresh(timeout).generation
            if generation is None:
                raise Unavailable("the pool has no generation yet")
            return generation.engine

        return repeat("asking for the engine of the pool", self.database.deadline(), ask)

    def _chosen(self, served: ReadableView) -> Callable[[bytes], bool] | None:
        """Which rows of the view were asked for."""
        shape, owner = served.shape, f"view {served.name!r}"
        codec = key_codec(shape.schema, shape.key)
        ranges: list[KeyRange] = []
        if self.keys is not None:
            if self.prefix is not None or self.start is not None or self.stop is not None:
                raise DataError(f"repair of {owner}: keys, a prefix or a range, one of them")
            ranges = [order.prefix_range(codec, [key], None, False, owner) for key in self.keys]
        elif self.prefix is not None:
            if self.start is not None or self.stop is not None:
                raise DataError(f"repair of {owner}: keys, a prefix or a range, one of them")
            ranges = [order.prefix_range(codec, [self.prefix], None, False, owner)]
        elif self.start is not None or self.stop is not None:
            ranges = [order.key_range(codec, self.start, self.stop, None, False, owner)]
        else:
            return None
        return lambda key: any(key in wanted for wanted in ranges)

    def _wait_for_builds(self, building: set[int]) -> None:
        self.database._progress(
            "the repair waits for views that are being built",
            lambda known: not set(known.committed.building) & building,
        )

    # ------------------------------------------------------------------ the leader

    def _offer_all(self, look: Look, found: Sequence[Found], rows: set[Row], catalog: int) -> set[Row]:
        """Which rows are in plans that are committed; none if the pool has another catalog by now."""
        database, name = self.database, uuid.uuid4().hex[:12]
        store = database.stores(database.deadline())
        for repair, data in look.documents(found, name):
            store.put_document(repair.document, data)
            answer = self._offer(look, repair, catalog)
            if answer.refused:
                return set()  # some parts may be in plans: the next look shows it
            self._epoch = max(self._epoch, answer.epoch)
        database._progress("the repair is in a plan", lambda known: known.epoch >= self._epoch)
        self._tries.update(rows)
        return rows

    def _offer(self, look: Look, repair: Repair, catalog: int) -> calls.RepairSeen:
        call = calls.RepairCall(repair.document, repair.digest, repair.at, catalog, look.engine, tuple(look.groups))
        database = self.database

        def ask(timeout: float) -> calls.RepairSeen:
            if not database.pins.protects(repair.at):
                raise EpochExpired(f"epoch {repair.at} is not kept any more: its pin could not be renewed in time")
            data = database.pool.ask_leader(calls.REPAIR, calls.encode(call), max(timeout, OFFER_SECONDS))
            seen = calls.decode(data, calls.RepairSeen)
            if seen.refused and seen.again:
                raise Unavailable(seen.refused)
            return seen

        return repeat(f"repairing {self.view!r}", database.deadline(), ask)

    # ------------------------------------------------------------------ the end

    def rebuild(self) -> RepairReport:
        """Everything anew, aside: it ends when it is in service."""
        if self.dry_run or any(given is not None for given in (self.keys, self.prefix, self.start, self.stop)):
            raise DataError(f"repair of view {self.view!r}: everything is made anew; nothing else can be asked for")
        database = self.database
        names = self._names()
        self._epoch = database.rebuild(self.view).epoch
        return self._report({}, rebuilt=names)

    def _names(self) -> tuple[str, ...]:
        """The views that share state with this one, and those that read one of them."""
        from belvedere.cluster.roles.repairing import affected

        known = self.database.epochs.newest(self.database.deadline())
        served = self.database.served_view(self.view, known)
        groups = affected(self.database.epochs.document(known.committed, self.database.deadline()), served.view_group)
        views = self.database.epochs.names(known.committed, self.database.deadline()).values()
        return tuple(sorted(v.name for v in views if isinstance(v, ReadableView) and v.view_group in groups))

    def _rebuilt(self) -> RepairReport:
        """Of rows that change all the time: new versions of their views never were wrong."""
        names = self._names()
        self._epoch = self.database.rebuild(self.view).epoch
        self._mended |= self._wrong.keys()
        return self._report({}, rebuilt=names)

    def _report(
        self, remaining: dict[Row, DamagedRow], problem: str = "", rebuilt: tuple[str, ...] = ()
    ) -> RepairReport:
        tables = Counter(table for table, _ in self._wrong)
        examples = sorted(self._wrong.values(), key=lambda row: (row.table, row.id))
        return RepairReport(
            self.view,
            self._epoch,
            dry_run=self.dry_run,
            mended=len(self._mended),
            tried_again=self._again,
            rebuilt=rebuilt,
            remaining=0 if self.dry_run else len(remaining),
            problem=problem,
            tables=dict(sorted(tables.items())),
            rows=tuple(examples if self.dry_run else examples[:EXAMPLES]),
        )
