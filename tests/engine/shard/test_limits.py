"""What a shard does at its borders: memory, loads, failures, tables that grow, groups that always exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine import ledger
from belvedere.engine import shard as shard_module
from belvedere.engine.delta import Changes
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.graph import weight
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.projection import ProjectionOperator
from belvedere.engine.operators.reverse_join import ReverseJoinOperator
from belvedere.engine.routing import address_of, decode_changes
from belvedere.engine.shard import (
    BUCKETS,
    Shard,
    ShardCatalog,
    StagedGroup,
    StageError,
    TableWrite,
    route_changes,
    view_table,
)
from belvedere.engine.state import ragged
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.vec import Vec
from belvedere.errors import Damaged
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import BIGINT, DOUBLE, STRING, Column
from tests.engine.shard.pool import History, MemoryStore, Pool, plan
from tests.engine.shard.test_shard import check_views
from tests.engine.test_engine import CATALOG, QUERIES, R, S

ALL = ["aggregate", "strings", "left_if", "inner", "group_of_join", "distinct"]


def pool_of(names: list[str], servers: int = 2, **options: Any) -> tuple[Pool, tuple[Any, ...], dict[str, str]]:
    queries = {name: QUERIES[name] for name in names}
    views = plan(CATALOG, queries)
    pool = Pool(np.random.default_rng(4), servers, **options)
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, views),)))
    return pool, views, queries


def test_each_table_is_read_once_per_stage() -> None:
    pool, _, _ = pool_of(ALL, servers=1)
    history = History(3, (R, S))
    for epoch in range(1, 12):
        pool.shards[0].evict()
        pool.begin(epoch, history.step(), {})
        for stage in range(pool.shards[0].stages):
            pool.store.loads.clear()
            pool.stage(stage)
            counts = Counter(table for table, _ in pool.store.loads)
            assert all(count == 1 for count in counts.values()), counts
        made, _ = pool.finish()
        pool.store.write(epoch, made[0])
        pool.commit(epoch)


def test_rows_that_do_not_fit_into_memory_are_spilled(tmp_path: Path) -> None:
    pool, views, queries = pool_of(["inner", "aggregate"], memory_limit=4096, spill_directory=tmp_path)
    history = History(3, (R, S), keys=400)
    for epoch in range(1, 5):
        pool.epoch(epoch, {name: [history.changes(name, 300)] for name in ("r", "s")})
        check_views(pool, views, history, queries)
    assert all(shard.figures()["spilled_bytes"] > 0 for shard in pool.shards)
    assert all(shard.figures()["buffered_bytes"] <= 2048 for shard in pool.shards)
    assert not list(tmp_path.iterdir()), "spilled rows have no names"


def test_state_beyond_the_limit_is_evicted_between_epochs() -> None:
    pool, views, queries = pool_of(["aggregate", "inner"], memory_limit=1 << 18)
    history = History(3, (R, S), keys=5000, groups=2000)
    most = 0.0
    for epoch in range(1, 26):
        pool.epoch(epoch, {name: [history.changes(name, 1500)] for name in ("r", "s")})
        most = max(most, *(shard.figures()["state_rows"] for shard in pool.shards))
    check_views(pool, views, history, queries)
    last = max(shard.figures()["state_rows"] for shard in pool.shards)
    assert last < most, "nothing was ever evicted"


def test_state_beyond_the_limit_is_evicted_during_a_build_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are joined where they lie: the tables do not change, and nothing is sent."""
    monkeypatch.setattr(shard_module, "WEIGH_ROWS", 500)
    queries = {"by_both_keys": "SELECT r.k, r.s, s.v FROM r JOIN s ON r.k = s.j"}
    (view,) = plan(CATALOG, queries)
    pool, history = Pool(np.random.default_rng(4), 1, memory_limit=1 << 17), History(3, (R, S), keys=4000)
    pool.configure(ShardCatalog((R, S), ()))
    pool.epoch(1, {name: [history.changes(name, 3000)] for name in ("r", "s")})
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, (view,)),)))
    assert pool.shards[0].stages == 1
    pool.shards[0].evict()
    held = []
    for epoch in range(2, 18):
        first = (epoch - 2) * BUCKETS // 16
        pool.epoch(epoch, {}, {1: (first, first + BUCKETS // 16)})
        held.append(pool.shards[0].figures()["state_bytes"])
    check_views(pool, (view,), history, queries)
    assert max(held) < 3 << 16, "three times what is for state"
    assert held != sorted(held), "nothing was ever evicted"


def test_few_rows_that_load_big_groups_lead_to_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = {"values": "SELECT x, min(k) AS m, count(DISTINCT k) AS n FROM r GROUP BY x"}
    (view,) = plan(CATALOG, queries)
    pool = Pool(np.random.default_rng(4), 1, memory_limit=3 << 20)
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, (view,)),)))
    groups, each = 40, 1000
    for group in range(groups):
        rows = [(group * each + i, group, 0.5, "") for i in range(each)]
        pool.epoch(1 + group, {"r": [_puts(R, rows, 1)]})
    pool.shards[0].evict()
    monkeypatch.setattr(shard_module, "WEIGH_ROWS", 1 << 30)
    held = []
    for group in range(groups):
        pool.epoch(100 + group, {"r": [_puts(R, [(10**6 + group, group, 0.5, "")], 2)]})
        held.append(pool.shards[0].figures()["state_bytes"])
    assert max(held) < 3 << 20, "twice what is for state"
    assert sorted(pool.rows(view)) == [(g, g * each, each + 1) for g in range(groups)]


def test_few_rows_that_are_big_lead_to_eviction() -> None:
    (view,) = plan(CATALOG, {"projection": QUERIES["projection"]})
    pool = Pool(np.random.default_rng(4), 1, memory_limit=1 << 20)
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, (view,)),)))
    held = []
    for key in range(40):
        pool.epoch(1 + key, {"r": [_puts(R, [(key, 1, 0.5, "text" * 10_000)], 1)]})
        held.append(pool.shards[0].figures()["state_bytes"])
    assert max(held) < 1 << 20, "twice what is for state"


@pytest.mark.parametrize("name", ["aggregate", "strings", "left_if"])
def test_all_that_is_held_has_weight(name: str) -> None:
    pool, _, _ = pool_of([name], servers=1)
    for epoch in range(1, 3):
        pool.epoch(epoch, {t.name: [_puts(t, [(k, k, 0.5, "text" * 50) for k in range(500)], epoch)] for t in (R, S)})
    held = [o for one in pool.shards[0]._operators.values() for o in one.values()]
    state = [o for o in held if isinstance(o, (PreAggregationOperator, ReverseJoinOperator))]
    assert state
    for operator in state:
        counts = 8 * 500 * len(operator.riders) if isinstance(operator, ReverseJoinOperator) else 0
        assert weight(operator) >= operator.size().bytes + counts


def run_all(pool: Pool) -> None:
    for stage in range(pool.shards[0].stages):
        pool.stage(stage)


def test_a_failing_operator_names_the_views_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, views, queries = pool_of(["projection", "aggregate"])
    history = History(1, (R, S))
    pool.epoch(1, {"r": [history.changes("r", 10)]})
    changes = {"r": [history.changes("r", 10)]}

    def fail(self: ProjectionOperator, rows: Any) -> Any:
        raise ZeroDivisionError("a kernel that is wrong")

    with monkeypatch.context() as patch:
        patch.setattr(ProjectionOperator, "apply", fail)
        pool.begin(2, changes, {})
        with pytest.raises(StageError, match="ZeroDivisionError: a kernel that is wrong") as caught:
            run_all(pool)
    assert caught.value.views and set(caught.value.views) <= set(queries)
    pool.undo()
    pool.epoch(2, changes)
    check_views(pool, views, history, queries)


def test_a_store_that_fails_is_no_view_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, views, queries = pool_of(["aggregate"])
    history = History(1, (R, S))
    changes = {"r": [history.changes("r", 10)]}

    def lost(self: MemoryStore, *args: Any) -> Any:
        raise Damaged("chunk 5 is gone")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryStore, "load", lost)
        pool.begin(1, changes, {})
        with pytest.raises(Damaged, match="chunk 5"):
            pool.stage(0)
    pool.undo()
    pool.epoch(1, changes)
    check_views(pool, views, history, queries)


@pytest.mark.parametrize(
    ("where", "call"), [(MemoryStore, "load"), (Shard, "_step"), (DeltaTable, "apply")], ids=["load", "step", "merge"]
)
def test_a_stage_that_failed_anywhere_leaves_no_trace(where: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was loaded, computed or merged into a table when it failed is not taken for the state before it."""
    names = ["aggregate", "left_if", "exists", "total"]
    history = History(2, (R, S))
    epochs = [{name: [history.changes(name, 30)] for name in ("r", "s")} for _ in range(4)]
    plain, _, _ = pool_of(names)
    want = [plain.epoch(number, changes) for number, changes in enumerate(epochs, 1)]
    succeeding = getattr(where, call)
    for at in (0, 3, 9):
        pool, _, _ = pool_of(names)
        for number in (1, 2):
            pool.epoch(number, epochs[number - 1])
        for shard in pool.shards:
            shard.evict(0.5)
        left = iter(range(at))

        def failing(*args: Any, left: Iterator[int] = left) -> Any:
            found = succeeding(*args)
            if next(left, None) is None:
                raise Damaged("chunk 5 is gone")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(where, call, failing)
            pool.begin(3, epochs[2], {})
            try:
                run_all(pool)
            except (Damaged, StageError):
                failed = True
            else:
                failed = False
        assert failed or at > 3, "there are more of them"
        pool.undo()
        assert [pool.epoch(number, epochs[number - 1]) for number in (3, 4)] == want[2:], at


def test_the_group_of_everything_exists_from_the_first_epoch_and_on_one_server() -> None:
    pool, (view,), queries = pool_of(["total"], servers=4)
    written = pool.epoch(1, {})
    assert sum(table == view_table(view) for table, _ in written) == 1
    assert pool.rows(view) == [(0, None, None)]
    assert pool.epoch(2, {}) == {}, "it is made once"
    history = History(1, (R, S))
    for epoch in range(3, 9):
        pool.resize(int(pool.rng.integers(1, 5)))
        pool.epoch(epoch, history.step())
        check_views(pool, (view,), history, queries)


def test_a_table_gets_more_columns() -> None:
    narrow = TableDef("t", (Column("k", BIGINT, False), Column("a", BIGINT)), ("k",))
    wide = TableDef("t", (*narrow.columns, Column("s", STRING), Column("f", DOUBLE)), ("k",))
    catalog = Catalog({"t": narrow})
    old = plan(catalog, {"old": "SELECT k, a FROM t"})
    pool = Pool(np.random.default_rng(1), 2)
    pool.configure(ShardCatalog((narrow,), (StagedGroup(1, old),)))
    rows = [(k, k % 3) for k in range(20)]
    pool.epoch(1, {"t": [_puts(narrow, rows, 1)]})
    half = _puts(narrow, [(k, 7) for k in range(5)], 2)
    half.present = (None, np.zeros(5, np.bool_))  # the key alone: these rows have cells of different age
    pool.epoch(2, {"t": [half]})
    new = plan(Catalog({"t": wide}), {"new": "SELECT k, a, s, f FROM t"}, old)
    view_groups = (StagedGroup(1, old), StagedGroup(2, new))
    for shard in pool.shards[:1]:
        shard.evict()
    pool.configure(ShardCatalog((wide,), view_groups))
    pool.epoch(3, {"t": [_puts(wide, [(3, 1, "x", 0.5), (40, 2, "y", None)], 5)]}, {2: (0, BUCKETS)})
    pool.epoch(4, {"t": [_puts(wide, [(4, 9, "z", 1.5)], 6)]})
    want: dict[int, tuple[Any, ...]] = {k: (k, a, None, None) for k, a in rows}
    want |= {3: (3, 1, "x", 0.5), 40: (40, 2, "y", None), 4: (4, 9, "z", 1.5)}
    assert sorted(pool.rows(new[0])) == sorted(want.values())
    assert sorted(pool.rows(old[0])) == sorted(row[:2] for row in want.values())


def _puts(table: TableDef, rows: list[tuple[Any, ...]], ts: int) -> Changes:
    columns = tuple(vec_of([r[i] for r in rows], c.type) for i, c in enumerate(table.columns))
    return Changes(columns, (None,) * len(columns), None, np.full(len(rows), ts, np.int64))


def test_routing_keeps_order_and_loses_nothing() -> None:
    rng = np.random.default_rng(5)
    owner = rng.integers(0, 3, BUCKETS).astype(np.uint16)
    count = 5000
    keys = rng.integers(0, 300, count)
    columns = (
        Vec(BIGINT, keys),
        Vec(BIGINT, np.arange(count), (np.arange(count) % 5 != 0).astype(np.uint8)),
        Vec(DOUBLE, np.arange(count) / 2),
        Vec(STRING, pa.array([f"text {i}" for i in range(count)])),
    )
    ts = np.arange(count)
    changes = Changes(columns, (None, None, ts % 7 != 0, None), ts % 11 == 0, ts)
    routed = route_changes(R, changes, owner)
    assert sum(rows for _, _, rows in routed) == count
    seen: dict[int, int] = {}
    for target, payload, rows in routed:
        assert address_of(payload) == "r"
        part = decode_changes(R, payload)
        assert len(part) == rows and (np.diff(part.ts) > 0).all()
        assert part.delete is not None and (part.delete == (part.ts % 11 == 0)).all()
        assert part.present[2] is not None and (part.present[2] == (part.ts % 7 != 0)).all()
        assert to_pylist(part.columns[3]) == [f"text {i}" for i in part.ts]
        assert to_pylist(part.columns[1]) == [None if i % 5 == 0 else i for i in part.ts.tolist()]
        for key in part.columns[0].data.tolist():
            assert seen.setdefault(key, target) == target
    assert len(seen) == len(set(keys.tolist()))


def test_calls_out_of_turn_are_refused() -> None:
    shard = Shard(MemoryStore())
    with pytest.raises(AssertionError, match="no epoch is running"):
        shard.run(0)
    shard.begin(1, {})
    with pytest.raises(AssertionError, match="finish or undo it first"):
        shard.begin(2, {})
    with pytest.raises(AssertionError, match="stage 0 is next"):
        shard.run(1)
    with pytest.raises(AssertionError, match="0 of 1 stages"):
        shard.finish()
    shard.run(0)
    assert shard.finish() == []


def test_state_is_loaded_and_saved_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that an epoch touches may be more than one column can hold: the same is written, piece by piece."""
    whole, views, queries = pool_of(ALL)
    pieces, _, _ = pool_of(ALL)
    pieces.late = whole.late = True
    histories = [History(3, (R, S)) for _ in range(2)]
    for epoch in range(1, 25):
        written = []
        for pool, history in zip((whole, pieces), histories, strict=True):
            with monkeypatch.context() as patch:
                if pool is pieces:
                    pool.store.most = 1 + epoch % 3
                    patch.setattr(ledger, "LOAD_BYTES", 60)
                    patch.setattr(ragged, "PIECE_BYTES", 100)
                for shard in pool.shards:
                    shard.evict()
                written.append(pool.epoch(epoch, history.step()))
        assert written[0] == written[1]
    whole.flush()
    pieces.flush()
    check_views(pieces, views, histories[1], queries)
    assert max(count for _, count in pieces.store.loads) <= 3 < max(count for _, count in whole.store.loads)


def test_rows_of_a_table_that_do_not_fit_into_one_column_are_saved_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, views, queries = pool_of(["aggregate"], servers=1)
    export, history = DeltaTable.export, History(3, (R, S), keys=100)

    def limited(self: DeltaTable, ids: np.ndarray) -> tuple[np.ndarray, pa.BinaryArray]:
        if len(ids) > 3:
            raise OverflowError("does not fit")
        return export(self, ids)

    monkeypatch.setattr(DeltaTable, "export", limited)
    pool.epoch(1, {"r": [history.changes("r", 40)]})
    check_views(pool, views, history, queries)
    assert len(pool.store.rows("delta r")) > 3


def test_values_that_are_written_are_loaded_in_the_order_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LOAD_BYTES", 5)
    store = MemoryStore()
    held = ledger.Ledger(store)
    ids = np.arange(40, dtype=np.uint64).reshape(-1, 2)
    change = TableWrite("t", ids[:15], pa.array([b"s%d" % n for n in range(15)], pa.binary()), False)
    store.write(1, [change])
    for epoch, numbers in ((2, [3, 5, 7, 18]), (3, [5, 9, 2])):
        held.epoch = epoch
        values = [None if n == 9 else b"%d-%d" % (epoch, n) for n in numbers]
        held.save("t", ids[numbers], pa.array(values, pa.binary()))
        held.close_epoch()
    held.epoch, store.most = 4, 2
    late = {2: b"3-2", 3: b"2-3", 5: b"3-5", 7: b"2-7", 9: None, 18: b"2-18"}
    expected = [late.get(n, b"s%d" % n if n < 15 else None) for n in range(20)]
    assert held.load("t", ids).to_pylist() == expected and held.loads > 5
    assert held.load("t", ids[::-1]).to_pylist() == expected[::-1]
    assert held.load("t", ids[:0]).to_pylist() == []
