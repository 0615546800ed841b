"""Big groups: their members are in pages, of which a change rewrites one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes
from belvedere.engine.state import distinct, minmax, pages, ragged
from belvedere.engine.vec import Vec
from belvedere.types import BIGINT, DOUBLE, STRING
from tests.engine.shard.pool import MemoryStore, Pool, ShardCatalog, StagedGroup, plan
from tests.engine.shard.test_shard import lived, tormented
from tests.engine.test_engine import CATALOG, QUERIES, R, S

JOINS = ["inner", "left", "left_if", "full_if", "exists", "not_exists_if", "self", "right_if", "group_of_join"]
GROUPS = ["aggregate", "strings", "filtered", "total"]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = pages.Sizes(most=2, good=1, least=1)
    monkeypatch.setattr(pages, "ROWS", tiny)
    for module in (minmax, distinct):
        monkeypatch.setattr(module, "VALUES", tiny)


@pytest.mark.parametrize("name", [*JOINS, *GROUPS])
def test_views_over_paged_groups(name: str, small_pages: None) -> None:
    for seed in range(2):
        alone = lived(seed, [1], [name])
        assert any("pages" in table for epoch in alone for table, _ in epoch)
        assert lived(seed, [2, 3, 1], [name]) == alone
        want, got = tormented(seed, [name])
        assert got == want


@pytest.mark.parametrize("name", ["inner", "strings"])
def test_pages_come_and_go_in_pieces(name: str, small_pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lived(1, [2], [name])
    monkeypatch.setattr(MemoryStore, "most", 2)
    monkeypatch.setattr(ragged, "PIECE_BYTES", 100)
    assert lived(1, [2], [name]) == whole
    want, got = tormented(1, [name])
    assert got == want


def rows(first: int, count: int, group: int) -> Changes:
    keys = np.arange(first, first + count, dtype=np.int64)
    columns = (
        Vec(BIGINT, keys),
        Vec(BIGINT, np.full(count, group, np.int64)),
        Vec(DOUBLE, keys / 4),
        Vec(STRING, _texts(count)),
    )
    return Changes(columns, (None,) * 4, None, keys + 1)


def _texts(count: int) -> object:
    return pa.array(["x"] * count)


@pytest.mark.parametrize("name", ["inner", "strings", "aggregate"])
def test_a_change_in_a_big_group_writes_little(name: str) -> None:
    pool = Pool(np.random.default_rng(1), 2, MemoryStore())
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, plan(CATALOG, {name: QUERIES[name]})),)))
    for epoch in range(1, 6):
        pool.epoch(epoch, {"r": [rows(4000 * epoch, 4000, 7)]})
    for shard in pool.shards:
        shard.evict()
    written = pool.epoch(9, {"r": [rows(1, 1, 7)]})
    assert len(written) < 12
    assert sum(len(value or b"") for value in written.values()) < 20_000
    pool.store.loads.clear()
    pool.epoch(10, {"r": [rows(2, 1, 7)]})
    assert sum(count for _, count in pool.store.loads) < 8, "what is resident is not loaded again"
