"""Pins and collection: what an epoch can see is kept while it is pinned or within the retention.

A pin is a document, and all there is to know of it is in its name; so is the horizon. Both are written once and
never changed: renewing a pin or raising the horizon is another document.

    a reader:    write pins/… ──▶ list horizon/ ──the pin is not below it──▶ held ──the next is durable in time──▶ held
                                       └──it is below──▶ EpochExpired
    the leader:  IDLE ──list pins/──▶ CHOSEN ──write horizon/…──▶ RAISED ──list pins/ again, collect below both──▶ IDLE

Why it is safe:

1. The reader writes, then looks; the leader writes, then looks. Whichever wrote later sees the other: either the
   reader finds the horizon above its pin and gives up, or the leader finds the pin and spares what it sees.
2. The greatest horizon counts. A leader of yesterday whose write comes late adds a lower one, which changes nothing;
   its collection comes late as well, below a horizon that every pin has respected since.
3. A lease needs no clock in common: it lasts from when the *leader first saw* that document, and the reader counts from
   before it wrote it, so the reader's ends first. A renewal is a new document. If it is durable while the one before
   it still outlives, every listing of a leader has one of the two (expiry is judged as of before the listing), so
   it need not look at the horizon, which may have been raised above a pin that was spared. Otherwise it is a
   new pin. A document that is removed as expired takes no renewal with it. A new leader counts all leases anew.
4. Retention and the bound on late writers count from commits that this leader saw; what was committed before counts as
   committed at its takeover. Too late is safe. Leaders may change more often than a long retention passes, so each
   writes down when epochs were committed, for the next one (`to_remember`, `restore`), who takes twice the error of
   clocks off; that counts for the retention only. What a leader of yesterday writes has a lower term: it is not read.
   A step of the clock that is too large to be true (it was set, or the process was stopped) does not count at all, and
   smaller ones, which the leader's clock guard (`Leadership`) limits to `LARGEST_STEP_MS` in sum, are added to leases
   and to the bound.
5. A tombstone hides older versions of its row. Once it is removed a late write of an older epoch would be seen; so
   tombstones go when their epoch was committed longer ago than any writer should be late, and the store ignores
   writes of epochs whose tombstones may be gone.
6. Nothing above the committed epoch is collected, and of each row the newest version at the horizon stays: open epochs
   can always be done again. INPUT goes when it is committed (`exactly_once.collectable`).
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from belvedere.errors import Contradiction, EpochExpired
from belvedere.protocol.messages import CLOCK_OFF_MS, NEVER, Epoch

PINS = "pins/"
HORIZONS = "horizon/"
COMMITS = "commits/"
LEASE_MS = 60_000
LARGEST_STEP_MS = 5000
"""A clock that moves more between two events has been set."""
MOMENTS = 256
"""How finely commits are remembered: parts of the retention."""
REMEMBERED = 16
"""How often they are written down: parts of the retention."""


@dataclass(frozen=True)
class PinDocument:
    """`holder` is unique (who, and a number), `beat` counts renewals, `lease` is in milliseconds."""

    holder: str
    epoch: Epoch
    lease: int = LEASE_MS
    beat: int = 0

    @property
    def document(self) -> str:
        """The name of the document; its content does not matter."""
        return f"{PINS}{self.epoch:020d}-{self.lease}-{self.beat}-{self.holder}"

    @classmethod
    def parse(cls, document: str) -> PinDocument | None:
        """None if it is no pin."""
        parts = document.removeprefix(PINS).split("-", 3)
        if not document.startswith(PINS) or len(parts) < 4 or not all(part.isdecimal() for part in parts[:3]):
            return None
        return cls(parts[3], Epoch(int(parts[0])), int(parts[1]), int(parts[2]))

    def renewed(self, epoch: Epoch | None = None) -> PinDocument:
        """The next one to write, of the same epoch or a later one. It is held without `check` if this one still
        `outlives` when it is durable; then the document of this one may go."""
        return replace(self, beat=self.beat + 1, epoch=self.epoch if epoch is None else epoch)

    def outlives(self, written: int, now: int, margin: int = 0) -> bool:
        """Whether the holder may rely on it: `written` is when it *began* to write the pin, on its own clock."""
        return now - written < self.lease - margin


def horizon_document(epoch: Epoch) -> str:
    return f"{HORIZONS}{epoch:020d}"


def horizon_of(documents: Iterable[str]) -> Epoch:
    """The horizon, from the names of all documents below `HORIZONS`."""
    numbers = (name.removeprefix(HORIZONS) for name in documents)
    return max((Epoch(int(number)) for number in numbers if number.isdecimal()), default=NEVER)


def check(pin: PinDocument, horizons: Iterable[str]) -> None:
    """The reader's second step, after its pin is durable: `horizons` are names of documents, listed since then."""
    check_read(pin.epoch, horizons)


def check_read(epoch: Epoch, horizons: Iterable[str]) -> None:
    """For reads without a pin: `horizons` were listed *after* the read, so nothing was missing when it was done."""
    horizon = horizon_of(horizons)
    if epoch < horizon:
        raise EpochExpired(f"epoch {epoch}: what it saw may be gone; the oldest epoch that is still kept is {horizon}")


def commits_document(term: int) -> str:
    return f"{COMMITS}{term}"


def term_of(document: str) -> int:
    """Of a document below `COMMITS`."""
    term = document.removeprefix(COMMITS)
    return int(term) if term.isdecimal() else -1


def _sealed(content: bytes) -> bytes:
    """With a digest: an epoch or a time with a wrong bit in it would make what is still wanted look old."""
    return hashlib.blake2b(content, digest_size=8).hexdigest().encode() + b" " + content


def _unsealed(data: bytes) -> bytes | None:
    """None if it is not what was sealed."""
    content = data.partition(b" ")[2]
    return content if _sealed(content) == data else None


class PinPhase(enum.Enum):
    """See the drawing above."""

    IDLE = "idle"
    CHOSEN = "chosen"
    RAISED = "raised"


@dataclass(frozen=True)
class Collected:
    """What may go: versions that no epoch from `horizon` on sees (`Store.collect`), and documents of no more use."""

    horizon: Epoch
    tombstones: Epoch
    documents: tuple[str, ...]


class _Mark(NamedTuple):
    """A commit that a leader before this one saw: at the latest when, and by which time it was told (milliseconds)."""

    at: int
    told: int
    epoch: Epoch


class Collection:
    """The leader's side, from its takeover on. A round: `choose`, write, `raised`, `collect`; or `give_up`."""

    def __init__(self, retention_ms: int, late_writer_ms: int) -> None:
        self.phase = PinPhase.IDLE
        self.horizon = NEVER
        """The greatest horizon that may be in the store."""
        self.held: Epoch | None = None
        """The oldest epoch that a plan in the record still needs. It is above every horizon so far: none reaches an
        epoch before it is committed."""
        self._durable = NEVER
        """The greatest one that is."""
        self._retention, self._late = retention_ms, late_writer_ms
        self._time = 0
        self._clock: int | None = None
        self._raised_at = 0
        self._commits: list[tuple[int, Epoch]] = []
        """(time, epoch), both ascending: from that time on the epoch is committed."""
        self._former: list[_Mark] = []
        """The same, as leaders before this one saw it; good for the retention alone."""
        self._remembered_at: int | None = None
        self._seen: dict[str, int] = {}
        """Documents of pins, and when they were first seen."""

    def take_over(self, committed: Epoch, horizons: Iterable[str], now: int) -> None:
        """`horizons`: names of documents below `HORIZONS`."""
        self._pass(now)
        self._durable = max(self._durable, horizon_of(horizons))
        self.horizon = max(self.horizon, self._durable)
        self.committed(committed, now)

    def committed(self, epoch: Epoch, now: int) -> None:
        """The epoch is committed, in the record, as of now."""
        self._pass(now)
        if self._commits and epoch <= self._commits[-1][1]:
            return
        self._forget()
        grain = max(self._retention, self._late) // MOMENTS
        if len(self._commits) > 1 and self._time - self._commits[-2][0] < grain:
            self._commits.pop()  # remembered as committed when its successor was: later, so nothing goes too early
        self._commits.append((self._time, epoch))

    def choose(self, pins: Iterable[str], now: int) -> str | None:
        """Begin a round with the names of all pins: the document to write; None if the horizon stays where it is (then
        go on with `raised`)."""
        self._pass(now)
        self.phase = PinPhase.CHOSEN
        wanted = min(
            [
                max(
                    self._committed_for(self._retention, self._commits),
                    self._committed_for(self._retention, ((mark.at, mark.epoch) for mark in self._former)),
                ),
                *(pin.epoch for pin in self._living(pins, as_of=self._time).values()),
                *([] if self.held is None else [self.held]),
            ]
        )
        self.horizon = max(self.horizon, wanted)  # from here on it may be in the store, whatever is heard of the write
        return None if self.horizon <= self._durable else horizon_document(self.horizon)

    def raised(self) -> None:
        """The horizon is durable. The pins must be listed now, not before."""
        if self.phase is PinPhase.CHOSEN:
            self.phase, self._raised_at = PinPhase.RAISED, self._time

    def collect(self, pins: Iterable[str], horizons: Iterable[str], now: int) -> Collected:
        """End the round with the names of all pins and horizons, listed after `raised`."""
        if self.phase is not PinPhase.RAISED:
            raise Contradiction(f"collection is {self.phase.value}: first the horizon is durable, then pins are listed")
        self._pass(now)
        self.phase = PinPhase.IDLE
        living = self._living(pins, as_of=self._raised_at)
        held = [] if self.held is None else [self.held]
        horizon = min([self.horizon, *(pin.epoch for pin in living.values()), *held])
        expired = [name for name in self._seen if name not in living and PinDocument.parse(name) is not None]
        lower = [name for name in horizons if horizon_of([name]) < self.horizon]
        return Collected(
            horizon, min(horizon, self._committed_for(self._late + LARGEST_STEP_MS, self._commits)), (*expired, *lower)
        )

    def to_remember(self, now: int) -> bytes | None:
        """When epochs were committed, for the next leader; None if it knows that well enough from what was written."""
        self._pass(now)
        since = self._remembered_at
        if since is not None and self._time - since < max(self._retention // REMEMBERED, 1):
            return None
        self._remembered_at = self._time
        self._forget()
        former = [(mark.told, mark.epoch) for mark in self._former]  # as it was told: errors of clocks do not add up
        return _sealed(json.dumps(former + [(now - (self._time - at), epoch) for at, epoch in self._commits]).encode())

    def restore(self, data: bytes | None, now: int) -> None:
        """What the leader before has written down. If that is damaged, or of a version that wrote it otherwise, commits
        count from this takeover: too late is safe, and a leader that cannot read it must lead all the same."""
        self._pass(now)
        off = 2 * CLOCK_OFF_MS  # its clock and this one
        content = None if data is None else _unsealed(data)
        marks = [] if content is None else json.loads(content)
        self._former = [_Mark(self._time - max(0, now - told - off), told, Epoch(epoch)) for told, epoch in marks]

    def give_up(self) -> None:
        """A step of the round failed, or its answer is unknown."""
        self.phase = PinPhase.IDLE

    def pins(self) -> tuple[PinDocument, ...]:
        """Those that were there when they were last listed, oldest epoch first; for people."""
        found = (PinDocument.parse(name) for name in self._seen)
        return tuple(sorted((pin for pin in found if pin is not None), key=lambda pin: (pin.epoch, pin.holder)))

    def _pass(self, now: int) -> None:
        if self._clock is not None and 0 < now - self._clock <= LARGEST_STEP_MS:
            self._time += now - self._clock
        self._clock = now

    def _living(self, documents: Iterable[str], as_of: int) -> dict[str, PinDocument]:
        self._seen = {name: self._seen.get(name, self._time) for name in documents}
        parsed = ((name, PinDocument.parse(name), seen) for name, seen in self._seen.items())
        return {
            name: pin for name, pin, seen in parsed if pin is not None and as_of - seen <= pin.lease + LARGEST_STEP_MS
        }

    def _committed_for(self, age: int, commits: Iterable[tuple[int, Epoch]]) -> Epoch:
        """The newest epoch that has certainly been committed for so long."""
        return max((epoch for at, epoch in commits if at <= self._time - age), default=NEVER)

    def _forget(self) -> None:
        """Commits before the newest one that is older than both ages."""
        longest = self._time - max(self._retention, self._late + LARGEST_STEP_MS)
        while len(self._commits) > 1 and self._commits[1][0] <= longest:
            del self._commits[0]
        while len(self._former) > 1 and self._former[1].at <= self._time - self._retention:
            del self._former[0]
