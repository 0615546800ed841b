"""Which replica of the operator leads: a Lease that the leader renews, and that another takes when it was not renewed.

kopf elects nobody. The rules are those of Kubernetes' own controllers: whoever holds the lease renews it well before it
ends, stops acting when it could not, and nobody trusts another one's clock: a lease has ended when it did not change
for its duration by the clock of whoever looks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from belvedere_operator.kube.client import Kube, KubeError

API = "coordination.k8s.io/v1"


@dataclass(slots=True)
class _Seen:
    version: str
    since: float


class LeaderLease:
    """The lease as one replica sees it. Call `step` every `pause` seconds; it says whether this replica leads."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        seconds: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube, self._namespace, self._name, self._identity = kube, namespace, name, identity
        self._seconds, self._clock = seconds, clock
        self._seen: _Seen | None = None
        self._renewed = float("-inf")
        self.leads = False
        self.holder = ""

    @property
    def pause(self) -> float:
        return self._seconds / 6

    def step(self) -> bool:
        """Renews or takes the lease where that is due. A leader that could not renew for two thirds of the duration
        leads no more, whatever the reason: others take over at the end of it."""
        begun = self._clock()
        try:
            if self._try():
                self._renewed, self.leads, self.holder = begun, True, self._identity
            else:
                self.leads = False
        except KubeError:
            if self._clock() - self._renewed > self._seconds * 2 / 3:
                self.leads = False
        return self.leads

    def _try(self) -> bool:
        found = self._kube.get(API, "Lease", self._namespace, self._name)
        if found is None:
            return self._write("POST", None)
        spec, version = found.get("spec") or {}, found["metadata"]["resourceVersion"]
        self.holder = spec.get("holderIdentity") or ""
        if self._seen is None or self._seen.version != version:
            self._seen = _Seen(version, self._clock())
        if self.holder == self._identity:
            return self._write("PUT", found)
        lasts = float(spec.get("leaseDurationSeconds") or self._seconds)
        if self.holder and self._clock() - self._seen.since < lasts:
            return False
        return self._write("PUT", found)

    def _write(self, method: str, found: dict[str, Any] | None) -> bool:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = (found or {}).get("spec") or {}
        ours = before.get("holderIdentity") == self._identity
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, int(self._seconds)),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if ours else now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (0 if ours else 1),
        }
        meta: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if found is not None:
            meta["resourceVersion"] = found["metadata"]["resourceVersion"]
        path = f"/apis/{API}/namespaces/{self._namespace}/leases" + (f"/{self._name}" if method == "PUT" else "")
        try:
            self._kube.request(method, path, {"apiVersion": API, "kind": "Lease", "metadata": meta, "spec": spec})
        except KubeError as error:
            if error.conflict:
                return False  # another one was faster
            raise
        return True

    def release(self) -> None:
        """Another replica may lead at once."""
        if not self.leads:
            return
        self.leads = False
        try:
            found = self._kube.get(API, "Lease", self._namespace, self._name)
            if found is not None and (found.get("spec") or {}).get("holderIdentity") == self._identity:
                version = found["metadata"]["resourceVersion"]
                change = {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": ""}}
                self._kube.merge(found, change)
        except KubeError:
            return  # it ends by itself
