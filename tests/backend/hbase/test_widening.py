"""A followed table that gets columns: what is written down, whoever ends in between; without an HBase."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.followed import FollowedBook, FollowedTable
from belvedere.backend.hbase.loading import LoadBook
from belvedere.backend.hbase.log import HBaseLog
from belvedere.backend.memory import MemoryStore
from belvedere.errors import StoreUnavailable
from belvedere.sql.catalog import TableDef
from tests.simulator.followed.world import TABLE

assert TABLE.origin is not None
NARROW = replace(TABLE, columns=TABLE.columns[:3], origin=replace(TABLE.origin, columns=TABLE.origin.columns[:3]))


class World:
    """Calls of the outside are counted; the one with the number `ends` raises after its effect."""

    def __init__(self, ends: int = -1) -> None:
        self.store, self.calls, self.ends = MemoryStore(), 0, ends
        self.regions = [(b"", b"m"), (b"m", b"")]
        self.peers: list[Any] = []
        self.replicated: list[str] = []

    def log(self) -> HBaseLog:
        listed = lambda table: [SimpleNamespace(start=start, stop=stop) for start, stop in self.regions]  # noqa: E731
        hbase = SimpleNamespace(
            regions=SimpleNamespace(listed=listed), registry=SimpleNamespace(quorum="a:1"), pool=None
        )
        admin = SimpleNamespace(replicate=self._replicate, peers=lambda: self.peers, update_peer=self._update)
        return HBaseLog(cast(HBase, hbase), cast(PoolAdmin, admin), self.store, peer="p")

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.ends:
            raise StoreUnavailable("the leader ends here")

    def _replicate(self, table: TableName, families: Any, permitted: bool) -> None:
        self.replicated += families
        self.count()

    def _update(self, peer: Any) -> None:
        self.peers = [peer]
        self.count()


def followed(ends: int = -1) -> World:
    world = World()
    FollowedBook(world.store).put_table(FollowedTable(NARROW, True))
    world.peers = [SimpleNamespace(id="p", tables={})]
    put = world.store.put_document
    world.ends = ends

    def counted(name: str, data: bytes) -> None:
        put(name, data)
        world.count()

    world.store.put_document = counted  # type: ignore[method-assign]
    return world


def widths(table: TableDef) -> tuple[int, int]:
    assert table.origin is not None
    return len(table.columns), len(table.origin.columns)


def test_sinks_that_knew_the_narrow_table_find_the_wide_one() -> None:
    world = followed()
    sink = FollowedBook(world.store)
    assert [widths(table.definition) for table in sink.tables()] == [(3, 3)]
    world.log().create_table(TABLE)
    assert [widths(table.definition) for table in sink.tables()] == [(4, 4)]
    assert {range.family for range in LoadBook(world.store).ranges()} == {"g"}
    assert world.peers[0].tables[TableName.parse("t")] == ("f", "g")
    calls = world.calls
    world.log().create_table(TABLE)
    assert world.calls == calls  # it is done
    world.log()._book.remove_table("t")
    assert world.store.list_documents("hbase/tables/") == []


@pytest.mark.parametrize("ends", range(1, 8))
def test_all_rows_of_new_columns_are_to_be_read_whoever_ends_when(ends: int) -> None:
    """And regions are others when the next leader comes."""
    world = followed(ends)
    try:
        world.log().create_table(TABLE)
    except StoreUnavailable:
        if ends < 7:  # the last step says that all is done
            assert len(world.log().tables()["t"].columns) == 3
        world.regions = [(b"", b"")]
        world.log().create_table(TABLE)
    assert len(world.log().tables()["t"].columns) == 4
    ranges = [(bytes.fromhex(r.start), bytes.fromhex(r.stop)) for r in LoadBook(world.store).ranges()]
    for row in (b"", b"a", b"m", b"z"):
        assert any(start <= row and (not stop or row < stop) for start, stop in ranges), row
    assert {table.definition.columns for table in FollowedBook(world.store).tables()} == {TABLE.columns}
