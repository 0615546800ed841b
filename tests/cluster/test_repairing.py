"""Repair without processes: what owners replace and what they leave, and that everything is afterwards as if nothing
had ever been damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.backend.memory import MemoryStore
from belvedere.cluster.roles import repairing
from belvedere.cluster.roles.repairing import Found, Look, affected
from belvedere.engine.exchange import TableWrite
from belvedere.engine.replacements import Replacement, digests, pack, unpack
from belvedere.engine.shard import view_table
from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol import wire
from belvedere.protocol.driving import Open, Persist
from belvedere.protocol.messages import Epoch, EpochPlan, Repair
from belvedere.protocol.ring import BUCKETS
from tests.cluster import test_work as work

DOCUMENT = work.DOCUMENT
GROUPS = (1, 2)
Tables = dict[str, dict[bytes, bytes]]


def stored(store: MemoryStore, below: int = 1 << 60) -> Tables:
    """Everything but base rows, which nobody damages here."""
    found: Tables = {}
    for table in store.tables():
        if not table.startswith(("delta ", "committed")):
            rows = {}
            for ids, values in store.scan(table, 0, BUCKETS, below):
                rows |= {id.tobytes(): value for id, value in zip(ids, values.to_pylist(), strict=True)}
            found[table] = rows
    return {table: rows for table, rows in found.items() if rows}


def reference(seed: int, epochs: int) -> dict[int, Tables]:
    """By epoch, what there is when nothing is damaged."""
    table = work.begun(seed, 1)
    found = {1: stored(table.store)}
    for epoch in range(2, epochs):
        table.run(table.plan(epoch))
        found[epoch] = stored(table.store)
    return found


def grown(seed: int, servers: int) -> work.Table:
    """With some rows, at epoch 4."""
    table = work.begun(seed, servers)
    for epoch in (2, 3, 4):
        table.run(table.plan(epoch))
    return table


def damage(table: work.Table, rng: random.Random, which: Sequence[str], forget: bool = True) -> None:
    """In the place of what is there: a row is gone, is another one's, or is one that nobody made."""
    for name in [name for name in stored(table.store) if name.startswith("view ") == ("view" in which)]:
        rows = table.store._tables[name]
        live = sorted(key for key, versions in rows.items() if versions.at(1 << 60) is not None)
        for number, key in enumerate(rng.sample(live, min(3, len(live)))):
            versions = rows[key]
            if number == 0:
                versions.values[-1] = None
            elif number == 1:
                versions.values[-1] = rows[rng.choice(live)].values[-1] if "view" in which else versions.values[-1][:-2]  # type: ignore[index]
            elif "view" in which:
                fresh = rng.randbytes(16)
                rows[fresh] = made = type(versions)()
                made.put(versions.epochs[-1], versions.values[-1])
                table.store._keys.setdefault(name, {})[fresh] = fresh
    if forget:
        for server in table.servers.values():
            server.evict(1.0)


def look(table: work.Table, at: int, **more: Any) -> Look:
    document = table.store.get_document(DOCUMENT)
    assert document is not None
    return Look(table.store, document, ENGINE_VERSION, Epoch(at), GROUPS, **more)


def offered(table: work.Table, at: int, name: str = "r") -> Repair:
    seen = look(table, at)
    ((repair, data),) = seen.documents(list(seen.differences()), name)
    table.store.put_document(repair.document, data)
    return repair


def replaced(table: work.Table) -> int:
    return sum(server.repaired.rows for server in table.servers.values())


def left(table: work.Table) -> int:
    return sum(server.repaired.changed_since for server in table.servers.values())


def clean(table: work.Table, at: int) -> bool:
    return not list(look(table, at).differences())


# ---------------------------------------------------------------------- what is mended


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("which", ["view", "state"])
@pytest.mark.parametrize("servers", [1, 3])
def test_everything_is_afterwards_as_if_nothing_had_been_damaged(servers: int, which: str, forget: bool) -> None:
    for seed in range(3):
        right = reference(seed, 9)
        table = work.begun(seed, servers)
        for epoch in (2, 3):
            table.run(table.plan(epoch))
        damage(table, random.Random(seed), which, forget)
        assert stored(table.store) != right[3]
        table.run(replace(table.plan(4), repair=offered(table, 3)))
        assert replaced(table) and not left(table)
        assert stored(table.store) == right[4]
        for epoch in range(5, 9):
            table.run(table.plan(epoch))
            assert stored(table.store) == right[epoch], f"seed {seed}, epoch {epoch}"
        assert clean(table, 8)


def test_nothing_is_found_where_nothing_was_damaged() -> None:
    for seed in range(5):
        table = work.begun(seed, 2)
        for epoch in range(2, 8):
            table.run(table.plan(epoch))
            assert clean(table, epoch)


def test_what_an_owner_remembers_of_damaged_state_goes() -> None:
    """It has computed with the wrong rows, and has them in memory when they are replaced."""
    for seed in range(6):
        right = reference(seed, 10)
        table = grown(seed, 2)
        damage(table, random.Random(seed), "state")
        for server in table.servers.values():  # as if it had read all of it
            for name, groups in server._shard._groups.items():
                ids = np.frombuffer(b"".join(sorted(table.store._tables.get(name, {}))), np.uint64).reshape(-1, 2)
                server._shard._ledger.epoch = 5
                mine = ids[server._shard.owns(ids)] if len(ids) else ids
                try:
                    groups.ensure([mine])
                except errors.Damaged:
                    continue
                groups._absent = None
        table.run(replace(table.plan(5), repair=offered(table, 4)))
        for epoch in range(6, 10):
            table.run(table.plan(epoch))
            assert stored(table.store) == right[epoch], f"seed {seed}, epoch {epoch}"


def test_buckets_that_move_take_the_repair_along() -> None:
    right = reference(4, 9)
    table = grown(4, 2)
    damage(table, random.Random(4), "view")
    damage(table, random.Random(5), "state")
    plan = replace(table.plan(5), repair=offered(table, 4))
    table.compute(plan, plan.stages)
    table.scale(4)
    table.run(plan)
    assert stored(table.store) == right[5]
    table.scale(1)
    for epoch in range(6, 9):
        table.run(table.plan(epoch))
        assert stored(table.store) == right[epoch]


@pytest.mark.parametrize("stages", range(4))
def test_an_attempt_that_is_repeated_writes_the_same(stages: int) -> None:
    """And what it had replaced in memory is forgotten with it."""
    for seed in range(3):
        right = reference(seed, 8)
        table = work.begun(seed, 2)
        table.run(table.plan(2))
        damage(table, random.Random(seed), "state")
        damage(table, random.Random(seed), "view")
        plan = replace(table.plan(3), repair=offered(table, 2))
        table.compute(plan, min(stages, plan.stages))
        if stages == 3:
            table.finish(plan)
        before = {name: dict(rows) for name, rows in stored(table.store).items()}
        table.generation()
        table.run(plan)
        assert stages < 3 or stored(table.store) == before
        for epoch in range(4, 8):
            table.run(table.plan(epoch))
            assert stored(table.store) == right[epoch]


# ---------------------------------------------------------------------- what is left


def test_a_row_that_changed_since_is_left_as_it_is() -> None:
    changed = 0
    for seed in range(6):
        right = reference(seed, 9)
        table = grown(seed, 2)
        damage(table, random.Random(seed), "view")
        repair = offered(table, 4)
        table.run(table.plan(5))
        table.run(replace(table.plan(6), repair=repair))
        changed += left(table)
        assert stored(table.store) == right[6], "what changed was right already: it was written whole"
        for epoch in range(7, 9):
            table.run(table.plan(epoch))
            assert stored(table.store) == right[epoch]
    assert changed > 3


def test_a_change_that_the_store_does_not_have_yet_counts() -> None:
    """The epoch before is finished, and on its way to the store, when the one that repairs is opened."""
    for seed in range(4):
        right = reference(seed, 6)
        table = work.begun(seed, 2)
        table.run(table.plan(2))
        damage(table, random.Random(seed), "view")
        repair, plan, after = offered(table, 2), table.plan(3), table.plan(4)
        after = replace(after, repair=repair)
        table.compute(plan, plan.stages)
        writes = [
            (server, server.finish(Persist(plan.epoch, table.current.number))) for server in table.servers.values()
        ]
        table.compute(after, after.stages)
        for server, found in writes:
            table.store.write(plan.epoch, found)
            server.persisted(plan.epoch)
        table.finish(after)
        table.commit(plan)
        table.commit(after)
        assert stored(table.store) == right[4], f"seed {seed}"


def test_the_same_value_that_came_back_is_another_version() -> None:
    """Its bytes are those that were seen, and the row has changed all the same."""
    table = work.begun(3, 1)
    table.run(table.plan(2))
    name = view_table(table.compiled.view_groups[0].views[0].node)
    key = sorted(table.store._tables[name])[0]
    versions = table.store._tables[name][key]
    wrong = b"wrong" + (versions.values[-1] or b"")
    versions.values[-1] = wrong
    repair = offered(table, 2)
    ids, keys = np.frombuffer(key, np.uint64).reshape(1, 2), table.store._keys[name][key]
    table.store.write(3, [TableWrite(name, ids, pa.array([wrong], pa.binary()), True, pa.array([keys], pa.binary()))])
    table.run(replace(empty(table, 4), repair=repair))
    assert (replaced(table), left(table)) == (0, 1)
    assert table.rows("spend")[key] == wrong


def test_a_row_that_was_damaged_again_is_left() -> None:
    table = work.begun(3, 1)
    table.run(table.plan(2))
    name = view_table(table.compiled.view_groups[0].views[0].node)
    key = sorted(table.store._tables[name])[0]
    versions = table.store._tables[name][key]
    versions.values[-1] = b"wrong"
    repair = offered(table, 2)
    versions.values[-1] = b"wrong in another way"
    table.run(replace(empty(table, 3), repair=repair))
    assert (replaced(table), left(table)) == (0, 1)


def test_a_repair_that_is_planned_twice_does_nothing_the_second_time() -> None:
    right = reference(2, 7)
    table = work.begun(2, 2)
    table.run(table.plan(2))
    damage(table, random.Random(2), "view")
    damage(table, random.Random(2), "state")
    repair = offered(table, 2)
    table.run(replace(table.plan(3), repair=repair))
    first = replaced(table)
    table.run(replace(table.plan(4), repair=repair))
    assert first and (replaced(table), left(table)) == (0, first)
    assert stored(table.store) == right[4]


def test_rows_of_one_unit_are_replaced_together_or_not_at_all() -> None:
    table = work.begun(3, 1)
    table.run(table.plan(2))
    name = next(t for t in stored(table.store) if t.startswith("1 "))
    key = sorted(table.store._tables[name])[0]
    bucket_mate = np.frombuffer(key, np.uint64).reshape(1, 2).copy()
    bucket_mate[0, 1] ^= np.uint64(1)
    versions = table.store._tables[name][key]
    value = versions.values[-1]
    assert value is not None
    for page, seen, count in ((b"page", None, 2), (b"page", b"was there", 0)):
        rows = Replacement(
            name,
            np.frombuffer(key, np.uint64).reshape(1, 2),
            digests(pa.array([value], pa.binary())),
            pa.array([value], pa.binary()),
        )
        pages = Replacement(
            f"{name} pages abc", bucket_mate, digests(pa.array([seen], pa.binary())), pa.array([page], pa.binary())
        )
        data = pack([rows, pages])
        repair = Repair(f"repair/{count}", wire.digest(data), Epoch(2))
        table.store.put_document(repair.document, data)
        epoch = 3 if count else 4
        if not count:
            table.store._tables[f"{name} pages abc"].clear()
            versions.epochs[-1:], versions.values[-1:] = [], []
        table.run(replace(empty(table, epoch), repair=repair))
        assert replaced(table) == count


def empty(table: work.Table, epoch: int) -> EpochPlan:
    """A plan without changes."""
    plan = replace(table.plan(epoch), pieces=())
    return plan


def test_tables_that_are_not_there_any_more_are_left_alone() -> None:
    table = work.begun(3, 2)
    rows = Replacement(
        "view gone 7",
        np.array([[1, 2]], np.uint64),
        digests(pa.array([None], pa.binary())),
        pa.array([b"x"], pa.binary()),
        pa.array([b"k"], pa.binary()),
    )
    data = pack([rows])
    repair = Repair("repair/1", wire.digest(data), Epoch(1))
    table.store.put_document(repair.document, data)
    table.run(replace(table.plan(2), repair=repair))
    assert replaced(table) == 0 and "view gone 7" not in table.store.tables()


def test_a_document_that_is_lost_or_damaged_fails_the_attempt_with_its_name() -> None:
    table = work.begun(3, 1)
    damage(table, random.Random(1), "view")
    repair = offered(table, 1)
    plan = replace(table.plan(2), repair=repair)
    (server,) = table.servers.values()
    data = table.store.get_document(repair.document)
    assert data is not None
    table.store.put_document(repair.document, data + b" ")
    with pytest.raises(errors.Damaged, match="has another digest than the plan says"):
        server.open(Open(plan, table.current.number))
    table.store.remove_documents([repair.document])
    table.generation()
    with pytest.raises(errors.Damaged, match=f"document {repair.document!r} of its repair is not in the store"):
        server.open(Open(plan, table.current.number))
    table.store.put_document(repair.document, data)
    table.generation()
    table.run(plan)
    assert replaced(table)


# ---------------------------------------------------------------------- what others see


def test_subscribers_hear_of_it_and_images_are_what_was_there() -> None:
    """A store that asks for previous images compares them with what it has."""
    for seed in range(4):
        table = work.Table(seed, 2)
        table.store = MemoryStore(previous_images=True)
        document = work.Table(seed, 1).store.get_document(DOCUMENT)
        assert document is not None
        table.store.put_document(DOCUMENT, document)
        table.servers.clear()
        for work_ in table.distributors.values():
            work_._catalogs._store = work_.chunks._store = table.store  # type: ignore[assignment]
        table.scale(2)
        table.run(table.plan(1, work.BUILT))
        table.run(table.plan(2))
        damage(table, random.Random(seed), "view")
        before = stored(table.store)
        plan = empty(table, 3) if seed % 2 else table.plan(3)  # with and without changes of the same tables
        table.run(replace(plan, repair=offered(table, 2)))
        after = stored(table.store)
        assert before != after
        for name in (n for n in {**before, **after} if n.startswith("view ")):
            told = {id.tobytes() for _, ids in table.store.changed(name, 2, 3) for id in ids}
            was, now = before.get(name, {}), after.get(name, {})
            assert {key for key in {**was, **now} if was.get(key) != now.get(key)} <= told
            assert stored(table.store, 3).get(name, {}) == was, "epochs before it are what they were"


# ---------------------------------------------------------------------- the look


def test_a_look_says_what_is_wrong_with_each_row() -> None:
    table = work.begun(1, 1)
    table.run(table.plan(2))
    name = view_table(table.compiled.view_groups[0].views[0].node)
    rows = table.store._tables[name]
    gone, other = sorted(key for key, v in rows.items() if v.at(9) is not None)[:2]
    rows[gone].values[-1] = None
    rows[other].values[-1] = (rows[other].values[-1] or b"") + b"\0"
    rows[bytes(16)] = made = type(rows[gone])()
    made.put(2, rows[other].values[-1])
    (found,) = look(table, 2).differences()
    assert {(row.id, row.problem) for row in found.rows()} == {
        (gone.hex(), "missing"),
        (other.hex(), "different"),
        (bytes(16).hex(), "extra"),
    }
    assert found.table == name and found.keys is not None and len(found.keys) == 3


def test_only_chosen_rows_of_the_view_are_repaired() -> None:
    table = work.begun(1, 1)
    table.run(table.plan(2))
    name = view_table(table.compiled.view_groups[0].views[0].node)
    rows = table.store._tables[name]
    victims = sorted(key for key, v in rows.items() if v.at(9) is not None)[:3]
    for key in victims:
        rows[key].values[-1] = None
    wanted = table.store._keys[name][victims[1]]
    (found,) = look(table, 2, view="spend", chosen=lambda key: key == wanted).differences()
    assert [row.id for row in found.rows()] == [victims[1].hex()]
    assert list(look(table, 2, view="spend", chosen=lambda key: False).differences()) == []
    (found,) = look(table, 2, view="big", chosen=lambda key: False).differences()
    assert len(found.ids) == 3, "what was chosen are rows of another view"


def test_readers_of_a_view_are_looked_at_with_it() -> None:
    table = work.Table(0, 1)
    document = table.store.get_document(DOCUMENT)
    assert document is not None
    assert affected(document, 1) == (1, 2) and affected(document, 2) == (2,)


def test_a_big_repair_goes_in_parts_that_keep_units_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "PART_ROWS", 4)
    table = work.begun(1, 1)
    count, rng = 40, np.random.default_rng(1)
    ids = rng.integers(1, 1 << 63, (count, 2), np.uint64)
    ids[:, 0] = ids[:, 0] // BUCKETS * BUCKETS + np.arange(count, dtype=np.uint64) % 10
    values = pa.array([bytes([n]) for n in range(count)], pa.binary())
    name = next(t for t in stored(table.store) if t.startswith("1 "))
    tables = (name, f"{name} pages x")
    found = [Found(one, ids, ("missing",) * count, pa.nulls(count, pa.binary()), values, None) for one in tables]
    documents = list(look(table, 1).documents(found, "r"))
    assert len(documents) == 10 and len({repair.document for repair, _ in documents}) == 10
    seen: list[tuple[str, bytes]] = []
    buckets: list[set[int]] = []
    for repair, data in documents:
        assert repair.digest == wire.digest(data) and repair.at == 1
        part = unpack(data)
        buckets.append({int(bucket) for rows in part for _, bucket in rows.units()})
        seen += [(rows.table, id.tobytes()) for rows in part for id in rows.ids]
    assert sorted(seen) == sorted((one, id.tobytes()) for one in tables for id in ids)
    assert sum(map(len, buckets)) == len(set().union(*buckets)), "a bucket is in one part"
    monkeypatch.setattr(repairing, "PART_ROWS", 1000)
    assert len(list(look(table, 1).documents(found, "r"))) == 1
    monkeypatch.setattr(repairing, "PART_BYTES", 500)
    assert len(list(look(table, 1).documents(found, "r"))) > 5


def test_a_document_comes_back_as_it_was() -> None:
    rows = Replacement(
        "view a 1",
        np.array([[1, 2], [3, 4]], np.uint64),
        digests(pa.array([None, b"x"], pa.binary())),
        pa.array([b"y", None], pa.binary()),
        pa.array([b"k", b"l"], pa.binary()),
        np.array([False, True]),
    )
    (found,) = unpack(pack([rows]))
    assert found.table == rows.table and (found.ids == rows.ids).all() and found.seen.equals(rows.seen)
    assert found.values.equals(rows.values) and found.keys is not None and found.keys.equals(rows.keys)
    assert found.hidden is not None and found.hidden.tolist() == [False, True]
    with pytest.raises(errors.Damaged, match="cannot be read"):
        unpack(b"no rows")
