"""A history of a followed table: rows that were there, a load, damage that no log tells of, a reload; then the judge.

Whoever is at work may be killed at any moment; a successor begins with the documents that are there. It may also be
doubled: a second one does the same in the middle of it, and the first goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

from belvedere.backend.hbase.followed import FollowedBook, FollowedTable
from belvedere.backend.hbase.loading import LoadBook, Loader
from belvedere.backend.hbase.log_fence import LogFence
from belvedere.backend.hbase.reloading import COMPARE, DONE, SCAN, Reload, ReloadBook, Reloader
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.unreadable import UnreadableKeys
from belvedere.retry import Superseded
from tests.simulator.followed.world import PLACES, REGION, TABLE, Killed, ScannedCells, Shape, World, key_of

FAMILIES = ("f", "g")
MOST_TRIES = 400


class Wrong(AssertionError):
    """DELTA is not what HBase has."""


@dataclass(frozen=True)
class Outcome:
    seed: int
    wrong: str = ""
    effects: Counter[str] = field(default_factory=Counter)
    corrected: int = 0


class _Fence:
    """`LogFence`: the world goes on until what was in the log is durable."""

    def __init__(self, world: World) -> None:
        self._world = world

    def passed(self) -> None:
        wanted = len(self._world.log)
        while self._world.durable < wanted:
            self._world.moment()
            self._world.deliver(1)


class History:
    def __init__(self, seed: int) -> None:
        rng = random.Random(f"followed {seed}")
        self.seed, self.random = seed, rng
        self.quiet_clock = rng.random() < 0.6
        """While the reload is at work clients leave timestamps to HBase, so that DELTA is right without another one."""
        shape = Shape(
            write=rng.choice((0.1, 0.5, 1.0)),
            delete=rng.choice((0.0, 0.3, 1.0)),
            odd=rng.choice((0.0, 0.3, 0.8)),
            ties=rng.choice((0.0, 0.3, 0.9)),
            compaction=rng.choice((0.0, 0.1, 0.4)),
            commit=rng.choice((0.1, 0.3, 1.0)),
            killed=rng.choice((0.0, 0.01, 0.03)),
            doubled=rng.choice((0.0, 0.0, 0.02)),
            steps=rng.choice((0, 1, 2, 4)),
            rows=rng.choice((2, 4, 10)),
        )
        self.world = World(rng, shape)
        self.book = FollowedBook(self.world.store)
        self.loads, self.reloads = LoadBook(self.world.store), ReloadBook(self.world.store)
        self.table = FollowedTable(TABLE, True)
        self.corrected = self.quiet_from = 0

    def run(self) -> Outcome:
        names = (f"{number:016x}" for number in itertools.count())
        with mock.patch("secrets.token_hex", side_effect=lambda size: next(names)):
            return self._run()

    def _run(self) -> Outcome:
        world, rng = self.world, self.random
        weights, world.shape.deliver, world.shape.commit = (world.shape.deliver, world.shape.commit), 0.0, 0.0
        for _ in range(rng.randrange(40) if world.shape.write else 0):
            world.step()
        before = world.durable = len(world.log)  # written before anybody followed
        world.shape.deliver, world.shape.commit = weights
        self._without_killing(lambda: self.book.put_table(self.table))
        cut = key_of(rng.randrange(1, world.shape.rows)).hex()
        pieces = [("", cut), (cut, "")]
        self._without_killing(lambda: self.loads.add("t", "", FAMILIES, pieces))
        self._until_done(self._load)
        world.effects["rows there before"] += before > 0
        world.writing = False
        world.settle()
        if not world.shape.compaction or not (world.shape.odd or world.shape.ties):
            self._judge("after the load")
        if self.seed % 5 == 2:
            self._fall_behind()
        self._damage()
        world.writing = True
        if self.quiet_clock:
            world.shape.odd = 0.0
            world.clock += 100
            self.quiet_from = world.clock
            if world.shape.compaction:  # a put at the time of a delete that was forgotten lives, and no log tells so
                world.shape.ties = 0.0
            world.committed_to = self._check_epoch
        self._reload(tuple(pieces), "r1")
        world.writing = False
        world.settle()
        if self.quiet_clock and not self.reloads.all("t")[0].undecided:
            self._judge("after the reload")
        else:
            self._reload(tuple(pieces), "r2")
            world.settle()
            self._judge("after a reload beside which nobody wrote")
        return Outcome(self.seed, "", world.effects, self.corrected)

    def _judge(self, when: str) -> None:
        truth, shown = self.world.truth(), self.world.shown()
        if truth != shown:
            keys = sorted(key for key in truth.keys() | shown.keys() if truth.get(key) != shown.get(key))
            told = "; ".join(f"row {key}: hbase has {truth.get(key)}, delta {shown.get(key)}" for key in keys[:4])
            raise Wrong(f"{when}: {told}")

    def _check_epoch(self) -> None:
        """What HBase shows now, and the log has told already, is shown: no correction takes it away for a while."""
        world, shown = self.world, self.world.shown()
        told = {
            (row, cell.family, cell.qualifier, cell.ts, cell.value)
            for row, cells in zip(world.log_rows, world.log[: world.taken[REGION]], strict=False)
            for cell in cells
            if cell.ts > self.quiet_from
        }
        for row, cells in world.rows.items():
            for (family, qualifier), (ts, value) in cells.read().items():
                if (row, family, qualifier, ts, value) in told:
                    found = shown.get(row, (None,) * len(PLACES))[PLACES.index((family, qualifier))]
                    if found != value:
                        raise Wrong(f"in between: row {row}, {qualifier}: hbase has {value}, delta {found}")

    def _fall_behind(self) -> None:
        """The log has what nobody has heard of yet when rows are lost: it comes while the table is read again."""
        world, rng = self.world, self.random
        for _ in range(rng.randrange(1, 12)):
            world.clock += 1
            world.put(rng.randrange(world.shape.rows), world.clock, rng.sample(PLACES, rng.choice((1, 3))))
        world.effects["log behind"] += 1

    def _damage(self) -> None:
        world, rng = self.world, self.random
        for _ in range(rng.randrange(8)):
            row = rng.randrange(world.shape.rows)
            if rng.random() < 0.5:
                world.delete(row, world.clock + 1, rng.choice((None, None, *PLACES)), logged=False)
                world.effects["lost delete"] += 1
            else:
                ts = rng.choice((rng.randrange(1, 40), world.clock))
                world.put(row, ts, rng.sample(PLACES, 2), logged=False)
                world.effects["bulk load"] += 1
        world.clock += 1
        if rng.random() < 0.7:
            world.compact()

    # ------------------------------------------------------------------ who is at work

    def _parts(self) -> tuple[Loader, Reloader]:
        """Of a new process."""
        world = self.world
        book, loads, reloads = FollowedBook(world.store), LoadBook(world.store), ReloadBook(world.store)
        cells = cast(RpcCells, ScannedCells(world))
        unreadable = UnreadableKeys(world.store, cells)
        loader = Loader(book, loads, cells, world.push, world.committed, self._wait, unreadable)
        fence = cast(LogFence, _Fence(world))
        return loader, Reloader(
            book, loads, reloads, loader, world.store, fence, world.committed, self._wait
        )  # fmt: skip

    def _wait(self, seconds: float) -> bool:
        self.world.moment()
        self.world.commit()
        return False

    def _load(self) -> bool:
        """One range, if there is one."""
        loader, _ = self._parts()
        ranges = [range for range in LoadBook(self.world.store).ranges() if not range.done]
        if ranges:
            loader.load(self.table, self.random.choice(ranges))
        return not ranges

    def _reload(self, pieces: tuple[tuple[str, str], ...], id: str) -> None:
        reload = Reload("t", id, pieces)
        self._without_killing(lambda: self.reloads.ask(reload))

        def advance() -> bool:
            _, reloader = self._parts()
            now = ReloadBook(self.world.store).read(reload.document)
            assert now is not None
            if now.phase == DONE:
                return True
            reloader.advance(self.table, now)
            if now.phase == SCAN:
                self._load()
            else:
                assert now.phase == COMPARE
            return False

        self._until_done(advance)
        done = self.reloads.read(reload.document)
        assert done is not None
        self.corrected += done.corrected
        self.world.effects["undecided"] += done.undecided

    def _until_done(self, work: Callable[[], bool]) -> None:
        """Killed ones have successors."""
        world = self.world

        def other() -> None:
            with contextlib.suppress(Killed, Superseded):
                work()

        for attempt in range(MOST_TRIES):
            if attempt > 20:
                world.shape.killed = world.shape.doubled = 0.0
            world.others.append(other)
            try:
                if work():
                    return
            except Killed:
                continue
            finally:
                world.others.pop()
                world.deep = 0
        raise Wrong(f"not done after {MOST_TRIES} tries")

    def _without_killing(self, work: Callable[[], Any]) -> None:
        killed, self.world.shape.killed = self.world.shape.killed, 0.0
        work()
        self.world.shape.killed = killed


def run(seed: int) -> Outcome:
    history = History(seed)
    try:
        return history.run()
    except Wrong as wrong:
        return Outcome(seed, str(wrong), history.world.effects, history.corrected)
