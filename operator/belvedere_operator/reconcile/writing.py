"""What a round writes back to resources: finalizers, status and Events."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from belvedere_operator.api.condition import Condition
from belvedere_operator.api.reading import written
from belvedere_operator.decide.significance import worth_writing
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.kube.events import Event, resource_of
from belvedere_operator.names import FINALIZER
from belvedere_operator.reconcile.resources import Resources

log = logging.getLogger(__name__)
UNDECLARED = "field not declared in schema"
"""What the API server says of an applied field that the definition does not have."""


class Writing:
    """May be used by many threads."""

    def __init__(self, kube: Kube, resources: Resources) -> None:
        self._kube, self._resources = kube, resources

    def finalize(self, resource: Resource) -> None:
        """So that the resource stays until its relation, or its cluster-wide objects, are gone."""
        self._finalizers(resource, [*(resource["metadata"].get("finalizers") or ()), FINALIZER])

    def release(self, resource: Resource) -> None:
        """The resource may go."""
        self._finalizers(resource, [one for one in resource["metadata"].get("finalizers") or () if one != FINALIZER])

    def _finalizers(self, resource: Resource, finalizers: list[str]) -> None:
        change = {"finalizers": finalizers, "resourceVersion": resource["metadata"]["resourceVersion"]}
        try:
            answer = self._kube.merge(resource, {"metadata": change})
        except KubeError as error:
            if error.missing:
                self._resources.remove(resource)
                return
            raise
        if answer["metadata"].get("deletionTimestamp") and not answer["metadata"].get("finalizers"):
            self._resources.remove(resource)
        else:
            self._resources.put({"apiVersion": resource["apiVersion"], "kind": resource["kind"]} | answer)

    def status(self, resource: Resource, status: Any, now: float) -> bool:
        """Whether it was worth writing."""
        before, after = resource.get("status") or {}, written(status)
        if not worth_writing(before, after, now):
            return False
        meta = {"name": resource["metadata"]["name"], "namespace": resource["metadata"].get("namespace")}
        document = {"apiVersion": resource["apiVersion"], "kind": resource["kind"], "metadata": meta, "status": after}
        try:
            answer = self._kube.apply(document, subresource="status")
        except KubeError as error:
            if error.missing:
                return False
            if UNDECLARED not in error.message:
                raise
            # Definitions of an older version: a merge stores what they have, and nothing of the rest.
            gone = dict.fromkeys(before.keys() - after.keys())
            answer = self._kube.merge(resource, {"status": gone | after}, "status")
        self._resources.put({"apiVersion": resource["apiVersion"], "kind": resource["kind"]} | answer)
        return True

    def events(self, resource: Resource, events: Iterable[Event]) -> None:
        """Events are news, not state: one that cannot be written is in the log."""
        for event in events:
            meta = resource["metadata"]
            where = f"{resource['kind']} {meta.get('namespace')}/{meta['name']}"
            log.log(
                logging.WARNING if event.warning else logging.INFO, "%s: %s: %s", where, event.reason, event.message
            )
            try:
                self._kube.create(resource_of(event, resource))
            except KubeError as error:
                log.info("event %s of %s was not written: %s", event.reason, where, error)


def conditions_of(status: Any) -> tuple[Condition, ...]:
    found: tuple[Condition, ...] = status.conditions
    return found
