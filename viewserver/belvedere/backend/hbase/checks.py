"""What stands in the way of a view over a table of HBase, found before the view starts, in sentences for people.

HBase's log for others says what clients put and delete. What HBase does by itself is not in it (cells that expire, big
cells that are kept elsewhere), nor is what bypasses it (bulk loads, which nothing here can see). A view over such a
table would be wrong without a word, so it is refused. That a cell expires by itself (a TTL of one mutation) is in a
tag, which HBase takes off before it sends the log: nobody can tell.

What makes views late, or hard to run, is a warning.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from belvedere.backend.hbase.admin import Admin, ServerReport
from belvedere.backend.hbase.connection import Server
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


# --- sinks


def unreachable(sinks: Sequence[Server], servers: Sequence[Server], dial: Callable[[Server], None]) -> list[str]:
    """Why region servers may not reach these sinks: a sentence for each that they may not. `dial`: raises OSError where
    nothing answers."""
    elsewhere = [server for server in servers if not _is_here(server.host)]
    found = []
    for sink in sinks:
        if _is_here(sink.host) and elsewhere:
            found.append(
                f"a distributor takes the log at {sink}, which means another machine to the region server "
                f"{elsewhere[0]}; start distributors with --advertise and a name that region servers know"
            )
            continue
        try:
            dial(sink)
        except OSError as problem:
            found.append(
                f"nothing answers at {sink}, where region servers are told to send the log ({problem}); start the "
                "distributor with --advertise and a name that region servers know, and let its port through"
            )
    return found


def dial(sink: Server) -> None:
    with contextlib.closing(socket.create_connection((sink.host, sink.port), timeout=_DIAL_S)):
        pass


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.split(".")[0] in ("localhost", "ip6-localhost")


# --- warnings


def warnings(admin: Admin, now_ms: int, settings_of: Callable[[ServerReport], Mapping[str, str]]) -> list[str]:
    """What makes views late, or their times wrong."""
    found: list[str] = []
    for report in admin.reports():
        found += _clock(report, now_ms)
        found += slow_settings(report.server, settings_of(report))
    return found


def _clock(report: ServerReport, now_ms: int) -> Iterator[str]:
    off = report.clock_ms - now_ms
    if abs(off) > _CLOCK_MS:
        how = f"{abs(off) / 1000:.0f} s {'ahead' if off > 0 else 'behind'}"
        yield (
            f"the clock of region server {report.server} is {how}: cells have its timestamps, so how late views are, "
            "and which of two writes through different servers is the later one, is wrong by that; let NTP set clocks"
        )


def slow_settings(server: Server, settings: Mapping[str, str]) -> Iterator[str]:
    """Of what a region server says that it uses; nothing is said of what is not among them."""
    sleep = int(settings.get("replication.source.sleepforretries", _FAST_SLEEP_MS))
    times = int(settings.get("replication.source.maxretriesmultiplier", _FAST_TIMES))
    if sleep * times > _LATE_MS:
        yield (
            f"region server {server} has replication.source.sleepforretries {sleep} and maxretriesmultiplier {times}: "
            f"changes reach views about {sleep / 1000:g} s late, and up to {sleep * times / 1000:g} s after a quiet "
            f"time; set {_FAST_SLEEP_MS} and {_FAST_TIMES} in hbase-site.xml, for about {_FAST_SLEEP_MS * _FAST_TIMES} "
            "ms"
        )
    waiting = int(settings.get("hbase.serial.replication.waiting.ms", _FAST_WAITING_MS))
    if waiting > _LATE_MS:
        yield (
            f"region server {server} has hbase.serial.replication.waiting.ms {waiting}: changes of a region that has "
            f"moved, split or merged wait for up to {waiting / 1000:g} s; set {_FAST_WAITING_MS}"
        )


def settings_of(report: ServerReport) -> Mapping[str, str]:
    """From the web pages of a region server, where it has some that answer."""
    if not report.info_port:
        return {}
    try:
        url = f"http://{report.server.host}:{report.info_port}/conf?format=json"
        with urllib.request.urlopen(url, timeout=_DIAL_S) as answer:
            return {one["key"]: str(one["value"]) for one in json.load(answer)["properties"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


_DIAL_S = 3.0
_CLOCK_MS = 15_000
"""A report may be some seconds old."""
_LATE_MS = 1000
_FAST_SLEEP_MS, _FAST_TIMES, _FAST_WAITING_MS = 20, 5, 100
