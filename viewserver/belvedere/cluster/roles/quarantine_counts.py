"""How many rows of each view are in quarantine, and how many row keys of base tables cannot be read.

The leader counts them, now and then: nobody else sees all buckets.

A table without versions has no rows, so an empty quarantine, which is the rule, costs nothing but a look at the usage.
"""

from __future__ import annotations

from belvedere.backend.seam import Store
from belvedere.backend.unreadable_rows import count_unreadable
from belvedere.cluster.catalog.catalogs import compile
from belvedere.engine.shard import quarantine_table
from belvedere.protocol.messages import Epoch
from belvedere.protocol.ring import BUCKETS


def count(store: Store, document: bytes, epoch: Epoch) -> dict[str, int]:
    """Rows in quarantine by view in a committed epoch, and by base table of another system. `document`: its catalog."""
    usage = store.usage()
    catalog = compile(document)
    found = {
        table.definition.name: count_unreadable(store, table.stored.name)
        for table in catalog.tables.values()
        if table.definition.origin is not None
    }
    for view_group in catalog.view_groups:
        for served in view_group.views:  # later view groups replace views of older ones
            table = quarantine_table(served.node)
            scanned = store.scan(table, 0, BUCKETS, Epoch(epoch + 1)) if usage.get(table) else ()
            found[served.node.name] = sum(len(values) - values.null_count for _, values in scanned)
    return found
