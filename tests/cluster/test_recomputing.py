"""What a pool's store should hold, computed anew from DELTA, is byte for byte what it holds: for every view file and
TPC-H, after puts, deletes, corrections and drops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere import errors
from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import TableWrite
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.next_engine import FORMATS, NEXT, engines_of
from belvedere.cluster.roles.recomputing import group_tables, live_tags, recompute, same_value
from belvedere.engine.formats import THIS_VERSION
from belvedere.engine.version import ENGINE_VERSION
from belvedere.model.ranges import KeyRange
from belvedere.protocol.ring import BUCKETS
from tests.cluster.fake_pool import FakePool
from tests.oracle.values import table_rows
from tests.tpch.data import TABLES, tables
from tests.tpch.queries import QUERIES
from tests.tpch.refresh import batches
from tests.views.format import FILES, Block, State, changes, parse, steps

Rows = dict[bytes, bytes]


def stored(store: MemoryStore, table: str, epoch: int) -> Rows:
    found: Rows = {}
    for ids, values in store.scan(table, 0, BUCKETS, epoch + 1):
        found.update(zip([key.tobytes() for key in ids], values.to_pylist(), strict=True))
    return found


def recomputed(pool: FakePool, groups: set[int], epoch: int, **options: Any) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for write in recompute(pool.store, pool.document, ENGINE_VERSION, groups, epoch, **options):
        rows = found.setdefault(write.table, {})
        fresh = dict(zip([key.tobytes() for key in write.ids], write.values.to_pylist(), strict=True))
        assert not rows.keys() & fresh.keys(), f"{write.table}: a row comes twice"
        rows.update(fresh)
    return found


def differences(pool: FakePool, **options: Any) -> list[str]:
    """Every row of every table of every view group that is in service."""
    assert pool.plan is not None
    epoch = pool.plan.epoch
    groups = {one.number for one in catalogs.compile(pool.document).view_groups} - set(pool.building)
    made, known = recomputed(pool, groups, epoch, **options), pool.store.tables()
    found, seen = [], set()
    for group in groups:
        tags = live_tags(pool.document, group)
        for table in group_tables(pool.document, group, known):
            seen.add(table)
            there, wanted = stored(pool.store, table, epoch), made.get(table, {})
            if there.keys() != wanted.keys():
                found.append(f"{table}: {len(there)} rows, {len(wanted)} wanted")
            for key in there.keys() & wanted.keys():
                if there[key] != wanted[key] and not same_value(there[key], wanted[key], tags.get(table, frozenset())):
                    found.append(f"{table} {key.hex()}: {there[key]!r}, {wanted[key]!r} wanted")
    assert made.keys() <= seen
    return found


def play(pool: FakePool, db: ClusterDatabase, step: Block, state: State) -> None:
    if step.kind == "error":
        return
    if step.kind == "statement":
        db.execute(step.sql, wait=False)
    else:
        rows, deletes = changes(step, state.base)
        if step.kind == "put":
            db.put(step.target, rows, ts=step.ts)
        elif step.kind == "delete":
            keys = [tuple(row.values()) if len(row) > 1 else next(iter(row.values())) for row in rows]
            db.delete(step.target, keys, ts=step.ts)
        else:
            db.write(step.target, rows, deletes=deletes)
    pool.step()
    while pool.building:
        pool.step()
    pool.retire()
    pool.step()
    state.apply(step)


ONCE = ("key_zero_double", "agg_group_nan")
LATER = tuple(path for number, path in enumerate(FILES) if number % 4 and path.stem not in ONCE)


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=[pytest.mark.long] if p in LATER else []) for p in FILES], ids=lambda path: path.stem
)
def test_every_view_file(path: Path) -> None:
    pool = FakePool()
    pool.step()
    state = State()
    with pool.connect() as db:
        for step, _ in steps(parse(path)):
            play(pool, db, step, state)
    assert differences(pool) == []
    assert differences(pool, parts=3) == []


@pytest.fixture(scope="module")
def tpch() -> Iterator[tuple[FakePool, ClusterDatabase]]:
    pool = FakePool()
    pool.step()
    data = tables()
    with pool.connect() as db:
        for name, columns in TABLES.items():
            db.execute(f"CREATE TABLE {name} ({columns})", wait=False)
        for name, sql in QUERIES.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}", wait=False)
        for name, rows in data.items():
            db.put(name, rows)
        while pool.building:
            pool.step()
        for each in batches(data, 3, 7):
            for change in each:
                if change.delete:
                    keys = table_rows(change.rows)
                    db.delete(change.table, keys if len(keys[0]) > 1 else [k for (k,) in keys])
                else:
                    db.put(change.table, change.rows)
            pool.step()
        yield pool, db


@pytest.mark.timeout(600)
def test_tpch(tpch: tuple[FakePool, ClusterDatabase]) -> None:
    pool, _ = tpch
    assert differences(pool) == []
    assert differences(pool, parts=5, memory_limit=1 << 20) == []


def test_rows_of_views_come_with_their_keys(tpch: tuple[FakePool, ClusterDatabase]) -> None:
    """What is written elsewhere is read in the same order."""
    pool, _ = tpch
    assert pool.plan is not None
    (group,) = [g for g in catalogs.compile(pool.document).view_groups if g.views[0].definition.name == "q3"]
    other = MemoryStore()
    writes = list(recompute(pool.store, pool.document, ENGINE_VERSION, {group.number}, pool.plan.epoch, parts=4))
    other.write(1, writes)
    table = next(write.table for write in writes if write.table.startswith("view "))
    ranges = [
        [row for ids, values in store.range(table, KeyRange(), below) for row in values.to_pylist()]
        for store, below in ((pool.store, pool.plan.epoch + 1), (other, 2))
    ]
    assert ranges[0] == ranges[1] and ranges[0]
    assert other.shape(table) == pool.store.shape(table)


def test_buckets_are_a_part_of_it(tpch: tuple[FakePool, ClusterDatabase]) -> None:
    pool, _ = tpch
    assert pool.plan is not None
    epoch = pool.plan.epoch
    number = max(g.number for g in catalogs.compile(pool.document).view_groups)
    whole = recomputed(pool, {number}, epoch)
    mask = np.zeros(BUCKETS, np.bool_)
    mask[100:9000] = True
    some = recomputed(pool, {number}, epoch, buckets=mask, parts=2)
    for table, rows in whole.items():
        inside = {k: v for k, v in rows.items() if 100 <= int(np.frombuffer(k, np.uint64)[0]) % BUCKETS < 9000}
        assert some.get(table, {}) == inside
    assert 0 < sum(map(len, some.values())) < sum(map(len, whole.values()))


def test_damage_is_seen_whatever_it_is(tpch: tuple[FakePool, ClusterDatabase]) -> None:
    """A changed, a missing and an additional row of every table; values cut off or turned anywhere."""
    pool, _ = tpch
    assert pool.plan is not None
    epoch, store = pool.plan.epoch, pool.store
    document = pool.document
    group = next(g for g in catalogs.compile(document).view_groups if g.views[0].definition.name == "q13").number
    rng = np.random.default_rng(1)
    whole = recomputed(pool, {group}, epoch)
    for table in sorted(group_tables(document, group, store.tables())):
        there = stored(store, table, epoch)
        for key, value in list(there.items())[:: max(1, len(there) // 3)]:
            at = int(rng.integers(0, len(value)))
            turned = value[:at] + bytes([value[at] ^ 0x41]) + value[at + 1 :]
            for damaged in (turned, value[:at], b""):
                _plant(store, table, key, damaged, epoch)
                assert recomputed(pool, {group}, epoch, parts=2)[table] == whole[table], "what is there does not matter"
                _plant(store, table, key, value, epoch)


def _plant(store: MemoryStore, table: str, key: bytes, value: bytes, epoch: int) -> None:
    ids = np.frombuffer(key, np.uint64).reshape(1, 2)
    store.write(epoch, [TableWrite(table, ids, pa.array([value], pa.binary()))])


def test_values_are_in_the_form_of_the_pools_engine() -> None:
    pool = FakePool()
    pool.step()
    with pool.connect() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT)", wait=False)
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT g, count(*) AS n FROM t GROUP BY g", wait=False)
        while pool.building:
            pool.step()
        db.put("t", [{"id": i, "g": i % 3} for i in range(9)])
        pool.step()
    assert pool.plan is not None
    engines = engines_of(ENGINE_VERSION, NEXT)
    writes = list(recompute(pool.store, pool.document, NEXT, {1}, pool.plan.epoch, engines=engines))
    state = [w for w in writes if not w.table.startswith("view ")]
    assert state and all(v.startswith(FORMATS[NEXT].mark) for w in state for v in w.values.to_pylist())
    with pytest.raises(errors.Incompatible, match=f"engine {NEXT}.*this process has {THIS_VERSION}"):
        recompute(pool.store, pool.document, NEXT, {1}, pool.plan.epoch)


def test_what_dropped_views_left_is_no_difference() -> None:
    pool = FakePool()
    pool.step()
    wanted = (
        "one AS SELECT g, sum(v) AS s FROM a GROUP BY g",
        "two AS SELECT g, max(v) AS m FROM a GROUP BY g",
        "three AS SELECT a.id, b.v FROM a LEFT JOIN b ON a.g = b.g AND a.v < b.v",
        "four AS SELECT a.id, b.v FROM a JOIN b ON a.g = b.g",
    )
    views = [sql.split(" AS ", 1) for sql in wanted]
    manifest = "\n---\n".join(
        f"apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {{name: {name}}}\n"
        f"spec: {{query: '{query}'}}"
        for name, query in views
    )
    with pool.connect() as db:
        for name in "ab":
            db.execute(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)", wait=False)
        db.apply_manifest(manifest, wait=False)
        while pool.building:
            pool.step()
        for name in "ab":
            db.put(name, [{"id": i, "g": i % 5, "v": i * i % 11} for i in range(60)])
        pool.step()
        whole = recomputed(pool, {1}, pool.step().epoch)
        for name in ("two", "three"):
            db.execute(f"DROP MATERIALIZED VIEW {name}", wait=False)
        pool.step()
        db.put("a", [{"id": i, "g": i % 5, "v": 1} for i in range(0, 10, 5)])
        pool.step()
    assert pool.plan is not None
    smaller = recomputed(pool, {1}, pool.plan.epoch)
    left = [t for t, rows in smaller.items() if t in whole and any(rows[k] != v for k, v in whole[t].items())]
    assert left, "nothing was left of the views that were dropped, so nothing is shown"
    assert differences(pool) == []
