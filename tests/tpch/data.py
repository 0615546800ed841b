"""TPC-H data at scale factor 0.01, generated once into the user's cache (outside the tree), and its tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCALE = "0.01"

TABLES = {
    "region": "r_regionkey BIGINT PRIMARY KEY, r_name STRING, r_comment STRING",
    "nation": "n_nationkey BIGINT PRIMARY KEY, n_name STRING, n_regionkey BIGINT, n_comment STRING",
    "supplier": "s_suppkey BIGINT PRIMARY KEY, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING, "
    "s_acctbal DECIMAL(15,2), s_comment STRING",
    "customer": "c_custkey BIGINT PRIMARY KEY, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING, "
    "c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
    "part": "p_partkey BIGINT PRIMARY KEY, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT, "
    "p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15,2), "
    "ps_comment STRING, PRIMARY KEY (ps_partkey, ps_suppkey)",
    "orders": "o_orderkey BIGINT PRIMARY KEY, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15,2), "
    "o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING",
    "lineitem": "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, l_quantity DECIMAL(15,2), "
    "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag STRING, "
    "l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, "
    "l_shipmode STRING, l_comment STRING, PRIMARY KEY (l_orderkey, l_linenumber)",
}
"""Columns of the tables in the order of the files; names of tables in the order in which keys refer to them."""


def _directory() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "belvedere" / f"tpch-{SCALE}"


def generate() -> Path:
    """The directory with one Parquet file per table, made if it is not there yet."""
    wanted = _directory()
    if not wanted.exists():
        wanted.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=wanted.parent))
        tool = Path(sys.executable).with_name("tpchgen-cli")
        command = [str(tool), "parquet", "-s", SCALE, "--output-dir", str(scratch)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        try:
            scratch.rename(wanted)  # whole or not at all, so that test processes may race
        except OSError:
            shutil.rmtree(scratch)
    return wanted


def tables() -> dict[str, pa.Table]:
    """All tables as Arrow, with plain strings."""
    directory = generate()
    return {name: _plain(pq.read_table(directory / f"{name}.parquet")) for name in TABLES}


def _plain(table: pa.Table) -> pa.Table:
    fields = [pa.field(f.name, pa.string() if f.type == pa.string_view() else f.type) for f in table.schema]
    return table.cast(pa.schema(fields))
