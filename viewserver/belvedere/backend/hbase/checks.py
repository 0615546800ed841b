"""What stands in the way of a view over a table of HBase, found before the view starts, in sentences for people.

HBase's log for others says what clients put and delete. What HBase does by itself is not in it (cells that expire, big
cells that are kept elsewhere), nor is what bypasses it (bulk loads, which nothing here can see). A view over such a
table would be wrong without a word, so it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from belvedere.backend.hbase.admin import Admin
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName

_SYSTEM = "hbase"
_MAJOR = "2"


def obstacles(admin: Admin, table: TableName, families: Sequence[str], *, permitted: bool = False) -> list[str]:
    """Why these families of a table cannot be followed, if they cannot. `permitted`: REPLICATION_SCOPE may be set."""
    version = admin.version()
    if version.partition(".")[0] != _MAJOR:
        return [f"this is HBase {version}: its log was not tried; HBase 2.x is needed"]
    if table.namespace == _SYSTEM:
        return [f"hbase table {str(table)!r} belongs to HBase itself, whose changes are not in the log for others"]
    described = admin.descriptor(table)
    if described is None:
        return [_missing(admin, table)]
    found = [] if admin.is_enabled(table) else [f"hbase table {str(table)!r} is disabled; enable it first"]
    for name in families:
        family = described.family(name)
        found += [_no_family(described, name)] if family is None else _of_family(table, family, permitted)
    return found


def _missing(admin: Admin, table: TableName) -> str:
    names = [str(name) for name in admin.tables()]
    near = get_close_matches(str(table), names, 3)
    return f"there is no hbase table {str(table)!r}" + (f"; there is {', '.join(near)}" if near else "")


def _no_family(table: TableDescriptor, name: str) -> str:
    names = ", ".join(family.name for family in table.families)
    return f"hbase table {str(table.name)!r} has no column family {name!r}; it has {names}"


def _of_family(table: TableName, family: Family, permitted: bool) -> list[str]:
    where = f"column family {family.name!r} of hbase table {str(table)!r}"
    found = []
    if family.ttl is not None:
        found.append(
            f"{where} has a TTL of {family.ttl} s: cells that expire are not in the log, so a view would keep them; "
            "delete rows instead, or remove the TTL"
        )
    if _is_true(family, "IS_MOB"):
        found.append(f"{where} keeps big cells elsewhere (IS_MOB): they are not in the log; turn it off to follow it")
    if _is_true(family, "NEW_VERSION_BEHAVIOR"):
        found.append(
            f"{where} has NEW_VERSION_BEHAVIOR: deletes hide by order of arrival there, and a view reads them by "
            "timestamp; turn it off to follow it"
        )
    if family.replication_scope == 0 and not permitted:
        found.append(
            f"{where} has REPLICATION_SCOPE 0: its changes are not in the log for others; set it to 1 (in the HBase "
            f"shell: alter '{table}', {{NAME => '{family.name}', REPLICATION_SCOPE => 1}}), or permit Belvedere to"
        )
    return found


def _is_true(family: Family, name: str) -> bool:
    return family.attributes.get(name, "false").lower() == "true"
