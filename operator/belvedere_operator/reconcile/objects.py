"""The objects of a pool in the cluster: applied when they should be other than they are, looked at, taken away."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from belvedere_operator.build.inputs import Document
from belvedere_operator.build.pool import Key, key
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.kube.events import Event

DRIFT_S = 300.0
"""How often everything is applied again, changed or not: somebody may have changed or deleted it."""


@dataclass(slots=True)
class _Applied:
    digest: str
    generation: int
    at: float


class PoolObjects:
    """What was applied for one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube, self._clock = kube, clock
        self._applied: dict[Key, _Applied] = {}
        self._absent: set[Key] = set()
        """Known not to be there."""

    def apply(self, wanted: Iterable[Document], seen: dict[Key, Resource]) -> list[Event]:
        """`seen`: those that were listed anyway; one that is missing there, or was changed by others, is applied at
        once. What another manager owns is taken over, and told."""
        events: list[Event] = []
        now = self._clock()
        for document in wanted:
            at = key(document)
            digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
            before = self._applied.get(at)
            if before is not None and before.digest == digest and now - before.at < DRIFT_S:
                looked_at = document["kind"] in ("Deployment", "StatefulSet")
                found = seen.get(at)
                if not looked_at or (found is not None and found["metadata"].get("generation", 0) == before.generation):
                    continue
            answer, event = self._apply_one(document)
            events += [event] if event else []
            self._applied[at] = _Applied(digest, int(answer["metadata"].get("generation", 0)), now)
            self._absent.discard(at)
        return events

    def _apply_one(self, document: Document) -> tuple[Resource, Event | None]:
        try:
            return self._kube.apply(document, force=False), None
        except KubeError as error:
            if not error.conflict:
                raise
            what = f"{document['kind']} {document['metadata']['name']}"
            event = Event(
                "FieldConflict", f"{what}: {error.message}; the operator has taken the fields back", warning=True
            )
            return self._kube.apply(document, force=True), event

    def remove(self, keys: Iterable[Key], namespace: str) -> None:
        """Objects that the pool has no more."""
        for api_version, kind, name in keys:
            at = (api_version, kind, name)
            if at in self._absent:
                continue
            meta = {"name": name, "namespace": namespace}
            self._kube.delete({"apiVersion": api_version, "kind": kind, "metadata": meta})
            self._applied.pop(at, None)
            self._absent.add(at)
