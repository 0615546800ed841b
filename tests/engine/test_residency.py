"""Keys that are not resident: an engine that forgets its state after every epoch stays exact."""

from __future__ import annotations

import numpy as np
import pytest

from belvedere.engine.engine import Engine
from belvedere.engine.residency import MemoryKeyStore
from tests.engine.test_engine import QUERIES, R, S, World


@pytest.mark.parametrize("share", [1.0, 0.5], ids=["everything", "half"])
def test_views_stay_exact_while_keys_are_evicted_after_every_epoch(share: float) -> None:
    world = World(seed=11)
    store = MemoryKeyStore()
    world.engine = Engine(store=store)
    for table in (R, S):
        world.engine.add_table(table)
    world.add(list(QUERIES))
    for _ in range(20):
        world.change()
        world.check()
        world.engine.evict(lambda count: world.rng.random(count) < share)
    assert store.loads > 100


def test_what_is_not_touched_is_not_loaded() -> None:
    world = World(seed=12)
    store = MemoryKeyStore()
    world.engine = Engine(store=store)
    for table in (R, S):
        world.engine.add_table(table)
    world.add(["aggregate"])
    for _ in range(10):
        world.change()
    world.engine.evict(lambda count: np.ones(count, np.bool_))
    assert world.engine.sizes()[next(iter(world.engine.sizes()))].rows == 0
    world.engine.step(world.epoch + 1, {})
    assert world.engine.sizes()[next(iter(world.engine.sizes()))].rows == 0
