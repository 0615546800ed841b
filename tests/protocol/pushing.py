"""A small world around the filter: sources that push, distributors that crash, a store that is slow, a planner.

Everything is drawn from one seed. Requests and answers are delayed, repeated and lost; a pusher that gives up cuts anew
and picks any distributor; a region moves and its next pusher starts from an older position while the former one is
still active; writes land late, also those of a distributor that has crashed; the index is scanned step by step while
others write. After each plan what took effect must be a prefix of every source's log. `bug` breaks one thing on
purpose, to show that this world would notice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from belvedere.protocol import exactly_once as eo
from belvedere.protocol.exactly_once import RequestId, Seq, SourceEntry, SourceId, WriterId

T = TypeVar("T")

BUGS = ("early acknowledgement", "one scan", "uncut", "unordered", "trusts writes on their way", "forgets positions")


class Wrong(AssertionError):
    """An entry was lost, came twice or out of order, or something never came to rest."""


@dataclass
class Pusher:
    """Sends one run at a time and goes on when it is acknowledged. `active` pushers of a source may be several."""

    source: SourceId
    next: int
    connection: int = 0
    sent: tuple[int, int] | None = None


@dataclass
class Distributor:
    filter: eo.DuplicateFilter
    number: int
    incarnation: int = 0
    requests: dict[RequestId, tuple[Pusher, int]] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, bug: str | None = None) -> None:
        self.random = random.Random(seed)
        self.bug = bug
        self.by_source = self.random.random() < 0.5
        self.logs: dict[SourceId, list[SourceEntry]] = {}
        self.pushers: list[Pusher] = []
        for number in range(self.random.randint(1, 3)):
            source = SourceId(f"region-{number}")
            self.logs[source] = []
            self.pushers.append(Pusher(source, 0))
        self.distributors = [Distributor(self.filter(n, 0), n) for n in range(self.random.randint(1, 3))]
        self.requests: list[
            tuple[Pusher, int, int, tuple[SourceEntry, ...]]
        ] = []  # pusher, connection, distributor, entries
        self.answers: list[tuple[Pusher, int]] = []
        self.writes: list[tuple[int, int, eo.Write]] = []  # distributor, incarnation
        self.input: dict[eo.ChunkId, tuple[eo.Chunk, tuple[SourceEntry, ...]]] = {}
        self.planned: dict[SourceId, Seq] = {}
        self.effective: dict[SourceId, list[SourceEntry]] = {source: [] for source in self.logs}
        self.scan: Iterator[eo.Chunk] | None = None
        self.scanned: list[eo.Chunk] = []
        self.bounds: dict[SourceId, Seq] | None = None
        self.ids = 0
        self.repeats = 0

    def filter(self, number: int, incarnation: int) -> eo.DuplicateFilter:
        return eo.DuplicateFilter(WriterId(f"{number}.{incarnation}"))

    # --- what can happen

    def run(self, steps: int) -> None:
        actions = [
            (self.append, 3), (self.push, 6), (self.deliver, 8), (self.land, 5), (self.answer, 6), (self.plan, 8),
            (self.give_up, 1), (self.repeat, 1), (self.lose, 1), (self.crash, 0.5), (self.fail, 0.5), (self.move, 0.3),
            (self.retire, 0.3), (self.collect, 1), (self.refresh, 0.5), (self.planner_crash, 0.3),
        ]  # fmt: skip
        calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
        self.drain()

    def append(self) -> None:
        log = self.logs[self.random.choice(list(self.logs))]
        seq = (log[-1].seq if log else self.random.randint(-1, 3)) + self.random.choice([1, 1, 2, 7])
        log.append(SourceEntry(Seq(seq), tuple(range(self.random.choice([0, 1, 1, 2, 50])))))

    def push(self, pusher: Pusher | None = None) -> None:
        pusher = pusher or self.random.choice(self.pushers)
        log = self.logs[pusher.source]
        if pusher.sent is not None or pusher.next >= len(log):
            return
        stop = min(len(log), pusher.next + self.random.choice([1, 2, 3, 10]))
        pusher.connection += 1
        pusher.sent = (pusher.next, stop)
        entries = tuple(log[pusher.next : stop])
        self.requests.append((pusher, pusher.connection, self.random.randrange(len(self.distributors)), entries))

    def deliver(self) -> None:
        if not self.requests:
            return
        pusher, connection, number, entries = self.pick(self.requests)
        distributor = self.distributors[number]
        self.ids += 1
        request = RequestId(self.ids)
        distributor.requests[request] = (pusher, connection)
        self.tell(distributor, eo.ReceivedEntries(request, pusher.source, entries))
        if self.bug == "early acknowledgement":
            self.answers.append((pusher, connection))

    def land(self) -> None:
        if not self.writes:
            return
        number, incarnation, write = self.pick(self.writes)
        self.input[write.chunk.id] = (write.chunk, write.entries)
        if self.distributors[number].incarnation == incarnation:
            self.tell(self.distributors[number], eo.WrittenChunk(write.chunk.id))

    def fail(self) -> None:
        """The answer of the store is lost: the write has happened, will happen, or never will."""
        if not self.writes:
            return
        number, incarnation, write = self.pick(self.writes)
        if self.random.random() < 0.3:
            self.input[write.chunk.id] = (write.chunk, write.entries)
        elif self.random.random() < 0.5:
            self.writes.append((number, -1, write))
        if self.distributors[number].incarnation == incarnation:
            self.tell(self.distributors[number], eo.WriteFailed(write.chunk.id, "no answer"))

    def answer(self) -> None:
        if not self.answers:
            return
        pusher, connection = self.pick(self.answers)
        if pusher.connection == connection and pusher.sent is not None:
            pusher.next, pusher.sent = pusher.sent[1], None

    def give_up(self) -> None:
        self.random.choice(self.pushers).sent = None

    def repeat(self) -> None:
        if self.requests:
            pusher, connection, _, entries = self.random.choice(self.requests)
            self.requests.append((pusher, connection, self.random.randrange(len(self.distributors)), entries))
            self.repeats += 1

    def lose(self) -> None:
        if self.requests and self.random.random() < 0.5:
            self.pick(self.requests)
        elif self.answers:
            self.pick(self.answers)

    def crash(self) -> None:
        old = self.random.choice(self.distributors)
        incarnation = old.incarnation + 1
        new = Distributor(self.filter(old.number, incarnation), old.number, incarnation)
        self.distributors[old.number] = new
        self.writes = [w for w in self.writes if w[:2] != (old.number, old.incarnation) or self.random.random() < 0.5]
        if self.random.random() < 0.7:
            self.refresh(new)

    def refresh(self, distributor: Distributor | None = None) -> None:
        """A distributor reads the index, of which it may see any part."""
        index = [chunk for chunk, _ in self.input.values() if self.random.random() < 0.8]
        self.tell(distributor or self.random.choice(self.distributors), eo.Restored(index, self.planned))

    def move(self) -> None:
        """Another server pushes this source, from a position that had been acknowledged; the former one goes on."""
        former = self.random.choice(self.pushers)
        if len(self.pushers) < 6:
            self.pushers.append(Pusher(former.source, self.random.randint(max(0, former.next - 5), former.next)))

    def retire(self) -> None:
        pusher = self.random.choice(self.pushers)
        if sum(other.source == pusher.source for other in self.pushers) > 1:
            self.pushers.remove(pusher)

    def collect(self) -> None:
        for id in eo.collectable(self.planned, [chunk for chunk, _ in self.input.values()]):
            del self.input[id]

    def planner_crash(self) -> None:
        self.scan, self.bounds, self.scanned = None, None, []
        if self.bug == "forgets positions":
            self.planned = {source: seq for source, seq in self.planned.items() if self.random.random() < 0.5}

    def plan(self) -> None:
        """One step of a scan. The end of the first gives the bounds, the end of the second gives the plan."""
        if self.scan is None:
            self.scan, self.scanned = self.scanning(), []
        chunk = next(self.scan, None)
        if chunk is not None:
            self.scanned.append(chunk)
            return
        self.scan = None
        if self.bounds is None:
            self.bounds = eo.positions(self.scanned)
            if self.bug != "one scan":
                return
        bounds, self.bounds = self.bounds, None
        for source in list(bounds):
            if self.random.random() < 0.2:  # a smaller epoch
                bounds[source] = Seq(self.random.randint(-1, bounds[source]))
        self.commit(bounds)

    def scanning(self) -> Iterator[eo.Chunk]:
        """A cursor over the index, sorted by source or by writer, that sees what is there when it gets there."""
        at: tuple[object, ...] = ()
        while True:
            chunks = [chunk for chunk, _ in self.input.values()]
            keys = {(c.source, c.first, c.id) if self.by_source else (c.id,): c for c in chunks}
            following = [key for key in keys if key > at]
            if not following:
                return
            at = min(following)
            yield keys[at]

    def commit(self, bounds: dict[SourceId, Seq]) -> None:
        pieces = eo.choose(self.planned, bounds, self.scanned)
        again = list(self.scanned)
        self.random.shuffle(again)
        if eo.choose(self.planned, bounds, again) != pieces:
            raise Wrong("the choice depends on the order of the index")
        if self.bug == "unordered":
            chunks = {chunk.id: chunk for chunk in self.scanned}
            pieces = tuple(sorted(pieces, key=lambda piece: chunks[piece.chunk].id, reverse=True))
        for piece in pieces:
            entries = self.input[piece.chunk][1]
            self.effective[piece.source] += list(entries) if self.bug == "uncut" else piece.take(entries)
        for source, bound in bounds.items():
            self.planned[source] = max(self.planned.get(source, eo.START), bound)
        for source, log in self.logs.items():
            expected = [entry for entry in log if entry.seq <= self.planned.get(source, eo.START)]
            if self.effective[source] != expected:
                raise Wrong(f"{source}: {[e.seq for e in self.effective[source]]}, not {[e.seq for e in expected]}")

    # --- machinery

    def tell(self, distributor: Distributor, event: eo.Event) -> None:
        for instruction in distributor.filter.handle(event):
            match instruction:
                case eo.Write():
                    self.writes.append((distributor.number, distributor.incarnation, instruction))
                    if self.bug == "trusts writes on their way":
                        through = {instruction.chunk.source: instruction.chunk.last}
                        self.tell(distributor, eo.Restored((), through))
                case eo.Acknowledge(request):
                    self.answers.append(distributor.requests.pop(request))
                case eo.Refuse(request):
                    pusher, connection = distributor.requests.pop(request)
                    if pusher.connection == connection:
                        pusher.sent = None

    def pick(self, items: list[T]) -> T:
        return items.pop(self.random.randrange(len(items)))

    def drain(self) -> None:
        """No more faults: everything written must come into effect."""
        for _ in range(2_000):
            for pusher in self.pushers:
                self.push(pusher)
            while self.requests or self.writes or self.answers:
                self.deliver()
                self.land()
                self.answer()
            if all(pusher.next == len(self.logs[pusher.source]) for pusher in self.pushers):
                break
            if self.random.random() < 0.2:
                self.give_up()
        else:
            raise Wrong("a pusher never came to the end of its log")
        self.planner_crash()
        self.scanned = [chunk for chunk, _ in self.input.values()]
        self.commit(eo.positions(self.scanned))
        for source, log in self.logs.items():
            if self.effective[source] != log:
                raise Wrong(f"{source}: {len(self.effective[source])} of {len(log)} entries took effect")
        if any(distributor.filter.stages() for distributor in self.distributors):
            raise Wrong("a request was never answered")
