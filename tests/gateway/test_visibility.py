"""Mistakes tell nobody what else there is: errors name relations and columns that the caller has a right on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from belvedere.errors import Unavailable
from belvedere.gateway.api import Right
from belvedere.gateway.auth import Credentials, Decision, Principal
from belvedere.gateway.token_file import TokenFile
from tests.gateway.serving import ORDERS, SPEND, Served, embedded, serving

SECRET = "CREATE TABLE payroll (id BIGINT PRIMARY KEY, salary BIGINT)"
HIDDEN = "CREATE MATERIALIZED VIEW hidden AS SELECT id, salary FROM payroll"
LIMITED, ALL = "limited-0123456789", "all-0123456789abcd"
TOKENS = f"""
tokens:
  - {{name: limited, token: {LIMITED}, read: ["spend", "by_*"], admin: ["my*"]}}
  - {{name: all, token: {ALL}, read: ["*"], admin: ["my*"]}}
"""
MANIFEST = """apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: my}
spec: {query: "SELECT nope FROM hidden"}
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / "tokens.yaml"
    path.write_text(TOKENS)
    with embedded(None, ORDERS, SPEND, SECRET, HIDDEN, authenticator=TokenFile(path)) as found:
        yield found


def ask(served: Served, token: str, method: str, path: str, kind: str, body: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}", "content-type": f"application/{kind}"}
    return served.http.request(method, path, content=body, headers=headers)


@pytest.mark.parametrize(
    ("method", "path", "kind", "body", "tells"),
    [
        ("POST", "/v1/sql", "sql", "SELECT nope FROM payroll", "salary"),
        ("POST", "/v1/sql", "sql", "SELECT nope FROM hidden", "salary"),
        ("POST", "/v1/sql", "sql", "SELECT * FROM nowhere", "hidden"),
        ("POST", "/v1/sql", "sql", "SELECT * FROM hiden", "hidden"),
        ("POST", "/v1/sql", "sql", "INSERT INTO payroll (nope) VALUES (1)", "salary"),
        ("POST", "/v1/sql", "sql", "CREATE MATERIALIZED VIEW my AS SELECT nope FROM hidden", "salary"),
        ("POST", "/v1/explain", "sql", "SELECT nope FROM hidden", "salary"),
        ("POST", "/v1/apply", "yaml", MANIFEST, "salary"),
        ("POST", "/v1/apply?partial=true", "yaml", MANIFEST, "salary"),
        ("POST", "/v1/read", "json", '{"reads": [{"relation": "by_x", "key": 1}]}', "hidden"),
        ("POST", "/v1/verify", "json", '{"views": ["nowhere"]}', "may not admin 'nowhere'"),
        ("GET", "/v1/relations/by_x", "json", "", "hidden"),
        ("GET", "/v1/relations/by_x/row?key=1", "json", "", "hidden"),
        ("GET", "/v1/relations/by_x/rows", "json", "", "hidden"),
        ("GET", "/v1/relations/by_x/status", "json", "", "hidden"),
        ("GET", "/v1/relations/by_x/plan", "json", "", "hidden"),
        ("GET", "/v1/relations/by_x/changes", "json", "", "hidden"),
        ("DELETE", "/v1/relations/my", "json", "", "hidden"),
    ],
)
def test_errors_tell_only_what_the_caller_may_know(
    guarded: Served, method: str, path: str, kind: str, body: str, tells: str
) -> None:
    limited = ask(guarded, LIMITED, method, path, kind, body)
    assert 400 <= limited.status_code < 500 or "refused" in limited.text, limited.text
    asked = path + body
    for name in ("payroll", "hidden", "salary", "orders"):
        assert name not in limited.text or name in asked, limited.text
    everything = ask(guarded, ALL, method, path, kind, body)
    assert tells in everything.text, "who may read all is helped with all"


def test_nothing_is_listed_if_nobody_can_say_who_may_know(guarded: Served) -> None:
    class Cluster:
        """As one whose API server is gone after it has let the request pass."""

        def recall(self, *_: object) -> None:
            return None

        def authenticate(self, credentials: Credentials) -> Principal:
            return Principal("web")

        def decide(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
            if relation != "by_x":
                raise Unavailable("the API server does not answer")
            return Decision(True)

    with serving(guarded.database, authenticator=Cluster(), authorizer=Cluster()) as served:
        answer = served.get("/v1/relations/by_x/rows")
        assert (answer.status_code, answer.json()["detail"]) == (404, "no table or view 'by_x'")


def test_errors_about_what_the_caller_may_read_keep_their_help(guarded: Served) -> None:
    told = ask(guarded, LIMITED, "POST", "/v1/sql", "sql", "SELECT custmer FROM spend").json()
    assert "customer" in told["hint"]
    assert "there is spend" in ask(guarded, LIMITED, "GET", "/v1/relations/by_x", "json", "").text
    for path in ("/v1/sql", "/v1/explain"):
        refused = ask(guarded, LIMITED, "POST", path, "sql", "SELECT id FROM hidden")
        assert (refused.status_code, refused.json()["error"]) == (403, "AccessDenied")
