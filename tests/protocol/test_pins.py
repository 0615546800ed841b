"""Pins and collection: exact bounds for single rounds, and readers and leaders in each other's way."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

from belvedere.errors import Contradiction, EpochExpired
from belvedere.protocol.leadership import CLOCK_OFF_MS
from belvedere.protocol.messages import NEVER, Epoch
from belvedere.protocol.pins import (
    LARGEST_STEP_MS,
    MOMENTS,
    REMEMBERED,
    Collected,
    Collection,
    PinDocument,
    PinPhase,
    check,
    check_read,
    horizon_document,
    horizon_of,
)
from tests.protocol import pinning


def collection(retention: int = 1000, late: int = 2000, committed: int = 10) -> Collection:
    made = Collection(retention, late)
    made.take_over(Epoch(committed), (), 0)
    return made


def wait(made: Collection, upto: int, step: int = 500) -> None:
    """Time passes: nothing is committed that was not before."""
    for now in range(0, upto + 1, step):
        made.committed(NEVER, now)


def collect(made: Collection, pins: Iterable[str], now: int, again: Iterable[str] | None = None) -> Collected:
    pins = list(pins)
    made.choose(pins, now)
    made.raised()
    return made.collect(pins if again is None else again, (), now)


def test_the_name_of_a_pin_says_everything() -> None:
    pin = PinDocument("server-1-7", Epoch(123), 5000, 2)
    assert PinDocument.parse(pin.document) == pin
    assert pin.renewed() == PinDocument("server-1-7", Epoch(123), 5000, 3)
    assert pin.renewed(Epoch(130)).epoch == 130
    for other in ("pins/", "pins/x-1-2-y", "catalog/7", "pins/5-6"):
        assert PinDocument.parse(other) is None


def test_a_holder_relies_on_its_pin_for_the_lease_from_before_the_write() -> None:
    pin = PinDocument("r", Epoch(1), 1000)
    assert pin.outlives(50, 1049) and not pin.outlives(50, 1050)
    assert not pin.outlives(50, 950, margin=100)


def test_the_greatest_horizon_counts() -> None:
    assert horizon_of([]) == NEVER
    assert horizon_of([horizon_document(Epoch(9)), horizon_document(Epoch(10)), "horizon/x"]) == 10


def test_a_pin_below_the_horizon_has_expired() -> None:
    horizons = [horizon_document(Epoch(10))]
    check(PinDocument("r", Epoch(10)), horizons)
    check_read(Epoch(10), horizons)
    words = "epoch 9: what it saw may be gone; the oldest epoch that is still kept is 10"
    with pytest.raises(EpochExpired, match=words):
        check(PinDocument("r", Epoch(9)), horizons)
    with pytest.raises(EpochExpired, match=words):
        check_read(Epoch(9), horizons)


def test_the_horizon_follows_commits_at_the_distance_of_the_retention() -> None:
    made = collection()
    made.committed(Epoch(20), 400)
    assert made.choose([], 999) is None
    made.give_up()
    assert made.choose([], 1000) == horizon_document(Epoch(10))
    assert made.phase is PinPhase.CHOSEN
    made.raised()
    assert made.collect([], [], 1001) == Collected(Epoch(10), NEVER, ())
    assert made.choose([], 1400) == horizon_document(Epoch(20))


def test_a_horizon_whose_write_failed_is_written_again_before_anything_goes() -> None:
    made = Collection(1000, 2000)
    made.take_over(Epoch(10), [], 0)
    assert made.choose([], 1000) == horizon_document(Epoch(10))
    made.give_up()  # nobody knows whether it was written
    made.take_over(Epoch(10), [], 1100)
    assert made.choose([], 1100) == horizon_document(Epoch(10))
    made.give_up()
    made.take_over(Epoch(10), [horizon_document(Epoch(10))], 1200)
    assert made.choose([], 1200) is None


def test_pins_must_be_listed_after_the_horizon_is_durable() -> None:
    made = collection()
    with pytest.raises(Contradiction, match="collection is idle"):
        made.collect([], [], 0)
    made.choose([], 1000)
    with pytest.raises(Contradiction, match="collection is chosen"):
        made.collect([], [], 1000)


def test_a_pin_holds_the_horizon_and_what_is_collected() -> None:
    made = collection()
    made.committed(Epoch(20), 100)
    pin = PinDocument("r", Epoch(15)).document
    assert collect(made, [pin], 1200).horizon == 15
    assert made.horizon == 15


def test_a_pin_that_comes_while_the_horizon_is_raised_is_spared() -> None:
    made = collection()
    made.committed(Epoch(20), 100)
    assert collect(made, [], 1200, again=[PinDocument("r", Epoch(15)).document]).horizon == 15
    assert made.horizon == 20


def test_a_lease_counts_from_when_the_leader_first_saw_the_document() -> None:
    made = collection(committed=20)
    pin = PinDocument("r", Epoch(15), lease=3000)
    last = 4000 + 3000 + LARGEST_STEP_MS
    for now in range(0, last + 1, 1000):
        seen = [pin.document] if now >= 4000 else []
        found = collect(made, seen, now)
        assert found.documents == ()
        assert found.horizon == (15 if seen else (20 if now >= 1000 else 0))
    found = collect(made, [pin.document], last + 1)
    assert found.horizon == 20 and found.documents == (pin.document,)
    renewed = pin.renewed().document
    assert collect(made, [pin.document, renewed], last + 2).documents == (pin.document,)
    assert collect(made, [renewed], last + 3).horizon == 15


def test_expiry_is_judged_as_of_before_the_listing() -> None:
    """A renewal that became durable after the listing was in time if the lease had not ended before the listing."""
    made = collection(committed=20)
    pin = PinDocument("r", Epoch(15), lease=3000).document
    end = 3000 + LARGEST_STEP_MS
    for now in range(0, end + 1, 1000):
        collect(made, [pin], now)
    made.choose([pin], end)
    made.raised()
    assert made.collect([pin], [], end + 4000).horizon == 15


def test_what_is_no_pin_is_left_alone() -> None:
    made = collection()
    assert collect(made, ["pins/of-a-later-version"], 0).documents == ()


def test_lower_horizons_are_removed() -> None:
    made = collection()
    old = [horizon_document(Epoch(3)), horizon_document(Epoch(10))]
    made.choose([], 1000)
    made.raised()
    assert made.collect([], old, 1000).documents == (old[0],)


def test_tombstones_wait_for_late_writers() -> None:
    made = collection(retention=0, late=2000)
    assert collect(made, [], 0) == Collected(Epoch(10), NEVER, ())
    wait(made, 2000 + LARGEST_STEP_MS)
    assert collect(made, [], 2000 + LARGEST_STEP_MS).tombstones == 10


def test_a_new_leader_counts_from_its_takeover() -> None:
    made = Collection(1000, 2000)
    made.take_over(Epoch(50), [horizon_document(Epoch(40))], 10**9)
    assert made.choose([], 10**9 + 999) is None
    made.raised()
    assert made.collect([], [], 10**9 + 999) == Collected(Epoch(40), NEVER, ())


def test_leaders_may_change_more_often_than_the_retention_passes() -> None:
    """Each knows from the one before when epochs were committed, and takes the error of two clocks off."""
    retention, tenure, remembered, epoch = 600_000, 50_000, None, 0
    horizon = NEVER
    for now in range(0, 3_000_000, tenure):
        leader = Collection(retention, 1000)
        leader.restore(remembered, now)
        leader.take_over(Epoch(epoch), [], now)
        for at in range(now, now + tenure, 1000):
            epoch = at
            leader.committed(Epoch(at), at)
            leader.choose([], at)
            remembered = leader.to_remember(at) or remembered
            assert leader.horizon <= max(0, at - retention)
        horizon = leader.horizon
    late = 3_000_000 - retention - horizon
    assert 0 <= late <= 2 * CLOCK_OFF_MS + retention // REMEMBERED + tenure
    assert remembered is not None and len(remembered) < 20_000


def test_commits_that_were_written_down_and_are_damaged_count_from_the_takeover() -> None:
    """A bit that is wrong would shorten the retention, or end every leader that reads it."""
    before = Collection(1000, 2000)
    before.take_over(Epoch(7), (), 0)
    remembered = before.to_remember(0)
    assert remembered is not None
    now = 2 * CLOCK_OFF_MS + 5_000
    for at in range(len(remembered)):
        damaged = remembered[:at] + bytes([remembered[at] ^ 4]) + remembered[at + 1 :]
        after = Collection(1000, 2000)
        after.restore(damaged, now)
        assert after.choose((), now) is None, f"byte {at}"
    after = Collection(1000, 2000)
    after.restore(remembered, now)
    assert after.choose((), now) == horizon_document(Epoch(7))


def test_what_a_leader_before_saw_says_nothing_about_late_writers() -> None:
    before, after = Collection(1000, 1000), Collection(1000, 1000)
    before.take_over(Epoch(5), [], 0)
    remembered = before.to_remember(0)
    after.restore(remembered, 60_000)
    after.take_over(Epoch(9), [], 60_000)
    assert after.choose([], 60_000) == horizon_document(Epoch(5))
    after.raised()
    assert after.collect([], [], 60_000).tombstones == NEVER


def test_a_clock_that_is_set_ends_no_lease() -> None:
    made = collection(retention=10_000)
    for jump in (10**9, 5, 2 * 10**9):
        assert made.choose([], jump) is None
        made.give_up()


def test_commits_are_remembered_in_bounded_memory_on_the_safe_side() -> None:
    made = Collection(100_000, 0)
    made.take_over(Epoch(1), (), 0)
    for now in range(0, 1_000_000, 100):
        made.committed(Epoch(now + 1), now)
        assert len(made._commits) <= 2 * MOMENTS + 4
    document = made.choose([], 1_000_000)
    assert document is not None
    exact = 900_001
    assert exact - 2 * 100_000 // MOMENTS - 100 <= horizon_of([document]) <= exact


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_nothing_is_collected_that_somebody_may_need(first: int) -> None:
    rounds, pinned, collected = 0, 0, 0
    for seed in range(first, first + 25):
        world = pinning.World(seed)
        start = world.committed
        world.run(2000)
        rounds, pinned = rounds + world.rounds, pinned + world.pinned
        collected += world.collected > start and world.purged > start
    assert rounds > 1000 and pinned > 500 and collected > 10


class LooksOnce(Collection):
    """Pins that came while the horizon was raised are not looked for."""

    def collect(self, pins: Iterable[str], horizons: Iterable[str], now: int) -> Collected:
        return super().collect([], horizons, now)


class ForgetsLeases(Collection):
    """A pin that was not renewed since the takeover has expired."""

    def _living(self, documents: Iterable[str], as_of: int) -> dict[str, PinDocument]:
        return {name: pin for name, pin in super()._living(documents, as_of).items() if pin.beat > 0}


class TrustsItsClock(Collection):
    """However far the clock moves, so much time has passed."""

    def _pass(self, now: int) -> None:
        if self._clock is not None:
            self._time += max(0, now - self._clock)
        self._clock = now


class NoLateWriters(Collection):
    """Tombstones go with everything else."""

    def collect(self, pins: Iterable[str], horizons: Iterable[str], now: int) -> Collected:
        found = super().collect(pins, horizons, now)
        return Collected(found.horizon, found.horizon, found.documents)


class KnowsCommits(Collection):
    """What was committed before the takeover was committed long ago."""

    def take_over(self, committed: Epoch, horizons: Iterable[str], now: int) -> None:
        super().take_over(committed, horizons, now)
        self._commits = [(-(10**9), epoch) for _, epoch in self._commits]


@pytest.mark.parametrize("bug", [LooksOnce, ForgetsLeases, TrustsItsClock, NoLateWriters, KnowsCommits])
def test_the_world_notices_a_known_bug(bug: type[Collection]) -> None:
    notices(functools.partial(pinning.World, kind=bug), bug.__doc__)


def test_the_world_notices_readers_that_do_not_look_at_the_horizon() -> None:
    notices(functools.partial(pinning.World, unchecked=True), "readers do not look")


def notices(world: functools.partial[pinning.World], bug: str | None) -> None:
    for seed in range(50):
        try:
            world(seed).run(1000)
        except pinning.Wrong:
            return
    pytest.fail(f"{bug}: not noticed in 50 histories")


def test_what_a_build_reads_as_of_an_epoch_is_kept_without_a_pin() -> None:
    made = collection()
    for epoch in range(1, 40):
        made.committed(Epoch(epoch), 500 * epoch)
    made.held = Epoch(7)
    assert collect(made, [], 20_000).horizon == 7
    wait_until = [made.committed(Epoch(epoch), 500 * epoch) for epoch in range(40, 80)]
    assert wait_until and collect(made, [], 40_000).horizon == 7
    made.held = None
    assert collect(made, [], 40_000).horizon > 7
