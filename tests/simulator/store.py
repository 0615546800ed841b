"""The simulated store: the real store in memory, behind calls that take time, fail, and arrive late.

An asynchronous call (`ask`) reaches the store after a while, takes effect there, and is answered after another
while. It may fail before, halfway or after its effect; it may be on its way for longer than its caller waits, who
hears that nobody answered and tries again, while the first one is still under way: this is how the writes of a
member that is long dead arrive. A caller never waits longer than `PATIENCE`, and nothing is under way for longer
than `LATEST`.

What members read while they compute is read at once, and may fail as well (`reading`). During an outage nothing is
answered at all, and half of what is asked happens all the same. A crash keeps what was acknowledged: one of the calls
under way may have happened in part, the others did not, and answers that were on their way are lost.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from belvedere.backend.memory import Moment
from belvedere.backend.seam import TableWrite
from belvedere.errors import BelvedereError, Damaged, StoreUnavailable
from tests.simulator.damage import DamagedMemory
from tests.simulator.fibers import Fiber
from tests.simulator.scheduler import MS, Scheduler
from tests.simulator.trace import Trace

T = TypeVar("T")

PATIENCE = 400 * MS
LATEST = 2_500 * MS

_WITHOUT_MIDDLE = ("put_document", "forget_sources")
_READS = (
    "identity",
    "get_document",
    "list_documents",
    "chunks",
    "get_chunks",
    "sources",
    "read",
    "scan",
    "range",
    "changed",
    "tables",
    "usage",
)


@dataclass
class Trouble:
    delay: int = 1 * MS
    fails: float = 0.0
    """Share of calls that fail before, halfway or after their effect."""
    late: float = 0.0
    """Share of calls that arrive after their caller has given up."""
    late_writes: float = 0.0
    """The same for writes to tables."""
    unreadable: float = 0.0
    """Share of the engine's reads that fail."""
    damaged: float = 0.0
    """Share of documents and chunks that are read with a wrong bit; what has a checksum in the store is refused."""
    down_until: int = 0
    """Until then nothing is answered."""


class Different(AssertionError):
    """An epoch that was done again wrote something else."""


class SimulatedStore:
    def __init__(self, scheduler: Scheduler, rng: random.Random, trouble: Trouble, trace: Trace | None = None) -> None:
        self.memory = DamagedMemory("simulated", previous_images=True)
        self._trace = trace or Trace()
        self.trouble = trouble
        self._scheduler = scheduler
        self._random = rng
        self._incarnation = 0
        self._under_way: dict[int, Callable[[], object]] = {}
        self._asked = 0
        self.amended: set[tuple[int, int]] = set()
        """(epoch, view group): views of it failed in that epoch, so state that others share with them is written with
        their part or without."""

    def ask(
        self,
        call: Callable[[], T],
        answer: Callable[[T], None],
        failed: Callable[[str], None],
        late: float | None = None,
    ) -> None:
        """`answer` and `failed` are called once, one of them, whatever became of the caller: that is its business."""
        trouble, draw = self.trouble, self._random.random
        arrives = self._delay()
        fails = False
        is_late = draw() < (trouble.late if late is None else late)
        if is_late:
            arrives = int(PATIENCE + (LATEST - PATIENCE) * draw())
            self._scheduler.after(PATIENCE, lambda: failed("no answer in time"))
        elif draw() < trouble.fails:
            fails = True
        born, number = self._incarnation, self._asked
        self._asked += 1
        self._under_way[number] = call

        def gone() -> None:
            self._trace.effects["call cut off by a crash of the store"] += 1
            if not is_late:
                failed("the store is gone")

        def arrive() -> None:
            self._under_way.pop(number, None)
            if born != self._incarnation:
                gone()
                return
            try:
                found = self._carry_out(call, fails)
                if is_late:
                    self._trace.effect(self._scheduler.now, "store", "late call")
            except BelvedereError as error:
                reason = str(error)
                self._trace.record(self._scheduler.now, "store", reason)
                if not is_late:
                    self._scheduler.after(self._delay(), lambda: failed(reason))
                return
            if not is_late:
                self._scheduler.after(self._delay(), lambda: answer(found) if born == self._incarnation else gone())

        self._scheduler.after(arrives, arrive)

    def crash(self, down_until: int) -> None:
        """The process is gone until then. What it had acknowledged is on disk, whatever else it was doing."""
        if self._under_way:
            call = self._under_way[self._random.choice(list(self._under_way))]
            with contextlib.suppress(BelvedereError):
                self._carry_out(call, fails=True)
        self._incarnation += 1
        self._under_way.clear()
        self.trouble.down_until = max(self.trouble.down_until, down_until)

    def _carry_out(self, call: Callable[[], T], fails: bool) -> T:
        is_down = self._is_down
        if not fails and not is_down:
            return call()
        strikes: Moment | None = None

        def strike(name: str, moment: Moment) -> None:
            nonlocal strikes
            if strikes is None:
                strikes = self._random.choice(_moments(name, is_down))
                self._trace.effects[f"failed {strikes.value} its effect"] += 1
            if moment is strikes:
                raise StoreUnavailable(f"simulated: {name} was not answered, it failed {moment.value} its effect")

        self.memory.faults = strike
        try:
            call()
        finally:
            self.memory.faults = None
        raise StoreUnavailable("simulated: no answer, after the effect")

    @property
    def _is_down(self) -> bool:
        return self._scheduler.now < self.trouble.down_until

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        """What a server writes with the version of an epoch. Whoever does an epoch again must write the same bytes."""
        for write in writes:
            rows, keys = self.memory._tables.get(write.table, {}), write.ids.tobytes()
            for number, value in enumerate(write.values.to_pylist()):
                versions = rows.get(keys[16 * number : 16 * number + 16])
                planted = self.memory.planted.get((write.table, keys[16 * number : 16 * number + 16]))
                if versions is not None and epoch in versions.epochs and planted != epoch:
                    before = versions.values[versions.epochs.index(epoch)]
                    excused = (epoch, _view_group(write.table)) in self.amended or self.memory.may_differ(epoch)
                    if before != value and not excused:
                        what = f"epoch {epoch}, table {write.table}"
                        raise Different(f"{what}: a row was written as {before!r}, and again as {value!r}")
        self.memory.write(epoch, writes)

    @contextlib.contextmanager
    def reading(self, fiber: Fiber | None = None) -> Iterator[None]:
        """While this lasts, calls come from a member that computes. It cannot wait, unless it does so on a fiber."""

        def strike(call: str, moment: Moment) -> None:
            if moment is not Moment.BEFORE:
                return
            if fiber is not None:
                # Somebody else may compute meanwhile, and calls of its own must not strike here.
                self.memory.faults = None
                fiber.wait()
                self.memory.faults = strike
                return
            if self._is_down or self._random.random() < self.trouble.unreadable:
                self._trace.effects["failed to read"] += 1
                raise StoreUnavailable(f"simulated: {call} was not answered")
            if call in ("get_document", "get_chunks") and self._random.random() < self.trouble.damaged:
                self._trace.effects["damage found while reading"] += 1
                raise Damaged(f"simulated: {call} found bytes that do not fit their checksum")

        trouble = self.trouble
        strikes = fiber is not None or self._is_down or trouble.unreadable or trouble.damaged
        self.memory.faults = strike if strikes else None
        try:
            yield
        finally:
            self.memory.faults = None

    def damage(self, data: bytes) -> bytes:
        """What a document is read as: as it was written, or with a bit that is not."""
        if not data or self._random.random() >= self.trouble.damaged:
            return data
        self._trace.effects["document read damaged"] += 1
        at = self._random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self._random.randrange(8)]) + data[at + 1 :]

    def _delay(self) -> int:
        return int(self.trouble.delay * (0.2 + 1.6 * self._random.random()))


def _view_group(table: str) -> int:
    """That a table of state belongs to; 0 for others."""
    number = table.partition(" ")[0]
    return int(number) if number.isdecimal() else 0


def _moments(call: str, is_down: bool) -> tuple[Moment, ...]:
    """At which the call can fail. That of a read whose answer is lost makes no difference."""
    if call in _READS:
        return (Moment.BEFORE,)
    if is_down or call in _WITHOUT_MIDDLE:
        return Moment.BEFORE, Moment.AFTER
    return Moment.BEFORE, Moment.HALFWAY, Moment.AFTER
