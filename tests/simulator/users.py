"""Users: they write rows, and they create, replace and drop views while everything else goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from belvedere.cluster.catalog import catalogs
from belvedere.protocol.driving import CatalogOffered, CatalogTaken
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.messages import ASIDE, EpochPlan
from belvedere.protocol.ring import BUCKETS
from tests.simulator import documents
from tests.simulator.changes import Change, Value
from tests.simulator.coordinators import CoordinatorProcess
from tests.simulator.oracle import Truth, Wrong
from tests.simulator.process import Surroundings
from tests.simulator.scheduler import MS
from tests.simulator.schema import ADDED, KEYS, TABLES, View
from tests.simulator.sources import Sources

PATIENCE = 1_500 * MS
"""How long somebody who changes the catalog waits for an answer."""
KINDS = ("a", "b", "c", None)
REPEATED = 0.05
REBUILT = "views rebuilt for an engine that cannot read their state"


class Writer:
    """Writes so many times, at random moments, and remembers where its writes went (tokens)."""

    def __init__(
        self, around: Surroundings, rng: random.Random, sources: Sources, deletes: float, keys: int = 1
    ) -> None:
        """`keys`: how many times as many as there are at least."""
        self.tokens: list[list[tuple[SourceId, Seq]]] = []
        self._around, self._random, self._sources = around, rng, sources
        self._deletes, self._keys = deletes, keys
        self.has_column: Callable[[str, str], bool] = lambda table, name: False
        """Whether a column that is added later is there."""
        self.protected: set[tuple[str, int]] = set()
        """Rows that are not to be written."""
        self._stamp = 1_000
        self._last: dict[str, int] = {}

    def schedule(self, start: int, stop: int, writes: int) -> None:
        for _ in range(writes):
            self._around.scheduler.at(self._random.randint(start, stop), self.write)

    def write(self) -> None:
        table = "orders" if self._random.random() < 0.7 else "customers"
        changes = [self._change(table) for _ in range(self._keys * self._random.choice((1, 1, 2, 3, 6)))]
        written = self._sources.write(table, changes)
        self.tokens.append(written)
        self._around.trace.record(self._around.scheduler.now, "writer", f"{written}", changes)
        if self._random.random() < REPEATED:
            self._around.scheduler.after(self._random.choice((5, 300, 1_500)) * MS, lambda: self._again(table, changes))

    def _again(self, table: str, changes: list[Change]) -> None:
        """The client did not hear that it was done, and has said it once more."""
        if any((change.table, change.key) in self.protected for change in changes):
            return
        self._around.trace.effect(self._around.scheduler.now, "writer", "put repeated by its client")
        self.tokens.append(self._sources.write(table, changes))

    def _change(self, table: str) -> Change:
        draw = self._random
        key = self._key(table)
        if draw.random() < self._deletes:
            return Change(table, key, self._timestamp(), None)
        columns = tuple(name for name in TABLES[table] if name not in ADDED or self.has_column(table, name))
        named = columns if draw.random() < 0.6 else tuple(c for c in columns if draw.random() < 0.5)
        return Change(table, key, self._timestamp(), {name: self._value(name) for name in named})

    def _key(self, table: str) -> int:
        """Often one that was written a moment ago."""
        if self._random.random() > 0.35 or table not in self._last:
            self._last[table] = self._random.randrange(self._keys * KEYS[table])
        while (table, self._last[table]) in self.protected:
            self._last[table] = self._random.randrange(self._keys * KEYS[table])
        return self._last[table]

    def _timestamp(self) -> int:
        """Mostly newer; sometimes the same as the last one, sometimes older."""
        kind = self._random.random()
        if kind < 0.7:
            self._stamp += self._random.choice((1, 5))
            return self._stamp
        return self._stamp if kind < 0.9 else self._stamp - self._random.randint(1, 10)

    def _value(self, column: str) -> Value:
        draw = self._random
        if draw.random() < 0.1:
            return None
        if column == "customer":
            return draw.randrange(self._keys * KEYS["customers"] + 1)
        if column == "region":
            return draw.randrange(3)
        if column == "note":
            return draw.randrange(4)
        return draw.randrange(100) if column == "amount" else draw.choice(KINDS)


Statement: TypeAlias = str | View
"""A `View` is created, or replaced if it exists."""


@dataclass
class _Offer:
    ticket: int
    document: bytes
    sent: int


@dataclass(frozen=True)
class _Expected:
    """What a catalog must say, by the statements that made it; `before`: the catalog that it was made from."""

    views: Mapping[str, View]
    before: bytes = b""


@dataclass
class _User:
    todo: list[Statement] = field(default_factory=list)
    offer: _Offer | None = None


@dataclass
class Ddl:
    """Users who change the catalog, statement after statement, each of whom finds out what became of its own. Nobody
    else does: so every catalog in the record is one of those that were offered, what is accepted stays, and the views
    that are served are those that the statements say."""

    around: Surroundings
    leader: Callable[[], CoordinatorProcess | None]
    newest_plan: Callable[[], EpochPlan | None]
    """The newest plan in the record."""
    random: random.Random
    done: int = 0
    refused: int = 0
    _users: list[_User] = field(default_factory=list)
    _tickets: int = 0
    _first: bytes | None = None
    _offered: dict[int, bytes] = field(default_factory=dict)
    """Documents by ticket."""
    _expected: dict[bytes, _Expected] = field(default_factory=dict)
    _accepted: bytes = b""
    """The newest that is known to be in a plan."""

    def begin(self, views: Sequence[View], engine: int) -> None:
        self._first = documents.first(tuple(views), engine)
        self._expected[self._first] = _Expected({view.name: view for view in views})
        self._add_user([])

    def begin_changes(self, statements: Sequence[list[Statement]]) -> None:
        """A user for each list."""
        self._users[0].todo += statements[0]
        for each in statements[1:]:
            self._add_user(each)

    def _add_user(self, todo: list[Statement]) -> None:
        user = _User(todo)
        self._users.append(user)
        self._look(user)

    @property
    def begun(self) -> bool:
        """The first catalog is in a plan."""
        return self._current() is not None

    @property
    def idle(self) -> bool:
        """Nothing to do, and everything that was replaced is gone."""
        busy = any(user.todo or user.offer is not None for user in self._users)
        return self._first is None and not busy and self._next(self._users[0]) is None

    def has_column(self, table: str, name: str) -> bool:
        """Whether the catalog in the newest plan has it: then whoever writes it later finds it in every plan."""
        document = self._current()
        columns = () if document is None else catalogs.compile(document).tables[table].definition.columns
        return any(column.name == name for column in columns)

    def taken(self, taken: CatalogTaken) -> None:
        """An answer, perhaps to somebody who has given up waiting."""
        if not taken.refused:
            self._accept(self._offered[taken.ticket])
        for user in self._users:
            if user.offer is not None and taken.ticket == user.offer.ticket and taken.refused:
                user.offer = None
                self.refused += 1

    def recorded(self) -> None:
        """There is a new plan in the record: every change that was accepted must be in its catalog."""
        document = self._current()
        if document is not None and document != self._accepted:
            self._accept(document)

    def amended(self, before: bytes, after: bytes) -> None:
        """The leader has made a catalog in which views have failed."""
        self._expected.setdefault(after, _Expected(self._expected[before].views, before))

    def repair(self, names: Sequence[str]) -> None:
        """Create views again, as they should be."""
        document = self._current()
        assert document is not None
        wanted = self._expected[document].views
        self._users[0].todo += [wanted[name] for name in names if name in wanted]

    def check(self, truth: Truth) -> None:
        """Of a committed epoch in which nothing is being built: the views are those that the statements say, but for
        those that failed; where a new version did, the one before may be there."""
        unbuilt, failed = catalogs.failed_builds(truth.document), catalogs.failed_at(truth.document, truth.building)
        served = {name: view.definition.sql for name, view in truth.served.items() if name not in unbuilt}
        expected = {
            name: view.query
            for name, view in self._expected[truth.document].views.items()
            if name not in unbuilt and name not in failed
        }
        if served != expected:
            raise Wrong(f"epoch {truth.epoch} serves views {served}, by the statements they are {expected}")

    def _accept(self, document: bytes) -> None:
        """A catalog is in a plan; and so is, unless it is older, the last of which that was known."""
        if document not in self._expected:
            raise Wrong("a plan names a catalog that nobody offered")
        newest = self._current() or b""
        for known in {document, self._accepted} - {b""}:
            if known not in self._lineage(newest):
                lost = sorted(self._expected[known].views)
                raise Wrong(f"a change of the catalog was accepted and is lost: views were {lost}")
        self._accepted = newest

    def _lineage(self, document: bytes) -> set[bytes]:
        """The catalog and all that it was made from."""
        found = set()
        while document:
            found.add(document)
            document = self._expected[document].before
        return found

    def _look(self, user: _User) -> None:
        """Every now and then: has it happened, what is next?"""
        self.around.scheduler.after(100 * MS, lambda: self._look(user))
        document = self._current()
        if user.offer is not None:
            if document == user.offer.document:
                self._happened(user)
            elif self.around.scheduler.now - user.offer.sent > PATIENCE:
                user.offer = None  # whether it happened is seen in the catalog, not by waiting
            else:
                return
        following = self._next(user)
        leader = self.leader()
        if following is not None and leader is not None:
            self._tickets += 1
            self._offered[self._tickets] = following
            user.offer = _Offer(self._tickets, following, self.around.scheduler.now)
            compiled = catalogs.compile(following)
            present = tuple(view_group.number for view_group in compiled.shard.view_groups)
            generation = leader.machine.epochs.generation
            by_builders = generation is not None and generation.protocol >= ASIDE and self.random.random() < 0.4
            below = {group.number: tuple(sorted(group.below)) for group in compiled.view_groups}
            offered = CatalogOffered(
                self._tickets,
                compiled.version,
                following,
                compiled.stages,
                compiled.made,
                present,
                made=compiled.engines,
                aside=compiled.made if by_builders else (),
                over=tuple((number, below[number]) for number in compiled.made),
            )
            # People think before they change something, and somebody else may be quicker.
            delay = self.around.network.delay() + self.random.choice((0, 0, 100, 400)) * MS
            self.around.scheduler.after(delay, lambda: leader.offer(offered))

    def _happened(self, user: _User) -> None:
        user.offer = None
        if self._first is not None:
            self._first = None
        self.done += 1

    def _current(self) -> bytes | None:
        plan = self.newest_plan()
        if plan is None or not plan.catalog_document:
            return None
        return self.around.store.memory.get_document(plan.catalog_document)

    def _building(self) -> frozenset[int]:
        plan = self.newest_plan()
        return frozenset() if plan is None else frozenset(s.view_group for s in plan.slices if s.stop < BUCKETS)

    def _next(self, user: _User) -> bytes | None:
        """The document to offer: the next statement that can be carried out, the end of what was replaced, or new
        versions of views whose state the engine cannot read."""
        document, building, state = self._current(), self._building(), self.around.zookeeper.record.state
        if document is None or state is None:
            return self._first
        engine = state.engine
        self._first = None
        while user.todo:
            wanted = user.todo[0]
            names = catalogs.compile(document).catalog.views
            sql = wanted.create(replace=wanted.name in names) if isinstance(wanted, View) else wanted
            found = documents.execute(document, sql, building, engine)
            if found is not None:
                self._expect(found, document, wanted)
                return found
            user.todo.pop(0)  # it has happened, or it cannot
        following = documents.retire(document, building)
        if following is None and not building:
            following = documents.rebuild(document, engine)
            if following is not None and following not in self._expected:
                self.around.trace.effect(self.around.scheduler.now, "users", REBUILT)
        if following is not None:
            self._expect(following, document)
        return following

    def _expect(self, document: bytes, before: bytes, statement: Statement = "") -> None:
        views = dict(self._expected[before].views)
        if isinstance(statement, View):
            views[statement.name] = statement
        elif statement.startswith("DROP MATERIALIZED VIEW"):
            del views[statement.split()[-1]]
        self._expected.setdefault(document, _Expected(views, before))
