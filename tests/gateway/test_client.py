"""The client of the HTTP API: connections that break, gateways that end, who asks, what is wrong with a URL."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import belvedere
from belvedere.cli.main import cli
from belvedere.cluster.client.token import ClusterToken
from belvedere.errors import (
    AccessDenied,
    Closed,
    DataError,
    Incompatible,
    NotAuthenticated,
    NotYet,
    PeerUnavailable,
    RequestReused,
    SqlError,
    TooLarge,
    Unavailable,
)
from belvedere.gateway.client.connecting import address
from belvedere.gateway.client.database import HttpDatabase
from belvedere.gateway.client.leases import Leases
from belvedere.gateway.databases import EmbeddedDatabase
from belvedere.gateway.limits import Limits
from belvedere.gateway.server import ServerOptions, TlsPaths
from belvedere.gateway.token_file import TokenFile
from tests.cluster.certificates import authority, certified
from tests.cluster.proxy import Proxy, _cut
from tests.gateway.serving import ORDERS, SPEND, Served, embedded, serving
from tests.ports import lasting_port


@pytest.fixture
def served() -> Iterator[Served]:
    with embedded(None, ORDERS, SPEND) as found:
        yield found


@pytest.fixture
def db(served: Served) -> Iterator[HttpDatabase]:
    with connect(served.url) as made:
        yield made


def connect(url: str, **options: Any) -> HttpDatabase:
    made = belvedere.connect(url, **{"timeout": 20.0, **options})
    assert isinstance(made, HttpDatabase)
    return made


def order(id: int, customer: int, total: str) -> dict[str, Any]:
    return {"id": id, "customer": customer, "total": total}


# ---------------------------------------------------------------------- URLs and errors


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://", "give https://host"),
        ("https:///v1", "give https://host"),
        ("http://a:x", "give https://host"),
        ("http://a:0", "give https://host"),
        ("http://u:p@a", "has no user and password"),
        ("http://a/?x=1", "it ends with the path"),
        ("http://a/b c", "it ends with the path"),
    ],
)
def test_what_is_no_url_of_a_gateway_is_refused(url: str, found: str) -> None:
    with pytest.raises(DataError) as refused:
        belvedere.connect(url)
    assert found in str(refused.value)


def test_urls_may_have_a_path_before_the_api() -> None:
    found = address("https://a.example/belvedere/v1/")
    assert (found.host, found.port, found.prefix) == ("a.example", 443, "/belvedere")
    assert address("http://[::1]:81").host == "::1"


def test_options_of_other_urls_are_refused() -> None:
    with pytest.raises(DataError, match="store=… is for belvedere://"):
        belvedere.connect("http://a", store="served://b:1")
    with pytest.raises(DataError, match="certificates are for https://"):
        belvedere.connect("http://a", authority="x.pem")
    with pytest.raises(DataError, match="bearer=… is for https://"):
        belvedere.connect("belvedere://a:1", bearer="x")
    with pytest.raises(DataError, match="visible ASCII"):
        belvedere.connect("http://a", bearer="two words")


def test_nobody_there_is_said_with_the_reason() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(PeerUnavailable, match=rf"connecting: gave up after 0\.3 s: {url} does not answer: Conn"):
            belvedere.connect(url, timeout=0.3)


def test_what_is_no_gateway_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nnone")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(Incompatible, match="answered 404 without a problem document; is a gateway there"):
            belvedere.connect(f"http://127.0.0.1:{other.getsockname()[1]}", timeout=60.0)


def test_errors_keep_what_they_tell(db: HttpDatabase) -> None:
    with pytest.raises(SqlError) as wrong:
        db.execute("SELECT custmer FROM orders")
    assert (wrong.value.line, wrong.value.column) == (1, 8) and "customer" in (wrong.value.hint or "")
    with pytest.raises(NotYet, match="is not committed after") as late:
        db.get("spend", 1, after=db.epoch + 100_000, timeout=0.05)
    assert late.value.lag >= 0
    with pytest.raises(ValueError, match="is no token"):
        db.get("spend", 1, after="yesterday")


def test_a_write_that_is_too_large_says_so_and_writes_nothing() -> None:
    with embedded(ServerOptions(port=0, limits=Limits(body_bytes=4096)), ORDERS) as served, connect(served.url) as db:
        with pytest.raises(TooLarge, match="write in several"):
            db.put("orders", pa.table({"id": list(range(10_000))}))
        assert db.scan("orders").num_rows == 0


# ---------------------------------------------------------------------- writes


def test_rows_of_every_shape_and_their_timestamps(db: HttpDatabase) -> None:
    db.put("orders", [order(1, 7, "9.50"), {"id": 2, "customer": 7}, {"id": 3}], ts=[30, 10, 10])
    db.put("orders", [order(1, 8, "1"), {"id": 2, "total": 4}], ts=20)
    token = db.write("orders", [{"id": 3}, order(4, 7, "2")], deletes=[True, False])
    assert db.get("spend", 7, after=token) == {"customer": 7, "n": 3, "total": Decimal("15.50")}
    assert db.get("orders", 2) == {"id": 2, "customer": 7, "total": Decimal("4.00")}
    assert db.get("orders", 3) is None


def test_a_write_whose_answer_was_lost_happens_once(served: Served) -> None:
    class Deaf(Proxy):
        """Loses the answers to writes for a while; the requests get there."""

        lose = 2

        def _pump(self, source: socket.socket, sink: socket.socket) -> None:
            head = b""
            try:
                while data := source.recv(1 << 16):
                    head += data
                    if b'{"token"' in data and self.lose > 0:
                        self.lose -= 1
                        break
                    sink.sendall(data)
            except OSError:
                pass
            _cut(source)
            _cut(sink)

    proxy = Deaf(served.server.port)
    try:
        with connect(f"http://127.0.0.1:{proxy.port}") as db:
            before = served.db.epoch
            token = db.put("orders", order(1, 7, "1"))
            assert proxy.lose == 0
            assert db.get("spend", 7, after=token)["n"] == 1
            changes = list(served.db.subscribe("spend", after=before, timeout=0.0))
            assert [change.epoch for change in changes] == [token.epoch], "it was written once"
            # a change of definitions has no name: whoever made it has to look
            proxy.lose = 1
            with pytest.raises(Unavailable, match="it may have happened all the same: look before you repeat it"):
                db.execute("CREATE TABLE more (id INT PRIMARY KEY)")
            assert "more" in db.catalog.tables
            # a statement that writes has one
            proxy.lose = 1
            db.wait(db.execute("INSERT INTO orders VALUES (5, 7, 2.5)"))
            assert proxy.lose == 0 and db.get("spend", 7)["n"] == 2
    finally:
        proxy.stop()


def test_a_name_of_ones_own_makes_a_write_repeatable(served: Served, db: HttpDatabase) -> None:
    token = db.put("orders", order(1, 7, "1"), request="import-17")
    with connect(served.url) as other:
        assert other.put("orders", order(1, 7, "1"), request="import-17") == token
        assert other.written("import-17") == token and other.written("import-18") is None
        with pytest.raises(RequestReused):
            other.put("orders", order(1, 7, "2"), request="import-17")


# ---------------------------------------------------------------------- reads


def test_a_connection_never_goes_back(served: Served, db: HttpDatabase) -> None:
    """Another gateway may know less: with each read goes what was seen."""
    db.wait(db.put("orders", order(1, 7, "1")))
    assert db._seen == served.db.epoch
    db._seen += 60_000
    with pytest.raises(NotYet):
        db.get("spend", 7, timeout=0.05)


def test_scans_come_in_pages_of_one_epoch(served: Served, db: HttpDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("belvedere.gateway.client.reading.PAGE_ROWS", 7)
    served.db.wait(served.db.put("orders", [order(i, i, "1") for i in range(50)]))
    asked = []
    call = db._caller.call

    def counting(request: Any, deadline: Any) -> Any:
        asked.append(request)
        if len(asked) == 3:  # while it is read
            served.db.wait(served.db.delete("orders", list(range(50))))
        return call(request, deadline)

    monkeypatch.setattr(db._caller, "call", counting)
    assert db.scan("spend")["customer"].to_pylist() == list(range(50))
    assert sum(request.path.endswith("/rows") for request in asked) == 8
    assert db.scan("spend").num_rows == 0
    assert db.scan("spend", limit=0).schema.names == ["customer", "n", "total"]


def test_keys_that_are_too_long_for_an_address(db: HttpDatabase) -> None:
    db.execute("CREATE TABLE texts (s STRING PRIMARY KEY, n INT)")
    long = "ü" * 50_000
    db.wait(db.put("texts", {"s": long, "n": 1}))
    assert db.get("texts", long) == {"s": long, "n": 1} and db.get("texts", long + "x") is None


def test_many_keys_are_read_at_one_epoch(db: HttpDatabase) -> None:
    db.wait(db.put("orders", [order(i, i, "1.25") for i in range(250)]))
    found = db.get_many("spend", [*range(250), 999])
    assert [row and row["customer"] for row in found] == [*range(250), None]
    assert found[7] == db.get("spend", 7) and db.get_many("orders", [3]) == [db.get("orders", 3)]
    assert db.get_many("spend", [7], at=db.epoch) == [found[7]] and db.get_many("spend", []) == []
    with pytest.raises(DataError, match="'x' does not fit"):
        db.get_many("spend", [1, "x"])


def test_snapshots_are_renewed_while_they_are_held(served: Served, db: HttpDatabase) -> None:
    db._leases = Leases(db._caller, lease=1.0)
    db.wait(db.put("orders", order(1, 7, "1")))
    with db.snapshot() as snapshot:
        held = [pin for pin in served.db.status()["pins"] if pin["epoch"] == snapshot.epoch]
        assert held
        end = time.monotonic() + 3.5
        db.wait(db.put("orders", order(1, 7, "2")))
        while time.monotonic() < end:
            assert [pin for pin in served.db.status()["pins"] if pin["epoch"] == snapshot.epoch]
            time.sleep(0.1)
        assert snapshot.get("spend", 7)["total"] == 1
    deadline = time.monotonic() + 60
    while [pin for pin in served.db.status()["pins"] if pin["epoch"] == snapshot.epoch]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---------------------------------------------------------------------- gateways that end


def test_a_subscription_goes_on_at_the_next_gateway() -> None:
    port = lasting_port()
    with belvedere.open() as local:
        local.execute(ORDERS)
        local.execute(SPEND)
        options = ServerOptions(port=port, drain_seconds=2.0)
        told: list[Any] = []
        gateway = contextlib.ExitStack()
        first = gateway.enter_context(serving(EmbeddedDatabase(local), options))
        with connect(first.url) as db, gateway:
            changes = db.subscribe("spend", timeout=60.0)
            local.wait(local.put("orders", order(1, 7, "1")))
            told.append(next(changes))
            gateway.close()
            local.wait(local.put("orders", order(2, 7, "1")))
            local.wait(local.put("orders", order(3, 8, "1")))
            gateway.enter_context(serving(EmbeddedDatabase(local), options))
            told += [next(changes), next(changes)]
            local.wait(local.put("orders", order(4, 8, "1")))
            told.append(next(changes))
            changes.close()
            assert list(changes) == []
        assert [c.added.to_pylist()[0]["n"] for c in told] == [1, 2, 1, 2]
        assert [c.removed.num_rows for c in told] == [0, 1, 0, 1]


def test_after_closing_everything_says_closed(served: Served) -> None:
    db = connect(served.url)
    db.close()
    db.close()
    for call in (lambda: db.get("orders", 1), lambda: db.put("orders", []), lambda: db.catalog, lambda: db.snapshot()):
        with pytest.raises(Closed, match="the connection is closed"):
            call()


# ---------------------------------------------------------------------- who asks

RIGHTS = """
tokens:
  - {name: reader, token: reader-0123456789abcdef, read: ["*"]}
  - {name: writer, token: writer-0123456789abcdef, read: ["*"], write: ["*"]}
"""


def test_the_token_may_come_from_a_file_that_changes(tmp_path: Path) -> None:
    rights, bearer = tmp_path / "rights.yaml", tmp_path / "token"
    rights.write_text(RIGHTS)
    bearer.write_text("reader-0123456789abcdef\n")
    with embedded(None, ORDERS, authenticator=TokenFile(rights)) as served:
        with pytest.raises(NotAuthenticated):
            connect(served.url).catalog  # noqa: B018
        with connect(served.url, bearer=bearer) as db:
            with pytest.raises(AccessDenied, match="'reader' may not write 'orders'"):
                db.put("orders", {"id": 1})
            bearer.write_text("writer-0123456789abcdef\n")
            db.put("orders", {"id": 1})
        run = CliRunner().invoke(
            cli, ["--url", served.url, "--bearer-file", str(bearer), "--json", "scan", "orders"], prog_name="belvedere"
        )
        assert run.exit_code == 0 and json.loads(run.stdout)["id"] == 1, run.output
        environment = {"BELVEDERE_TOKEN": "reader-0123456789abcdef", "BELVEDERE_URL": served.url}
        assert CliRunner().invoke(cli, ["get", "orders", "1"], env=environment, prog_name="belvedere").exit_code == 0
        refused = CliRunner().invoke(cli, ["put", "orders", "--json", '{"id": 2}'], env=environment)
        assert refused.exit_code == 1 and "may not write" in refused.stderr


def test_tls_is_verified_and_may_show_a_certificate(tmp_path: Path) -> None:
    own, stranger = authority(tmp_path, "own"), authority(tmp_path, "other")
    server, client = certified(tmp_path, "server", own), certified(tmp_path, "client", own)
    rights = tmp_path / "rights.yaml"
    rights.write_text(RIGHTS + 'certificates:\n  - {subject: "CN=client", read: ["*"]}\n')
    options = ServerOptions(port=0, tls=TlsPaths(server.certificate, server.key, own[1], optional=True))
    with embedded(options, ORDERS, authenticator=TokenFile(rights)) as served:
        url = served.url.replace("127.0.0.1", "localhost")
        with pytest.raises(NotAuthenticated, match="no TLS connection: certificate verify failed"):
            connect(url, authority=stranger[1])
        with connect(url, authority=own[1], bearer="reader-0123456789abcdef") as db:
            assert db.scan("orders").num_rows == 0
        with connect(url, authority=own[1], certificate=client.certificate, key=client.key) as db:
            assert db.scan("orders").num_rows == 0 and next(iter([db.epoch]))


# ---------------------------------------------------------------------- commands


def test_every_command_works_over_http(served: Served, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0, **options: Any) -> list[Any]:
        result = CliRunner().invoke(cli, ["--url", served.url, "--json", *words], prog_name="belvedere", **options)
        assert result.exit_code == code, f"{words}: {result.output}{result.stderr}"
        return [json.loads(line) for line in result.stdout.splitlines()]

    manifest, rows = tmp_path / "shop.yaml", tmp_path / "orders.csv"
    manifest.write_text(
        "apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {name: rich}\n"
        'spec: {query: "SELECT customer, total FROM spend WHERE total > 5"}\n'
    )
    rows.write_text("id,customer,total\n10,1,5\n11,2,6\n")
    assert run("apply", "-f", str(manifest)) == [{"kind": "view", "name": "rich", "action": "created"}]
    assert run("apply", "-f", str(manifest)) == [{"kind": "view", "name": "rich", "action": "unchanged"}]
    (written,) = run("put", "orders", "--json", '[{"id": 1, "customer": 7, "total": 12.5}]')
    assert run("get", "rich", "7", "--after", written["token"]) == [{"customer": 7, "total": "12.50"}]
    assert run("load", "orders", str(rows))[0]["rows"] == 2
    assert [row["customer"] for row in run("scan", "spend", "--start", "2")] == [2, 7]
    assert run("lookup", "spend", "1")[0]["n"] == 1
    assert run("sql", "-c", "SELECT count(*) AS n FROM orders") == [{"n": 3}]
    (deleted,) = run("delete", "orders", "11")
    changes = run("watch", "spend", "--after", written["token"], "--seconds", "1")
    assert {(change["weight"], change["row"]["customer"]) for change in changes} == {(1, 1), (1, 2), (-1, 2)}
    assert ClusterToken.parse(deleted["token"]).epoch >= changes[-1]["epoch"]
    assert run("status")[0]["views"]["rich"]["rows"] == 1 and run("lag")[0]["epoch"]
    assert all(report["ok"] for report in run("verify"))
    assert run("repair", "rich")[0]["mended"] == 0
    assert run("explain", "rich") and run("quarantine", "rich") == []
    refused = CliRunner().invoke(cli, ["--url", served.url, "ranges", "orders"], prog_name="belvedere")
    assert refused.exit_code == 2 and "looked after by coordinators" in refused.stderr
