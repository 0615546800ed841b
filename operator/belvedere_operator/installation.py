"""What the operator puts into the cluster for itself: the webhook's configuration and the APIService, with the
authority of its certificate; and what it finds out about the cluster.

Both objects belong to no namespace. They go with a ClusterRole of the installation, which owns them: an APIService that
nobody answers would hold up the deletion of every namespace.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from belvedere_operator.admission.certificates import Certificates
from belvedere_operator.admission.webhook import PATH, configuration
from belvedere_operator.build.inputs import Capabilities
from belvedere_operator.external.metrics_api import GROUP, VERSION, api_service
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.settings import Settings

log = logging.getLogger(__name__)
LOOK_S = 60.0
REGISTRATION, RBAC = "apiregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"


def server_names(settings: Settings) -> tuple[str, ...]:
    """Names by which the API server asks."""
    own = f"{settings.name}.{settings.namespace}.svc"
    given = urlsplit(settings.base_url).hostname if settings.base_url else None
    return (own, *([given] if given else ()))


@dataclass(slots=True)
class Installation:
    """May be used by many threads; looks at the cluster at most once a minute."""

    kube: Kube
    settings: Settings
    monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked: float = float("-inf")
    _capabilities: Capabilities = field(default_factory=Capabilities)
    _other: str = ""

    def capabilities(self) -> Capabilities:
        self._look()
        return self._capabilities

    def other_provider(self) -> str:
        """Who serves external metrics, if not the operator. Before the first look nobody does."""
        self._look()
        return self._other

    def _look(self) -> None:
        with self._lock:
            if self.monotonic() - self._looked < LOOK_S:
                return
            monitors = self.kube.serves("monitoring.coreos.com/v1")
            keda = self.kube.serves("keda.sh/v1alpha1")
            other = _provider(self.kube, self.settings)
            self._looked = self.monotonic()
            self._capabilities, self._other = Capabilities(monitors, keda), other

    def ensure(self, certificates: Certificates) -> None:
        """Called by the leader, from time to time: authorities change, and others change what is ours."""
        owners = self._owners()
        authority = certificates.bundle()
        hook = configuration(self.settings.name, self._client(authority), self.settings.watched)
        hook["metadata"] |= owners
        self.kube.apply(hook)
        if self.settings.metrics_provider and not self.other_provider():
            service = api_service(self.settings.name, self.settings.namespace, authority)
            service["metadata"] |= owners
            self.kube.apply(service)

    def _client(self, authority: str) -> dict[str, Any]:
        if self.settings.base_url:
            return {"url": self.settings.base_url.rstrip("/") + PATH, "caBundle": authority}
        service = {"name": self.settings.name, "namespace": self.settings.namespace, "path": PATH, "port": 443}
        return {"service": service, "caBundle": authority}

    def _owners(self) -> dict[str, Any]:
        if not self.settings.owner:
            return {}
        found = self.kube.request("GET", f"/apis/{RBAC}/clusterroles/{self.settings.owner}")
        owner = {
            "apiVersion": RBAC,
            "kind": "ClusterRole",
            "name": self.settings.owner,
            "uid": found["metadata"]["uid"],
        }
        return {"ownerReferences": [owner]}


def _provider(kube: Kube, settings: Settings) -> str:
    found = kube.get(REGISTRATION, "APIService", None, f"{VERSION}.{GROUP}")
    if found is None:
        return ""
    service = (found.get("spec") or {}).get("service") or {}
    if (service.get("namespace"), service.get("name")) == (settings.namespace, settings.name):
        return ""
    return f"{service.get('namespace')}/{service.get('name')}" if service else "the API server itself"


@dataclass(slots=True)
class AggregationLayer:
    """Whom the API server says it is when it asks on behalf of others."""

    kube: Kube
    _names: tuple[str, ...] = ()

    def load_into(self, context: ssl.SSLContext) -> None:
        """Without this nobody may ask for external metrics, which is the safe way to fail."""
        try:
            found = self.kube.get("v1", "ConfigMap", "kube-system", "extension-apiserver-authentication")
        except KubeError as error:
            log.warning("external metrics cannot be asked for: %s", error)
            return
        data = (found or {}).get("data") or {}
        authority = data.get("requestheader-client-ca-file")
        if not authority:
            log.warning("external metrics cannot be asked for: the cluster has no aggregation layer")
            return
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        names = data.get("requestheader-allowed-names") or "[]"
        self._names = tuple(part.strip().strip('"') for part in names.strip("[] \n").split(",") if part.strip())

    def callers(self) -> tuple[str, ...]:
        return self._names
