"""Readers: sessions that read views while everything else goes on, and must never see anything wrong or go back.

A session learns what is committed from the leader, or from the store, which may not know of the newest epoch yet. It
reads views at the epoch that it knows, at once or after a while: rows from whichever view server claims to know them,
and from the store otherwise. A read without a pin counts only if the horizon did not pass its epoch meanwhile. Most of
the time it holds the token of a write and waits for an epoch that includes it. Some sessions pin an epoch and read it
again much later.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog.catalogs import ServedView
from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.transport import calls
from belvedere.engine.shard import view_table
from belvedere.errors import EpochExpired
from belvedere.protocol.coordinator import CoordinatorPhase
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.protocol.messages import NEVER, Epoch
from belvedere.protocol.pins import HORIZONS, PinDocument, check, horizon_of
from belvedere.protocol.reads import ReadSession, covers
from tests.simulator.coordinators import CoordinatorProcess
from tests.simulator.oracle import Oracle, Rows, Truth, Wrong, difference, rows_in_store, rows_of
from tests.simulator.process import Surroundings
from tests.simulator.scheduler import MS, Action
from tests.simulator.subscribers import names_of
from tests.simulator.viewservers import ViewServerProcess

LEASE = 800
"""Of pins, milliseconds."""

Token = Sequence[tuple[SourceId, Seq]]


@dataclass
class Reader:
    around: Surroundings
    random: random.Random
    oracle: Oracle
    servers: Callable[[], list[ViewServerProcess]]
    leader: Callable[[], CoordinatorProcess | None]
    tokens: list[list[tuple[SourceId, Seq]]]
    """Of the writer, growing."""
    number: int
    pins: float
    """How often it takes a pin."""
    session: ReadSession = field(default_factory=ReadSession)
    reads: int = 0
    expired: int = 0
    _last: Epoch = NEVER
    _positions: dict[SourceId, Seq] = field(default_factory=dict)
    """The farthest that it has read of each source."""
    _token: Token = ()
    """Of the write that it waits for."""
    _pins: int = 0

    def schedule(self, start: int, stop: int, reads: int) -> None:
        for _ in range(reads):
            self.around.scheduler.at(self.random.randint(start, stop), self.read)

    # ------------------------------------------------------------------ one read

    def ask_both(self) -> None:
        """The leader first, then the store, which may know less."""
        self.read(1.0)
        self.read(0.0)

    def read(self, leader: float = 0.5) -> None:
        """`leader`: how likely the leader is asked, and not the store."""
        memory = self.around.store.memory
        listed = {source.id for source in memory.sources()}  # before the positions
        known = (self._ask_leader() if self.random.random() < leader else None) or calls.read_committed(
            memory, calls.NEWEST
        )
        if known is None:
            return
        if known.epoch < self._last:
            self.around.trace.effect(self.around.scheduler.now, f"reader {self.number}", "told of an older epoch")
        epoch = self.session.at(known.epoch)
        if epoch < self._last:
            raise Wrong(f"reader {self.number} went back from epoch {self._last} to {epoch}")
        self._last = epoch
        truth = self._truth(epoch)
        self._check_positions(known, truth)
        self._check_names(known, truth)
        self._check_token(known, truth, listed)
        # A client does other things between learning of an epoch and reading at it.
        later = self.random.choice((0, 0, 5, 50, 400)) * MS
        self.around.scheduler.after(later, lambda: self._look_and_ask(truth))
        if self.random.random() < self.pins:
            self._pin(epoch)

    def newest(self) -> calls.CommittedRow | None:
        """What a client learns that asks anybody."""
        known = self._ask_leader() if self.random.random() < 0.5 else None
        return known or calls.read_committed(self.around.store.memory, calls.NEWEST)

    def _ask_leader(self) -> calls.CommittedRow | None:
        """Only one that is connected answers: others do not know whether they still lead."""
        leader = self.leader()
        if (
            leader is None
            or leader.paused
            or not leader.may_act()
            or leader.machine.phase is not CoordinatorPhase.LEADING
        ):
            return None
        return None if leader.committed is None else calls.committed_of(leader.committed)

    def _look_and_ask(self, truth: Truth) -> None:
        self._look(truth)
        self._ask_somebody(truth)

    def _check_positions(self, known: calls.CommittedRow, truth: Truth) -> None:
        """What readers are told of an epoch is so, and in no source less than what they have read before."""
        for source, seq in known.positions.items():
            if known.epoch == truth.epoch and truth.positions.get(source) != seq:
                raise Wrong(
                    f"reader {self.number} was told that epoch {known.epoch} includes {source} up to {seq}, "
                    f"it does up to {truth.positions.get(source)}"
                )
        for source, seq in self._positions.items():
            found = truth.positions.get(source, START)
            if found < seq:
                raise Wrong(f"reader {self.number} went back in {source} from {seq} to {found}, epoch {truth.epoch}")
        self._positions = truth.positions

    def _check_names(self, known: calls.CommittedRow, truth: Truth) -> None:
        """Names mean what the catalog of the epoch says."""
        if known.epoch != truth.epoch or truth.epoch < horizon_of(self.around.store.memory.list_documents(HORIZONS)):
            return
        found = names_of(self.around.store.memory, known)
        served = {name: view for name, view in found.items() if isinstance(view, ReadableView)}
        if served != {name: ReadableView(view.shape, view.view_group) for name, view in truth.served.items()}:
            raise Wrong(f"reader {self.number} finds views {sorted(served)} at epoch {truth.epoch}, or other versions")

    def _truth(self, epoch: Epoch) -> Truth:
        truth = self.oracle.at(epoch)
        if truth is None:
            raise Wrong(f"reader {self.number} was told that epoch {epoch} is committed, and it is not")
        return truth

    def _check_token(self, known: calls.CommittedRow, truth: Truth, listed: set[SourceId]) -> None:
        """An epoch that claims to include a write must include it, and one that includes it must say so."""
        if not self.tokens or known.epoch != truth.epoch:
            return
        token = dict(self._token or self.random.choice((*self.tokens, self.tokens[-1])))
        claims = covers(token, known.positions, listed)
        for source, seq in token.items():
            if claims and truth.positions.get(source, START) < seq:
                raise Wrong(f"epoch {truth.epoch} claims to include {source} up to {seq}, and does not")
        if not claims and all(truth.positions.get(source, START) >= seq for source, seq in token.items()):
            raise Wrong(f"epoch {truth.epoch} includes the write {token}, and nobody can tell")
        if claims and self._token:
            self.around.trace.effect(self.around.scheduler.now, f"reader {self.number}", "token waited for")
            self._look(truth)
        self._token = () if claims else tuple(token.items())

    def _look(self, truth: Truth, pinned: bool = False) -> None:
        """Read one view at the epoch, by servers and store."""
        if not truth.served:
            return
        name = self.random.choice(sorted(truth.served))
        try:
            found: Rows | None = self._rows(truth.served[name], truth.epoch)
        except EpochExpired:
            found = None
        horizon = horizon_of(self.around.store.memory.list_documents(HORIZONS))
        if truth.epoch < horizon and not pinned:
            self.expired += 1
            return
        if found is None:
            raise Wrong(
                f"reader {self.number} was refused view {name} at epoch {truth.epoch}, the horizon is {horizon}"
            )
        self.reads += 1
        if self.oracle.excused(truth, truth.served[name]):
            return
        if found != truth.views[name]:
            how = "with a pin " if pinned else ""
            raise Wrong(
                f"reader {self.number} read view {name} at epoch {truth.epoch} {how}(the horizon is {horizon})\n"
                f"{difference(truth.views[name], found)}"
            )

    def _rows(self, view: ServedView, epoch: Epoch) -> Rows:
        """What somebody sees who asks servers for each row first, and the store for those they do not know."""
        memory, table = self.around.store.memory, view_table(view.node)
        servers = [server for server in self.servers() if not server.paused]
        if not servers or self.random.random() < 0.5:
            return rows_in_store(memory, view, epoch)
        ids = _known_ids(memory, table)
        if len(ids) > 4:
            return self._rows_of_some(view, epoch, ids, servers)
        values = [self._value(table, ids[i : i + 1], epoch, servers) for i in range(len(ids))]
        return _decode(view, ids, values)

    def _rows_of_some(self, view: ServedView, epoch: Epoch, ids: np.ndarray, servers: list[ViewServerProcess]) -> Rows:
        """A few rows by servers, all others by the store: as cheap as it gets."""
        memory, table = self.around.store.memory, view_table(view.node)
        values = memory.read(table, ids, epoch + 1).to_pylist()
        for i in self.random.sample(range(len(ids)), 4):
            values[i] = self._value(table, ids[i : i + 1], epoch, servers)
        return _decode(view, ids, values)

    def _value(self, table: str, id: np.ndarray, epoch: Epoch, servers: list[ViewServerProcess]) -> bytes | None:
        for server in self.random.sample(servers, len(servers)):
            answer = server.work.read(table, id, epoch)
            if answer is not None and answer[0].all():
                value: bytes | None = answer[1][0].as_py()
                return value
        found: bytes | None = self.around.store.memory.read(table, id, epoch + 1)[0].as_py()
        return found

    def _ask_somebody(self, truth: Truth) -> None:
        """A few rows of a server, if possible of one that is paused (and answers much later) or suspended."""
        servers = self.servers()
        memory = self.around.store.memory
        if not servers or truth.epoch < horizon_of(memory.list_documents(HORIZONS)):
            return
        doubtful = [server for server in servers if server.paused or not server.connected]
        server = self.random.choice(doubtful or servers)
        for view in truth.served.values():
            table = view_table(view.node)
            # What a server that has missed something is most likely wrong about: rows that changed lately.
            changed = [ids for _, ids in memory.changed(table, 0, truth.epoch)][-4:]
            if changed:
                ids = np.concatenate(changed)
                ids = ids[[self.random.randrange(len(ids)) for _ in range(6 if doubtful else 1)]]
                expected = memory.read(table, ids, truth.epoch + 1).to_pylist()
                server.call(self._asking(server, view, ids, truth.epoch, expected))

    def _asking(
        self, server: ViewServerProcess, view: ServedView, ids: np.ndarray, epoch: Epoch, expected: list[bytes | None]
    ) -> Action:
        memory = self.around.store.memory

        def ask() -> None:
            for i, value in enumerate(expected):
                answer = server.work.read(view_table(view.node), ids[i : i + 1], epoch)
                planted = memory.lenient or memory.is_planted(view_table(view.node), ids[i].tobytes(), epoch + 1)
                if answer is not None and answer[0].all() and answer[1][0].as_py() != value and not planted:
                    raise Wrong(
                        f"{server.name} answered a read of view {view.definition.name} at epoch {epoch} with "
                        f"{answer[1][0].as_py()!r}, the store has {value!r}"
                    )

        return ask

    # ------------------------------------------------------------------ pins

    def _pin(self, epoch: Epoch) -> None:
        """Write the pin, then look at the horizon; read the epoch again before the lease ends."""
        memory, store = self.around.store.memory, self.around.store
        self._pins += 1
        pin = PinDocument(f"reader-{self.number}-{self._pins}", epoch, LEASE)
        written = self.around.scheduler.clock()

        def held(_: None) -> None:
            try:
                check(pin, memory.list_documents(HORIZONS))
            except EpochExpired:
                self.expired += 1
                return
            for _i in range(self.random.choice((1, 2))):
                self.around.scheduler.after(self.random.randint(1, LEASE) * MS, again)

        def again() -> None:
            if pin.outlives(written, self.around.scheduler.clock()):
                self._look(self._truth(epoch), pinned=True)

        store.ask(lambda: memory.put_document(pin.document, b""), held, lambda _: None)


def _known_ids(memory: MemoryStore, table: str) -> np.ndarray:
    """Every id that the table has or had, as far as it is not collected."""
    keys = b"".join(sorted(memory._tables.get(table, {})))
    return np.frombuffer(keys, np.uint64).reshape(-1, 2)


def _decode(view: ServedView, ids: np.ndarray, values: list[bytes | None]) -> Rows:
    there = [i for i, value in enumerate(values) if value is not None]
    if not there:
        return Counter()
    return Counter(rows_of(view, ids[there], pa.array([values[i] for i in there], pa.binary())))
