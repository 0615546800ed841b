"""Chunks of changes: what goes in comes out, whole, cut, joined and cut again, and damage is noticed."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Status, Vec
from belvedere.errors import Damaged
from belvedere.model import chunks
from belvedere.model.change_codec import is_mixed
from belvedere.protocol.exactly_once import ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, decimal

TABLE = TableDef(
    "t",
    (
        Column("id", BIGINT, False),
        Column("i", INT),
        Column("d", DOUBLE),
        Column("m", decimal(12, 2)),
        Column("w", decimal(30, 4)),
        Column("s", STRING),
        Column("b", BINARY),
        Column("y", DATE),
        Column("z", TIMESTAMP),
        Column("f", BOOLEAN),
    ),
    ("id",),
)
SOURCE = SourceId("t/1")
Row = tuple[Any, ...]


def random_value(rng: random.Random, column: Column) -> Any:
    if column.name == "id":
        return rng.randrange(100)
    if rng.random() < 0.2:
        return None
    return {
        "i": rng.randrange(-5, 5),
        "d": rng.random(),
        "m": Decimal(rng.randrange(-999, 999)) / 100,
        "w": Decimal(rng.randrange(-(10**25), 10**25)) / 10000,
        "s": "é" * rng.randrange(5),
        "b": rng.randbytes(rng.randrange(4)),
        "y": date(2024, 1, 1 + rng.randrange(28)),
        "z": datetime(2024, 1, 1, rng.randrange(24)),
        "f": rng.random() < 0.5,
    }[column.name]


def random_changes(rng: random.Random, count: int, table: TableDef = TABLE) -> Changes:
    columns, present = [], []
    for column in table.columns:
        values = [random_value(rng, column) for _ in range(count)]
        columns.append(Vec.from_arrow(pa.array(values, column.type.arrow), column.type))
        share = 1.0 if column.name in table.key else rng.choice((0.0, 0.5, 1.0))
        mask = np.array([rng.random() < share for _ in range(count)], np.bool_)
        present.append(None if share == 1.0 else mask)
    kind = rng.choice(("put", "put", "delete", "mixed"))
    delete = None if kind == "put" else np.array([kind == "delete" or rng.random() < 0.5 for _ in range(count)], bool)
    return Changes(tuple(columns), tuple(present), delete, np.array([rng.randrange(10**15) for _ in range(count)]))


def rows(changes: Changes) -> list[Row]:
    """What the engine would see: a value, NULL, or that nothing was written."""
    found = []
    values = [vec.to_arrow().to_pylist() for vec in changes.columns]
    for at in range(len(changes)):
        cells: list[Any] = []
        for column, mask in zip(values, changes.present, strict=True):
            cells.append("absent" if mask is not None and not mask[at] else column[at])
        deleted = changes.delete is not None and bool(changes.delete[at])
        found.append((*cells, deleted, int(changes.ts[at])))
    return found


def piece(after: int, last: int) -> InputPiece:
    return InputPiece(ChunkId(WriterId("w"), 1), SOURCE, Seq(after), Seq(last))


def decoded(payload: bytes, after: int = -1, last: int = 10**9, table: TableDef = TABLE) -> list[Row]:
    return [row for _, changes in chunks.decode(payload, piece(after, last), {"t": table}) for row in rows(changes)]


def history(rng: random.Random, entries: int, table: TableDef = TABLE) -> dict[int, Changes]:
    seqs = sorted(rng.sample(range(1000), entries))
    return {seq: random_changes(rng, rng.choice((0, 1, 1, 2, 7)), table) for seq in seqs}


def expected(log: dict[int, Changes], after: int = -1, last: int = 10**9) -> list[Row]:
    return [row for seq, changes in log.items() if after < seq <= last for row in rows(changes)]


@pytest.mark.parametrize("seed", range(20))
def test_an_entry_comes_back(seed: int) -> None:
    rng = random.Random(seed)
    changes = random_changes(rng, rng.choice((0, 1, 5, 300)))
    assert decoded(chunks.entry(TABLE, Seq(7), changes)) == rows(changes)


@pytest.mark.parametrize("seed", range(20))
def test_entries_are_joined_and_cut_by_seq(seed: int) -> None:
    rng = random.Random(seed)
    log = history(rng, 12)
    payload = chunks.join([chunks.entry(TABLE, Seq(seq), changes) for seq, changes in log.items()])
    assert decoded(payload) == expected(log)
    assert [(entry.seq, len(entry.rows)) for entry in chunks.parse(payload)] == [(s, len(c)) for s, c in log.items()]
    for _ in range(5):
        after, last = sorted((rng.randrange(-1, 1000), rng.randrange(1000)))
        assert decoded(payload, after, last) == expected(log, after, last)


@pytest.mark.parametrize("seed", range(20))
def test_what_the_filter_leaves_is_a_chunk(seed: int) -> None:
    rng = random.Random(seed)
    log = history(rng, 12)
    requests = list(log.items())
    cut = rng.randrange(1, 12)
    payloads = [
        chunks.join([chunks.entry(TABLE, Seq(seq), changes) for seq, changes in part])
        for part in (requests[:cut], requests[cut:])
    ]
    entries = [entry for payload in payloads for entry in chunks.parse(payload)]
    first = rng.randrange(12)
    kept = entries[first:]
    again = chunks.encode(SOURCE, kept)
    assert decoded(again) == expected(log, requests[first][0] - 1)
    assert chunks.encode(SOURCE, chunks.parse(again)) == again


def by_the_own_clock(seq: int, changes: Changes, first: int) -> tuple[bytes, Changes]:
    """As a client writes it and a store stamps it, and what is to come out."""
    sent = chunks.given(chunks.entry(TABLE, Seq(0), changes, own_clock=True), True)
    step = is_mixed(changes)
    return chunks.stamped(sent, Seq(seq), first), replace(changes, ts=first + step * np.arange(len(changes)))


@pytest.mark.parametrize("seed", range(20))
def test_timestamps_of_the_own_clock_are_those_of_each_entry(seed: int) -> None:
    """Also beside entries that have theirs, joined, and cut again."""
    rng = random.Random(seed)
    log, payloads = history(rng, 12), []
    for seq, changes in log.items():
        if seed % 4 and rng.random() < 0.8:
            payload, log[seq] = by_the_own_clock(seq, changes, rng.randrange(10**15))
        else:
            payload = chunks.entry(TABLE, Seq(seq), changes)
        payloads.append(payload)
        assert decoded(payload) == rows(log[seq])
    joined = chunks.join(payloads)
    assert decoded(joined) == expected(log)
    after, last = sorted((rng.randrange(-1, 1000), rng.randrange(1000)))
    assert decoded(joined, after, last) == expected(log, after, last)
    kept = chunks.parse(joined)[rng.randrange(12) :]
    assert decoded(chunks.encode(SOURCE, kept)) == expected(log, kept[0].seq - 1)


@pytest.mark.parametrize("own_clock", [True, False])
def test_what_a_client_wrote_is_stored_and_pushed_as_it_is(own_clock: bool) -> None:
    """Seq and timestamp are put beside the rows: their columns are the very bytes of the client."""
    sent = chunks.entry(TABLE, Seq(0), random_changes(random.Random(5), 40), own_clock=own_clock)
    stored = chunks.stamped(chunks.given(sent, own_clock), Seq(9), 10**15 if own_clock else None)
    frame = bytes(chunks.ChunkContent(sent).frame)
    assert bytes(chunks.ChunkContent(stored).frame) == frame and len(frame) > 1000
    assert chunks.encode(SOURCE, chunks.parse(chunks.join([stored]))) == stored


OLD_CHUNK = bytes.fromhex(
    "425643315000000014ed5da15eae1d687b2274223a2274222c226e223a332c2265223a322c2263223a5b5b226964222c22626967696e"
    "74225d2c5b2273222c22737472696e67225d5d2c2270223a5b2273225d2c226b223a226d69786564227d030000000000000005000000"
    "000000000200000000000000030000000000000003000000000000000200000000000000000100000000000001000000000000000200"
    "000000000000010000000000000001000000000000000000000001000000010000000100000061000000000000000101000000000000"
    "0000010000000000070000000000000008000000000000000900000000000000"
)
"""Of the format before: two entries, with and without a column, a delete at the end."""


def test_chunks_of_the_format_before_are_read_and_joined_with_new_ones() -> None:
    table = replace(TABLE, columns=(Column("id", BIGINT, False), Column("s", STRING)))
    found = [(1, "a", False, 7), (2, None, False, 8), (1, "absent", True, 9)]
    assert decoded(OLD_CHUNK, table=table) == found
    assert decoded(OLD_CHUNK, 3, 5, table) == found[2:]
    more, changes = by_the_own_clock(9, random_changes(random.Random(1), 3), 77)
    wide = [row[:1] + ("absent",) * 4 + row[1:2] + ("absent",) * 4 + row[2:] for row in found]
    assert decoded(chunks.join([OLD_CHUNK, more])) == wide + rows(changes)
    client = chunks.given(OLD_CHUNK, False)  # a client of the version before
    assert decoded(chunks.stamped(client, Seq(4), None), table=table) == found
    again = chunks.given(OLD_CHUNK, True)
    assert [row[-1] for row in decoded(chunks.stamped(again, Seq(4), 50), table=table)] == [50, 51, 52]


def test_a_whole_request_is_passed_on_as_it_is() -> None:
    payload = chunks.entry(TABLE, Seq(3), random_changes(random.Random(1), 50))
    assert chunks.encode(SOURCE, chunks.parse(payload)) == payload


def test_columns_that_were_added_since_are_absent() -> None:
    rng = random.Random(5)
    wider = replace(TABLE, columns=(*TABLE.columns, Column("new", STRING)))
    old, new = random_changes(rng, 3), random_changes(rng, 2)
    status = np.array([Status.VALUE, Status.NULL], np.uint8)
    added = Vec(STRING, pa.array(["x", ""]), status)
    more = Changes((*new.columns, added), (*new.present, None), new.delete, new.ts)
    payload = chunks.join([chunks.entry(TABLE, Seq(1), old), chunks.entry(wider, Seq(2), more)])
    found = decoded(payload, table=wider)
    assert [row[len(TABLE.columns)] for row in found] == ["absent"] * 3 + ["x", None]
    assert [row[: len(TABLE.columns)] for row in found] == [r[: len(TABLE.columns)] for r in rows(old) + rows(new)]


def test_a_table_that_is_gone_has_no_rows() -> None:
    payload = chunks.entry(TABLE, Seq(1), random_changes(random.Random(2), 3))
    assert list(chunks.decode(payload, piece(-1, 9), {})) == []


def test_a_chunk_of_another_table_is_refused() -> None:
    payload = chunks.entry(TABLE, Seq(1), random_changes(random.Random(3), 3))
    narrow = TableDef("t", TABLE.columns[:1], ("id",))
    other = TableDef("t", (Column("id", STRING, False), *TABLE.columns[1:]), ("id",))
    with pytest.raises(Damaged, match="which table 't' does not have"):
        decoded(payload, table=narrow)
    with pytest.raises(Damaged, match="column 'id' of table 't' is string, a chunk has bigint"):
        decoded(payload, table=other)


def test_every_flipped_bit_is_noticed() -> None:
    payload = bytearray(chunks.entry(TABLE, Seq(1), random_changes(random.Random(4), 4)))
    rng = random.Random(9)
    for _ in range(200):
        at, bit = rng.randrange(len(payload)), 1 << rng.randrange(8)
        payload[at] ^= bit
        with pytest.raises(Damaged):
            chunks.parse(bytes(payload))
        payload[at] ^= bit
    for size in (0, 3, 15, 40, len(payload) - 1):
        with pytest.raises(Damaged):
            chunks.parse(bytes(payload[:size]))
