"""Refresh streams in the manner of TPC-H's RF1 and RF2, and updates of customers, parts and suppliers besides.

Everything follows from the seed and the data: new orders are copies of old ones under new keys with other dates,
customers and quantities, so that every query sees rows enter, move and leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

KEYS = {
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


@dataclass(frozen=True)
class Change:
    """Rows to put (perhaps some columns only) or, if `delete`, keys to delete."""

    table: str
    rows: pa.Table
    delete: bool = False


def batches(tables: dict[str, pa.Table], count: int, seed: int) -> Iterator[list[Change]]:
    """`count` batches, each a list of changes that belong together."""
    rng = Random(seed)
    orders = tables["orders"].to_pylist()
    lines: dict[int, list[dict[str, Any]]] = {}
    for line in tables["lineitem"].to_pylist():
        lines.setdefault(line["l_orderkey"], []).append(line)
    alive = [o["o_orderkey"] for o in orders]
    by_key = {o["o_orderkey"]: o for o in orders}
    next_key = max(alive) + 1
    for number in range(count):
        new_orders, new_lines = [], []
        for _ in range(60):
            model = by_key[rng.choice(alive)]
            order, items = _copy(rng, model, lines[model["o_orderkey"]], next_key, tables["customer"].num_rows)
            next_key += 1
            new_orders.append(order)
            new_lines += items
            by_key[order["o_orderkey"]], lines[order["o_orderkey"]] = order, items
        dead = rng.sample(alive, 60 if number else 200)
        gone = set(dead)
        alive = [k for k in alive if k not in gone] + [o["o_orderkey"] for o in new_orders]
        dead_lines = [{"l_orderkey": k, "l_linenumber": i["l_linenumber"]} for k in dead for i in lines[k]]
        yield [
            Change("orders", _table(tables["orders"].schema, new_orders)),
            Change("lineitem", _table(tables["lineitem"].schema, new_lines)),
            Change("orders", pa.table({"o_orderkey": pa.array(dead, pa.int64())}), delete=True),
            Change("lineitem", _table(_part(tables, "lineitem", KEYS["lineitem"]), dead_lines), delete=True),
            *_updates(rng, tables),
        ]


def _copy(
    rng: Random, order: dict[str, Any], items: list[dict[str, Any]], key: int, customers: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    shift = timedelta(days=rng.randint(-400, 400))
    new = {
        **order,
        "o_orderkey": key,
        "o_custkey": rng.randint(1, customers),
        "o_orderdate": order["o_orderdate"] + shift,
    }
    new["o_orderpriority"] = rng.choice(["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"])
    new["o_comment"] = rng.choice(["quick", "special deposits and requests", order["o_comment"]])
    least = rng.choice([1, 40])  # some orders become large enough for q18
    copied = []
    for item in items:
        line = {**item, "l_orderkey": key, "l_quantity": Decimal(rng.randint(least, 50))}
        for column in ("l_shipdate", "l_commitdate", "l_receiptdate"):
            line[column] = item[column] + shift + timedelta(days=rng.randint(-5, 5))
        line["l_shipmode"] = rng.choice(["AIR", "AIR REG", "MAIL", "SHIP", "RAIL"])
        line["l_returnflag"] = rng.choice("RAN")
        copied.append(line)
    return new, copied


def _updates(rng: Random, tables: dict[str, pa.Table]) -> Iterator[Change]:
    """Puts of some columns: segments, nations, complaints, brands, types, costs, order priorities."""
    nations = [1, 2, 6, 7, 8, 12]  # those that the queries ask for, and others
    segments = ["BUILDING", "AUTOMOBILE", "MACHINERY"]
    customers = [
        {"c_custkey": k, "c_nationkey": rng.choice(nations), "c_mktsegment": rng.choice(segments)}
        for k in rng.sample(range(1, tables["customer"].num_rows + 1), 30)
    ]
    yield _change(tables, "customer", customers)
    comments = ["fine", "slow Customer heard Complaints", None]
    suppliers = [
        {"s_suppkey": k, "s_nationkey": rng.choice(nations), "s_comment": rng.choice(comments)}
        for k in rng.sample(range(1, tables["supplier"].num_rows + 1), 5)
    ]
    yield _change(tables, "supplier", suppliers)
    parts = [
        {
            "p_partkey": k,
            "p_brand": rng.choice(["Brand#12", "Brand#23", "Brand#34", "Brand#45"]),
            "p_type": rng.choice(["PROMO BURNISHED TIN", "ECONOMY ANODIZED STEEL", "MEDIUM POLISHED BRASS"]),
            "p_container": rng.choice(["SM BOX", "MED BAG", "LG CASE"]),
            "p_size": rng.choice([3, 9, 14]),
            "p_name": rng.choice(["light green", "dark red"]),
        }
        for k in rng.sample(range(1, tables["part"].num_rows + 1), 40)
    ]
    yield _change(tables, "part", parts)
    some = rng.sample(range(tables["partsupp"].num_rows), 20)
    costs = [
        {
            "ps_partkey": tables["partsupp"]["ps_partkey"][i].as_py(),
            "ps_suppkey": tables["partsupp"]["ps_suppkey"][i].as_py(),
            "ps_supplycost": Decimal(rng.randint(100, 99999)).scaleb(-2),
        }
        for i in some
    ]
    yield _change(tables, "partsupp", costs)


def _change(tables: dict[str, pa.Table], name: str, rows: list[dict[str, Any]]) -> Change:
    return Change(name, _table(_part(tables, name, tuple(rows[0])), rows))


def _part(tables: dict[str, pa.Table], name: str, columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([tables[name].schema.field(c) for c in columns])


def _table(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)
