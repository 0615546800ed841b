"""Back-pressure: what a plan takes of random indexes, and how room follows what epochs cost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from belvedere.protocol import exactly_once as eo
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.pressure import FIRST_ROWS, LEAST_ROWS, LONGEST_EPOCH, OPEN_EPOCHS, Finished, Line, Pressure

A, B, C = (SourceId(name) for name in "abc")
W = WriterId("w")


def chunk(number: int, source: SourceId, first: int, last: int, rows: int = 10, size: int = 10, at: int = 0) -> Chunk:
    return Chunk(ChunkId(W, number), source, Seq(first), Seq(last), rows, size, at)


def pressure(rows: int = 100, size: int = 10_000, **more: int) -> Pressure:
    return Pressure(rows, size, **more)


def test_everything_is_taken_if_there_is_room() -> None:
    index = [chunk(1, A, 0, 5), chunk(2, A, 6, 9), chunk(3, B, 0, 3)]
    assert pressure().take(index, {}, eo.positions(index)) == {A: 9, B: 3}
    assert pressure().take(index, {A: Seq(9)}, {A: Seq(9), B: Seq(3)}) == {B: 3}
    assert pressure().take([], {}, {}) == {}


def test_the_oldest_chunks_are_taken_first_over_all_sources() -> None:
    index = [chunk(i, source, i, i, rows=30, at=at) for i, (source, at) in enumerate([(A, 1), (B, 2), (A, 3), (C, 4)])]
    assert pressure().take(index, {}, eo.positions(index)) == {A: 2, B: 1}
    assert pressure(60).take(index, {}, eo.positions(index)) == {A: 0, B: 1}


def test_a_clock_that_is_ahead_does_not_starve_its_sources() -> None:
    """B's writer is an hour ahead, and A always has something that seems older: B waits for what was there before."""
    taking = pressure(10)
    b = chunk(0, B, 0, 0, at=3_600_000)
    planned: dict[SourceId, Seq] = {}
    for number in range(1, 5):
        index = [b, *(chunk(i, A, i, i, at=i) for i in range(number, number + 2))]
        planned |= taking.take(index, planned, eo.positions(index))
        if B in planned:
            return
    raise AssertionError(f"B gets nothing: {planned}")


def test_the_order_of_a_source_goes_before_age() -> None:
    index = [chunk(1, A, 0, 0, at=9), chunk(2, A, 1, 1, at=1), chunk(3, B, 0, 0, at=5)]
    assert pressure(10).take(index, {}, eo.positions(index)) == {B: 0}
    assert pressure(20).take(index, {}, eo.positions(index)) == {A: 0, B: 0}


@pytest.mark.parametrize(("rows", "size"), [(10**6, 1), (1, 10**6)])
def test_a_huge_chunk_is_taken_alone(rows: int, size: int) -> None:
    index = [chunk(1, A, 0, 0, rows, size, at=1), chunk(2, B, 0, 0, 1, 1, at=2)]
    assert pressure().take(index, {}, eo.positions(index)) == {A: 0}
    assert pressure().take(index, {A: Seq(0)}, eo.positions(index)) == {B: 0}


def test_what_does_not_fit_waits_for_the_next_plan_and_smaller_ones_do_not() -> None:
    index = [chunk(1, A, 0, 0, 60, at=1), chunk(2, B, 0, 0, 60, at=2), chunk(3, C, 0, 0, 10, at=3)]
    assert pressure().take(index, {}, eo.positions(index)) == {A: 0, C: 0}


def test_bytes_count_as_well_as_rows() -> None:
    index = [chunk(i, A, i, i, rows=1, size=4_000) for i in range(5)]
    assert pressure().take(index, {}, eo.positions(index)) == {A: 1}


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_rows=0"):
        Pressure(0, 1)


def test_a_pool_has_the_room_of_one_server_as_many_times_as_it_has_servers() -> None:
    machine = Pressure(100, 1_000, memory=1 << 20)
    machine.spread_over(8)
    assert machine.room() == (800, 8_000)
    machine.observe(Finished(rows=800, bytes=8_000, moved_rows=800, moved_bytes=8 * (1 << 20), duration=100))
    rows, size = machine.room()  # a MiB of each server for 100 rows, and two epochs have to fit
    assert (rows, size) == (400, 4_000)
    machine.spread_over(2)
    assert machine.room() == (rows // 4, size // 4)
    machine.spread_over(0)  # nobody is there: nothing is planned, and the next one begins with its own room
    assert machine.room() == (rows // 8, size // 8)


def test_what_a_duration_says_about_rows_holds_for_a_pool_of_another_size() -> None:
    slow = Pressure(10**6, 1 << 40, 1 << 40)
    slow.spread_over(10)
    assert slow.room()[0] == 10 * FIRST_ROWS
    slow.observe(Finished(rows=10 * FIRST_ROWS, bytes=1, moved_rows=1, duration=800))
    assert slow.room()[0] == 10 * FIRST_ROWS // 4
    slow.spread_over(20)
    assert slow.room()[0] == 20 * FIRST_ROWS // 4
    for _ in range(10):
        slow.observe(Finished(rows=slow.room()[0], bytes=1, moved_rows=1, duration=10**6))
    assert slow.room()[0] == LEAST_ROWS


@pytest.mark.parametrize("seed", range(100))
def test_random_indexes_are_drained_in_parts_that_fit(seed: int) -> None:
    """Overlapping copies, any sizes, any times: every plan fits or is one chunk, and all of it gets planned."""
    chance = random.Random(seed)
    index, number = [], 0
    for source in (A, B, C):
        seq = 0
        while seq < 40:
            last = seq + chance.randint(0, 8)
            number += 1
            rows, size = chance.choice([0, 1, 20, 90, 5_000]), chance.choice([0, 10, 3_000, 10**6])
            index.append(chunk(number, source, max(0, seq - chance.choice([0, 0, 3])), last, rows, size, number))
            seq = last + 1
    chance.shuffle(index)
    machine = pressure(100, 10_000)
    bounds = eo.positions(index)
    planned: dict[SourceId, Seq] = {}
    chunks = {c.id: c for c in index}
    for _ in range(len(index) + 1):
        if planned == bounds:
            break
        whole = eo.choose(planned, bounds, index)
        taken = machine.take(index, planned, bounds)
        pieces = eo.choose(planned, taken, index)
        assert pieces and set(pieces) <= set(whole)
        oldest = min(whole, key=lambda piece: (chunks[piece.chunk].at, piece.source))
        first = next(piece for piece in whole if piece.source == oldest.source)
        assert first in pieces
        rows, size = (sum(getattr(chunks[piece.chunk], what) for piece in pieces) for what in ("rows", "size"))
        assert len(pieces) == 1 or (rows <= 100 and size <= 10_000)
        planned |= taken
    assert planned == bounds


# --- how room follows what epochs cost


@dataclass
class Pool:
    """Epochs take `overhead + rows * cost` milliseconds; changes come at `rate` rows per millisecond."""

    machine: Pressure
    overhead: float
    cost: float
    rate: float
    backlog: float = 0
    durations: list[float] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            room, _ = self.machine.room()
            rows = int(min(room, self.backlog))
            duration = self.overhead + rows * self.cost
            waited = int(self.backlog / self.rate) if self.rate else 0
            self.backlog += self.rate * max(duration, 20) - rows
            self.machine.observe(Finished(rows, rows, rows, duration=int(duration), waited=waited))
            self.durations.append(duration)
            self.rooms.append(room)


def test_epochs_come_to_the_target_duration() -> None:
    pool = Pool(Pressure(10**7, 1 << 40, 1 << 40), overhead=10, cost=0.01, rate=95, backlog=10**6)
    pool.run(60)
    assert all(1000 <= duration <= LONGEST_EPOCH * 200 + 1 for duration in pool.durations[10:])
    assert pool.backlog < 600_000, "large epochs get more done than comes in"
    idle = Pool(Pressure(10**7, 1 << 40, 1 << 40), overhead=10, cost=0.01, rate=50)
    idle.run(60)
    assert all(duration <= 220 for duration in idle.durations)


def test_an_overhead_beyond_the_target_does_not_make_epochs_ever_smaller() -> None:
    """Epochs take 600 ms whatever is in them, so the target of 200 ms cannot be had: what comes must get through."""
    pool = Pool(Pressure(10**7, 1 << 40, 1 << 40), overhead=600, cost=0.001, rate=100)
    pool.run(200)
    assert all(duration <= 1500 for duration in pool.durations[50:])
    waiting = pool.backlog / pool.rate
    assert waiting < 1500, "milliseconds, about what comes during one epoch"


def test_overhead_is_told_from_cost() -> None:
    line = Line()
    assert line.overhead == 0
    line.add(1000, 300)
    assert line.overhead == 0, "one epoch tells nothing"
    for rows in (500, 2000, 1000, 4000):
        line.add(rows, 100 + rows // 5)
    assert line.overhead == pytest.approx(100, abs=1)
    for _ in range(100):
        line.add(1000, 1000)
    assert line.overhead == 0, "epochs that are all alike tell nothing"


def test_epochs_that_take_long_are_made_smaller_and_grow_again() -> None:
    machine = Pressure(10**6, 1 << 40)
    before = machine.room()[0]
    machine.observe(Finished(before, 0, 0, duration=2000))
    slow = machine.room()[0]
    assert slow == before // 4
    machine.observe(Finished(slow, 0, 0, duration=10))
    assert machine.room()[0] == 2 * slow
    machine.observe(Finished(slow // 10, 0, 0, duration=10))
    assert machine.room()[0] == 2 * slow, "an epoch that was not full proves nothing"


def test_epochs_may_take_longer_when_changes_wait() -> None:
    patient, hurried = Pressure(10**6, 1 << 40), Pressure(10**6, 1 << 40)
    rows = patient.room()[0]
    for machine, waited in ((patient, 100), (hurried, 60_000)):
        machine.observe(Finished(rows, 0, 0, duration=1000, waited=waited))
    assert patient.room()[0] < rows <= hurried.room()[0]


def test_a_fixed_cost_above_the_target_does_not_strangle_the_pool() -> None:
    """Without the age of what waits, rows would shrink to the least although fewer rows do not help."""
    pool = Pool(Pressure(10**6, 1 << 40), overhead=400, cost=0.001, rate=20, backlog=0)
    pool.run(200)
    assert pool.backlog < 20 * 200 * LONGEST_EPOCH * 4
    assert min(pool.rooms) >= LEAST_ROWS


def test_room_shrinks_with_the_measured_fan_out_at_once_and_grows_slowly() -> None:
    machine = Pressure(10**6, 1 << 30, memory=1 << 30)
    machine.observe(Finished(1000, 100_000, 50_000_000, moved_bytes=5_000_000_000, duration=200))
    rows, size = machine.room()
    assert machine.fan_out == 50_000
    assert rows == (1 << 30) // OPEN_EPOCHS // 5_000_000
    assert size == (1 << 30) // OPEN_EPOCHS // 50_000
    machine.observe(Finished(100, 10_000, 100, moved_bytes=10_000, duration=100))
    assert rows < machine.room()[0] < 2 * rows
    for _ in range(100):
        machine.observe(Finished(machine.room()[0], 10_000, 100, moved_bytes=10_000, duration=100))
    assert machine.room()[0] > 100 * rows


def test_spilling_halves_the_room() -> None:
    machine = Pressure(10**6, 1 << 40, memory=1 << 20)
    before = machine.room()[1]
    machine.observe(Finished(10, 10, 10, spilled_bytes=1))
    assert machine.room()[1] == before // 2
    for _ in range(20):
        machine.observe(Finished(10, 10, 10))
    assert machine.room()[1] == before


def test_builds_say_nothing_about_changes() -> None:
    machine = Pressure(10**6, 1 << 40)
    before = machine.room()
    machine.observe(Finished(10, 1000, 10**7, moved_bytes=10**10, duration=60_000, building=True))
    assert machine.room() == before


def test_there_is_always_room_for_something() -> None:
    machine = Pressure(10**6, 1 << 40)
    for _ in range(50):
        machine.observe(Finished(1, 1, 10**12, 10**15, 10**15, 10**9))
    assert min(machine.room()) >= 1


def test_the_same_epochs_give_the_same_room() -> None:
    def rooms() -> list[tuple[int, int]]:
        chance, machine, found = random.Random(7), Pressure(10**6, 1 << 30), []
        for _ in range(200):
            rows = chance.randint(0, 10**5)
            moved = chance.randint(0, 10**7)
            machine.observe(
                Finished(rows, rows * 50, moved, moved * 9, chance.choice([0, 0, 5]), chance.randint(1, 999))
            )
            found.append(machine.room())
        return found

    assert rooms() == rooms()
