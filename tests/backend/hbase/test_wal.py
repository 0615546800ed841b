"""Log entries into columns, against a reader of one cell after the other."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from belvedere.backend.hbase.wal import CellDecoder, EntryRun, read_request
from belvedere.engine.delta import CellChange
from belvedere.engine.vec import Status
from belvedere.errors import DataError
from belvedere.model import chunks
from belvedere.sql.catalog import Deletes, TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, Column, Type, decimal
from tests.backend.hbase.wal_blocks import (
    DELETE,
    DELETE_COLUMN,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    PUT,
    KeyValue,
    LogEntry,
    request,
)

E = Encoding
PARTS: list[tuple[str, Type, Encoding, str, str]] = [
    ("total", decimal(12, 2), E.TEXT, "f", "total"),
    ("city", STRING, E.TEXT, "f", "city"),
    ("id", BIGINT, E.LONG, "", ""),
    ("n", INT, E.INT, "f", "n"),
    ("count", BIGINT, E.LONG, "g", ""),
    ("price", DOUBLE, E.DOUBLE, "g", "price"),
    ("ratio", DOUBLE, E.FLOAT, "g", "ratio"),
    ("open", BOOLEAN, E.BOOLEAN, "g", "open"),
    ("photo", BINARY, E.RAW, "h", "photo"),
    ("day", DATE, E.TEXT, "h", "day"),
    ("code", STRING, E.TEXT, "", ""),
]


def table(parts: Sequence[tuple[str, Type, Encoding, str, str]] = PARTS, name: str = "orders") -> TableDef:
    columns = tuple(Column(n, type, bool(family)) for n, type, _, family, _ in parts)
    origin = Origin(f"shop:{name}", tuple(StoredColumn(*rest) for _, _, *rest in parts))  # type: ignore[arg-type]
    key = tuple(n for n, _, _, family, _ in parts if not family)
    return TableDef(name, columns, key, deletes=Deletes.CELLS, origin=origin)


ORDERS = table()
CELLS = {(f.encode(), q.encode()): (name, type, encoding) for name, type, encoding, f, q in PARTS if f}
ACTIONS = {PUT: CellChange.PUT, DELETE: CellChange.DELETE_VERSION, DELETE_FAMILY_VERSION: CellChange.DELETE_VERSION}
WRONG = "wrong"


def text(encoding: Encoding, type: Type, value: Any) -> bytes:
    match encoding:
        case E.TEXT:
            return str(value).encode()
        case E.RAW:
            return bytes(value)
        case E.BOOLEAN:
            return b"\xff" if value else b"\0"
    return struct.pack({E.INT: ">i", E.LONG: ">q", E.DOUBLE: ">d", E.FLOAT: ">f"}[encoding], value)


VALUES: dict[str, list[Any]] = {
    "total": [Decimal("9.50"), Decimal("-1.00"), Decimal("0.00"), WRONG],
    "city": ["Oslo", "", "Tromsø", "x" * 300, WRONG],
    "n": [0, -1, 2**31 - 1, -(2**31), WRONG],
    "count": [0, -1, 2**63 - 1, -(2**63), WRONG],
    "price": [0.0, -1.5, 1e300, float("inf")],
    "ratio": [0.5, -2.0],
    "open": [True, False, WRONG],
    "photo": [b"", b"\0\xff" * 9],
    "day": [date(2026, 1, 2), WRONG],
}
BROKEN = {"total": b"9.5x", "city": b"a\xffb", "n": b"12345", "count": b"", "open": b"", "day": b"yesterday"}


@dataclass
class Written:
    """A change, read naively."""

    key: tuple[int, str]
    ts: int
    kind: CellChange
    columns: dict[str, Any]


def naive(entry: LogEntry) -> list[Written]:
    """One change for each cell."""
    out = []
    for cell in entry.cells:
        key = (struct.unpack(">q", cell.row[:8])[0], cell.row[8:].decode())
        named = [n for (f, q), (n, _, _) in CELLS.items() if f == cell.family and q == cell.qualifier]
        if cell.type in (DELETE_FAMILY, DELETE_FAMILY_VERSION):
            named = [n for (f, _), (n, _, _) in CELLS.items() if f == cell.family]
        kind = ACTIONS.get(cell.type, CellChange.DELETE)
        for name in named:
            out.append(Written(key, cell.ts, kind, {name: cell.value if kind is CellChange.PUT else None}))
    return out


def found(run: EntryRun, definition: TableDef = ORDERS) -> list[list[Written]]:
    """The changes of each entry, cell by cell as well, by way of a chunk of INPUT."""
    out: list[list[Written]] = []
    content = chunks.ChunkContent(run.payload())
    assert content.seqs.tolist() == run.seqs.tolist()
    for at in range(len(run.seqs)):
        rows = content.rows(at, at + 1).resolve(definition)
        kinds = np.zeros(len(rows), np.uint8) if rows.kind is None else rows.kind
        values = {c.name: shown(v) for c, v in zip(definition.columns, rows.columns, strict=True)}
        masks = dict(zip((c.name for c in definition.columns), rows.present, strict=True))
        entry = []
        for i in range(len(rows)):
            key = tuple(values[k][i] for k in definition.key)
            for name in values.keys() - set(definition.key):
                mask = masks[name]
                if mask is None or mask[i]:
                    entry.append(Written(key, int(rows.ts[i]), CellChange(kinds[i]), {name: values[name][i]}))  # type: ignore[arg-type]
        out.append(entry)
    return out


def shown(vec: Any) -> list[Any]:
    status = [1] * len(vec) if vec.status is None else vec.status.tolist()
    return [WRONG if s > Status.VALUE else v for s, v in zip(status, vec.to_arrow().to_pylist(), strict=True)]


def decoded(cell: Written) -> Written:
    """With the value that its bytes stand for."""
    ((name, value),) = cell.columns.items()
    if value is None:
        return cell
    if value == BROKEN.get(name):
        return Written(cell.key, cell.ts, cell.kind, {name: WRONG})
    ((_, type, encoding),) = [c for c in CELLS.values() if c[0] == name]
    (real,) = {repr(v): v for v in VALUES[name] if v is not WRONG and text(encoding, type, v) == value}.values()
    return Written(cell.key, cell.ts, cell.kind, {name: real})


def order(cells: list[Written]) -> list[str]:
    """Of one change the columns may come in any order."""
    return sorted(repr(cell) for cell in cells)


def random_cell(rng: random.Random) -> KeyValue:
    row = struct.pack(">q", rng.choice([0, -1, 7, 2**40])) + rng.choice([b"", b"a", b"\xc3\xb8"])
    family, qualifier = rng.choice([*CELLS, (b"f", b"other"), (b"x", b"city"), (b"METAFAMILY", b"HBASE::FLUSH")])
    type = rng.choice([PUT] * 6 + [DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION])
    value = b""
    if type == PUT:
        name, sql, encoding = CELLS.get((family, qualifier), ("", INT, E.RAW))
        choice = rng.choice(VALUES.get(name, [b"none of ours"]))
        value = BROKEN[name] if choice is WRONG else text(encoding, sql, choice)
    if type in (DELETE_FAMILY, DELETE_FAMILY_VERSION):
        qualifier = b""
    tags = rng.choice([b"", b"", b"\0\5\1tags"])
    return KeyValue(row, family, qualifier, rng.choice([5, 6, 2**62]), type, value, tags)


def random_entries(rng: random.Random) -> list[LogEntry]:
    entries, seqs = [], dict.fromkeys(range(6), 0)
    for _ in range(rng.choice([0, 1, 5, 60])):
        region = rng.randrange(6)
        seqs[region] += rng.randrange(1, 200)
        names = [b"shop:orders", b"shop:orders", b"other"]
        cells = [random_cell(rng) for _ in range(rng.choice([0, 1, 1, 3, 20]))]
        if cells and rng.random() < 0.5:  # a put of a whole row, as clients make them
            row = cells[0].row
            cells += [KeyValue(row, f, q, 9, PUT, text(e, t, VALUES[n][0])) for (f, q), (n, t, e) in CELLS.items()]
        entries.append(LogEntry(names[region % 3], b"%032x" % region, seqs[region], cells, 1000 + len(entries)))
    return entries


@pytest.mark.parametrize("seed", range(80))
def test_every_cell_of_every_entry_is_found_in_its_region(seed: int) -> None:
    entries = random_entries(random.Random(seed))
    decoder = CellDecoder(ORDERS)
    runs = read_request(*request(entries), lambda name: decoder if name == "shop:orders" else None)
    wanted: dict[str, list[LogEntry]] = {}
    for entry in entries:
        if entry.table == b"shop:orders":
            wanted.setdefault(entry.region.decode(), []).append(entry)
    assert {run.region for run in runs} == wanted.keys()
    for run in runs:
        mine = wanted[run.region]
        assert run.table == "orders"
        assert run.seqs.tolist() == [entry.seq for entry in mine]
        assert run.written == mine[-1].written
        for entry, cells in zip(mine, found(run), strict=True):
            assert order(cells) == order([decoded(cell) for cell in naive(entry)])
        seq = mine[len(mine) // 2].seq
        rest = run.after(seq)
        assert rest.seqs.tolist() == [entry.seq for entry in mine if entry.seq > seq]
        assert found(rest) == found(run)[len(run.seqs) - len(rest.seqs) :] if len(rest.seqs) else True


def put(row: bytes, column: str, ts: int, value: bytes = b"x", type: int = PUT) -> KeyValue:
    family, _, qualifier = column.partition(":")
    return KeyValue(row, family.encode(), qualifier.encode(), ts, type, value)


ROW = struct.pack(">q", 1) + b"a"


def changes_of(*cells: KeyValue) -> list[tuple[int, int, list[str]]]:
    """Timestamp, kind and columns of each change."""
    decoder = CellDecoder(ORDERS)
    (run,) = read_request(*request([LogEntry(b"shop:orders", b"r", 1, cells)]), lambda _: decoder)
    rows = run.rows.resolve(ORDERS)
    kinds = [0] * len(rows) if rows.kind is None else rows.kind.tolist()
    names = [c.name for c in ORDERS.columns if c.name not in ORDERS.key]
    masks = [m for c, m in zip(ORDERS.columns, rows.present, strict=True) if c.name not in ORDERS.key]
    return [
        (int(rows.ts[i]), kinds[i], [n for n, m in zip(names, masks, strict=True) if m is None or m[i]])
        for i in range(len(rows))
    ]


def test_cells_of_one_put_are_one_change() -> None:
    assert changes_of(put(ROW, "f:city", 5), put(ROW, "f:n", 5), put(ROW, "g:open", 5)) == [
        (5, 0, ["city", "n", "open"])
    ]
    assert changes_of(put(ROW, "f:city", 5), put(ROW, "f:n", 6)) == [(5, 0, ["city"]), (6, 0, ["n"])]
    assert changes_of(put(ROW, "f:city", 5), put(ROW + b"b", "f:n", 5)) == [(5, 0, ["city"]), (5, 0, ["n"])]


def test_a_column_that_is_written_twice_is_two_changes_in_their_order() -> None:
    cells = [put(ROW, "f:city", 5, b"old"), put(ROW, "f:n", 5), put(ROW, "f:city", 5, b"new")]
    assert changes_of(*cells) == [(5, 0, ["city", "n"]), (5, 0, ["city"])]
    assert changes_of(put(ROW, "f:city", 5), put(ROW, "f:", 5, b"", DELETE_FAMILY)) == [
        (5, 0, ["city"]),
        (5, 1, ["total", "city", "n"]),
    ]
    twice = [put(ROW, "f:city", 5, b"", DELETE_COLUMN), put(ROW, "f:", 5, b"", DELETE_FAMILY)]
    assert changes_of(*twice) == [(5, 1, ["city"]), (5, 1, ["total", "city", "n"])]


def test_a_delete_of_a_row_is_one_change() -> None:
    families = [put(ROW, f"{f}:", 5, b"", DELETE_FAMILY) for f in ("f", "g", "h")]
    assert changes_of(*families) == [(5, 1, [c.name for c in ORDERS.columns if c.name not in ORDERS.key])]


def test_row_keys_that_cannot_be_read_are_told_and_left_out() -> None:
    decoder = CellDecoder(ORDERS)
    cells = [put(b"short", "f:city", 5), put(ROW, "f:city", 5), put(ROW[:8] + b"\xff", "f:city", 5)]
    entries = [LogEntry(b"shop:orders", b"r", 1, cells[:1]), LogEntry(b"shop:orders", b"r", 2, cells)]
    (run,) = read_request(*request(entries), lambda _: decoder)
    assert run.unreadable == [b"short", cells[2].row]
    assert run.seqs.tolist() == [1, 2]
    assert run.ends.tolist() == [0, 1]


def test_wide_tables_and_tables_of_a_key_alone() -> None:
    names = [f"c{i}" for i in range(100)]
    wide = table([("id", BIGINT, E.LONG, "", ""), *((n, INT, E.INT, "f", n) for n in names)])
    key = struct.pack(">q", 3)
    cells = [put(key, f"f:{n}", 5, struct.pack(">i", i)) for i, n in enumerate(names)]
    cells.append(put(key, "f:", 6, b"", DELETE_FAMILY))
    decoder = CellDecoder(wide)
    (run,) = read_request(*request([LogEntry(b"t", b"r", 1, cells)]), lambda _: decoder)
    rows = run.rows.resolve(wide)
    assert rows.ts.tolist() == [5, 6]
    assert [v.data[0] for v in rows.columns[1:]] == list(range(100))
    bare = CellDecoder(table([("id", BIGINT, E.LONG, "", "")]))
    (run,) = read_request(*request([LogEntry(b"t", b"r", 1, cells)]), lambda _: bare)
    assert len(run.rows.changes) == 0


@given(st.data())
def test_damaged_requests_are_refused_and_never_read_beyond_their_end(data: st.DataObject) -> None:
    rng = random.Random(data.draw(st.integers(0, 30)))
    message, block = request(random_entries(rng))
    whole = bytearray(message + block)
    for _ in range(data.draw(st.integers(1, 4))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(block)))
    decoder = CellDecoder(ORDERS)
    try:
        runs = read_request(
            bytes(whole[: len(message)]), bytes(whole[len(message) : len(message) + cut]), lambda _: decoder
        )
        for run in runs:
            run.payload()
    except (DataError, UnicodeDecodeError):
        pass
