"""TPC-H over tables of a real HBase: orders, customer and lineitem under refresh streams, equal to DuckDB after each.

An application writes with happybase; DuckDB's tables take the same changes. The sample is the first orders of the data
with their lines; the long variant has all of it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from belvedere.backend.hbase.local.cluster import LocalHBase
from tests.backend.hbase.mapped import Application, manifest_of, table_of
from tests.backend.hbase.real_pool import RealPool, real_pool
from tests.backend.hbase.server import unique
from tests.oracle.values import same_bag, table_rows
from tests.tpch.data import TABLES, tables
from tests.tpch.queries import QUERIES
from tests.tpch.refresh import batches
from tests.tpch.test_tpch import SEED, Shadow
from tests.views.oracle import view_sql

FOLLOWED = ("customer", "orders", "lineitem")
OVER_THEM = ("q1", "q3", "q4", "q6", "q12", "q13", "q18")
SECONDS = 240.0


def sample(data: dict[str, pa.Table], orders: int) -> dict[str, pa.Table]:
    few = data["orders"].slice(0, orders)
    lines = data["lineitem"].filter(
        pc.is_in(data["lineitem"]["l_orderkey"], value_set=few["o_orderkey"].combine_chunks())
    )
    return {**data, "orders": few, "lineitem": lines}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("orders", [260, pytest.param(10**9, marks=pytest.mark.long)])
def test_views_equal_duckdb_after_every_refresh(hbase: LocalHBase, tmp_path: Path, orders: int) -> None:
    data, shadow = sample(tables(), orders), Shadow()
    with ExitStack() as stack:
        stack.callback(shadow.close)
        applications = {}
        for name in FOLLOWED:
            definition = table_of(f"CREATE TABLE {name} ({TABLES[name]})")
            application = applications[name] = Application(hbase, definition, unique(name))
            stack.callback(application.close)
            application.put(data[name].to_pylist())
            shadow.fill(name, data[name])
        pool = stack.enter_context(real_pool(hbase, tmp_path, viewservers=1, distributors=1))
        bases = [manifest_of(one.definition, one.name) for one in applications.values()]
        pool.db.apply_manifest("---\n".join(bases))
        pool.db.apply_manifest("---\n".join(yaml.safe_dump(view(name)) for name in OVER_THEM))
        converge(pool, shadow, "the rows that were there")
        for number, changes in enumerate(batches(data, 1 if orders < 1000 else 5, SEED)):
            for change in changes:
                if change.table in FOLLOWED:
                    application = applications[change.table]
                    (application.delete if change.delete else application.put)(change.rows.to_pylist())
                    shadow.apply(change)
            converge(pool, shadow, f"batch {number}")


def view(name: str) -> dict[str, Any]:
    """Its manifest: those of one call are built together."""
    return {
        "apiVersion": "belvedere.dev/v1alpha1",
        "kind": "MaterializedView",
        "metadata": {"name": name},
        "spec": {"query": QUERIES[name]},
    }


def converge(pool: RealPool, shadow: Shadow, after: str) -> None:
    """Views follow: wait until they are what DuckDB has, and say what is not if they never are."""
    deadline = time.monotonic() + SECONDS
    for name in OVER_THEM:
        wanted = shadow.rows(view_sql(pool.db.catalog, name))
        while True:
            difference = same_bag(table_rows(pool.db.scan(name)), wanted, exact=True)
            if difference is None:
                break
            assert time.monotonic() < deadline, f"{name} after {after}: {difference}"
            time.sleep(0.2)
