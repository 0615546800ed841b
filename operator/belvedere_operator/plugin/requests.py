"""Work that the operator is asked for by an annotation, and the status that tells how it goes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from belvedere_operator.api.materialized_view import FAILED, RUNNING, SUCCEEDED
from belvedere_operator.names import REPAIR, VERIFY, sql_name
from belvedere_operator.plugin.cluster import Kubectl, KubectlFailed

KIND = "materializedviews.belvedere.dev"
UNANSWERED_S = 120.0
"""How long an operator may take to notice the annotation."""
EVERY_S = 1.0
OK, REFUSED, DIFFERENT = 0, 1, 3
Say = Callable[[str], object]


def verify(kubectl: Kubectl, view: str, engine: str, *, wait: bool, say: Say) -> int:
    """The exit code."""
    name = resource_name(kubectl, view)
    job = _asked(kubectl, name, VERIFY, engine or "any", wait, say)
    if job is None:
        return OK
    found = _result(kubectl, name, job, "lastVerification")
    told = found["lastVerification"]
    say(f"{found.get('sqlName', name)}: at epoch {told.get('epoch')}, by {told.get('engine')}: {told.get('message')}")
    return OK if _condition(found).get("status") == "True" else DIFFERENT


def repair(kubectl: Kubectl, view: str, how: str, *, wait: bool, say: Say) -> int:
    """`how`: repair, dry-run or all."""
    name = resource_name(kubectl, view)
    job = _asked(kubectl, name, REPAIR, how, wait, say)
    if job is None:
        return OK
    told = _result(kubectl, name, job, "lastRepair")["lastRepair"]
    say(str(told.get("message") or ""))
    return OK if told.get("whole") else DIFFERENT


def _asked(kubectl: Kubectl, name: str, annotation: str, how: str, wait: bool, say: Say) -> dict[str, Any] | None:
    """The Job when it has ended well; None: nobody waits for it."""
    request = f"{how}/{uuid.uuid4().hex[:12]}"
    kubectl.run("annotate", f"{KIND}/{name}", f"{annotation}={request}", "--overwrite")
    if not wait:
        say(f"asked for; status.jobs tells how it goes: kubectl describe mv/{name}")
        return None
    job = _job(kubectl, name, request, say)
    if isinstance(job, str):
        raise KubectlFailed(job)
    if job["phase"] == FAILED:
        raise KubectlFailed(f"Job {job['name']} could not do it: {job.get('message', 'no reason was given')}")
    return job


def resource_name(kubectl: Kubectl, view: str) -> str:
    """By the name of the resource, or that in SQL."""
    for item in kubectl.items("materializedviews"):
        if view in (item["metadata"]["name"], sql_name(item)):
            return str(item["metadata"]["name"])
    raise KubectlFailed(f"there is no view {view!r} in namespace {kubectl.current_namespace()}")


def _job(kubectl: Kubectl, name: str, request: str, say: Say) -> dict[str, Any] | str:
    """The Job of the request when it has ended; or why there is none."""
    begun, shown = time.monotonic(), ""
    while True:
        status = _status(kubectl, name)
        answered = status.get("verifyRequest") == request
        jobs: list[dict[str, Any]] = status.get("jobs", [])
        job = next((one for one in jobs if one.get("request") == request), None)
        if answered and job is None and _condition(status).get("reason") == "NoSpark":
            return str(_condition(status)["message"])
        if job is not None:
            if job["phase"] in (SUCCEEDED, FAILED):
                return job
            text = _shown(job)
            if text != shown:
                say(text)
                shown = text
        elif time.monotonic() - begun > UNANSWERED_S:
            return f"no Job was made within {UNANSWERED_S:g} s; is the operator running, and can the view be read?"
        time.sleep(EVERY_S)


def _shown(job: dict[str, Any]) -> str:
    parts = [f"Job {job['name']}: {job['phase'].lower()}"]
    if job.get("attempts", 0) > 1:
        parts.append(f"attempt {job['attempts']}")
    if job["phase"] == RUNNING and job.get("executors"):
        parts.append(f"{job['executors']} executors")
    if job.get("message"):
        parts.append(job["message"])
    return ", ".join(parts)


def _result(kubectl: Kubectl, name: str, job: dict[str, Any], part: str) -> dict[str, Any]:
    """The status with the result of the Job: it is read from its pod, perhaps a moment later."""
    begun = time.monotonic()
    while True:
        status = _status(kubectl, name)
        time_of = (status.get(part) or {}).get("time", "")
        if time_of and time_of >= (job.get("startedAt") or ""):
            return status
        if time.monotonic() - begun > UNANSWERED_S:
            raise KubectlFailed(f"Job {job['name']} ended, and its result was not seen")
        time.sleep(EVERY_S)


def _status(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.get(KIND, name).get("status", {})
    return found


def _condition(status: dict[str, Any]) -> dict[str, Any]:
    return next((one for one in status.get("conditions", ()) if one["type"] == "Verified"), {})
