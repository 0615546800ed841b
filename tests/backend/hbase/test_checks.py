"""What stands in the way of a view is said before it starts: one sentence for each, with what would work."""

from __future__ import annotations

import http.server
import re
import socket
import struct
import threading
import time

import pytest

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.admin import Admin, PoolAdmin, ServerReport
from belvedere.backend.hbase.checks import dial, obstacles, settings_of, slow_settings, unreachable, warnings
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.connection import CLIENT, Connection, Server, varint
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.master import Master
from tests.backend.hbase.conftest import UserTables
from tests.backend.hbase.server import unique

FAMILIES = {
    "good": {"REPLICATION_SCOPE": "1"},
    "scope": {},
    "ttl": {"REPLICATION_SCOPE": "1", "TTL": "86400"},
    "mob": {"REPLICATION_SCOPE": "1", "IS_MOB": "true", "MOB_THRESHOLD": "100000"},
    "new": {"REPLICATION_SCOPE": "1", "NEW_VERSION_BEHAVIOR": "true"},
}


@pytest.fixture(scope="module")
def orders(users: UserTables) -> TableName:
    name = TableName("default", unique("orders"))
    users.create(TableDescriptor(name, tuple(Family(family, given) for family, given in FAMILIES.items())))
    return name


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("scope", "column family 'scope' of hbase table '{}' has REPLICATION_SCOPE 0.*permit Belvedere"),
        ("ttl", "column family 'ttl' of hbase table '{}' has a TTL of 86400 s.*delete rows instead"),
        ("mob", "column family 'mob' of hbase table '{}' keeps big cells elsewhere"),
        ("new", "column family 'new' of hbase table '{}' has NEW_VERSION_BEHAVIOR"),
        ("none", "hbase table '{}' has no column family 'none'; it has good, mob, new, scope, ttl"),
    ],
)
def test_a_family_that_cannot_be_followed(client: HBase, orders: TableName, family: str, reason: str) -> None:
    (found,) = obstacles(client.admin, orders, ["good", family])
    assert re.fullmatch(reason.format(orders) + ".*", found)
    assert obstacles(client.admin, orders, ["good"]) == []
    assert (obstacles(client.admin, orders, [family], permitted=True) == []) == (family == "scope")


def test_a_table_that_is_missing_disabled_or_not_of_users(client: HBase, orders: TableName, users: UserTables) -> None:
    (found,) = obstacles(client.admin, TableName("default", orders.name[:-1] + "x"), ["f"])
    assert found.startswith("there is no hbase table 'orders_") and str(orders) in found
    assert obstacles(client.admin, TableName(unique("nobody"), "t"), ["f"])[0].startswith("there is no hbase table")
    assert "belongs to HBase itself" in obstacles(client.admin, TableName("hbase", "meta"), ["info"])[0]
    pool = PoolAdmin(client.master, unique("pool"), "us")
    pool.create_namespace()
    disabled = TableName(pool.namespace, "t")
    pool.create_table(TableDescriptor(disabled, (Family("f", {"REPLICATION_SCOPE": "1"}),)))
    pool.disable_table(disabled)
    assert obstacles(client.admin, disabled, ["f"]) == [f"hbase table '{disabled}' is disabled; enable it first"]
    pool.drop_namespace()


def test_sinks_that_region_servers_cannot_reach() -> None:
    here, there = Server("localhost", 1), Server("rs7.example", 2)
    called: list[Server] = []
    assert unreachable([here, Server("127.0.0.5", 3)], [here], called.append) == [] and len(called) == 2
    (found,) = unreachable([here], [here, there], called.append)
    assert "takes the log at localhost:1, which means another machine to the region server rs7.example:2" in found
    assert "--advertise" in found
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        closed = Server("127.0.0.1", listening.getsockname()[1])
        (found,) = unreachable([closed], [here], dial)
        assert found.startswith(f"nothing answers at {closed}, where region servers are told to send the log")
        listening.listen()
        assert unreachable([closed], [here], dial) == []


SERVER = Server("rs1", 16020)


class Reporting(Admin):
    def __init__(self, *reports: ServerReport) -> None:
        self._reports = list(reports)

    def reports(self) -> list[ServerReport]:
        return self._reports


def test_clocks_that_are_off() -> None:
    now = 1_750_000_000_000
    for off, words in ((20_000, "is 20 s ahead"), (-3_600_000, "is 3600 s behind")):
        (found,) = warnings(Reporting(ServerReport(SERVER, now + off, 0)), now, settings_of)
        assert f"the clock of region server rs1:16020 {words}" in found and "NTP" in found
    assert warnings(Reporting(ServerReport(SERVER, now - 5000, 0)), now, settings_of) == []


def test_settings_that_make_views_late() -> None:
    sleeping, waiting = slow_settings(
        SERVER,
        {
            "replication.source.sleepforretries": "1000",
            "replication.source.maxretriesmultiplier": "300",
            "hbase.serial.replication.waiting.ms": "10000",
        },
    )
    assert "about 1 s late, and up to 300 s after a quiet time; set 20 and 5" in sleeping
    assert "wait for up to 10 s; set 100" in waiting
    assert list(slow_settings(SERVER, {})) == []
    assert list(slow_settings(SERVER, {"replication.source.sleepforretries": "100"})) == []


def test_settings_are_read_from_the_web_pages_of_a_region_server() -> None:
    body = b'{"properties": [{"key": "replication.source.sleepforretries", "value": "1000", "isFinal": false}]}'

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/conf?format=json"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        report = ServerReport(Server("127.0.0.1", 1), 0, server.server_port)
        assert settings_of(report) == {"replication.source.sleepforretries": "1000"}
        server.shutdown()
        thread.join(5)
    assert settings_of(report) == {} and settings_of(ServerReport(SERVER, 0, 0)) == {}


def test_an_hbase_with_kerberos_says_so() -> None:
    """As a region server refuses a connection that offers no authentication: an answer to no call."""
    fault = messages.ExceptionResponse(
        exception_class_name="org.apache.hadoop.hbase.security.AccessDeniedException",
        stack_trace="org.apache.hadoop.hbase.security.AccessDeniedException: Authentication is required\n\tat x",
    )
    header = messages.ResponseHeader(call_id=(1 << 32) - 1, exception=fault).SerializeToString()
    frame = varint(len(header)) + header
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connected, _ = server.accept()
            with connected:
                connected.recv(65536)
                connected.sendall(struct.pack(">i", len(frame)) + frame)

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        connection = Connection(Server("127.0.0.1", server.getsockname()[1]), CLIENT, 10.0)
        with pytest.raises(Refused, match="demands Kerberos, which Belvedere does not speak yet"):
            connection.call("Get", messages.Empty(), messages.Empty)
        connection.close()
        thread.join(5)


def test_region_servers_tell_their_clocks(client: HBase) -> None:
    reports = client.admin.reports()
    assert {report.server for report in reports} == set(client.admin.servers())
    assert all(abs(report.clock_ms - time.time() * 1000) < 60_000 for report in reports)
    assert client.registry.sinks("/nobody") == []


@pytest.mark.parametrize("version", ["1.7.2", "3.0.0-beta-1"])
def test_an_hbase_of_another_generation(client: HBase, orders: TableName, version: str) -> None:
    class Other(Admin):
        def version(self) -> str:
            return version

    master: Master = client.master
    assert obstacles(Other(master), orders, ["good"]) == [
        f"this is HBase {version}: its log was not tried; HBase 2.x is needed"
    ]
