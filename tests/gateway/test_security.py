"""Who may ask what: tokens and certificates with rights, this machine only without them, what the audit log has."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belvedere.errors import DataError, NotAuthenticated
from belvedere.gateway import fanout, server, subscriptions
from belvedere.gateway.api import Right
from belvedere.gateway.auth import Credentials, matches
from belvedere.gateway.databases import EmbeddedDatabase
from belvedere.gateway.server import GatewayServer, ServerOptions, TlsPaths
from belvedere.gateway.token_file import TokenFile
from tests.gateway.serving import ORDERS, SPEND, Served, embedded, serving, subscribed

READER, WRITER, ADMIN = "reader-4e1243bd22c6", "writer-4e1243bd22c6", "admin-4e1243bd22c66"
TOKENS = f"""
tokens:
  - name: reader
    token: {READER}
    read: ["sp*"]
  - name: writer
    sha256: {hashlib.sha256(WRITER.encode()).hexdigest()}
    write: ["ORDERS"]
  - name: admin
    token: {ADMIN}
    admin: ["*"]
  - name: late
    token: late-0123456789abcdef
    admin: ["*"]
    expires: 2020-01-01T00:00:00Z
"""


@contextlib.contextmanager
def guarded(directory: Path, **options: Any) -> Iterator[Served]:
    tokens = directory / "tokens.yaml"
    tokens.write_text(TOKENS)
    with embedded(
        ServerOptions(port=0, audit=directory / "audit.jsonl", **options),
        ORDERS,
        SPEND,
        authenticator=TokenFile(tokens),
    ) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/v1/relations/spend/row?key=1", None, {READER: 404, ADMIN: 404}),
        ("GET", "/v1/relations/spend/rows", None, {READER: 200, ADMIN: 200}),
        ("GET", "/v1/relations/orders/rows", None, {ADMIN: 200}),
        ("GET", "/v1/relations/spend", None, {READER: 200, ADMIN: 200}),
        ("GET", "/v1/relations/spend/plan", None, {READER: 200, ADMIN: 200}),
        ("POST", "/v1/relations/orders/rows", '{"id": 1}', {WRITER: 200, ADMIN: 200}),
        ("POST", "/v1/relations/orders/deletes", "[1]", {WRITER: 200, ADMIN: 200}),
        ("GET", "/v1/writes/x?relation=orders", None, {WRITER: 404, ADMIN: 404}),
        ("POST", "/v1/read", '{"reads": [{"relation": "spend", "key": 1}]}', {READER: 200, ADMIN: 200}),
        ("POST", "/v1/read", '{"reads": [{"relation": "spend", "key": 1}, {"relation": "orders"}]}', {ADMIN: 410}),
        ("POST", "/v1/sql", '{"sql": "SELECT n FROM spend"}', {READER: 200, ADMIN: 200}),
        ("POST", "/v1/sql", '{"sql": "SELECT s.n FROM spend s JOIN orders o ON o.id = s.n"}', {ADMIN: 200}),
        ("POST", "/v1/sql", '{"sql": "INSERT INTO orders (id) VALUES (1)"}', {WRITER: 200, ADMIN: 200}),
        ("POST", "/v1/sql", '{"sql": "DROP TABLE IF EXISTS nothing"}', {ADMIN: 200}),
        ("POST", "/v1/sql", '{"sql": "SHOW VIEWS"}', {ADMIN: 200}),
        ("POST", "/v1/sql", '{"sql": "EXPLAIN SELECT id FROM orders"}', {ADMIN: 200}),
        ("GET", "/v1/status", None, {ADMIN: 200}),
        ("POST", "/v1/verify", "{}", {ADMIN: 200}),
        ("POST", "/v1/relations/spend/repair", "{}", {ADMIN: 200}),
        ("POST", "/v1/verify", '{"views": ["SPEND"]}', {ADMIN: 200}),
        ("POST", "/v1/verify", '{"views": ["nothing"]}', {ADMIN: 404}),
        ("DELETE", "/v1/relations/nothing?if_exists=true", None, {ADMIN: 200}),
        ("GET", "/v1", None, {None: 200, READER: 200, WRITER: 200, ADMIN: 200}),
    ],
)  # fmt: skip
def test_rights_decide(tmp_path: Path, method: str, path: str, body: str | None, allowed: dict[Any, int]) -> None:
    with guarded(tmp_path) as served:
        for token in (None, READER, WRITER, ADMIN):
            headers = {} if token is None else bearer(token)
            if body is not None:
                headers["content-type"] = "application/json"
            answer = served.http.request(method, path, content=body, headers=headers)
            expected = allowed.get(token, 401 if token is None else 403)
            assert answer.status_code == expected, (token, answer.text)
        if 401 in {served.http.request(method, path).status_code}:
            assert served.http.request(method, path).headers["www-authenticate"].startswith("Bearer")


def test_lists_show_what_the_caller_may_read(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        for token, seen in ((READER, ["spend"]), (WRITER, []), (ADMIN, ["orders", "spend"])):
            found = served.get("/v1/relations", headers=bearer(token)).json()["relations"]
            assert [one["name"] for one in found] == seen


def test_views_over_what_one_may_not_read_cannot_be_made(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        (tmp_path / "tokens.yaml").write_text(
            "tokens: [{name: builder, token: builder-0123456789, admin: [my_*], read: [spend]}]"
        )
        until_known(served, "builder-0123456789")
        headers = {**bearer("builder-0123456789"), "content-type": "application/sql"}
        make = "CREATE MATERIALIZED VIEW my_view AS SELECT {} FROM {}"
        assert served.http.post("/v1/sql", content=make.format("id", "orders"), headers=headers).status_code == 403
        assert served.http.post("/v1/sql", content=make.format("n", "spend"), headers=headers).status_code == 200
        manifest = (
            "apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {name: my-orders}\n"
            "spec: {query: SELECT id FROM orders}"
        )
        headers["content-type"] = "application/yaml"
        assert served.http.post("/v1/apply", content=manifest, headers=headers).status_code == 403


def until_known(served: Served, token: str) -> None:
    deadline = time.monotonic() + 20
    while served.get("/v1/relations", headers=bearer(token)).status_code == 401:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_tokens_that_are_wrong_or_late_are_refused(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        for header in ("Bearer nonsense", "Bearer late-0123456789abcdef", "Basic eDp5", "Bearer", READER):
            answer = served.get("/v1/relations", headers={"authorization": header})
            assert answer.status_code == 401, header
            assert READER not in answer.text
        assert "has expired" in served.get("/v1/relations", headers=bearer("late-0123456789abcdef")).text
        events = "/v1/relations/spend/changes?access_token="
        assert served.get(f"{events}wrong").status_code == 401
        with served.http.stream("GET", f"{events}{READER}") as response:
            assert response.status_code == 200
        assert served.get(f"/v1/relations/spend/rows?access_token={READER}").status_code == 400, "only of events"


def test_a_subscription_ends_when_its_token_is_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "RECHECK_SECONDS", 0.0)
    monkeypatch.setattr(fanout, "PROGRESS_SECONDS", 0.1)
    with (
        guarded(tmp_path) as served,
        subscribed(served, "/v1/relations/spend/changes", headers=bearer(READER)) as events,
    ):
        assert next(events)[0] == "epoch"
        (tmp_path / "tokens.yaml").write_text("tokens: [{name: other, token: other-0123456789abc, read: ['*']}]")
        told = [event for event in events if event[0] != "epoch"]
    assert [(name, data["error"], data["resumable"]) for name, _, data in told] == [("end", "NotAuthenticated", False)]


def test_the_file_is_read_again_and_a_wrong_one_is_not_taken(tmp_path: Path) -> None:
    path, said, now = tmp_path / "tokens.yaml", list[str](), [0.0]
    path.write_text(TOKENS)
    file = TokenFile(path, said.append, monotonic=lambda: now[0])

    def known(token: str) -> bool:
        now[0] += 2.0
        assert file.recall(Credentials(token)) is None, "the file is looked at first"
        try:
            file.authenticate(Credentials(token))
        except NotAuthenticated:
            return False
        return file.recall(Credentials(token)) is not None

    assert known(READER)
    path.write_text("tokens: [{name: other, token: other-0123456789abc, read: ['*']}]")
    assert not known(READER) and known("other-0123456789abc")
    path.write_text("tokens: [{name: broken}]")
    assert known("other-0123456789abc")
    path.unlink()
    assert known("other-0123456789abc")
    assert "read again: 1 tokens" in said[0] and "stays in force" in said[1] and "stays in force" in said[2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1", "tokens: and certificates:"),
        ("tokens: 5", "list"),
        ("tokens: [5]", "an entry has"),
        ("tokens: [{name: a, token: short, read: [x]}]", "at least 16"),
        ("tokens: [{name: a, token: 1234567890123456789, read: [x]}]", "in quotes"),
        ("tokens: [{name: a, sha256: xyz, read: [x]}]", "64 hexadecimal"),
        ("tokens: [{name: a, token: 0123456789abcdefg}]", "no right"),
        ("tokens: [{name: a, token: 0123456789abcdefg, read: orders}]", "list of patterns"),
        ("tokens: [{name: a, token: 0123456789abcdefg, read: [x], expires: soon}]", "expires"),
        ("tokens: [{name: a, token: 0123456789abcdefg, raed: [x]}]", "'raed'"),
        ("tokens: [{token: 0123456789abcdefg, read: [x]}]", "name is missing"),
        ("certificates: [{subject: a, san: b, read: [x]}]", "one of them"),
        ("{", "not YAML"),
        ("tokens: []\n---\ntokens: []", "tokens: and certificates:"),
        ("tokens: [{name: a, token: 0123456789abcdefg, read: [x], read: [y]}]", "twice"),
        ("tokens: [{name: a, token: 0123456789abcdefg, read: [x], expires: 2027-13-45}]", "month"),
        ('tokens: [{name: a, token: "0123456789abcdef\\ud800", read: [x]}]', "visible ASCII"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_files_that_are_wrong_are_explained(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        TokenFile(path)


@pytest.mark.parametrize("text", ["tokens: [{expires: 2027-13-45}]", "[" * 5000, 'tokens: [{token: "\\ud800"}]', "\0"])
def test_a_file_that_became_nonsense_fails_no_request(tmp_path: Path, text: str) -> None:
    path, said, now = tmp_path / "tokens.yaml", list[str](), [0.0]
    path.write_text(TOKENS)
    file = TokenFile(path, said.append, monotonic=lambda: now[0])
    path.write_text(text)
    now[0] += 2.0
    assert file.authenticate(Credentials(READER)).name == "reader"
    assert len(said) == 1 and "stays in force" in said[0]


def test_patterns() -> None:
    assert matches("*", "*") and matches("or?ers", "Orders") and matches("by_*", "by_city") and matches("[a]", "[a]")
    assert not matches("orders", "orders2") and not matches("o*", "*") and not matches("[ab]", "a")
    assert not matches("a", "a\n") and not matches("*x", "a") and not matches("?", "*") and not matches("by_*", "xby_a")
    assert (
        not matches("a.c", "abc") and matches("*a*a*a*a*b", "a" * 40 + "b") and not matches("*a" * 30 + "b", "a" * 300)
    )
    assert Right.READ.value == "read"


def test_nobody_is_let_in_from_elsewhere_without_authentication() -> None:
    with pytest.raises(DataError, match="nobody would be authenticated"):
        GatewayServer(EmbeddedDatabase(None), ServerOptions(host="0.0.0.0"))
    with pytest.raises(DataError, match="nobody would be authenticated"):
        GatewayServer(
            EmbeddedDatabase(None),
            ServerOptions(host="::", tls=TlsPaths(Path("c"), Path("k"), Path("a"), optional=True)),
        )


def test_pages_of_a_browser_on_this_machine_may_not_ask(served: Served) -> None:
    path = "/v1/relations/spend/row?key=7"
    assert served.get(path, headers={"host": "evil.example"}).status_code == 421
    assert served.get(path, headers={"origin": "http://evil.example"}).status_code == 403
    assert served.get(path, headers={"origin": "null"}).status_code == 403
    own = f"localhost:{served.server.port}"
    assert served.get(path, headers={"host": own, "origin": f"http://{own}"}).status_code == 200
    assert "access-control-allow-origin" not in served.get(path).headers


def test_origins_that_are_named_may_ask() -> None:
    origin = {"origin": "https://app.example"}
    with embedded(ServerOptions(port=0, cors_origins=("https://app.example",)), ORDERS, SPEND) as served:
        answer = served.get("/v1/relations/spend/rows", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "belvedere-token" in answer.headers["access-control-expose-headers"]
        before = served.http.request("OPTIONS", "/v1/relations/orders/rows", headers=origin)
        assert (before.status_code, "POST" in before.headers["access-control-allow-methods"]) == (204, True)
        assert served.http.request("OPTIONS", "/v1/relations/orders/rows").status_code == 405


def test_figures_are_for_this_machine_and_for_who_has_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with guarded(tmp_path) as served:
        assert served.get("/metrics").status_code == 200
        monkeypatch.setattr(server, "is_loopback", lambda host: False)  # as if it came from elsewhere
        assert served.get("/metrics").status_code == 401
        assert served.get("/metrics", headers=bearer("nonsense-0123456789")).status_code == 401
        assert served.get("/metrics", headers=bearer(READER)).status_code == 200
        behind = {"belvedere-authorization": f"Bearer {READER}", "authorization": "Basic of-a-proxy"}
        assert served.get("/metrics", headers=behind).status_code == 200
        assert served.get("/healthz").status_code == 200, "probes are for everybody"


def test_the_audit_log_has_who_did_what_and_no_values(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        row = '{"id": 1, "customer": 424242}'
        headers = {**bearer(WRITER), "content-type": "application/json", "belvedere-request": "r-1"}
        served.http.post("/v1/relations/orders/rows", content=row, headers=headers)
        os.rename(tmp_path / "audit.jsonl", tmp_path / "old.jsonl")
        served.http.delete("/v1/relations/spend", headers=bearer(READER))
        served.http.delete("/v1/relations/spend", headers=bearer(ADMIN))
        served.get("/v1/relations/orders/rows", headers=bearer(ADMIN))
    first = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    then = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(e["principal"], e["action"], e["relation"], e["request"], e["rows"]) for e in first] == [
        ("writer", "put", "orders", "r-1", 1)
    ]
    assert [(e["principal"], e["action"]) for e in then] == [("reader", "refused"), ("admin", "Drop")]
    assert "424242" not in (tmp_path / "old.jsonl").read_text()


def test_the_audit_log_has_repairs_but_no_looks(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        headers = {**bearer(ADMIN), "content-type": "application/json"}
        for asked in ({"dry_run": True}, {"everything": True}, {"keys": [[424242]]}):
            answer = served.http.post("/v1/relations/spend/repair", content=json.dumps(asked), headers=headers)
            assert answer.status_code == 200
    text = (tmp_path / "audit.jsonl").read_text()
    told = [json.loads(line) for line in text.splitlines()]
    assert [(e["principal"], e["action"], e["relation"]) for e in told] == [("admin", "Repair", "spend")] * 2
    assert "everything" in told[0] and "everything" not in told[1] and "424242" not in text


def test_the_audit_log_has_no_values_of_statements(tmp_path: Path) -> None:
    with guarded(tmp_path) as served:
        headers = {**bearer(ADMIN), "content-type": "application/sql"}
        for statement in (
            "INSERT INTO orders (id, customer) VALUES (1, 424242)",
            "DELETE FROM orders WHERE id = 515151",
            "CREATE MATERIALIZED VIEW few AS SELECT id FROM orders WHERE customer < 5",
        ):
            assert served.http.post("/v1/sql", content=statement, headers=headers).status_code == 200
    text = (tmp_path / "audit.jsonl").read_text()
    assert [json.loads(line)["action"] for line in text.splitlines()] == ["Insert", "Delete", "CreateView"]
    assert "424242" not in text and "515151" not in text
    assert "customer < 5" in json.loads(text.splitlines()[-1])["sql"], "of a definition it is what was defined"


def test_the_audit_log_has_what_failed_for_it_may_have_happened(tmp_path: Path) -> None:
    from belvedere.errors import StoreUnavailable

    with guarded(tmp_path) as served:
        original = served.db.put

        def put(*args: Any, **options: Any) -> None:
            original(*args, **options)
            raise StoreUnavailable("the answer of the store was lost")

        served.db.put = put
        headers = {**bearer(WRITER), "content-type": "application/json", "idempotency-key": "k"}
        answer = served.http.post("/v1/relations/orders/rows", content='{"id": 1}', headers=headers)
        assert answer.status_code == 503
        del served.db.put
        sql = {**bearer(ADMIN), "content-type": "application/sql"}
        assert served.http.post("/v1/sql", content="DROP TABLE orders", headers=sql).status_code == 409
        assert served.http.post("/v1/sql", content="SELECT nope FROM orders", headers=sql).status_code == 400
    told = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(e["principal"], e["action"], e["relation"], e["problem"]) for e in told] == [
        ("writer", "put", "orders", "unavailable"),
        ("admin", "Drop", "orders", "catalog-error"),
    ]
    assert (told[0]["rows"], told[0]["key"]) == (1, "k")


def test_hooks_decide_in_place_of_the_file(served: Served) -> None:
    """What Kubernetes' reviews plug into: they may be slow, and they get the kind of the relation."""
    from belvedere.gateway.auth import Decision, Principal

    asked: list[tuple[str, str, str, str]] = []

    class Cluster:
        def recall(self, *_: object) -> None:
            return None

        def authenticate(self, credentials: Credentials) -> Principal:
            if credentials.bearer != "from the cluster":
                raise NotAuthenticated("the review says no")
            return Principal("system:serviceaccount:shop:web", groups=("shop",))

        def decide(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
            asked.append((principal.name, right.value, kind, relation))
            return Decision(right is Right.READ and kind == "view", "RBAC says no")

    cluster = Cluster()
    with serving(served.database, authenticator=cluster, authorizer=cluster) as other:
        headers = bearer("from the cluster")
        assert other.get("/v1/relations/spend/row?key=7", headers=headers).status_code == 200
        refused = other.get("/v1/relations/orders/rows", headers=headers)
        assert (refused.status_code, refused.json()["detail"]) == (403, "RBAC says no")
        assert other.get("/v1/relations/spend/row?key=7", headers=bearer("x")).status_code == 401
    assert asked[0] == ("system:serviceaccount:shop:web", "read", "view", "spend")
