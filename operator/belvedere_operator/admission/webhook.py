"""The admission webhook: AdmissionReviews in and out, and what a verdict needs of the cluster and of pools."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from belvedere_operator.admission.verdict import (
    ALLOWED,
    NoCompiler,
    StateBudget,
    Verdict,
    of_change,
    of_deletion,
    of_pool_deletion,
)
from belvedere_operator.api import API_VERSION
from belvedere_operator.api.quantities import bytes_of
from belvedere_operator.decide.items import Item, item_of
from belvedere_operator.decide.ordering import readers
from belvedere_operator.gateway import DocumentResult, Gateway, PoolRefused, PoolUnreachable
from belvedere_operator.kube.client import Kube
from belvedere_operator.metrics import Metrics
from belvedere_operator.names import pool_of
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.serving import Answer, Request

log = logging.getLogger(__name__)
PATH = "/admission"
SPEC_CHANGES = "!has(object.metadata.deletionTimestamp) && object.?spec != oldObject.?spec"
"""Finalizers, labels and annotations mean nothing to the database. While nobody answers they must be written all the
same: the operator takes its finalizer away with such a change, and what is deleted would stay for ever."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """`compiler`: a gateway over an empty database, for pools that have none yet."""

    kube: Kube
    gateways: Gateways
    compiler: Gateway | None
    metrics: Metrics

    def answer(self, request: Request) -> Answer:
        try:
            review: dict[str, Any] = request.json()
            asked = review["request"]
        except (ValueError, KeyError, TypeError):
            return Answer.of(400, {"message": "expected an AdmissionReview"})
        verdict = self.verdict(asked)
        kind = asked.get("kind", {}).get("kind", "")
        self.metrics.reviews.labels(kind, "allowed" if verdict.allowed else "refused").inc()
        response: dict[str, Any] = {"uid": asked["uid"], "allowed": verdict.allowed}
        if verdict.message:
            response["status"] = {"code": 422, "reason": "Invalid", "message": verdict.message}
        if verdict.warnings:
            response["warnings"] = [text[:256] for text in verdict.warnings]
        told = {"apiVersion": review.get("apiVersion"), "kind": "AdmissionReview", "response": response}
        return Answer.of(200, told)

    def verdict(self, asked: dict[str, Any]) -> Verdict:
        kind, operation = asked["kind"]["kind"], asked["operation"]
        resource = asked["oldObject"] if operation == "DELETE" else asked["object"]
        resource = {"apiVersion": API_VERSION, "kind": kind, **resource}
        namespace = asked.get("namespace") or resource["metadata"].get("namespace") or "default"
        resource["metadata"].setdefault("name", asked.get("name") or "")
        if operation == "DELETE":
            return self._deletion(kind, namespace, resource)
        if kind == "ViewPool":
            return ALLOWED
        pool = pool_of(resource)
        old = asked.get("oldObject")
        others = self._items(namespace, pool)

        def compile(items: Sequence[Item]) -> Sequence[DocumentResult]:
            return self._compile(namespace, pool, items)

        budget = self._budget(namespace, pool) if kind == "MaterializedView" else None
        return of_change(resource, {"kind": kind, **old} if old else None, others, compile, budget)

    def _deletion(self, kind: str, namespace: str, resource: dict[str, Any]) -> Verdict:
        """A namespace that goes takes everything with it, in whatever order Kubernetes chooses."""
        found = self.kube.get("v1", "Namespace", None, namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return ALLOWED
        name = resource["metadata"]["name"]
        if kind == "ViewPool":
            return of_pool_deletion(name, self._items(namespace, name))
        others = self._items(namespace, pool_of(resource))
        item = item_of(resource)
        told = set(item.status.dependants)
        # What the pool tells is exact, but a view that was applied a moment ago is not in it yet.
        told |= {one.sql_name for one in readers(item, others) if one.status.applied is None and not one.suspended}
        live = {one.sql_name.lower() for one in others if one.deleting is None}
        return of_deletion(resource, others, [one for one in told if one.lower() in live])

    def _items(self, namespace: str, pool: str) -> list[Item]:
        found = []
        for kind in ("BaseTable", "MaterializedView"):
            found += [one for one in self.kube.list(API_VERSION, kind, namespace) if pool_of(one) == pool]
        return [item_of(one) for one in found]

    def _compile(self, namespace: str, pool: str, items: Sequence[Item]) -> Sequence[DocumentResult]:
        documents = [item.manifest() for item in items]
        reasons: list[str] = []
        for gateway in (self.gateways.of((namespace, pool)), self.compiler):
            if gateway is None:
                continue
            try:
                return gateway.apply(documents, dry_run=True)
            except PoolUnreachable as error:
                reasons.append(str(error))
            except PoolRefused as error:
                reasons.append(f"{gateway.url}: {error}")
        raise NoCompiler("; ".join(reasons) or "the operator has no compiler")

    def _budget(self, namespace: str, pool: str) -> StateBudget | None:
        found = self.kube.get(API_VERSION, "ViewPool", namespace, pool)
        limit = ((found or {}).get("spec") or {}).get("stateLimit")
        if not limit:
            return None
        try:
            figures = self.gateways.of((namespace, pool)).figures()
        except (PoolUnreachable, PoolRefused):
            return StateBudget(bytes_of(limit), 0)
        return StateBudget(bytes_of(limit), sum(told.bytes or 0 for told in figures.views.values()))


def configuration(name: str, client: dict[str, Any], namespaces: Sequence[str] = ()) -> dict[str, Any]:
    """The ValidatingWebhookConfiguration; `client`: where the operator is reached, with the authority of its
    certificate. An operator that looks after some namespaces judges nothing in others. SQL that nobody can compile is
    not stored (`Fail`): it would be refused later, where few look; only what people want of a view is SQL."""
    group, version = API_VERSION.split("/")
    if namespaces:
        among = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
        selector: dict[str, Any] = {"matchExpressions": [among]}
    else:
        selector = {}

    def hook(short: str, resources: list[str], operations: list[str], policy: str, **more: Any) -> dict[str, Any]:
        rule = {"apiGroups": [group], "apiVersions": [version], "resources": resources, "operations": operations}
        return {
            "name": f"{short}.{group}",
            "clientConfig": client,
            "rules": [rule | {"scope": "Namespaced"}],
            "namespaceSelector": selector,
            "failurePolicy": policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        } | more

    relations = ["basetables", "materializedviews"]
    wishes = [{"name": "spec-changes", "expression": f"request.operation == 'CREATE' || ({SPEC_CHANGES})"}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            hook("sql", relations, ["CREATE", "UPDATE"], "Fail", matchConditions=wishes),
            # A deletion that nobody judged is held by the finalizer all the same, and namespaces must be able to go.
            hook("deletion", [*relations, "viewpools"], ["DELETE"], "Ignore"),
        ],
    }
