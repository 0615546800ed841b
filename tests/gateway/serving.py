"""A gateway on a free port of this machine, in threads of this process, for tests."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx

import belvedere
from belvedere.gateway.auth import Authenticator, Authorizer
from belvedere.gateway.databases import EmbeddedDatabase, GatewayDatabase
from belvedere.gateway.server import GatewayServer, ServerOptions

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))"
SPEND = (
    "CREATE MATERIALIZED VIEW spend AS"
    " SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer"
)
SQL = {"content-type": "application/sql"}
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
ARROW = "application/vnd.apache.arrow.stream"


class Served:
    """A server that runs, and a client of it."""

    def __init__(self, database: GatewayDatabase, server: GatewayServer, url: str) -> None:
        self.database, self.server, self.url = database, server, url
        self.db: Any = database.db
        self.http = httpx.Client(base_url=url, timeout=60.0)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.http.get(path, **options)

    def post(self, path: str, content: Any = b"", **options: Any) -> httpx.Response:
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
            options.setdefault("headers", {})
            options["headers"] = {**JSON, **options["headers"]}
        return self.http.post(path, content=content, **options)

    def sql(self, text: str) -> httpx.Response:
        return self.http.post("/v1/sql", content=text, headers=SQL)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.server.port


@contextlib.contextmanager
def serving(
    database: GatewayDatabase,
    options: ServerOptions | None = None,
    authenticator: Authenticator | None = None,
    authorizer: Authorizer | None = None,
    said: list[str] | None = None,
) -> Iterator[Served]:
    """Until the end of the block; the database stays open."""
    server = GatewayServer(
        database,
        options or ServerOptions(port=0),
        authenticator,
        authorizer,
        say=(lambda text: None) if said is None else said.append,
    )
    began = threading.Event()
    urls: list[str] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run(lambda url: (urls.append(url), began.set()))  # type: ignore[func-returns-value]
        except BaseException as error:
            failures.append(error)
        finally:
            began.set()

    thread = threading.Thread(target=run, name="server", daemon=True)
    thread.start()
    assert began.wait(60.0), "the server does not start"
    if failures:
        raise failures[0]
    served = Served(database, server, urls[0])
    try:
        yield served
    finally:
        served.http.close()
        server.stop()
        thread.join(60.0)
        assert not thread.is_alive(), "the server does not end"
        assert not failures, failures


@contextlib.contextmanager
def embedded(options: ServerOptions | None = None, *statements: str, **more: Any) -> Iterator[Served]:
    """A database in memory behind a server."""
    with belvedere.open(None) as db:
        for statement in statements:
            db.execute(statement)
        with serving(EmbeddedDatabase(db), options, **more) as served:
            yield served


class Events:
    """Server-sent events of a response, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, str | None, Any]]:
        name, id, data = "", None, ""
        for line in self._lines:
            if not line:
                if data:
                    yield name, id, json.loads(data)
                name, id, data = "", None, ""
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                id = line[4:]
            elif line.startswith("data: "):
                data = line[6:]


@contextlib.contextmanager
def subscribed(served: Served, path: str, **options: Any) -> Iterator[Iterator[tuple[str, str | None, Any]]]:
    with served.http.stream("GET", path, **options) as response:
        assert response.status_code == 200, response.read()
        yield iter(Events(response))
