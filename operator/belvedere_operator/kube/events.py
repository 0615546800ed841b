"""Events: what happened to a resource and why, for `kubectl describe` and `kubectl events`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from belvedere_operator.names import MANAGER

NORMAL, WARNING = "Normal", "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling about a resource. `reason` is one word."""

    reason: str
    message: str
    warning: bool = False


def resource_of(event: Event, about: Mapping[str, Any], now: datetime | None = None) -> dict[str, Any]:
    """As Kubernetes wants it."""
    meta, at = about["metadata"], (now or datetime.now(UTC))
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    namespace = meta.get("namespace") or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
        "type": WARNING if event.warning else NORMAL,
        "reason": event.reason,
        "message": event.message[:1024],
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": namespace,
            "uid": meta.get("uid", ""),
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
