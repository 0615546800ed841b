"""The commands: a server of its own process, from its start to an orderly end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from belvedere.cli.main import cli
from tests.cluster.real import until
from tests.gateway.serving import ORDERS, SPEND, SQL, Events

MAIN = [sys.executable, "-m", "belvedere.cli.main"]


@contextlib.contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its URL."""
    process = subprocess.Popen([*MAIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("serving "), line + process.stderr.read()
        yield process, line.split()[-1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def sql(url: str, text: str) -> Any:
    answer = httpx.post(f"{url}/v1/sql", content=text, headers={"content-type": "application/sql"}, timeout=90)
    answer.raise_for_status()
    return answer.json()


def test_serve_from_start_to_sigterm(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.bv")
    with command("--db", path, "serve", "--port", "0", "--notice-seconds", "3") as (process, url):
        assert httpx.get(f"{url}/v1", timeout=60).json()["database"] == "embedded"
        sql(url, "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT)")
        sql(url, "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n FROM orders GROUP BY customer")
        ended: list[tuple[str, str | None, Any]] = []
        begun = threading.Event()

        def subscribe() -> None:
            with httpx.stream("GET", f"{url}/v1/relations/spend/changes", timeout=60) as response:
                for event in Events(response):
                    begun.set()
                    ended.append(event)

        subscriber = threading.Thread(target=subscribe)
        subscriber.start()
        assert begun.wait(30)
        # a request that is at work when the signal comes is finished: half of its body is there, and it has its place
        rows = [{"id": i, "customer": 1} for i in range(20_000)]
        body = json.dumps(rows).encode()
        at = httpx.URL(url)
        with socket.create_connection((at.host, at.port or 0), timeout=60) as writer, httpx.Client(timeout=60) as http:
            head = ["POST /v1/relations/orders/rows HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            writer.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body[:1000])
            until(lambda: "belvedere_http_at_work 1.0" in http.get(f"{url}/metrics").text, 60.0, "it is at work")
            process.send_signal(signal.SIGTERM)
            until(lambda: http.get(f"{url}/readyz").status_code == 503, 60.0, "load balancers have time to notice")
            writer.sendall(body[1000:])
            assert writer.recv(64).startswith(b"HTTP/1.1 200 ")
        subscriber.join(60)
        assert process.wait(60) == 0
    name, _, told = ended[-1]
    assert (name, told["type"].rpartition("/")[2], told["resumable"]) == ("end", "draining", True)
    with command("--db", path, "serve", "--port", "0") as (process, url):
        assert sql(url, "SELECT n FROM spend")["rows"] == [{"n": 20_000}]


def test_connections_leave_the_database_the_files_that_it_needs(tmp_path: Path) -> None:
    """More idle ones than there may be open files; beside them the log goes on and views are computed."""
    command = f"ulimit -n 300; exec {sys.executable} -m belvedere.cli.main serve --db {tmp_path / 'db'} --port 0"
    process = subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    idle: list[socket.socket] = []
    try:
        assert process.stdout is not None
        url = httpx.URL(process.stdout.readline().split()[-1])
        with httpx.Client(base_url=url, timeout=90) as client:
            for statement in (ORDERS, SPEND):
                assert client.post("/v1/sql", content=statement, headers=SQL).status_code == 200
            idle += [socket.create_connection((url.host, url.port or 0)) for _ in range(400)]
            for number in range(5):
                written = client.post("/v1/relations/orders/rows", json={"id": number, "customer": 1, "total": "1"})
                after = {"belvedere-after": written.json()["token"], "belvedere-wait": "60"}
                assert client.get("/v1/relations/spend/row?key=1", headers=after).json()["n"] == number + 1
            assert client.get("/readyz").json() == {"ready": True, "reasons": []}
    finally:
        for one in idle:
            one.close()
        process.terminate()
        told = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert "150 connections are taken at most" in told


def test_a_reader_beside_the_writer_serves_reads(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.bv")
    with command("--db", path, "serve", "--port", "0") as (_, url):
        sql(url, "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT)")
        sql(url, "CREATE MATERIALIZED VIEW ids AS SELECT id FROM orders")
        with command("--db", path, "serve", "--port", "0", "--read-only") as (_, reader):
            token = sql(url, "INSERT INTO orders VALUES (1, 2)")["token"]
            with httpx.Client(base_url=reader, timeout=90) as http:
                after = {"belvedere-after": token, "belvedere-wait": "60"}
                assert http.get("/v1/relations/ids/row?key=1", headers=after).json() == {"id": 1}
                assert http.get("/v1").json()["read_only"] is True
                refused = http.post("/v1/relations/orders/rows", json={"id": 2})
                assert (refused.status_code, refused.json()["error"]) == (403, "ReadOnly")
                assert http.get("/v1/status").json()["views"]["ids"]["rows"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "nobody would be authenticated"),
        (["--tls-server-certificate", __file__], "belong together"),
        (["--tls-clients", __file__], "needs --tls-server-certificate"),
        (["--tokens", __file__], "not YAML"),
        (["--tls-server-certificate", __file__, "--tls-server-key", __file__], "TLS:"),
        (["--audit", "/nowhere/audit"], "cannot be opened"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(tmp_path: Path, arguments: list[str], says: str) -> None:
    found = CliRunner().invoke(cli, ["--db", str(tmp_path / "a.bv"), "serve", "--port", "0", *arguments])
    assert found.exit_code in (1, 2)
    assert says in found.output + found.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with command("--db", str(tmp_path / "a.bv"), "serve", "--port", "0") as (_, url):
        port = url.rpartition(":")[2]
        found = CliRunner().invoke(cli, ["--db", str(tmp_path / "b.bv"), "serve", "--port", port])
        assert found.exit_code == 4 and f"port {port}" in found.output + found.stderr


def test_serve_is_for_directories_and_gateway_for_pools() -> None:
    assert "belvedere gateway --url" in CliRunner().invoke(cli, ["--url", "belvedere://a:1", "serve"]).stderr
    assert "give its coordinators" in CliRunner(env={"BELVEDERE_URL": ""}).invoke(cli, ["gateway"]).stderr
    assert os.environ.get("BELVEDERE_URL", "") == ""
