"""HBase's rules for cells: the model that judges DELTA, and DELTA itself, against a real HBase."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.client import HBase, connect_hbase
from belvedere.backend.hbase.connection import CLIENT
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.engine.delta import CellChange
from belvedere.engine.state.cell_table import CellTable
from tests.backend.hbase.followed_pool import UserTable, key
from tests.backend.hbase.server import unique
from tests.engine.state.test_cell_table import MODES, PLACES, TABLE, Change, batch, contents, random_change, reread
from tests.oracle.hbase_rules import Cell, HBaseRow, Kind

VERSIONS = {"f": 1000, "g": 1000}
_TYPES = {Kind.DELETE_VERSION: 0, Kind.DELETE_COLUMN: 1, Kind.DELETE_FAMILY: 2, Kind.DELETE_FAMILY_VERSION: 3}


@pytest.fixture
def table(hbase: LocalHBase) -> Iterator[UserTable]:
    made = UserTable(hbase, unique("rules"), families=("f", "g"), versions=1000)
    yield made
    made.close()


@dataclass
class Rows:
    """The same rows in HBase, in the model, and in DELTA."""

    table: UserTable
    client: HBase
    model: dict[int, HBaseRow] = field(default_factory=dict)
    delta: CellTable = field(default_factory=lambda: CellTable(TABLE))
    open: set[int] = field(default_factory=set)
    """Rows that DELTA asked to be read again."""

    def write(self, change: Change) -> None:
        mutation = messages.Mutation(row=key(change.key), mutate_type=2 if change.kind is CellChange.PUT else 3)
        for cell in change.cells():
            column = mutation.column_value.add(family=cell.family.encode())
            column.qualifier_value.add(qualifier=cell.qualifier.encode(), timestamp=cell.ts)
            if cell.kind is Kind.PUT:
                column.qualifier_value[0].value = str(cell.value).encode()
            else:
                column.qualifier_value[0].delete_type = _TYPES[cell.kind]
        self.table.mutate(change.key, mutation)
        self.model.setdefault(change.key, HBaseRow(VERSIONS)).write(change.cells())
        self.delta.apply(batch([change]), ())
        self.open |= reread(self.delta, [change])

    def read(self, row: int) -> dict[tuple[str, str], tuple[int, object]]:
        request = messages.GetRequest()
        (birth,) = self.table.regions()
        request.region.type, request.region.value = 1, birth.name
        request.get.row = key(row)
        with self.table.pool.connection(self.table.server(birth.server), CLIENT) as connection:
            answer, _ = connection.call("Get", request, messages.GetResponse)
        return {
            (cell.family.decode(), cell.qualifier.decode()): (cell.timestamp, cell.value.decode())
            for cell in answer.result.cell
        }

    def check(self) -> None:
        shown = contents(self.delta)
        for row, model in self.model.items():
            real = self.read(row)
            assert real == {column: (ts, str(value)) for column, (ts, value) in model.read().items()}, row
            if row not in self.open:
                cells, doubt = shown.get(row, ((None, None, None), False))
                wanted = tuple(real[PLACES[i]][1] if PLACES[i] in real else None for i in sorted(PLACES))
                assert tuple(None if c is None else str(c) for c in cells) == wanted and not doubt, row


@pytest.mark.parametrize("seed", range(3))
def test_random_histories_with_flushes_and_major_compactions(hbase: LocalHBase, table: UserTable, seed: int) -> None:
    rng = random.Random(seed)
    client = connect_hbase(hbase.zookeeper)
    try:
        rows, admin = Rows(table, client), RegionAdmin(client)
        compacted = 0
        for step in range(120):
            # Time goes on, with clocks that are a little off: few changes are late.
            rows.write(random_change(rng, step // 3 + rng.randrange(1, 5), MODES["versions"], keys=20))
            luck = rng.random()
            if luck < 0.08:
                admin.flush(table.name)
            if luck < 0.03:
                admin.major_compact(table.name)
                compacted += 1
                for row in rows.model.values():
                    row.major_compaction()
            if step % 10 == 9 or luck < 0.08:
                rows.check()
        rows.check()
        assert compacted and rows.open and len(rows.open) < len(rows.model) - 3
    finally:
        client.close()


def test_the_model_knows_what_a_delete_uncovers_and_what_a_compaction_forgets() -> None:
    row = HBaseRow({"f": 2})
    row.write([Cell("f", "a", ts, Kind.PUT, ts) for ts in (1, 2, 3)])
    row.write([Cell("f", "a", 3, Kind.DELETE_VERSION)])
    assert row.read() == {("f", "a"): (2, 2)}
    row.write([Cell("f", "", 2, Kind.DELETE_FAMILY), Cell("f", "a", 1, Kind.PUT, 9)])
    assert row.read() == {}
    row.major_compaction()
    row.write([Cell("f", "a", 1, Kind.PUT, 9)])
    assert row.read() == {("f", "a"): (1, 9)}
