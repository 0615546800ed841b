"""The gateway asks Kubernetes who somebody is and what they may do: a real API server, real accounts and RBAC."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import belvedere
from belvedere.errors import DataError, NotAuthenticated, Unavailable
from belvedere.gateway.api import Right
from belvedere.gateway.auth import Credentials, Principal
from belvedere.gateway.databases import EmbeddedDatabase
from belvedere.gateway.kubernetes import (
    KNOWN_SECONDS,
    REFUSED_SECONDS,
    AccessReviews,
    ApiServer,
    TokenReviews,
    attributes_of,
)
from belvedere.gateway.server import GatewayServer, ServerOptions
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, until

pytestmark = pytest.mark.timeout(900)


def account(cluster: Cluster, namespace: str, name: str, *rules: dict[str, Any]) -> str:
    """A service account with a role of these rules; its token."""
    meta = {"name": name, "namespace": namespace}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": list(rules)},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
        namespace=namespace,
    )
    return cluster.kubectl("create", "token", name, "-n", namespace).strip()


def rule(resource: str, *verbs: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"apiGroups": ["belvedere.dev"], "resources": [resource], "verbs": list(verbs)}
    return found | ({"resourceNames": list(names)} if names else {})


@pytest.fixture
def api_server(control_plane: Cluster, namespace: str, tmp_path: Path) -> ApiServer:
    """As a gateway's pod sees it: with the rights that the operator binds, and no more."""
    control_plane.kubectl("create", "serviceaccount", "gateway", "-n", namespace)
    binding = ("create", "clusterrolebinding", f"gateway-{namespace}", "--clusterrole=system:auth-delegator")
    control_plane.kubectl(*binding, f"--serviceaccount={namespace}:gateway")
    for review in ("tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"):
        control_plane.allowed(f"system:serviceaccount:{namespace}:gateway", "create", review)
    (tmp_path / "token").write_text(control_plane.kubectl("create", "token", "gateway", "-n", namespace))
    shutil.copy(control_plane.layout.pki / "ca.crt", tmp_path / "ca.crt")
    return ApiServer.at(control_plane.layout.server, tmp_path / "ca.crt", tmp_path / "token", namespace)


@pytest.fixture
def url(api_server: ApiServer) -> Iterator[str]:
    """A gateway over a database with a table and two views."""
    db = belvedere.open(None)
    db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, total DECIMAL(12,2))")
    db.execute("CREATE MATERIALIZED VIEW all_ids AS SELECT id FROM orders")
    db.execute("CREATE MATERIALIZED VIEW secret AS SELECT total FROM orders")
    reviews = TokenReviews(api_server.ask), AccessReviews(api_server.ask, api_server.namespace)
    server = GatewayServer(EmbeddedDatabase(db), ServerOptions(port=0), *reviews)
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started, PATIENCE_S, "the gateway")
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    thread.join(PATIENCE_S)
    db.close()


def ask(url: str, token: str | None, method: str, path: str, **more: Any) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.request(method, url + path, headers=headers, timeout=60, **more).status_code


ROWS = {"json": [{"id": 1, "total": "2.00"}]}
READ, PUT = "/v1/relations/{}/rows", "/v1/relations/orders/rows"


def test_rights_are_those_of_the_cluster(control_plane: Cluster, namespace: str, url: str) -> None:
    reader = account(control_plane, namespace, "reader", rule("materializedviews/rows", "get", names=("all-ids",)))
    writer = account(control_plane, namespace, "writer", rule("basetables/rows", "create"))
    boss = account(
        control_plane,
        namespace,
        "boss",
        rule("viewpools/admin", "update"),
        rule("materializedviews/rows", "get"),
        rule("basetables/rows", "get"),
    )
    cases = [
        (None, "GET", READ.format("all_ids"), 401, {}),
        ("not a token", "GET", READ.format("all_ids"), 401, {}),
        (reader, "GET", READ.format("all_ids"), 200, {}),
        (reader, "GET", READ.format("secret"), 403, {}),
        (reader, "GET", READ.format("orders"), 403, {}),
        (reader, "POST", PUT, 403, ROWS),
        (reader, "DELETE", "/v1/relations/secret", 403, {}),
        (reader, "GET", "/v1/status", 403, {}),
        (writer, "POST", PUT, 200, ROWS),
        (writer, "GET", READ.format("all_ids"), 403, {}),
        (boss, "GET", READ.format("secret"), 200, {}),
        (boss, "GET", READ.format("orders"), 200, {}),
        (boss, "GET", "/v1/status", 200, {}),
        (boss, "POST", PUT, 403, ROWS),
        (boss, "DELETE", "/v1/relations/secret", 200, {}),
    ]
    # A binding has an effect a moment after it was made. Refusals are tried when that is over.
    until(lambda: ask(url, reader, "GET", READ.format("all_ids")) == 200, PATIENCE_S, "the right of the reader")
    until(lambda: ask(url, writer, "POST", PUT, **ROWS) == 200, PATIENCE_S, "the right of the writer")
    until(lambda: ask(url, boss, "GET", "/v1/status") == 200, PATIENCE_S, "the rights of the boss")
    for token, method, path, expected, more in cases:
        assert ask(url, token, method, path, **more) == expected, (token, method, path)


def test_a_right_that_is_taken_away_is_gone_within_seconds(control_plane: Cluster, namespace: str, url: str) -> None:
    token = account(control_plane, namespace, "late", rule("materializedviews/rows", "get"))
    until(lambda: ask(url, token, "GET", READ.format("all_ids")) == 200, PATIENCE_S, "the right")
    control_plane.kubectl("delete", "rolebinding", "late", "-n", namespace)
    until(lambda: ask(url, token, "GET", READ.format("all_ids")) == 403, PATIENCE_S, "the end of it")
    control_plane.kubectl("delete", "serviceaccount", "late", "-n", namespace)
    until(lambda: ask(url, token, "GET", READ.format("all_ids")) == 401, PATIENCE_S, "the end of the account")


def test_a_token_for_somebody_else_is_not_taken(control_plane: Cluster, namespace: str, api_server: ApiServer) -> None:
    control_plane.kubectl("create", "serviceaccount", "person", "-n", namespace)
    reviews = TokenReviews(api_server.ask)
    words = ("create", "token", "person", "-n", namespace, "--audience")
    ours = reviews.authenticate(Credentials(control_plane.kubectl(*words, "belvedere.dev").strip()))
    assert ours.name == f"system:serviceaccount:{namespace}:person"
    assert f"system:serviceaccounts:{namespace}" in ours.groups
    with pytest.raises(NotAuthenticated, match="does not know this token"):
        reviews.authenticate(Credentials(control_plane.kubectl(*words, "somebody-else").strip()))


def test_a_gateway_without_rights_says_what_it_lacks(
    control_plane: Cluster, namespace: str, api_server: ApiServer, tmp_path: Path
) -> None:
    control_plane.kubectl("create", "serviceaccount", "plain", "-n", namespace)
    (tmp_path / "plain").write_text(control_plane.kubectl("create", "token", "plain", "-n", namespace))
    plain = dataclasses.replace(api_server, token=tmp_path / "plain")
    with pytest.raises(Unavailable, match=r"refuses a TokenReview .* system:auth-delegator"):
        TokenReviews(plain.ask).authenticate(Credentials("x"))


# ---------------------------------------------------------------------- without a cluster


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_answers_are_remembered_for_seconds_and_refusals_for_less() -> None:
    asked: list[str] = []
    allowed = True

    def answer(path: str, review: dict[str, Any]) -> dict[str, Any]:
        asked.append(review["kind"])
        return {"authenticated": allowed, "user": {"username": "ann", "groups": ["g"]}, "allowed": allowed}

    clock = Clock()
    tokens, access = TokenReviews(answer, clock), AccessReviews(answer, "shop", clock)
    assert tokens.recall(Credentials("t")) is None
    for _ in range(3):
        ann = tokens.authenticate(Credentials("t"))
        assert access.decide(ann, Right.READ, "view", "Spend").allowed
    assert asked == ["TokenReview", "SubjectAccessReview"]
    assert tokens.recall(Credentials("t")) == ann and access.recall(ann, Right.READ, "spend") is not None
    assert access.recall(ann, Right.WRITE, "spend") is None and tokens.recall(Credentials("u")) is None
    clock.now, allowed = KNOWN_SECONDS, False
    assert tokens.recall(Credentials("t")) is None
    asked.clear()
    for _ in range(2):
        with pytest.raises(NotAuthenticated):
            tokens.authenticate(Credentials("t"))
        assert not access.decide(ann, Right.READ, "view", "spend").allowed
    assert len(asked) == 3  # two audiences, one access
    clock.now += REFUSED_SECONDS
    assert access.recall(ann, Right.READ, "spend") is None


def test_two_callers_of_one_name_and_other_groups_are_two() -> None:
    def answer(path: str, review: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": "admins" in review["spec"]["groups"]}

    access = AccessReviews(answer, "shop", Clock())
    assert access.decide(Principal("ann", groups=("admins",)), Right.READ, "view", "v").allowed
    assert not access.decide(Principal("ann"), Right.READ, "view", "v").allowed


@pytest.mark.parametrize(
    ("right", "kind", "relation", "expected"),
    [
        (Right.READ, "view", "daily_spend", [("get", "materializedviews", "daily-spend")]),
        (Right.READ, "table", "Orders", [("get", "basetables", "orders")]),
        (Right.READ, "", "x", [("get", "materializedviews", "x"), ("get", "basetables", "x")]),
        (Right.READ, "", "*", [("get", "materializedviews", ""), ("get", "basetables", "")]),
        (Right.WRITE, "table", "orders", [("create", "basetables", "orders")]),
        (Right.ADMIN, "view", "orders", [("update", "viewpools", "")]),
    ],
)
def test_what_is_asked(right: Right, kind: str, relation: str, expected: list[tuple[str, str, str]]) -> None:
    found = [(one["verb"], one["resource"], one.get("name", "")) for one in attributes_of(right, kind, relation)]
    assert found == expected


def test_outside_of_a_pod_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(DataError, match="this is no pod of Kubernetes"):
        ApiServer.of_pod(tmp_path)


def test_what_one_token_may_is_not_what_another_of_the_same_name_may() -> None:
    """Scopes of a token are told as `extra`, and may decide."""

    def answer(path: str, review: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": review["spec"]["extra"] == {"scopes": ["all"]}}

    access = AccessReviews(answer, "shop")
    for _ in range(2):
        assert access.decide(Principal("ann", extra={"scopes": ("all",)}), Right.READ, "view", "spend").allowed
        assert not access.decide(Principal("ann", extra={"scopes": ("few",)}), Right.READ, "view", "spend").allowed
    few = access.recall(Principal("ann", extra={"scopes": ("few",)}), Right.READ, "spend")
    assert few is not None and not few.allowed
