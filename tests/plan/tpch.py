"""The tables of TPC-H."""

from __future__ import annotations

from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import BIGINT, DATE, INT, STRING, Column, Type, decimal

_MONEY = decimal(15, 2)
_TABLES: dict[str, tuple[str, str]] = {
    "region": ("r_regionkey", "r_regionkey:i r_name:s r_comment:s"),
    "nation": ("n_nationkey", "n_nationkey:i n_name:s n_regionkey:i n_comment:s"),
    "supplier": (
        "s_suppkey",
        "s_suppkey:b s_name:s s_address:s s_nationkey:i s_phone:s s_acctbal:m s_comment:s",
    ),
    "customer": (
        "c_custkey",
        "c_custkey:b c_name:s c_address:s c_nationkey:i c_phone:s c_acctbal:m c_mktsegment:s c_comment:s",
    ),
    "part": (
        "p_partkey",
        "p_partkey:b p_name:s p_mfgr:s p_brand:s p_type:s p_size:i p_container:s p_retailprice:m p_comment:s",
    ),
    "partsupp": ("ps_partkey ps_suppkey", "ps_partkey:b ps_suppkey:b ps_availqty:i ps_supplycost:m ps_comment:s"),
    "orders": (
        "o_orderkey",
        "o_orderkey:b o_custkey:b o_orderstatus:s o_totalprice:m o_orderdate:d o_orderpriority:s o_clerk:s"
        " o_shippriority:i o_comment:s",
    ),
    "lineitem": (
        "l_orderkey l_linenumber",
        "l_orderkey:b l_partkey:b l_suppkey:b l_linenumber:i l_quantity:m l_extendedprice:m l_discount:m l_tax:m"
        " l_returnflag:s l_linestatus:s l_shipdate:d l_commitdate:d l_receiptdate:d l_shipinstruct:s l_shipmode:s"
        " l_comment:s",
    ),
}
_TYPES: dict[str, Type] = {"i": INT, "b": BIGINT, "s": STRING, "m": _MONEY, "d": DATE}


def catalog() -> Catalog:
    """All eight tables; only key columns are never NULL."""
    tables = {}
    for name, (key, columns) in _TABLES.items():
        keys = tuple(key.split())
        parts = [column.split(":") for column in columns.split()]
        tables[name] = TableDef(name, tuple(Column(c, _TYPES[t], c not in keys) for c, t in parts), keys)
    return Catalog(tables)
