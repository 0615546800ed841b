"""Why pods of a pool do not come up, in the words of Kubernetes: what a Deployment says about it only minutes later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from belvedere_operator.names import ROLE_LABEL

BAD_REASONS = {
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
MOST = 300
"""Characters of a message."""


def troubles(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By role: of one pod that does not come up, why."""
    found: dict[str, str] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"]["name"])):
        role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "")
        why = trouble(pod)
        if why and not pod["metadata"].get("deletionTimestamp"):
            found.setdefault(role, f"pod {pod['metadata']['name']}: {why}"[:MOST])
    return found


def trouble(pod: Mapping[str, Any]) -> str:
    """Empty: none that can be seen."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in BAD_REASONS:
            return f"{waiting['reason']}: {_end(container) or waiting.get('message') or container.get('image', '')}"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"Unschedulable: {condition.get('message') or 'no node takes it'}"
    return ""


def _end(container: Mapping[str, Any]) -> str:
    """How its last process ended."""
    ended = (container.get("lastState") or {}).get("terminated")
    if not ended:
        return ""
    message = str(ended.get("message") or "").strip().rpartition("\n")[2]
    how = f"it ended with {ended.get('reason') or 'code'} ({ended.get('exitCode')})"
    return f"{how}: {message}" if message else how
