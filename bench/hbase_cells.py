"""Cells of an HBase by both ways, our RPC and the Thrift gateway: rows per second, and the CPU of every process.

    python -m bench.hbase_cells [--rows N] [--directory DIR]

One client, a table of four regions, one cell of 60 bytes per row. HBase runs on the same machine, so walls depend on
what else it does; CPU seconds do not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.client import HBase, connect_hbase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.keyvalues import PUT, cells_of
from belvedere.backend.hbase.layout import fixed_binary
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.thrift_cells import ThriftCells

_TICKS = 100
TABLE = "bench_cells"
ONE = Columns("c", (b"_",))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="belvedere-bench-") as made,
        LocalHBase(given.directory or made, jvm=()) as hbase,
        closing(connect_hbase(hbase.zookeeper)) as client,
    ):
        _create(client)
        ways: dict[str, Cells] = {"rpc": RpcCells(client.regions, client.pool), "thrift": ThriftCells(*hbase.thrift)}
        print(f"{'':32}{'rows/s':>10}{'client':>9}{'servers':>9}{'gateway':>9}   us of CPU per row", flush=True)
        for turn in ("first", "second"):  # the first one warms the servers up
            for name, cells in ways.items():
                for what, run in _tasks(cells, given.rows).items():
                    _measure(hbase, f"{turn} {name} {what}", given.rows, run)


def _create(client: HBase) -> None:
    table = TableDescriptor(TableName("default", TABLE), (Family("c", {"VERSIONS": "4"}),))
    if client.admin.descriptor(table.name) is None:
        splits = [b"\x40", b"\x80", b"\xc0"]
        request = messages.CreateTableRequest(table_schema=table.message(), split_keys=splits)
        client.master.run("CreateTable", request)


def _tasks(cells: Cells, count: int) -> dict[str, Callable[[], None]]:
    rng = np.random.default_rng(7)
    rows = fixed_binary(rng.integers(0, 256, (count, 26), np.uint8))
    values = fixed_binary(np.full((count, 60), 120, np.uint8))

    def put(batch: int) -> None:
        stamp = time.time_ns() // 1_000_000
        for at in range(0, count, batch):
            part = cells_of(rows.slice(at, batch), b"c", b"_", stamp, PUT, values.slice(at, batch))
            cells.put(TABLE, part)

    def get(batch: int, columns: Columns) -> None:
        for at in range(0, count, batch):
            found = cells.get(TABLE, rows.slice(at, batch), columns)
            assert len(pc.unique(found.row)) == min(batch, count - at)

    def scan() -> None:
        assert sum(map(len, cells.scan(TABLE, b"", None, ONE))) >= count

    return {
        "put 1,000": lambda: put(1000),
        "put 10,000": lambda: put(10_000),
        "get 1,000": lambda: get(1000, ONE),
        "get 10,000": lambda: get(10_000, ONE),
        "get 1,000 versions": lambda: get(1000, Columns("c", (b"_",), 4, deep=2**62)),
        "scan": scan,
    }


def _measure(hbase: LocalHBase, name: str, rows: int, run: Callable[[], None]) -> None:
    before, cpu, wall = _cpu(hbase), time.process_time(), time.perf_counter()
    run()
    wall, cpu, after = time.perf_counter() - wall, time.process_time() - cpu, _cpu(hbase)
    spent = {name: after[name] - before[name] for name in after}
    servers = sum(seconds for name, seconds in spent.items() if name.startswith("regionserver"))
    figures = (cpu, servers, spent["thrift"])
    print(f"{name:32}{rows / wall:10,.0f}" + "".join(f"{seconds / rows * 1e6:9.1f}" for seconds in figures), flush=True)


def _cpu(hbase: LocalHBase) -> dict[str, float]:
    found = {}
    for name, pid in hbase.pids().items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


if __name__ == "__main__":
    main()
