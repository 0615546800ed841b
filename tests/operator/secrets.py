"""Secrets as the API server keeps them: versions, conflicts, and a crash before or after a chosen write."""

from __future__ import annotations

import copy
from typing import Any

from belvedere_operator.kube.client import KubeError


class Crash(Exception):
    """The operator ends here."""


class SecretServer:
    """What the operator asks of a `Kube` for Secrets."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.crash_at: int | None = None
        """The number of the write that does not happen any more, and with which the operator ends."""
        self.before_write = lambda: None

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (api_version, kind, namespace) == ("v1", "Secret", "shop")
        return copy.deepcopy(self.secrets.get(name))

    def create(self, resource: dict[str, Any]) -> dict[str, Any]:
        self._begin()
        name = resource["metadata"]["name"]
        if name in self.secrets:
            raise KubeError(409, "AlreadyExists", f"secrets {name!r} already exists")
        self.secrets[name] = copy.deepcopy(resource)
        self.secrets[name]["metadata"]["resourceVersion"] = str(self.writes)
        return self.secrets[name]

    def merge(self, of: dict[str, Any], change: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        self._begin()
        name = of["metadata"]["name"]
        found = self.secrets.get(name)
        if found is None:
            raise KubeError(404, "NotFound", f"secrets {name!r} not found")
        version = change["metadata"].get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise KubeError(409, "Conflict", "the object has been modified")
        for key, value in change["data"].items():
            if value is None:
                found["data"].pop(key, None)
            else:
                found["data"][key] = value
        found["metadata"].setdefault("annotations", {}).update(change["metadata"].get("annotations", {}))
        found["metadata"]["resourceVersion"] = str(self.writes)
        return found

    def _begin(self) -> None:
        before, self.before_write = self.before_write, lambda: None
        before()
        self.writes += 1
        if self.writes == self.crash_at:
            raise Crash
