"""Requests to the API server: what is read, applied, patched and deleted, and its refusals as one kind of error.

A small client of its own: the operator asks for few kinds, in few ways, from threads. What is created is applied
(server-side apply): the API server merges, keeps what others own, and says who owns what.
"""

from __future__ import annotations

import contextlib
import email.utils
import json
import threading
import time
import urllib.parse
from collections.abc import Mapping
from typing import Any

import urllib3

from belvedere_operator.kube.config import Access
from belvedere_operator.kube.kinds import path_of
from belvedere_operator.names import MANAGER

TIMEOUT = urllib3.Timeout(connect=5.0, read=30.0)

Resource = dict[str, Any]


class KubeError(Exception):
    """A refusal of the API server. `status` 0: it did not answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    @property
    def missing(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        return self.status == 409


class Kube:
    """One API server. May be used by many threads."""

    def __init__(self, access: Access, connections: int = 8) -> None:
        self._access = access
        settings: dict[str, Any] = {"maxsize": connections, "block": True, "timeout": TIMEOUT, "retries": False}
        if access.server.startswith("https"):
            settings |= {
                "ca_certs": str(access.authority) if access.authority else None,
                "cert_file": str(access.certificate) if access.certificate else None,
                "key_file": str(access.key) if access.key else None,
                "cert_reqs": "CERT_REQUIRED" if access.verify else "CERT_NONE",
            }
        self._pool = urllib3.PoolManager(num_pools=1, **settings)
        self._served: dict[str, bool] = {}
        self.clock_offset_s = 0.0
        """How far the API server's clock is ahead of ours, as its last answer said, to about a second."""
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Resource:
        """The answer. KubeError where there is none, or a refusal."""
        headers = {"Accept": "application/json", "User-Agent": MANAGER}
        if body is not None:
            headers["Content-Type"] = content_type
        if bearer := self._access.bearer():
            headers["Authorization"] = f"Bearer {bearer}"
        url = self._access.server + path + (f"?{urllib.parse.urlencode(params)}" if params else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(method, url, body=data, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise KubeError(0, "Unreachable", f"the API server does not answer: {error}") from error
        self._compare_clocks(answer.headers.get("Date"))
        if answer.status >= 400:
            raise _refusal(answer.status, answer.data)
        found: Resource = json.loads(answer.data) if answer.data else {}
        return found

    def _compare_clocks(self, date: str | None) -> None:
        if date is not None:
            with contextlib.suppress(ValueError):
                self.clock_offset_s = email.utils.parsedate_to_datetime(date).timestamp() - time.time()

    # ------------------------------------------------------------------ reading

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Resource | None:
        try:
            return self.request("GET", path_of(api_version, kind, namespace, name))
        except KubeError as error:
            if error.missing:
                return None
            raise

    def list(self, api_version: str, kind: str, namespace: str | None = None, **params: str) -> list[Resource]:
        """All of a namespace, or of all namespaces; `labelSelector` and the like as parameters."""
        items: list[Resource] = []
        while True:
            page = self.request("GET", path_of(api_version, kind, namespace), params={"limit": "500"} | params)
            for item in page.get("items", ()):
                items.append({"apiVersion": api_version, "kind": kind} | item)
            more = page.get("metadata", {}).get("continue")
            if not more:
                return items
            params["continue"] = more

    def serves(self, api_version: str) -> bool:
        """Whether the cluster has this API, such as that of the Prometheus operator. Remembered once it has."""
        with self._lock:
            if self._served.get(api_version):
                return True
        try:
            self.request("GET", f"/apis/{api_version}")
        except KubeError as error:
            if error.missing:
                return False
            raise
        with self._lock:
            self._served[api_version] = True
        return True

    # ------------------------------------------------------------------ changing

    def apply(
        self, resource: Resource, *, force: bool = True, manager: str = MANAGER, subresource: str = ""
    ) -> Resource:
        """Server-side apply: fields that are named are ours, others stay as they are."""
        meta = resource["metadata"]
        path = path_of(resource["apiVersion"], resource["kind"], meta.get("namespace"), meta["name"])
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        path += f"/{subresource}" if subresource else ""
        return self.request("PATCH", path, resource, params=params, content_type="application/apply-patch+yaml")

    def create(self, resource: Resource) -> Resource:
        meta = resource["metadata"]
        path = path_of(resource["apiVersion"], resource["kind"], meta.get("namespace"))
        return self.request("POST", path, resource, params={"fieldManager": MANAGER})

    def merge(self, of: Resource, change: Resource, subresource: str = "") -> Resource:
        """A merge patch; with a `resourceVersion` in its metadata only if nobody was faster."""
        meta = of["metadata"]
        path = path_of(of["apiVersion"], of["kind"], meta.get("namespace"), meta["name"])
        path += f"/{subresource}" if subresource else ""
        params = {"fieldManager": MANAGER}
        return self.request("PATCH", path, change, params=params, content_type="application/merge-patch+json")

    def delete(self, resource: Resource, propagation: str = "Background") -> bool:
        """Whether it was there."""
        meta = resource["metadata"]
        path = path_of(resource["apiVersion"], resource["kind"], meta.get("namespace"), meta["name"])
        try:
            self.request("DELETE", path, {"propagationPolicy": propagation})
        except KubeError as error:
            if error.missing:
                return False
            raise
        return True

    def close(self) -> None:
        self._pool.clear()


def _refusal(status: int, data: bytes) -> KubeError:
    try:
        told = json.loads(data)
        return KubeError(status, str(told.get("reason") or status), str(told.get("message") or told))
    except (ValueError, AttributeError):
        return KubeError(status, str(status), data.decode(errors="replace")[:500])
