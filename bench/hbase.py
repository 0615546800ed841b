"""HBase's log into columns: rows per CPU second of a sink, without the network and without HBase.

PYTHONPATH=viewserver:. python -m bench.hbase

`columns`: a replication request becomes Arrow columns. `chunks`: the same, and these become checked chunks for INPUT
with an entry for each sequence id, which is all that a sink computes before it writes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from belvedere.backend.hbase.wal import CellDecoder, read_request
from belvedere.model import chunks
from belvedere.sql.catalog import Deletes, TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.types import BIGINT, DOUBLE, STRING, Column, Schema
from tests.backend.hbase.wal_blocks import KeyValue, LogEntry, request

CELLS = 20_000
REPEATS = 9
TARGETS = {1: 0.3, 100: 1.0}
"""Million cells per CPU second, by the cells of an entry."""
NUMBERS = (("a", BIGINT), ("b", BIGINT), ("c", DOUBLE))


def table(columns: int) -> TableDef:
    others = NUMBERS[: columns - 1]
    schema: Schema = (Column("id", BIGINT, False), Column("v", STRING), *(Column(name, type) for name, type in others))
    encodings = {BIGINT: Encoding.LONG, DOUBLE: Encoding.DOUBLE}
    stored = (
        StoredColumn(Encoding.LONG),
        StoredColumn(Encoding.TEXT, "f", "v"),
        *(StoredColumn(encodings[type], "f", name) for name, type in others),
    )
    return TableDef("t", schema, ("id",), deletes=Deletes.CELLS, origin=Origin("t", stored))


def entries(cells_per_entry: int, columns: int) -> list[LogEntry]:
    """Puts of new rows with 80 bytes of text; further columns are numbers."""
    made, row = [], 0
    for seq in range(CELLS // cells_per_entry):
        cells = []
        for _ in range(cells_per_entry // columns):
            key, ts = struct.pack(">q", row), 1_700_000_000_000 + seq
            cells.append(KeyValue(key, b"f", b"v", ts, value=b"v" * 80))
            number = struct.pack(">q", row)
            cells += [KeyValue(key, b"f", name.encode(), ts, value=number) for name, _ in NUMBERS[: columns - 1]]
            row += 1
        made.append(LogEntry(b"t", b"d41d8cd98f00b204e9800998ecf8427e", seq + 1, cells))
    return made


def best(work: Callable[[], object]) -> float:
    """CPU seconds."""
    work()
    taken = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return min(taken)


def main() -> None:
    print("cells per entry  columns per row   columns M cells/CPU-s   chunks M cells/CPU-s   target")
    for per, columns in ((1, 1), (4, 4), (100, 1), (100, 4), (1000, 4)):
        decoder = CellDecoder(table(columns))
        message, block = request(entries(per, columns))

        def decode(message: bytes = message, block: bytes = block, decoder: CellDecoder = decoder) -> list[bytes]:
            return [run.payload() for run in read_request(message, block, lambda _: decoder)]

        rates = [
            CELLS / best(work) / 1e6
            for work in (
                lambda m=message, b=block, d=decoder: read_request(m, b, lambda _: d),
                lambda decode=decode: [chunks.parse(payload) for payload in decode()],
            )
        ]
        print(f"{per:15} {columns:16} {rates[0]:23.2f} {rates[1]:22.2f} {TARGETS[1 if per == 1 else 100]:8.1f}")


if __name__ == "__main__":
    main()
