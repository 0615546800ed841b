"""Blocks of cells, compared with an encoder that writes one cell after the other."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.hbase.keyvalues import DELETE_COLUMN, LATEST, PUT, KeyValues, cells_of, concat, decode, encode
from belvedere.errors import Damaged


class OneCell(NamedTuple):
    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int
    kind: int
    value: bytes


def block_of(cells: list[OneCell], tags: bytes = b"") -> bytes:
    out = b""
    for cell in cells:
        key = struct.pack(">h", len(cell.row)) + cell.row + bytes([len(cell.family)]) + cell.family + cell.qualifier
        key += struct.pack(">qB", cell.timestamp, cell.kind)
        whole = struct.pack(">ii", len(key), len(cell.value)) + key + cell.value
        whole += struct.pack(">H", len(tags)) + tags if tags else b""
        out += struct.pack(">i", len(whole)) + whole
    return out


def columns(cells: list[OneCell]) -> KeyValues:
    parts = list(zip(*cells, strict=True)) if cells else [()] * 6
    binary = [pa.array(part, pa.binary()) for part in (parts[0], parts[1], parts[2], parts[5])]
    stamps, kinds = np.array(parts[3], np.int64), np.array(parts[4], np.uint8)
    return KeyValues(binary[0], binary[1], binary[2], stamps, kinds, binary[3])


def listed(cells: KeyValues) -> list[OneCell]:
    parts = [getattr(cells, name) for name in ("row", "family", "qualifier")]
    lists = [*(part.to_pylist() for part in parts), cells.timestamp.tolist(), cells.kind.tolist()]
    return [OneCell(*one) for one in zip(*lists, cells.value.to_pylist(), strict=True)]


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_what_one_after_the_other_gives(seed: int) -> None:
    rng = random.Random(seed)
    cells = [
        OneCell(
            rng.randbytes(rng.randrange(1, 40)), rng.choice([b"c", b"family"]), rng.randbytes(rng.randrange(9)),
            rng.choice([0, 1, 2**41, LATEST]), rng.choice([PUT, DELETE_COLUMN, 14]), rng.randbytes(rng.randrange(300)),
        )
        for _ in range(rng.randrange(1, 500))
    ]  # fmt: skip
    assert bytes(encode(columns(cells))) == block_of(cells)
    assert listed(decode(block_of(cells))) == cells
    assert listed(decode(memoryview(b"xx" + block_of(cells))[2:])) == cells
    assert listed(decode(block_of(cells, b"a tag"))) == cells
    half = columns(cells).take(np.arange(len(cells))[::2])
    assert listed(half) == cells[::2] == listed(decode(encode(half)))
    assert listed(concat([half, half])) == cells[::2] * 2


def test_cells_of_one_size_and_cells_that_only_look_so() -> None:
    same = [OneCell(b"row-%04d" % n, b"c", b"_", n, PUT, b"%04d" % n) for n in range(1000)]
    assert listed(decode(block_of(same))) == same
    first, last = same[0]._replace(value=b"short"), same[1]._replace(value=b"s" * (2 * 3 - 1 + 5 + 24))
    assert listed(decode(block_of([first, last, *same[2:]]))) == [first, last, *same[2:]]


def test_an_empty_block_has_no_cells() -> None:
    assert len(decode(b"")) == 0 and encode(columns([])) == b"" and len(concat([])) == 0


def test_slices_are_encoded_without_what_is_around_them() -> None:
    rows, values = pa.array([b"%d" % n for n in range(10)], pa.binary()), pa.array([b"v"] * 10, pa.binary())
    cells = cells_of(rows.slice(3, 4), b"c", b"_", 7, PUT, values.slice(3, 4))
    assert listed(decode(encode(cells))) == [OneCell(b"%d" % n, b"c", b"_", 7, PUT, b"v") for n in range(3, 7)]


def test_damage_is_found() -> None:
    good = block_of([OneCell(b"row", b"c", b"_", 1, PUT, b"value")] * 2)
    with pytest.raises(Damaged, match=r"its last cell ends at \d+"):
        decode(good[:-1])
    with pytest.raises(Damaged, match="lengths that do not fit"):
        decode(good[:8] + struct.pack(">i", 999) + good[12:])
