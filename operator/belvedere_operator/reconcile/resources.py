"""The tables, views and pools that there are, as the watches tell them.

Rounds read from here, not from the API server. What is written here after a change of our own is what the API server
answered, so that the next round does not decide on what it has already changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.crds import KINDS
from belvedere_operator.kube.client import Kube, Resource
from belvedere_operator.names import pool_of

PoolKey = tuple[str, str]
"""Namespace and name of a ViewPool."""


def pool_key(resource: Resource) -> PoolKey:
    """Of the pool that a resource is, or is in."""
    meta = resource["metadata"]
    namespace = meta.get("namespace") or "default"
    return namespace, meta["name"] if resource["kind"] == "ViewPool" else pool_of(resource)


class Resources:
    """By kind, namespace and name. May be used by many threads."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Resource] = {}
        self._lock = threading.Lock()

    def put(self, resource: Resource) -> bool:
        """Whether it says something new beside its status: what somebody wants, or that it goes."""
        key = _key(resource)
        with self._lock:
            before = self._found.get(key)
            if before is not None and _older(resource, before):
                return False
            self._found[key] = resource
        return before is None or _wish(before) != _wish(resource)

    def remove(self, resource: Resource) -> None:
        with self._lock:
            self._found.pop(_key(resource), None)

    def pool(self, key: PoolKey) -> Resource | None:
        with self._lock:
            return self._found.get(("ViewPool", *key))

    def relations(self, key: PoolKey) -> list[Resource]:
        """Tables and views of a pool."""
        with self._lock:
            return [one for one in self._found.values() if one["kind"] != "ViewPool" and pool_key(one) == key]

    def pools(self) -> set[PoolKey]:
        """Of all that is there, also pools that are only named."""
        with self._lock:
            return {pool_key(one) for one in self._found.values()}

    def all(self) -> list[Resource]:
        with self._lock:
            return list(self._found.values())

    def load(self, kube: Kube, namespaces: Iterable[str]) -> None:
        """Everything anew: what went unseen is forgotten, too. What the watches tell meanwhile is newer than the lists,
        and stays: else what is made while they are read would not be known before the next time."""
        with self._lock:
            before = dict(self._found)
        found: list[Resource] = []
        for kind in KINDS:
            for namespace in tuple(namespaces) or (None,):
                found += kube.list(API_VERSION, kind.name, namespace)
        keys = {_key(one) for one in found}
        for one in found:
            self.put(one)
        with self._lock:
            for key, one in before.items():
                if key not in keys and self._found.get(key) is one:
                    del self._found[key]


def _key(resource: Resource) -> tuple[str, str, str]:
    meta = resource["metadata"]
    return resource["kind"], meta.get("namespace") or "default", meta["name"]


def _older(resource: Resource, than: Resource) -> bool:
    """Of one resource, as far as its versions can be compared: Kubernetes' are numbers that grow."""
    first, second = resource["metadata"], than["metadata"]
    if first.get("uid") != second.get("uid"):
        return False
    try:
        return int(first["resourceVersion"]) < int(second["resourceVersion"])
    except (KeyError, ValueError):
        return False


def _wish(resource: Resource) -> Any:
    meta = resource["metadata"]
    return (
        resource.get("spec"),
        meta.get("uid"),
        meta.get("deletionTimestamp"),
        meta.get("annotations"),
        meta.get("finalizers"),
    )
