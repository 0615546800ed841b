"""Base tables in the store as the catalog has them. The leader does this; it can be repeated, also by a former leader:
names in the store are never used again, so a table that a catalog has dropped is dropped in every later one.
"""

from __future__ import annotations

from belvedere.backend.seam import BaseTables
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.document import load


def adjust(base: BaseTables, document: bytes) -> None:
    """Make, widen and drop tables as this catalog wants them."""
    wanted = {table.stored.name: table.stored for table in catalogs.compile(document).tables.values()}
    known = base.tables()
    ever = load(document).names
    dropped = [name for name in known if name.lower() in ever and name not in wanted]
    for name, table in wanted.items():
        if name not in known:
            base.create_table(table)
        elif table.origin is not None and len(known[name].columns) < len(table.columns):
            base.create_table(table)  # the definition says where they are
        elif len(known[name].columns) < len(table.columns):
            base.add_columns(name, table.columns[len(known[name].columns) :])
    for name in dropped:
        base.drop_table(name)
