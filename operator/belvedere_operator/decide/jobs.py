"""Jobs that work on views: what is told of them, from the Job and its pods, and what there is to say.

    Pending ──▶ Running ──▶ Succeeded     it ran to its end: what it found is its result, and may be a difference
                   └──────▶ Failed        it could not be done: the pod failed too often, or the time was over

A pod that ends by no fault of the view (killed, its node gone) is started again by Kubernetes; Events say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from belvedere_operator.api.materialized_view import (
    BUILD,
    FAILED,
    PENDING,
    REPAIR,
    RUNNING,
    SUCCEEDED,
    VERIFY,
    JobStatus,
)
from belvedere_operator.decide.pods import trouble
from belvedere_operator.kube.events import Event
from belvedere_operator.names import ENGINE_LABEL, REQUEST, ROLE_LABEL

EXECUTOR = "executor"
DIFFERENT = 3
"""Exit code of `belvedere verify`: the view differs, or rows of it are in quarantine. A result, and no failure."""
_VERBS = {VERIFY: "verification", BUILD: "build", REPAIR: "repair"}


def job_status(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], kind: str = VERIFY) -> JobStatus:
    """`pods`: those of the Job, and executors that belong to them."""
    meta, told = job["metadata"], job.get("status") or {}
    own = [pod for pod in pods if _is_owned_by(pod, meta["uid"])]
    names = {pod["metadata"]["name"] for pod in own}
    executors = [pod for pod in pods if _role(pod) == EXECUTOR and _owner(pod) in names]
    phase, message = _phase(job, own)
    ended = phase in (SUCCEEDED, FAILED)
    return JobStatus(
        kind=kind,
        name=meta["name"],
        phase=phase,
        engine=(meta.get("labels") or {}).get(ENGINE_LABEL),
        request=(meta.get("annotations") or {}).get(REQUEST),
        started_at=told.get("startTime"),
        completed_at=_ended_at(job) if ended else None,
        attempts=int(told.get("failed") or 0) + int(told.get("active") or 0) + int(told.get("succeeded") or 0),
        executors=None if ended else sum(1 for pod in executors if (pod.get("status") or {}).get("phase") == "Running"),
        message=message or None,
    )


def _phase(job: Mapping[str, Any], own: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("status") != "True":
            continue
        if one["type"] == "Complete":
            return SUCCEEDED, ""
        if one["type"] == "Failed":
            if any(exit_code(pod) == DIFFERENT for pod in own):
                return SUCCEEDED, ""
            last = _last_words(own)
            text = str(one.get("message") or one.get("reason") or "no reason was given")
            return FAILED, f"{text}; it said: {last}" if last else text
    if any((pod.get("status") or {}).get("phase") == "Running" for pod in own):
        return RUNNING, ""
    return PENDING, next((text for pod in own if (text := trouble(pod))), "")


def exit_code(pod: Mapping[str, Any]) -> int | None:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            return int(ended.get("exitCode", 1))
    return None


def _last_words(own: Sequence[Mapping[str, Any]]) -> str:
    """The last line that a pod wrote before it failed."""
    for pod in sorted(own, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated") or {}
            lines = str(ended.get("message") or "").strip().splitlines()
            if lines:
                return lines[-1][:300]
    return ""


def _ended_at(job: Mapping[str, Any]) -> str | None:
    told = job.get("status") or {}
    if told.get("completionTime"):
        return str(told["completionTime"])
    times = [one.get("lastTransitionTime") for one in told.get("conditions") or () if one.get("type") == "Failed"]
    return str(times[0]) if times and times[0] else None


def _role(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


def _is_owned_by(pod: Mapping[str, Any], uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in pod["metadata"].get("ownerReferences") or ())


def _owner(pod: Mapping[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return str(owners[0].get("name", "")) if owners else ""


def newest(jobs: Iterable[JobStatus]) -> tuple[JobStatus, ...]:
    """One of each kind: the one that was begun last. One that has not begun is newer than all."""
    found: dict[str, JobStatus] = {}
    for one in sorted(jobs, key=lambda one: (one.started_at or "9", one.name)):
        found[one.kind] = one
    return tuple(found[kind] for kind in sorted(found))


def together(*parts: Mapping[str, tuple[JobStatus, ...]]) -> dict[str, tuple[JobStatus, ...]]:
    """By view, of all kinds."""
    found: dict[str, tuple[JobStatus, ...]] = {}
    for part in parts:
        for name, each in part.items():
            found[name] = found.get(name, ()) + each
    return found


def merged(before: Sequence[JobStatus], seen: Sequence[JobStatus]) -> tuple[JobStatus, ...]:
    """A Job that ended is told until there is a newer one of its kind, also when Kubernetes has cleaned it up. One that
    was under way and is gone was deleted by somebody."""
    kinds = {one.kind for one in seen}
    gone = [one for one in before if one.kind not in kinds]
    return newest([*seen, *(_deleted(one) for one in gone)])


def _deleted(one: JobStatus) -> JobStatus:
    if one.phase in (SUCCEEDED, FAILED):
        return one
    return JobStatus(
        one.kind, one.name, FAILED, one.engine, one.request, one.started_at, None, one.attempts, None, "it was deleted"
    )


def events(before: Sequence[JobStatus], after: Sequence[JobStatus]) -> list[Event]:
    """What changed, as far as somebody wants to hear of it: results have Events of their own."""
    known = {one.name: one for one in before}
    found = []
    for one in after:
        was, what = known.get(one.name), _VERBS.get(one.kind, one.kind.lower())
        by = f" by {one.engine}" if one.engine else ""
        if was is None and one.phase in (PENDING, RUNNING):
            found.append(Event(f"{one.kind}Started", f"{what}{by}: Job {one.name}"))
        if was is not None and (one.attempts or 0) > max(was.attempts or 0, 1) and one.phase in (PENDING, RUNNING):
            found.append(
                Event(f"{one.kind}Restarted", f"{what}{by}: its pod ended, and is started again", warning=True)
            )
        if one.phase == FAILED and (was is None or was.phase != FAILED):
            found.append(Event(f"{one.kind}Failed", f"{what}{by}: {one.message}", warning=True))
    return found
