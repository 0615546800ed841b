"""Requests made from the OpenAPI document, right and wrong ones: no answer is a defect, and nothing is half written.

Schemathesis makes the requests, by the schema and against it. What it cannot know is given to it: names that there are,
statements, manifests, and bodies that are nearly right. One client asks at a time, so an oracle is simple: a request
that is refused has changed nothing, in no table and in no definition; one that is answered is visible after its token.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from belvedere.gateway import openapi
from belvedere.gateway.routes import ENDPOINTS
from tests.gateway.serving import ORDERS, SPEND, Served, embedded

EXAMPLES = int(os.environ.get("BELVEDERE_FUZZ_EXAMPLES", "12"))
LONG_EXAMPLES = 400
DEFINITIONS = (ORDERS, SPEND, "CREATE TABLE wide (a STRING, b DATE, c DOUBLE, d BINARY, PRIMARY KEY (a, b))")
ROWS = [{"id": i, "customer": i % 3, "total": "1.50"} for i in range(7)]
ARROW, NDJSON, SQL, YAML = (
    "application/vnd.apache.arrow.stream",
    "application/x-ndjson",
    "application/sql",
    "application/yaml",
)

# ---------------------------------------------------------------------- bodies that the schema does not describe

_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_JSON = st.recursive(
    _VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_ORDER = st.fixed_dictionaries(
    {"id": st.integers(-3, 3) | _VALUES},
    optional={"customer": st.integers(0, 3) | _VALUES, "total": st.just("2.25") | _VALUES, "x": _VALUES},
)
_CHANGE = st.fixed_dictionaries({"put": _ORDER}) | st.fixed_dictionaries({"delete": st.integers(0, 9) | _JSON}) | _JSON


def _arrow(columns: dict[str, list[Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    try:
        table = pa.table(columns)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        table = pa.table({"id": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


_COLUMNS = st.sampled_from(
    [
        {"id": [1, 2]},
        {"id": [1, 1], "customer": [1, 2]},
        {"id": ["x"]},
        {"id": [None]},
        {"id": [1.5]},
        {"id": [1], "x": [1]},
        {"id": pa.array([1], pa.uint64()), "total": pa.array(["9.99"])},
        {"id": [1, 2], "del": [True, False], "ts": [5, 6]},
        {},
    ]
)


def _torn(body: bytes, cut: int, flip: int) -> bytes:
    """Less of it, or one bit changed."""
    body = body[: len(body) - cut % (len(body) + 1)]
    at = flip % (len(body) or 1)
    return body[:at] + bytes([body[at] ^ 1 << flip % 8]) + body[at + 1 :] if body and flip else body


def _often_torn(bodies: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return bodies | st.builds(_torn, bodies, st.integers(0, 2000), st.integers(0, 20_000)) | st.binary(max_size=64)


STATEMENTS = [
    "SELECT * FROM spend",
    "SELECT count(*) FROM orders WHERE id > 2",
    "SELECT 1/0 FROM orders",
    "INSERT INTO orders VALUES (1, 2, 3.5)",
    "INSERT INTO orders (id) VALUES ('x')",
    "DELETE FROM orders WHERE id = 1",
    "CREATE TABLE t (id INT PRIMARY KEY)",
    "CREATE MATERIALIZED VIEW w AS SELECT id FROM orders",
    "DROP MATERIALIZED VIEW IF EXISTS w",
    "DROP TABLE orders",
    "SHOW TABLES",
    "DESCRIBE spend",
    "EXPLAIN spend",
    "SHOW CREATE VIEW spend",
    "SELEC 1",
    ";",
]
_MANIFEST = "apiVersion: belvedere.dev/v1alpha1\nkind: {}\nmetadata: {{name: {}}}\nspec: {{{}}}\n"
MANIFESTS = [
    _MANIFEST.format("BaseTable", "t2", "columns: [{name: id, type: int}], key: [id]"),
    _MANIFEST.format("MaterializedView", "v2", "query: SELECT id FROM orders"),
    _MANIFEST.format("MaterializedView", "v3", "query: SELECT id FROM nowhere"),
    "kind: Pod\n---\n[1, 2]\n",
    "a: &a [*a]\n",
    "",
]
_TEXTS = st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))
_LINES = st.lists(_ORDER | _CHANGE | _JSON, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows)).encode())
for media, bodies in (
    (ARROW, _often_torn(_COLUMNS.map(_arrow))),
    (NDJSON, _often_torn(_LINES)),
    (SQL, _often_torn(st.sampled_from(STATEMENTS).map(str.encode)) | _TEXTS),
    (YAML, _often_torn(st.sampled_from(MANIFESTS).map(str.encode)) | _TEXTS),
):
    schemathesis.openapi.media_type(media, bodies)
_BODIES = st.one_of(
    st.lists(_ORDER, max_size=4), st.lists(_CHANGE, max_size=4), _JSON, st.lists(st.integers(0, 9), max_size=3)
)

# ---------------------------------------------------------------------- requests

DOCUMENT = openapi.document(ENDPOINTS)
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {f"{found.ok().method.upper()} {found.ok().path}": found.ok() for found in SCHEMA.get_all_operations()}
NAMES = st.sampled_from(["orders", "spend", "wide"]) | st.sampled_from(
    ["ORDERS", "nowhere", "a/b", "../..", "%2e", "\u00fc", "' OR 1=1", "x" * 300]
)
KEYS = st.sampled_from(["7", '"a"', '["a","2024-02-29"]', '{"id":1}', "null", "1e999", "[[]]", "Oslo", "\x00", "[1"])
HEADS = st.fixed_dictionaries(
    {},
    optional={
        "Accept": st.sampled_from(["*/*", ARROW, NDJSON, "application/json"]),
        "Belvedere-After": st.sampled_from(["e0", "1", "e9999999999999", "e0,x:1"]),
        "Belvedere-Wait": st.just("0"),
        "Idempotency-Key": st.sampled_from(["a", "b"]),
    },
)
QUERY = {
    "key": "1", "prefix": "[1]", "start": "0", "stop": "5", "limit": "2", "reverse": "true", "columns": "id",
    "at": "e0", "ts": "7", "ts_column": "ts", "deletes": "del", "wait": "false", "dry_run": "true", "partial": "true",
    "relation": "orders", "bytes": "9", "from": "snapshot", "after": "1", "if_exists": "true", "kind": "view",
}  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with embedded(None, *DEFINITIONS) as found:
        found.db.wait(found.db.put("orders", ROWS))
        yield found


def state(served: Served) -> Any:
    db = served.db
    names = [*db.catalog.tables, *db.catalog.views]
    return db.catalog, {name: db.scan(name).to_pylist() for name in names if name in db.catalog.tables}


def restored(served: Served) -> None:
    """What a request may have dropped is there again."""
    db = served.db
    for statement, name in zip(DEFINITIONS, ("orders", "spend", "wide"), strict=True):
        if db.catalog.find(name) is None:
            db.execute(statement)


def ask(served: Served, case: Any, http: requests.Session) -> requests.Response:
    kwargs = case.as_transport_kwargs(base_url=served.url)
    with http.request(**kwargs, stream=True, timeout=60, allow_redirects=False) as response:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            response._content = next(response.iter_content(4096), b"")
            response.close()
        else:
            response.content  # noqa: B018  is read
        return response


def judge(served: Served, case: Any, before: Any, response: requests.Response) -> None:
    where = f"{case.method} {response.request.url} {case.media_type} {case.body!r}"
    assert response.status_code < 500, f"{where}: {response.status_code} {response.text[:500]}"
    if response.status_code >= 400:
        told = response.json()
        assert response.headers["content-type"] == "application/problem+json", where
        assert told["status"] == response.status_code and told["error"] and told["detail"], where
        assert state(served) == before, f"{where} was refused with {told['detail']}, and has changed something"
    elif response.headers.get("belvedere-token"):
        served.db.wait(response.headers["belvedere-token"], 30.0)


def fuzz(served: Served, name: str, examples: int) -> None:
    operation = OPERATIONS[name]
    writes = "deletes" in name or "changes" in name or name.endswith("/rows")

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(
        case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
        relation=NAMES | st.none(),
        key=st.none() | KEYS,
        body=st.none() | _BODIES,
        head=st.none() | HEADS,
    )
    def run(case: Any, relation: str | None, key: str | None, body: Any, head: dict[str, str] | None) -> None:
        if relation is not None and "relation" in (case.path_parameters or {}):
            case.path_parameters["relation"] = relation
        if head is not None:  # what stands there is right, so that the request gets as far as the handler
            known = {parameter["name"] for parameter in operation.definition.raw.get("parameters", ())}
            case.headers = {header: value for header, value in head.items() if header in known or header == "Accept"}
            case.query = {
                n: v
                for n, v in QUERY.items()
                if n in known and (n == "key" or zlib.crc32(f"{key}{relation}{n}".encode()) % 3 == 0)
            }
        for parameter in ("key", "prefix", "start", "relation"):
            if key is not None and parameter in (case.query or {}):
                case.query[parameter] = relation if parameter == "relation" else key
        if writes and body is not None and case.media_type == "application/json":
            case.body = body
        restored(served)
        before = state(served)
        try:
            with requests.Session() as http:
                response = ask(served, case, http)
        except requests.exceptions.InvalidJSONError:
            reject()  # an infinite number: JSON has none, so no client sends it
        judge(served, case, before, response)
        if response.status_code < 400 and not response.headers.get("content-type", "").startswith("text/event-stream"):
            checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
            case.validate_response(response, checks=checks)

    run()


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_whatever_is_asked_is_answered_or_refused_as_a_whole(served: Served, name: str) -> None:
    fuzz(served, name, EXAMPLES)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_whatever_is_asked_is_answered_or_refused_as_a_whole_at_length(served: Served, name: str) -> None:
    fuzz(served, name, LONG_EXAMPLES)
