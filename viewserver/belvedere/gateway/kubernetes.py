"""Who asks, and what they may do, by Kubernetes' own rules: TokenReview and SubjectAccessReview.

A caller shows the token of a service account or of a person. What is asked of Kubernetes' RBAC, in the namespace of the
pool, with the name of the relation as resources have it (`daily-spend` for `daily_spend`):

    read a view         get     materializedviews/rows
    read a table        get     basetables/rows
    write a table       create  basetables/rows
    change definitions  update  viewpools/admin        (of all of them: definitions belong to the pool)

Answers are remembered for seconds, so a right that is taken away is gone soon, and a request costs no round trip to the
API server. Refusals are remembered for less. An API server that does not answer is `Unavailable`: nobody is let in.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import urllib3

from belvedere.errors import DataError, NotAuthenticated, Unavailable
from belvedere.gateway.api import Right
from belvedere.gateway.auth import Credentials, Decision, Principal

GROUP = "belvedere.dev"
AUDIENCE = "belvedere.dev"
"""Tokens that are made for belvedere alone; others must be those of the API server itself."""
KNOWN_SECONDS, REFUSED_SECONDS = 10.0, 2.0
MOST_REMEMBERED = 10_000
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
RESOURCES = {"view": "materializedviews", "table": "basetables"}

V = TypeVar("V")
Answer = dict[str, Any]
Ask = Callable[[str, Answer], Answer]
"""Posts a review to a path of the API server and returns its status."""


class Remembered(Generic[V]):
    """Answers for a while each; the oldest are forgotten first. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._found: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._found.get(key)
        return found[1] if found is not None and self._monotonic() < found[0] else None

    def put(self, key: Hashable, value: V, seconds: float) -> V:
        with self._lock:
            self._found[key] = (self._monotonic() + seconds, value)
            self._found.move_to_end(key)
            while len(self._found) > MOST_REMEMBERED:
                self._found.popitem(last=False)
        return value


class TokenReviews:
    """An authenticator."""

    def __init__(self, ask: Ask, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._known: Remembered[Principal | str] = Remembered(monotonic)

    def recall(self, credentials: Credentials) -> Principal | None:
        found = self._known.get(_digest(credentials.bearer))
        return found if isinstance(found, Principal) else None

    def authenticate(self, credentials: Credentials) -> Principal:
        if not credentials.bearer:
            raise NotAuthenticated(
                "no token was shown; send `Authorization: Bearer …`, as `kubectl create token` gives one"
            )
        key = _digest(credentials.bearer)
        found = self._known.get(key)
        if found is None:
            found = self._review(credentials.bearer)
            self._known.put(key, found, KNOWN_SECONDS if isinstance(found, Principal) else REFUSED_SECONDS)
        if isinstance(found, str):
            raise NotAuthenticated(found)
        return found

    def _review(self, token: str) -> Principal | str:
        """First as a token that was made for us, then as one of the API server. A refusal is a text."""
        reason = ""
        for audiences in ([AUDIENCE], None):
            spec: Answer = {"token": token} | ({"audiences": audiences} if audiences else {})
            told = self._ask(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec},
            )
            if told.get("authenticated"):
                user = told.get("user") or {}
                extra = {name: tuple(values) for name, values in (user.get("extra") or {}).items()}
                return Principal(str(user.get("username", "")), groups=tuple(user.get("groups") or ()), extra=extra)
            reason = str(told.get("error") or reason)
        return "Kubernetes does not know this token" + (f": {reason}" if reason else "")


class AccessReviews:
    """An authorizer."""

    def __init__(self, ask: Ask, namespace: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._namespace = ask, namespace
        self._known: Remembered[Decision] = Remembered(monotonic)

    def recall(self, principal: Principal, right: Right, relation: str) -> Decision | None:
        return self._known.get(_asked(principal, right, relation))

    def decide(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
        key = _asked(principal, right, relation)
        found = self._known.get(key)
        if found is None:
            found = self._review(principal, right, kind, relation)
            self._known.put(key, found, KNOWN_SECONDS if found.allowed else REFUSED_SECONDS)
        return found

    def _review(self, principal: Principal, right: Right, kind: str, relation: str) -> Decision:
        refused = Decision(False)
        for attributes in attributes_of(right, kind, relation):
            told = self._ask(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": {
                        "user": principal.name,
                        "groups": list(principal.groups),
                        "extra": {name: list(values) for name, values in principal.extra.items()},
                        "resourceAttributes": {"namespace": self._namespace, "group": GROUP, **attributes},
                    },
                },
            )
            if told.get("allowed"):
                return Decision(True)
            what = f"{attributes['verb']} {attributes['resource']}/{attributes['subresource']}"
            named = f" {attributes['name']!r}" if "name" in attributes else ""
            refused = Decision(False, f"{principal.name!r} may not {what}{named} in namespace {self._namespace!r}")
        return refused


def _asked(principal: Principal, right: Right, relation: str) -> Hashable:
    """All that is told of the caller: what is `extra`, such as scopes of its token, may decide as well."""
    return principal.name, principal.groups, tuple(sorted(principal.extra.items())), right, relation.lower()


def attributes_of(right: Right, kind: str, relation: str) -> list[dict[str, str]]:
    """What is asked; any of them is enough. Where the kind is not known (or it is all of them), either will do."""
    if right is Right.ADMIN:
        return [{"verb": "update", "resource": "viewpools", "subresource": "admin"}]
    name = {} if relation == "*" else {"name": relation.lower().replace("_", "-")}
    if right is Right.WRITE:
        return [{"verb": "create", "resource": "basetables", "subresource": "rows"} | name]
    resources = [RESOURCES[kind]] if kind in RESOURCES else ["materializedviews", "basetables"]
    return [{"verb": "get", "resource": resource, "subresource": "rows"} | name for resource in resources]


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server as a pod reaches it. The token is read each time: it is rotated."""

    url: str
    authority: Path
    token: Path
    namespace: str
    pool: urllib3.PoolManager

    @staticmethod
    def of_pod(folder: Path = SERVICE_ACCOUNT) -> ApiServer:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (folder / "token").exists():
            raise DataError(
                "this is no pod of Kubernetes that has the token of a service account: use --tokens FILE, or set"
                " automountServiceAccountToken"
            )
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
        return ApiServer.at(url, folder / "ca.crt", folder / "token", namespace)

    @staticmethod
    def at(url: str, authority: Path, token: Path, namespace: str) -> ApiServer:
        timeout = urllib3.Timeout(connect=3.0, read=5.0)
        pool = urllib3.PoolManager(maxsize=8, timeout=timeout, retries=False, ca_certs=str(authority))
        return ApiServer(url, authority, token, namespace, pool)

    def ask(self, path: str, review: Answer) -> Answer:
        headers = {
            "Authorization": f"Bearer {self.token.read_text(encoding='utf-8').strip()}",
            "Content-Type": "application/json",
        }
        try:
            answer = self.pool.request("POST", self.url + path, body=json.dumps(review).encode(), headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"the API server of Kubernetes does not say who you are: {error}") from error
        if answer.status >= 400:
            kind = review["kind"]
            hint = "; bind the gateway's service account to system:auth-delegator" if answer.status == 403 else ""
            raise Unavailable(f"the API server of Kubernetes refuses a {kind} (HTTP {answer.status}){hint}")
        status: Answer = json.loads(answer.data).get("status") or {}
        return status


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
