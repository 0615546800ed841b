"""Sources: what is listed and until when; and that all of their entries are delivered, in order, without omissions, and
again until they are acknowledged."""

from __future__ import annotations

import random
import threading

import pytest

from belvedere.backend.pusher import Pushers
from belvedere.errors import CatalogError
from belvedere.protocol.exactly_once import START, Seq, SourceId
from tests.backend.conformance.conftest import NODES, Owner
from tests.backend.conformance.test_base_tables import key, put
from tests.backend.served.base_changes import ORDERS, Change, Model, changes_of, random_change
from tests.backend.served.test_pusher import QUICK, World, all_pushed, wait_until


def test_sources_have_parents_and_end(owner: Owner) -> None:
    store, base = owner.store, owner.base
    assert store.sources() == []
    base.create_table(ORDERS)
    (parent,) = store.sources()
    assert (parent.table, parent.parents, parent.last) == ("orders", frozenset(), None) and parent.node in NODES
    (seq,) = put(owner, Change(1, {})).values()
    lower, upper = base.split(parent.id, key(5))
    daughter = base.merge(lower, upper)
    listed = {info.id: info for info in store.sources()}
    assert listed[parent.id].last == seq and listed[lower].parents == listed[upper].parents == {parent.id}
    assert listed[lower].last == listed[upper].last == START and listed[daughter].last is None
    assert listed[daughter].parents == {lower, upper}
    (later,) = put(owner, Change(2, {})).values()
    base.drop_table("orders")
    assert {info.id: info.last for info in store.sources()}[daughter] == later


def test_sources_are_forgotten_when_they_have_ended(owner: Owner) -> None:
    owner.store.forget_sources([SourceId("nobody")])
    owner.base.create_table(ORDERS)
    (open,) = owner.store.sources()
    owner.store.forget_sources([open.id])
    assert owner.store.sources() == [open]
    lower, upper = owner.base.split(open.id, key(5))
    for _ in range(2):
        owner.store.forget_sources([open.id, lower, SourceId("nobody")])
        assert {info.id for info in owner.store.sources()} == {lower, upper}
    assert owner.log.read_log(open.id, START, 1, 1) == []


def test_an_end_is_known_when_everything_was_acknowledged(owner: Owner) -> None:
    owner.base.create_table(ORDERS)
    (source,) = owner.store.sources()
    seq = max(max(put(owner, Change(number, {})).values()) for number in range(3))
    owner.log.acknowledge({source.id: Seq(seq), SourceId("nobody"): Seq(1)})
    owner.log.acknowledge({source.id: Seq(seq - 1)})
    assert owner.log.acknowledged(source.id) == seq and owner.log.read_log(source.id, START, 1, 1) == []
    owner.base.split(source.id, key(1))
    assert {info.id: info.last for info in owner.store.sources()}[source.id] == seq


def shuffle_ranges(rng: random.Random, owner: Owner) -> None:
    open = [info.id for info in owner.store.sources() if info.last is None]
    what = rng.choice(("split", "merge", "move", "move"))
    try:
        if what == "split" and len(open) < 8:
            owner.base.split(rng.choice(open), key(rng.randrange(-15, 15)))
        elif what == "merge" and len(open) > 1:
            owner.base.merge(*rng.sample(open, 2))
        else:
            owner.base.move(rng.choice(open), rng.choice(NODES))
    except CatalogError as error:
        assert "cannot be" in str(error)  # no neighbours, no keys on one side: nothing happens


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_arrives_once_in_effect(owner: Owner, seed: int) -> None:
    """Requests are lost before and after they are taken, while ranges split, merge and move."""
    rng, lock = random.Random(seed), threading.Lock()
    owner.base.create_table(ORDERS, [key(-5), key(5)])

    def fault(address: str) -> str:
        with lock:
            return rng.choices(("fine", "before", "after"), (6, 2, 2))[0]

    world = World(fault)
    pushers = Pushers(owner.log, NODES, world.push, world.known, seed=seed, habits=QUICK)
    pushers.start()
    own = random.Random(seed + 100)
    written: list[tuple[SourceId, Seq]] = []
    model = Model()
    for step in range(120):
        changes = [random_change(own, clock=10 * step + at) for at in range(own.randrange(1, 6))]
        written += owner.base.put(ORDERS, changes_of(changes)).items()
        for change in changes:
            model.apply(change)
        if step % 6 == 0:
            shuffle_ranges(own, owner)
    last: dict[SourceId, Seq] = {}
    for source, seq in written:
        last[source] = max(seq, last.get(source, seq))
    wait_until(all_pushed(pushers, last))
    pushers.close()
    assert sorted(world.entries()) == sorted(written)
    assert world.rows(owner.store) == model.rows()
    ended = {info.id: info.last for info in owner.store.sources() if info.last is not None}
    assert ended and all(last.get(source, -1) == seq for source, seq in ended.items())
    assert all(not owner.log.read_log(source, Seq(-1), 1, 1) for source in last)
    assert {address for address, _ in world.requests} == set(world.distributors)
