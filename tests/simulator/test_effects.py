"""What histories are there for happens in them: effects are counted, not the strikes that were to have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import pytest

from belvedere.protocol.exactly_once import Chunk, Seq, SourceId, choose
from belvedere.protocol.pressure import Pressure
from belvedere.protocol.reads import ReadSession
from tests.simulator import users
from tests.simulator.coordinators import REFUSED, SILENCE
from tests.simulator.faults import KINDS
from tests.simulator.history import History
from tests.simulator.oracle import Wrong

SEEDS = range(120)


@pytest.fixture(scope="module")
def effects() -> Counter[str]:
    """Over all seeds."""
    found: Counter[str] = Counter()
    take = Pressure.take

    def counting(
        self: Any, index: Sequence[Chunk], planned: Mapping[SourceId, Seq], bounds: Mapping[SourceId, Seq]
    ) -> dict[SourceId, Seq]:
        taken = take(self, index, planned, bounds)
        found["plan cut"] += choose(planned, taken, index) != choose(planned, bounds, index)
        return taken

    with mock.patch.object(Pressure, "take", counting):
        for seed in SEEDS:
            history = History(seed)
            result = history.run()
            state = history.around.zookeeper.record.state
            assert state is not None
            found.update(result.effects)
            found.update(result.faults)
            for region in history.sources.regions.values():
                if region.log and history.oracle.covers(region.id, region.last):
                    found[f"source with {len(region.parents)} parents committed"] += 1
            found["epoch"] += result.epochs
            found["change of the catalog"] += history.ddl.done
            found["change of the catalog refused"] += history.ddl.refused
            found["read"] += sum(reader.reads for reader in history.readers)
            found["change of a view followed"] += sum(subscriber.changes for subscriber in history.subscribers)
            found["history with recoveries"] += state.generation > 2
    return found


@pytest.mark.parametrize(
    ("effect", "least"),
    [
        ("epoch", 5 * len(SEEDS)),
        ("change of the catalog", 60),
        ("read", 7 * len(SEEDS)),
        ("history with recoveries", len(SEEDS) // 3),
        ("plan cut", 20),
        ("table write of a dead session", 2),
        ("compare-and-set after its answer", 5),
        ("token waited for", 20),
        ("tables dropped", 3),
        ("stood back since its clock is off", 1),
        ("began anew since its clock was set back", 1),
        ("crashes", 40),
        ("is paused", 40),
        ("is suspended", 40),
        ("has lost its session", 40),
        ("leaves", 20),
        ("spilled", 20),
        ("source with 1 parents committed", 3),
        ("source with 2 parents committed", 2),
        ("late call", 20),
        ("failed before its effect", 20),
        ("view group computed aside", 15),
        ("builder died", 5),
        ("failed halfway its effect", 20),
        ("failed after its effect", 20),
        ("failed to read", 5),
        ("call cut off by a crash of the store", 4),
        ("message dropped by a crash", 3),
        ("message lost and sent again", 200),
        ("message repeated", 200),
        ("message held up by a partition", 5),
        ("push repeated late", 100),
        ("push sent again", 200),
        ("push cut differently", 50),
        ("push by a former node", 10),
        ("told of an older epoch", 1),
        ("evicted", 1),
        ("leader lost in a commit", 5),
        ("leader paused before a commit", 5),
        ("server stopped before a write", 5),
        ("hangs", 10),
        ("server hangs before a stage", 5),
        ("waits for the store in the middle of a stage", 5),
        ("was told that it is left out", 3),
        ("came back after it was left out", 2),
        (SILENCE, 10),
        ("no room to spill", 10),
        ("had no room to keep a batch", 5),
        ("answered with an old record", 1),
        ("document read damaged", 1),
        ("damage found while reading", 2),
        ("put repeated by its client", 20),
        ("subscription resumed", 20),
        ("change of a view followed", 50),
        ("pin renewed", 100),
        ("pin renewed too late", 5),
        ("found a process gone before its session", 2),
        ("lease ended before its session was heard of", 2),
        ("leader lost right after a commit", 5),
        ("ZooKeeper lost a commit", 2),
        (REFUSED, 2),
        ("refused a plan of another engine", 1),
        ("found two rings in one generation", 1),
        ("refused a member of another protocol", 1),
        ("pool that speaks the next protocol", 1),
        ("pool with the next engine", 1),
        ("pool with an engine that rebuilds", 1),
        (users.REBUILT, 1),
        ("refused a member of another engine", 1),
        ("plan amended", 1),
        ("view set aside", 1),
        ("change of the catalog refused", 1),
    ],
)
def test_it_happens(effects: Counter[str], effect: str, least: int) -> None:
    assert effects[effect] >= least


def test_a_session_that_goes_back_is_noticed() -> None:
    def run_all() -> None:
        for seed in SEEDS:
            History(seed).run()

    forgets = mock.patch.object(ReadSession, "at", lambda self, committed: committed)
    with forgets, pytest.raises(Wrong, match="went back from"):
        run_all()


def test_every_kind_of_fault_strikes(effects: Counter[str]) -> None:
    assert set(effects) >= {kind.name for kind in KINDS}
