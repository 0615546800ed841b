"""The page about reading views with clients of HBase: its examples are executed against a real one."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import happybase
import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.local.jars import find_classes
from belvedere.backend.opening import open_backend
from belvedere.backend.seam import OpenTables
from belvedere.engine.exchange import RowShape, TableWrite
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.vec import Vec
from belvedere.local.java import java_command
from belvedere.model.keys import key_codec
from belvedere.model.verify import Report, with_foreign
from belvedere.types import BIGINT, INT, Column, decimal
from tests.backend.hbase.server import unique

PAGE = (Path(__file__).resolve().parents[3] / "docs/howto/read-views-in-hbase.md").read_text()
SCHEMA = (Column("customer", INT), Column("orders", BIGINT, False), Column("total", decimal(22, 2)))
ROWS: dict[int | None, tuple[int, Decimal | None]] = {
    None: (4, Decimal("1.00")), -5: (1, None), 7: (2, Decimal("69.50")), 8: (3, Decimal("-12345678901234567890.25")),
}  # fmt: skip
SHOWN = ["None 4 1.00", "-5 1 None", "7 2 69.50", "8 3 -12345678901234567890.25", "customer 7: 7 2 69.50"]


def code(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def packed(rows: dict[int | None, tuple[int, Decimal | None]]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Rows and keys as a view server writes them."""
    arrays = [
        pa.array(list(rows), pa.int32()),
        pa.array([orders for orders, _ in rows.values()], pa.int64()),
        pa.array([total for _, total in rows.values()], pa.decimal128(22, 2)),
    ]
    columns = [Vec.from_arrow(array, column.type) for array, column in zip(arrays, SCHEMA, strict=True)]
    values = RowCodec(tuple(column.type for column in SCHEMA)).pack(columns, len(rows)).arrow()
    return values, key_codec(SCHEMA, (0,)).encode(arrays[:1], len(rows))


def write(
    rows: dict[int | None, tuple[int, Decimal | None]], number: int, version: int, gone: bool = False
) -> TableWrite:
    """New rows, or the end of such."""
    values, keys = packed(rows)
    ids = np.arange(number, number + 2 * len(rows), dtype=np.uint64).reshape(-1, 2)
    none = pa.nulls(len(rows), pa.binary())
    now, before = (none, values) if gone else (values, none)
    shape = RowShape(SCHEMA, (0,))
    return TableWrite(f"view spend {version}", ids, now, True, keys, shape=shape, before=before)


@pytest.fixture(scope="module")
def namespace(hbase: LocalHBase, client_of_module: HBase) -> Iterator[str]:
    """With a view of which a version was replaced, and a row was removed."""
    name = unique("shop_views")
    backend = open_backend(f"hbase://{hbase.zookeeper}/{name}", pool="shop", base=False)
    try:
        store = backend.store
        store.write(1000, [write({1: (1, None)}, 0, 1)])
        store.write(1001, [write(ROWS, 0, 2), write({9: (1, None)}, 100, 2)])
        store.write(1002, [write({9: (1, None)}, 100, 2, gone=True)])
        store.put_document("views/spend", b"2")
        yield name
    finally:
        backend.close()
        PoolAdmin(client_of_module.master, name, "shop").drop_namespace()


def test_happybase(hbase: LocalHBase, namespace: str) -> None:
    host, port = hbase.thrift
    text = code("python").replace("shop_views", namespace).replace('"127.0.0.1", 9090', f'"{host}", {port}')
    scope: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "read-views-in-hbase.md", "exec"), scope)
    scope["hbase"].close()
    assert out.getvalue().splitlines() == SHOWN


def test_what_somebody_else_wrote_to_a_view_is_found_and_named(hbase: LocalHBase, namespace: str) -> None:
    seven = b"\x01" + struct.pack(">i", 7 ^ -0x80000000)
    backend = open_backend(f"hbase://{hbase.zookeeper}/{namespace}", pool="shop", base=False)
    connection = happybase.Connection(*hbase.thrift, timeout=60_000)
    store = backend.store
    assert isinstance(store, OpenTables)
    try:
        assert store.foreign_cells("view spend 2", 10) == [] and store.foreign_cells("view none 1", 10) == []
        store.write(2000, [write(ROWS, 0, 3), write({9: (1, None)}, 100, 3)])
        store.write(2001, [write({9: (1, None)}, 100, 3, gone=True)])
        table = connection.table(f"{namespace}:spend.3")
        table.put(seven, {b"c:total": b"\0\0\0\2\x01"}, timestamp=5000)
        table.put(b"\x01\x80\0\0\x09", {b"c:orders": bytes(8)}, timestamp=2500)
        table.put(b"stranger", {b"c:note": b"hello"}, timestamp=1)
        table.delete(b"\x01\x80\0\0\x08", [b"c:orders"])
        table.put(b"\x01\x7f\xff\xff\xfb", {b"c:orders": bytes(8)}, timestamp=2000)
        assert sorted(store.foreign_cells("view spend 3", 10)) == sorted(
            [
                f"row {seven!r}: c:total at timestamp 5000",
                "row b'\\x01\\x80\\x00\\x00\\t': c:orders at timestamp 2500",
                "row b'stranger': c:note at timestamp 1",
                "row b'\\x01\\x80\\x00\\x00\\x08': c:orders is gone",
                "row b'\\x01\\x7f\\xff\\xff\\xfb': c:orders at timestamp 2000",
            ]
        )
        assert len(store.foreign_cells("view spend 3", 2)) == 2
        report = with_foreign(Report("spend", 1, True, 4), store.foreign_cells("view spend 3", 11))
        assert not report.ok and report.problem is not None
        assert report.problem.startswith("somebody else wrote to its table: row b") and "stranger" in report.problem
        store.write(6000, [write({7: (2, None)}, 4, 3)])
        assert not any("5000" in one for one in store.foreign_cells("view spend 3", 10)), "a later put hides it"
    finally:
        connection.close()
        backend.close()


def test_java(hbase: LocalHBase, namespace: str, tmp_path: Path) -> None:
    host, port = hbase.zookeeper.rsplit(":", 1)
    text = code("java").replace("shop_views", namespace).replace('"127.0.0.1"', f'"{host}"').replace("2181", port)
    (tmp_path / "ReadSpend.java").write_text(text)
    command = [java_command() or "", "-cp", f"{find_classes()}/*", str(tmp_path / "ReadSpend.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [line.replace("None", "null") for line in SHOWN]
