"""What is said of a pool: conditions and status, from its workloads, its gateway and its load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from belvedere_operator.api import durations
from belvedere_operator.api.condition import Said, merged, no, unknown, yes
from belvedere_operator.api.materialized_view import MaterializedViewSpec
from belvedere_operator.api.view_pool import (
    DRY_RUN,
    HPA,
    KEDA,
    NONE,
    PendingDrop,
    ScalingStatus,
    TlsSpec,
    ViewPoolSpec,
    ViewPoolStatus,
)
from belvedere_operator.decide.items import Item, Phase, PoolState
from belvedere_operator.decide.load import Assessment, Limit
from belvedere_operator.gateway import PoolFigures
from belvedere_operator.kube.events import Event
from belvedere_operator.names import ROLE_LABEL, TLS
from belvedere_operator.times import stamp

READY, PROGRESSING, STALLED, AUTOSCALING, SECURED = "Ready", "Progressing", "Stalled", "Autoscaling", "Secured"
DEFAULT_LAG_S = 2.0
LEAST_CERTIFICATE_S = 3600.0
LEAST_RETENTION_S = 9.0
"""The session timeout of a pool and the 5 s that steps of a clock may take off it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet of the pool."""

    role: str
    wanted: int
    there: int
    ready: int
    updated: bool
    trouble: str = ""

    @property
    def settled(self) -> bool:
        return self.updated and self.ready >= self.wanted and self.there == self.wanted


def workload_of(resource: Mapping[str, Any], role: str) -> Workload:
    spec, status = resource.get("spec") or {}, resource.get("status") or {}
    wanted = int(spec.get("replicas", 1))
    seen = status.get("observedGeneration", 0) >= resource["metadata"].get("generation", 0)
    trouble = ""
    for condition in status.get("conditions") or ():
        failed = condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
        stuck = condition.get("type") == "Progressing" and condition.get("status") == "False"
        if failed or stuck:
            trouble = str(condition.get("message") or condition.get("reason"))
    return Workload(
        role=role,
        wanted=wanted,
        there=int(status.get("replicas") or 0),
        ready=int(status.get("readyReplicas") or 0),
        updated=seen and int(status.get("updatedReplicas") or 0) >= wanted,
        trouble=trouble,
    )


def replaced_at_once(workloads: Iterable[Mapping[str, Any]], mode: str) -> frozenset[str]:
    """Roles whose pods cannot be replaced one by one, since those with TLS and those without cannot talk; until all of
    them have changed. Pods without the annotation are of an operator that knew no TLS."""
    found = set()
    for one in workloads:
        spec, status = one.get("spec") or {}, one.get("status") or {}
        annotations = spec["template"].get("metadata", {}).get("annotations") or {}
        other = annotations.get(TLS, NONE) != mode
        wanted = int(spec.get("replicas", 1))
        seen = status.get("observedGeneration", 0) >= one["metadata"].get("generation", 0)
        changing = (spec.get("strategy") or {}).get("type") == "Recreate"
        if (other and wanted) or (changing and not (seen and int(status.get("updatedReplicas") or 0) >= wanted)):
            found.add(str((one["metadata"].get("labels") or {}).get(ROLE_LABEL, "")))
    return frozenset(found)


def problem_of(spec: ViewPoolSpec, zookeeper: str) -> tuple[str, str] | None:
    """Why a pool that the schema allows cannot be: reason and message."""
    if not zookeeper:
        text = "no ZooKeeper: give spec.zookeeper.hosts, or start the operator with --zookeeper HOST:PORT"
        return "NoZooKeeper", text
    for name in ("epoch", "retention"):
        text_of = getattr(spec, name)
        if text_of is not None:
            try:
                durations.milliseconds(text_of)
            except ValueError as error:
                return "InvalidSpec", f"spec.{name}: {error}"
    tls = spec.tls or TlsSpec()
    try:
        certificate, authority = (durations.seconds(t) for t in (tls.certificate_lifetime, tls.authority_lifetime))
    except ValueError as error:
        return "InvalidSpec", f"spec.tls: {error}"
    if certificate < LEAST_CERTIFICATE_S or authority < 6 * certificate:
        text = (
            f"spec.tls: certificateLifetime {tls.certificate_lifetime!r}, authorityLifetime {tls.authority_lifetime!r}"
        )
        return "InvalidSpec", f"{text}: at least 1h, and six times that for the authority"
    if spec.retention is not None and durations.seconds(spec.retention) < LEAST_RETENTION_S:
        return "InvalidSpec", f"spec.retention: {spec.retention!r} is too short; at least {LEAST_RETENTION_S:g}s"
    return None


def troubles_of(workloads: Iterable[Workload]) -> str:
    """Of all roles; what several say in the same words is said once. A Deployment that went back to a template whose
    pods all work may keep saying that it has timed out: whose pods are as they should be is in no trouble."""
    roles: dict[str, list[str]] = {}
    for one in workloads:
        if one.trouble and not one.settled:
            roles.setdefault(one.trouble, []).append(one.role)
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in roles.items())


def phase_of(workloads: Sequence[Workload], figures: PoolFigures | None, unreachable: str, name: str) -> PoolState:
    """What the pool can do now. It is up when its gateway answers for it, however many pods are missing."""
    if figures is not None:
        if figures.stalled:
            return PoolState(name, Phase.STALLED, f"stalled: {figures.stalled}")
        return PoolState(name, Phase.UP)
    missing = [f"{one.role} {one.ready}/{one.wanted}" for one in workloads if one.ready < one.wanted]
    trouble = troubles_of(workloads)
    if missing:
        return PoolState(
            name, Phase.STARTING, "; ".join(part for part in (f"pods ready: {', '.join(missing)}", trouble) if part)
        )
    return PoolState(name, Phase.UNREACHABLE, unreachable or "its gateway was not asked yet")


def target_lag_s(spec: ViewPoolSpec, items: Iterable[Item]) -> float:
    """The strictest of what the pool and its views ask for."""
    wanted = [
        durations.seconds(item.spec.freshness)
        for item in items
        if isinstance(item.spec, MaterializedViewSpec)
        and item.spec.freshness
        and not item.suspended
        and not item.deleting
    ]
    if spec.autoscaling is not None and spec.autoscaling.target_lag is not None:
        wanted.append(durations.seconds(spec.autoscaling.target_lag))
    return min(wanted, default=DEFAULT_LAG_S)


@dataclass(frozen=True, slots=True)
class PoolFound:
    """Everything that one round has found of a pool."""

    spec: ViewPoolSpec
    before: ViewPoolStatus
    generation: int
    state: PoolState
    workloads: tuple[Workload, ...]
    figures: PoolFigures | None
    assessment: Assessment | None
    now: float
    ready_views: int = 0
    views: int = 0
    tables: int = 0
    gateway: str = ""
    zookeeper: str = ""
    selector: str = ""
    pending_drops: tuple[PendingDrop, ...] = ()
    other_provider: str = ""
    """Who serves external metrics, if it is not the operator."""
    serves_metrics: bool = True
    """Whether the operator serves external metrics, or would if nobody else did."""
    keda: bool = False
    target_lag_s: float = DEFAULT_LAG_S
    problem: tuple[str, str] | None = None
    certificates: str = ""
    """How they stand; empty: the pool has none, or they are not made yet."""


def pool_status(found: PoolFound) -> ViewPoolStatus:
    servers = next((one for one in found.workloads if one.role == "viewserver"), None)
    said = [_ready(found), _progressing(found), _stalled(found), _secured(found), *_autoscaling(found)]
    assessment = found.assessment if found.spec.autoscaling is not None else None
    scaling = None
    if assessment is not None:
        scaling = ScalingStatus(assessment.desired, f"{found.target_lag_s:g}s", assessment.explanation)
    return ViewPoolStatus(
        observed_generation=found.generation,
        conditions=merged(found.before.conditions, said, found.generation, stamp(found.now)),
        replicas=servers.there if servers is not None else 0,
        ready_replicas=servers.ready if servers is not None else 0,
        selector=found.selector,
        views=found.views,
        ready_views=found.ready_views,
        tables=found.tables,
        lag=None if found.figures is None else durations.shown(found.figures.lag_ms),
        gateway=found.gateway,
        zookeeper=found.zookeeper,
        scaling=scaling,
        pending_drops=found.pending_drops,
        figures_time=stamp(found.now),
    )


def _ready(found: PoolFound) -> Said:
    if found.problem is not None:
        return no(READY, *found.problem)
    match found.state.phase:
        case Phase.UP:
            return yes(READY, "Serving", "views are maintained and can be read")
        case Phase.STALLED:
            return no(READY, "Stalled", found.state.reason)
        case Phase.STARTING:
            return no(READY, "Starting", found.state.reason)
        case Phase.DELETING:
            return no(READY, "Deleting", "it is being deleted")
    return no(READY, "Unreachable", found.state.reason)


def _progressing(found: PoolFound) -> Said:
    if trouble := troubles_of(found.workloads):
        return no(PROGRESSING, "Trouble", trouble)
    unsettled = [one for one in found.workloads if not one.settled]
    if not found.workloads or unsettled:
        text = ", ".join(f"{one.role} {one.ready}/{one.wanted}" for one in unsettled) or "no pods yet"
        return yes(PROGRESSING, "PodsChange", text)
    return no(PROGRESSING, "Settled", "all pods are as they should be")


def _stalled(found: PoolFound) -> Said:
    if found.figures is None:
        return unknown(STALLED, "PoolNotReady", found.state.reason or "its gateway does not answer")
    if found.figures.stalled:
        return yes(STALLED, "EpochFails", found.figures.stalled)
    return no(STALLED, "Committing", "epochs get through")


def _secured(found: PoolFound) -> Said:
    if found.spec.tls is not None and found.spec.tls.mode == NONE:
        return no(SECURED, "PlainText", "spec.tls.mode is none: whoever reaches a member's port may talk to it")
    if not found.certificates:
        return unknown(SECURED, "NoCertificates", "certificates are not made yet")
    return yes(SECURED, "MutualTLS", found.certificates)


def _autoscaling(found: PoolFound) -> list[Said]:
    spec = found.spec.autoscaling
    if spec is None:
        return [no(AUTOSCALING, "Fixed", "spec.autoscaling is not given: spec.replicas says how many view servers")]
    assessment = found.assessment
    limit = assessment.limit if assessment is not None else Limit.NONE
    text = assessment.explanation if assessment is not None and limit is not Limit.NONE else "not seen"
    said = [
        (yes if limit is one else no)(
            one.value, "Detected" if limit is one else "NotSeen", text if limit is one else "not seen"
        )
        for one in (Limit.STORE, Limit.KEY)
    ]
    if spec.mode == DRY_RUN:
        return [no(AUTOSCALING, "DryRun", "status.scaling says what would be done"), *said]
    if spec.scaler == NONE:
        return [no(AUTOSCALING, "NoScaler", "spec.autoscaling.scaler is none: nobody changes the number"), *said]
    if spec.scaler == HPA and found.other_provider:
        text = (
            f"external metrics of this cluster are served by {found.other_provider}; use scaler: keda, or scaler: none"
        )
        return [no(AUTOSCALING, "AnotherMetricsProvider", text), *said]
    if spec.scaler == HPA and not found.serves_metrics:
        text = "the operator serves no external metrics (--external-metrics false); use scaler: keda, or scaler: none"
        return [no(AUTOSCALING, "NoMetrics", text), *said]
    if spec.scaler == KEDA and not found.keda:
        return [
            no(AUTOSCALING, "NoKeda", "the cluster has no ScaledObjects (keda.sh/v1alpha1); use scaler: hpa"),
            *said,
        ]
    return [
        yes(AUTOSCALING, "Active", f"{spec.min_replicas} to {spec.max_replicas} view servers ({spec.scaler})"),
        *said,
    ]


def scaling_events(found: PoolFound, replicas_before: int | None, replicas: int) -> list[Event]:
    """A change of the number, with the figures behind it; in a dry run, what it would be."""
    spec, assessment = found.spec.autoscaling, found.assessment
    figures = f": {assessment.explanation}" if assessment is not None and spec is not None else ""
    events: list[Event] = []
    if replicas_before is not None and replicas_before != replicas:
        reason = "ScaledUp" if replicas > replicas_before else "ScaledDown"
        events.append(Event(reason, f"view servers {replicas_before} -> {replicas}{figures}"))
    before = found.before.scaling.desired if found.before.scaling is not None else None
    if (
        spec is not None
        and spec.mode == DRY_RUN
        and assessment is not None
        and assessment.desired not in (before, replicas)
    ):
        events.append(Event("WouldScale", f"view servers {replicas} -> {assessment.desired}{figures}"))
    return events
