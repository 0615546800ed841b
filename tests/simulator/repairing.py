"""Damage in the store, and somebody who repairs it while everything else goes on.

    rows of views   a row is gone, is one that nobody made, is what it was before, or what another row is
    state           a group is gone, or is what it was before: what changes next makes wrong rows of views, too
    DELTA           a base row is gone, or is what it was before, after everything was made of the right one

Whoever repairs looks at a committed epoch, compares everything with what a fresh shard makes of DELTA (of which it
knows what was damaged), writes down what should be there, thinks for a while, and offers that to the leader; again if
it does not hear of it. When it is in a committed epoch it looks again, until there is nothing left.

The judge knows where damage was done. A row of a view may be wrong at an epoch if what is seen there is the very
version that was damaged, and never once anybody has written it since. Where state or DELTA was damaged, views may be
wrong until a look has found nothing, and not after that.

Drawn from a seed of its own.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog import catalogs
from belvedere.engine import replacements
from belvedere.engine.replacements import Replacement, digests
from belvedere.engine.shard import quarantine_table, view_table
from belvedere.errors import EpochExpired
from belvedere.protocol import wire
from belvedere.protocol.driving import RepairOffered, RepairTaken
from belvedere.protocol.gc_documents import repair_document
from belvedere.protocol.messages import Epoch, Repair
from belvedere.protocol.pins import HORIZONS, PinDocument, check
from belvedere.protocol.ring import BUCKETS
from tests.simulator.coordinators import CoordinatorProcess
from tests.simulator.damage import DamagedMemory
from tests.simulator.oracle import Oracle, Truth
from tests.simulator.process import Surroundings
from tests.simulator.recompute import aggregated, recompute
from tests.simulator.scheduler import MS, SECOND

THEME = "repairs"
WHERE = ("view", "view", "view", "state", "state", "delta")
PATIENCE = 1_200 * MS
"""How long an offer is waited for."""
LEASE = 20_000

Rows = dict[str, dict[bytes, bytes | None]]


@dataclass
class _Round:
    """One look, and what was made of it."""

    at: Epoch
    pin: PinDocument
    document: str
    offered: RepairOffered
    since: int
    taken: Epoch | None = None


@dataclass
class Repairs:
    random: random.Random
    around: Surroundings
    oracle: Oracle
    leader: Callable[[], CoordinatorProcess | None]
    uncommitted: Callable[[], set[tuple[str, int]]]
    """(table, key) of all changes that no committed epoch has."""
    protect: Callable[[str, int], None]
    """Nobody writes this row any more."""
    forget: Callable[[], None]
    """What is in the memory of servers goes before the next epoch: what was damaged is read."""
    effects: Counter[str]
    where: str = "view"
    _right: Rows = field(default_factory=dict)
    """Rows of DELTA that were damaged, as they were."""
    _since: int | None = None
    """The oldest version that was damaged and is not known to be mended, where views cannot be judged row by row."""
    _excused: list[tuple[int, int]] = field(default_factory=list)
    """Spans of epochs [first, stop) in which they cannot."""
    _to_plant: int = 0
    _dirty: bool = False
    _served: set[str] = field(default_factory=set)
    """Tables of the views that there were before anything was damaged."""
    _round: _Round | None = None
    _number: int = 0

    @property
    def memory(self) -> DamagedMemory:
        return self.around.store.memory

    # ------------------------------------------------------------------ damage

    def schedule(self, start: int, stop: int) -> None:
        for _ in range(self.random.choice((2, 4, 6))):
            self._to_plant += 1
            self.around.scheduler.at(self.random.randint(start, stop), self._plant)
        self.around.scheduler.after(100 * MS, self._look)

    def _plant(self) -> None:
        truth = self.oracle.last
        if truth is not None and not truth.building and not truth.served:
            self._to_plant -= 1  # all views were dropped
            return
        if truth is None or truth.building:
            self.around.scheduler.after(50 * MS, self._plant)  # of what is being built nobody can tell what is right
            return
        self._to_plant -= 1
        for _ in range(8):
            table = self._table(truth)
            candidates = [
                key for key, v in self.memory._tables.get(table, {}).items() if v.at(truth.epoch + 1) is not None
            ]
            if not candidates:
                continue
            key = self.random.choice(sorted(candidates))
            if not self._dirty:
                self._served = {view_table(view.node) for view in truth.served.values()}
            if self._damage(table, key, truth):
                self._dirty = True
                return

    def _table(self, truth: Truth) -> str:
        views = sorted(view_table(view.node) for view in truth.served.values())
        if self.where == "view":
            return self.random.choice(views)
        if self.where == "delta":
            return "delta orders"
        names = sorted(set(aggregated(truth.document)) & set(self.memory.tables()))
        return self.random.choice(names or views)

    def _damage(self, table: str, key: bytes, truth: Truth) -> bool:
        rows = self.memory._tables[table]
        versions = rows[key]
        if self.where == "state" and table.startswith("view "):
            return False
        version = versions.epoch(truth.epoch + 1)
        if version != versions.epochs[-1] or (table, key) in self.memory.planted:
            return False  # an epoch that is not committed writes it
        at = versions.epochs.index(version)
        value = versions.values[at]
        assert value is not None
        if self.where == "delta":
            if not self._is_quiet(table, key, value):
                return False
            self._right.setdefault(table, {})[key] = value
        older = [v for v in versions.values[:at] if v not in (None, value)]
        others = [o for o in (v.at(truth.epoch + 1) for v in rows.values()) if o not in (None, value)]
        kinds = ["gone"] + ["as before"] * (3 * bool(older))
        if self.where == "view":
            kinds += ["another row's"] * bool(others) + ["extra"]
        kind = self.random.choice(kinds)
        self.effects[f"damage: {self.where}, {kind}"] += 1
        if kind == "extra":
            key = self.random.randbytes(16)
            rows[key] = versions = type(versions)()
            versions.put(version, value)
            self.memory._keys.setdefault(table, {})[key] = b"\xff" + key
        elif kind == "gone":
            versions.values[at] = None
        else:
            versions.values[at] = self.random.choice(older if kind == "as before" else others)
        self.memory.planted[table, key] = version
        self.forget()
        self.around.trace.record(self.around.scheduler.now, "damage", f"{kind}: {table!r} {key.hex()} at {version}")
        if self.where != "view":
            self._since = version if self._since is None else min(self._since, version)
            self.memory.lenient = True
        return True

    def _is_quiet(self, table: str, key: bytes, value: bytes) -> bool:
        """Whether nobody will write this base row: what its damage becomes then only who has the row knows."""
        name = table.removeprefix("delta ")
        found = [k for k in range(400) if _delta_id(k) == key]
        if not found or (name, found[0]) in self.uncommitted():
            return False
        self.protect(name, found[0])
        return True

    # ------------------------------------------------------------------ the judge

    def excused(self, truth: Truth) -> bool:
        fresh = {view_table(view.node) for view in truth.served.values()} - self._served
        if self._dirty and (truth.building or fresh) and self._since is None:
            # A view that is built of rows that are wrong is wrong, and the repair begins when it is complete.
            self.effects["view built of damaged rows"] += 1
            self._since, self.memory.lenient = truth.epoch, True
        if self._since is not None and truth.epoch >= self._since:
            return True
        return any(first <= truth.epoch < stop for first, stop in self._excused)

    def wrong_ids(self, table: str, epoch: int) -> set[bytes]:
        return {
            key for name, key in self.memory.planted if name == table and self.memory.is_planted(name, key, epoch + 1)
        }

    @property
    def idle(self) -> bool:
        return not self._to_plant and not self._dirty and self._round is None

    # ------------------------------------------------------------------ repair

    def _look(self) -> None:
        self.around.scheduler.after(self.random.choice((50, 100, 300)) * MS, self._look)
        if self._round is not None:
            self._follow(self._round)
        elif self._dirty and self.random.random() < 0.5:
            self._begin()

    def _begin(self) -> None:
        truth = self.oracle.last
        if truth is None or truth.building or not truth.document:
            return
        self._number += 1
        pin = PinDocument(f"repair-{self._number}", truth.epoch, LEASE)
        self.memory.put_document(pin.document, b"")
        try:
            check(pin, self.memory.list_documents(HORIZONS))
        except EpochExpired:
            self._unpin(pin)
            return
        found = self._differences(truth)
        if not found:
            self._unpin(pin)
            self._found_clean(truth)
            return
        self.effects["repair: look again" if self._number > 1 else "repair: first look"] += 1
        document = replacements.pack(found)
        name = repair_document(truth.epoch, 0, f"r{self._number}")
        self.memory.put_document(name, document)
        compiled, engine = catalogs.compile(truth.document), self.around.zookeeper.record.state
        assert engine is not None
        groups = tuple(group.number for group in compiled.view_groups)
        repair = Repair(name, wire.digest(document), truth.epoch)
        offered = RepairOffered(self._number, repair, compiled.version, engine.engine, groups)
        self._round = _Round(truth.epoch, pin, name, offered, -PATIENCE)
        # Between the look and the offer others go on.
        self._round.since = self.around.scheduler.now - PATIENCE + self.random.choice((0, 50, 200, 600)) * MS

    def _follow(self, now: _Round) -> None:
        if now.taken is not None:
            state = self.around.zookeeper.record.state
            if state is not None and state.committed >= now.taken:
                self._end(now)
            return
        leader = self.leader()
        if leader is not None and self.around.scheduler.now - now.since >= PATIENCE:
            now.since = self.around.scheduler.now
            for _ in range(self.random.choice((1, 1, 2))):  # it may come twice, and be planned twice
                delay = self.around.network.delay() + self.random.choice((0, 0, 300)) * MS
                self.around.scheduler.after(delay, lambda: leader.offer_repair(now.offered))

    def taken(self, taken: RepairTaken) -> None:
        now = self._round
        if now is None or taken.ticket != now.offered.ticket or now.taken is not None:
            return
        if not taken.refused:
            now.taken = taken.epoch
            self.effects["repair taken"] += 1
        elif not taken.again:
            self.effects["repair refused"] += 1
            self._end(now)  # and look again

    def _end(self, now: _Round) -> None:
        self._unpin(now.pin)
        self._round = None

    def _unpin(self, pin: PinDocument) -> None:
        self.memory.remove_documents([pin.document])

    def _found_clean(self, truth: Truth) -> None:
        if self._since is not None:
            self._excused.append((self._since, truth.epoch))
            self._since = None
        if self.memory.lenient:
            state = self.around.zookeeper.record.state
            self.memory.lenient_until = max(p.epoch for p in (*state.open, state.committed_plan)) if state else 0
        self.memory.lenient, self._dirty, self._right = False, False, {}
        self.effects["repaired"] += 1
        for one in self.oracle.committed:
            if one.epoch >= max(truth.epoch, self.memory.collected()):
                self.oracle.check(one)

    def _differences(self, truth: Truth) -> list[Replacement]:
        """Everything that is not what it should be at an epoch."""
        right: Rows = {}
        keys: dict[str, dict[bytes, bytes]] = {}
        for table, damaged in self._right.items():
            right[table] = dict(damaged)
        for write in recompute(self.memory, truth.document, truth.epoch, self._right):
            ids = [id.tobytes() for id in write.ids]
            right.setdefault(write.table, {}).update(zip(ids, write.values.to_pylist(), strict=True))
            if write.keys is not None:
                keys.setdefault(write.table, {}).update(zip(ids, write.keys.to_pylist(), strict=True))
        found = []
        for table in self._tables(truth):
            stored = dict(_stored(self.memory, table, truth.epoch))
            wanted = right.get(table, {})
            if table.startswith("delta "):
                stored = {key: stored.get(key) for key in wanted}
            wrong = sorted(key for key in {*stored, *wanted} if stored.get(key) != wanted.get(key))
            if wrong:
                self.effects[f"repair: wrong rows of {'views' if table.startswith('view ') else 'state'}"] += len(wrong)
                self.around.trace.record(self.around.scheduler.now, "repair", f"{table!r} at {truth.epoch}", wrong)
                found.append(self._replacement(table, wrong, stored, wanted, keys.get(table, {})))
        return found

    def _replacement(
        self,
        table: str,
        wrong: list[bytes],
        stored: dict[bytes, bytes | None],
        wanted: dict[bytes, bytes | None],
        keys: dict[bytes, bytes],
    ) -> Replacement:
        ids = np.frombuffer(b"".join(wrong), np.uint64).reshape(-1, 2)
        seen = digests(pa.array([stored.get(key) for key in wrong], pa.binary()))
        values = pa.array([wanted.get(key) for key in wrong], pa.binary())
        known = self.memory._keys.get(table)
        named, hidden = None, None
        if known is not None:
            named = pa.array([keys.get(key) or known[key] for key in wrong], pa.binary())
            hidden = np.zeros(len(wrong), np.bool_) if table.startswith("delta ") else None
        return Replacement(table, ids, seen, values, named, hidden)

    def _tables(self, truth: Truth) -> list[str]:
        groups = catalogs.compile(truth.document).shard.view_groups
        found = [*self._right]
        for group in groups:
            found += [name for view in group.views for name in (view_table(view), quarantine_table(view))]
            found += [name for name in self.memory.tables() if name.startswith(f"{group.number} ")]
        return found


def _stored(memory: MemoryStore, table: str, epoch: int) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    for ids, values in memory.scan(table, 0, BUCKETS, epoch + 1):
        found += zip([id.tobytes() for id in ids], values.to_pylist(), strict=True)
    return found


def _delta_id(key: int) -> bytes:
    from belvedere.engine.state.hashing import hash_rows
    from belvedere.engine.vec import Vec
    from belvedere.types import BIGINT

    return bytes(hash_rows([Vec(BIGINT, np.array([key], np.int64))], 1).tobytes())


def draw(seed: int, theme: str, around: Surroundings, oracle: Oracle, **others: Any) -> Repairs | None:
    if theme != THEME:
        return None
    rng = random.Random(f"repairs {seed}")
    return Repairs(rng, around, oracle, where=rng.choice(WHERE), **others)


__all__ = ["SECOND", "THEME", "DamagedMemory", "Repairs", "draw"]
