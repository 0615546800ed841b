"""What is said of tables and views: conditions, status, Events; from what a pool tells and what became of a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from belvedere_operator.api import durations
from belvedere_operator.api.base_table import BaseTableStatus
from belvedere_operator.api.condition import Condition, Said, by_type, merged, no, unknown, yes
from belvedere_operator.api.materialized_view import (
    BUILD,
    FAILED,
    VERIFY,
    BuildStatus,
    JobStatus,
    MaterializedViewSpec,
    MaterializedViewStatus,
    RepairStatus,
    VerificationStatus,
    ZoneStatus,
)
from belvedere_operator.decide import jobs
from belvedere_operator.decide.items import TABLE, Item, Phase, PoolState
from belvedere_operator.decide.relations import NAME_TAKEN
from belvedere_operator.gateway import DocumentResult, PoolFigures, TableFigures, ViewFigures
from belvedere_operator.kube.events import Event
from belvedere_operator.times import age_s, stamp

ACCEPTED, BUILT, READY, FRESH, COMPLETE, VERIFIED = "Accepted", "Built", "Ready", "Fresh", "Complete", "Verified"
BEGUN_S = 30.0
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that one round has found."""

    pool: PoolState
    figures: PoolFigures | None
    now: float
    results: Mapping[tuple[str, str], DocumentResult] = field(default_factory=dict)
    """By resource: what became of its document in this round."""
    waiting: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    trying: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """How far the trial of a changed view is: reason and message."""
    verifications: Mapping[str, tuple[bool, VerificationStatus]] = field(default_factory=dict)
    """By name of the view's resource: whether the newest verification found no difference."""
    jobs_seen: bool = False
    """Whether it was looked for Jobs in this round, so that those that are missing are gone."""
    jobs: Mapping[str, tuple[JobStatus, ...]] = field(default_factory=dict)
    """By name of the view's resource: Jobs that work on it, or did."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """By name of the view's resource: the request for a verification that was answered."""
    repairs: Mapping[str, RepairStatus] = field(default_factory=dict)
    repair_requests: Mapping[str, str] = field(default_factory=dict)
    """The same of repairs."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By name of the view's resource: why it cannot be verified as it asks for."""
    target_lag_s: float = 2.0

    def view(self, item: Item) -> ViewFigures | None:
        return self.figures.view(item.sql_name) if self.figures is not None and self._holds(item) else None

    def table(self, item: Item) -> TableFigures | None:
        return self.figures.table(item.sql_name) if self.figures is not None and self._holds(item) else None

    def _holds(self, item: Item) -> bool:
        """What the pool has under the name is not another resource's."""
        return self.waiting.get(item.key, ("", ""))[0] != NAME_TAKEN


def status_of(item: Item, found: Found) -> BaseTableStatus | MaterializedViewStatus:
    """The new status."""
    if item.kind == TABLE:
        return _table_status(item, found)
    return _view_status(item, found)


# ---------------------------------------------------------------------- tables


def _table_status(item: Item, found: Found) -> BaseTableStatus:
    assert isinstance(item.status, BaseTableStatus)
    figures = found.figures
    told = found.table(item)
    said = [_accepted(item, found, told is not None)]
    if told is not None:
        said.append(_deleting(item, found) or yes(READY, "Ready", "the table takes rows"))
    else:
        said.append(_not_there(item, found))
    return replace(
        item.status,
        observed_generation=item.generation,
        conditions=_merged(item, said, found),
        sql_name=item.sql_name,
        dependants=figures.dependants(item.sql_name) if figures is not None else item.status.dependants,
        rows=told.rows if told is not None else item.status.rows,
        applied=_applied(item, found),
    )


# ---------------------------------------------------------------------- views


def _view_status(item: Item, found: Found) -> MaterializedViewStatus:
    before = item.status
    assert isinstance(before, MaterializedViewStatus)
    told = found.view(item)
    said = [_accepted(item, found, told is not None), _built(item, found, told), _ready(item, found, told)]
    if told is not None and told.state == "Ready":
        said += [_fresh(item, found, told), _complete(told)]
    elif FRESH in by_type(before.conditions):
        said.append(unknown(FRESH, "NotReady", "see the condition Ready"))
    result = found.verifications.get(item.name)
    verification = before.last_verification
    if result is not None:
        good, verification = result
        text = verification.message or ""
        said.append(yes(VERIFIED, "NoDifference", text) if good else no(VERIFIED, "Different", text))
    working = jobs.merged(before.jobs, found.jobs.get(item.name, ())) if found.jobs_seen else before.jobs
    said += _not_computed(told, working)
    said += _not_verified(before, working, found.problems.get(item.name, ""), result is not None)
    status = replace(
        before,
        observed_generation=item.generation,
        conditions=_merged(item, said, found),
        sql_name=item.sql_name,
        applied=_applied(item, found),
        last_build=_build(before.last_build, said, told, found, found.results.get(item.key)),
        last_verification=verification,
        jobs=working,
        last_repair=found.repairs.get(item.name, before.last_repair),
        repair_request=found.repair_requests.get(item.name, before.repair_request),
        verify_request=found.requests.get(item.name, before.verify_request),
    )
    if found.figures is None:
        return status
    if told is None:
        status = replace(status, plan_version=None, zones=(), zone_path=None)
        return replace(status, rows=None, bytes=None, size=None, lag=None, epoch=None)
    return replace(
        status,
        plan_version=told.version,
        zones=tuple(ZoneStatus("by " + (", ".join(key) or "nothing"), key) for key in told.zones),
        zone_path=" -> ".join(f"({', '.join(key)})" for key in told.zones) or None,
        rows=told.rows,
        bytes=told.bytes,
        size=None if told.bytes is None else size(told.bytes),
        lag=durations.shown(told.lag_ms if told.lag_ms is not None else found.figures.lag_ms),
        epoch=told.epoch,
        quarantined=told.quarantined,
        dependants=tuple(sorted(told.dependants)) or found.figures.dependants(item.sql_name),
        figures_time=stamp(found.now),
    )


def _accepted(item: Item, found: Found, there: bool) -> Said | None:
    """Whether the database takes what the resource says. None: nothing new is known."""
    result = found.results.get(item.key)
    if result is not None:
        problem = result.problem
        if problem is None:
            return yes(ACCEPTED, "Accepted", "the pool has it as it is described")
        reason = "WaitsForRelation" if problem.missing_relation else problem.error
        return no(ACCEPTED, reason, problem.text)
    if item.key in found.waiting and item.deleting is None:
        reason, message = found.waiting[item.key]
        return no(ACCEPTED, reason, message)
    if item.suspended:
        return None
    if found.pool.gone:
        return unknown(ACCEPTED, f"Pool{found.pool.phase}", found.pool.reason)
    if there and item.status.applied == item.digest():
        return yes(ACCEPTED, "Accepted", "the pool has it as it is described")
    if not found.pool.up and item.status.applied != item.digest():
        return unknown(ACCEPTED, "PoolNotReady", f"waits for pool {found.pool.name!r}: {found.pool.reason}")
    return None


def _not_there(item: Item, found: Found) -> Said:
    """Why a relation that should be in the pool cannot be read."""
    if deleting := _deleting(item, found):
        return deleting
    if item.key in found.waiting:
        return no(READY, *found.waiting[item.key])
    if item.suspended:
        return no(READY, "Suspended", "spec.suspend is true; false builds it anew")
    if found.pool.gone:
        return no(READY, f"Pool{found.pool.phase}", found.pool.reason)
    if not found.pool.up:
        return unknown(READY, "PoolNotReady", f"pool {found.pool.name!r}: {found.pool.reason}")
    result = found.results.get(item.key)
    if result is not None and result.problem is not None:
        return no(READY, "NotAccepted", "see the condition Accepted")
    accepted = by_type(item.status.conditions).get(ACCEPTED)
    if result is None and accepted is not None and accepted.status == "False":
        return no(READY, "NotAccepted", "see the condition Accepted")
    return no(READY, "Creating", "the pool has been told of it")


def _deleting(item: Item, found: Found) -> Said | None:
    if item.deleting is None:
        return None
    _, message = found.waiting.get(item.key, ("", "it is being dropped"))
    return no(READY, "Deleting", message)


def _built(item: Item, found: Found, told: ViewFigures | None) -> Said | None:
    if item.suspended and told is None:
        return no(BUILT, "Suspended", "spec.suspend is true")
    if told is None:
        return None if found.figures is None else no(BUILT, "NotBuilt", "the pool does not have the view yet")
    if told.state == "Failed":
        return no(BUILT, "Failed", told.reason)
    if told.failed_build:
        return no(BUILT, "BuildFailed", f"the version before answers; the new one: {told.failed_build}")
    if told.state == "Building" or told.progress is not None:
        done = "" if told.progress is None else f"{told.progress} % done"
        old = "the version before answers" if told.state == "Ready" else ""
        return no(BUILT, "Building", "; ".join(part for part in (done, old) if part) or "under way")
    if item.key in found.trying:
        return no(BUILT, *found.trying[item.key])
    result = found.results.get(item.key)
    changed = result is not None and result.problem is None and result.action == "changed"
    if (changed or _begun(item, found)) and _known_version(item) in (None, told.version):
        return no(BUILT, "Building", "begun; the version before answers")
    # One that was created and answers is built: a view over little data is there before anybody can look.
    if result is not None and result.problem is None and result.action == "created" and told.state != "Ready":
        return no(BUILT, "Building", "begun")
    has_it = result is not None and result.problem is None
    if item.status.applied == item.digest() or has_it:
        return yes(BUILT, "Built", f"version {told.version or 1} is in service")
    return None


def _not_computed(told: ViewFigures | None, working: tuple[JobStatus, ...]) -> list[Said]:
    """A view that Spark was to build: the pool waits for what a Job did not do."""
    if told is None or told.progress is None:
        return []
    failed = [one for one in working if one.kind == BUILD and one.phase == FAILED]
    if not failed:
        return []
    text = f"Job {failed[0].name}: {failed[0].message}; delete it to try again, it goes on where it was"
    return [no(BUILT, "BuildFailed", text)]


def _not_verified(
    before: MaterializedViewStatus, working: tuple[JobStatus, ...], problem: str, has_result: bool
) -> list[Said]:
    """A verification that could not be carried out: whether the view is right is not known."""
    if problem:
        return [unknown(VERIFIED, "NoSpark", problem)]
    failed = [one for one in working if one.kind == VERIFY and one.phase == FAILED]
    if has_result or not failed or failed[0] in before.jobs:
        return []
    return [unknown(VERIFIED, "JobFailed", f"Job {failed[0].name} found nothing: {failed[0].message}")]


def _known_version(item: Item) -> int | None:
    return item.status.plan_version if isinstance(item.status, MaterializedViewStatus) else None


def _begun(item: Item, found: Found) -> bool:
    """A build that was begun a moment ago: it may be that the pool does not list it yet. Not every change makes a new
    version, so that is believed for a while only."""
    build = item.status.last_build if isinstance(item.status, MaterializedViewStatus) else None
    return build is not None and build.completed_at is None and age_s(build.started_at, found.now) < BEGUN_S


def _ready(item: Item, found: Found, told: ViewFigures | None) -> Said:
    if told is None:
        return _not_there(item, found)
    if deleting := _deleting(item, found):
        return deleting
    if told.state == "Failed":
        since = f" since epoch {told.since}" if told.since else ""
        return no(READY, "ViewFailed", f"it cannot be computed{since}: {told.reason}; another query mends it")
    if told.state == "Building":
        done = "" if told.progress is None else f": {told.progress} % done"
        return no(READY, "Building", f"it is being built{done}")
    return yes(READY, "Serving", "it can be read")


def _fresh(item: Item, found: Found, told: ViewFigures) -> Said:
    assert found.figures is not None
    lag_s = (told.lag_ms if told.lag_ms is not None else found.figures.lag_ms) / 1000
    spec = item.spec
    target = found.target_lag_s
    if isinstance(spec, MaterializedViewSpec) and spec.freshness is not None:
        target = durations.seconds(spec.freshness)
    if lag_s <= target:
        return yes(FRESH, "WithinTarget", f"within {target:g} s of its base tables")
    return no(FRESH, "Behind", f"more than {target:g} s behind its base tables")


def _complete(told: ViewFigures) -> Said | None:
    if told.quarantined is None and told.complete is None:
        return None
    if told.quarantined or told.complete is False:
        count = f"{told.quarantined} rows" if told.quarantined else "rows of it, or of what it reads,"
        return no(COMPLETE, "RowsInQuarantine", f"{count} cannot be computed; see kubectl belvedere quarantine")
    return yes(COMPLETE, "NoQuarantine", "every row is there")


def _build(
    before: BuildStatus | None,
    said: list[Said | None],
    told: ViewFigures | None,
    found: Found,
    result: DocumentResult | None,
) -> BuildStatus | None:
    built = next((one for one in said if one is not None and one.type == BUILT), None)
    if built is None:
        return before
    under_way = before is not None and before.started_at is not None and before.completed_at is None
    if built.reason in _UNDER_WAY:
        progress = told.progress if told is not None else None
        begun = before.started_at if under_way and before is not None else stamp(found.now)
        return BuildStatus(begun, None, progress)
    at_once = result is not None and result.action in ("created", "changed")
    if built.reason == "Built" and (before is None or at_once):
        return BuildStatus(stamp(found.now), stamp(found.now), None)
    if built.reason == "Built" and under_way and before is not None:
        return BuildStatus(before.started_at, stamp(found.now), None)
    return before


def _applied(item: Item, found: Found) -> str | None:
    """The digest of what the pool has. A relation that is gone from it was applied never."""
    result = found.results.get(item.key)
    if result is not None and result.problem is None:
        return item.digest()
    if item.suspended and found.figures is not None:
        return None
    return item.status.applied


def _merged(item: Item, said: list[Said | None], found: Found) -> tuple[Condition, ...]:
    return merged(item.status.conditions, [one for one in said if one is not None], item.generation, stamp(found.now))


def size(number: int) -> str:
    """For people: 1.2MiB."""
    amount = float(number)
    for unit in UNITS:
        if amount < 1024 or unit == UNITS[-1]:
            return f"{amount:.0f}{unit}" if unit == "B" else f"{amount:.1f}{unit}"
        amount /= 1024
    raise AssertionError(number)


# ---------------------------------------------------------------------- Events

_TOLD = {ACCEPTED, BUILT, READY, VERIFIED, COMPLETE}
_BAD_IF_TRUE = {"Stalled", "StoreBound", "HotKey"}
_TOLD_OF_POOLS = {READY, *_BAD_IF_TRUE}
_UNDER_WAY = {"Building", "Verifying"}
_TOLD_UNKNOWN = {"NoSpark"}
_ROUTINE = _UNDER_WAY | {"Starting", "Creating", "Suspended", "Deleting", "NotBuilt", "NotAccepted", "PoolNotReady"}


def events_of(before: tuple[Condition, ...], after: tuple[Condition, ...], pool: bool = False) -> list[Event]:
    """What changed between two states, as far as somebody wants to hear of it. Fresh comes and goes: no Events."""
    old, found = by_type(before), []
    for condition in after:
        if condition.type not in (_TOLD_OF_POOLS if pool else _TOLD):
            continue
        if condition.type in _BAD_IF_TRUE:
            if condition.status == "True" and getattr(old.get(condition.type), "status", None) != "True":
                found.append(Event(condition.type, condition.message, warning=True))
            continue
        was = old.get(condition.type)
        if was is not None and (was.status, was.reason) == (condition.status, condition.reason):
            continue
        if condition.status == "True":
            if was is not None or condition.type in (BUILT, READY):
                found.append(Event(condition.type, condition.message))
        elif condition.reason in _ROUTINE or (condition.status == "Unknown" and condition.reason not in _TOLD_UNKNOWN):
            if condition.reason in _UNDER_WAY:
                found.append(Event(condition.reason, condition.message))
        else:
            found.append(Event(condition.reason, f"{condition.type}: {condition.message}", warning=True))
    return found


def events_of_view(
    before: BaseTableStatus | MaterializedViewStatus, after: BaseTableStatus | MaterializedViewStatus
) -> list[Event]:
    """Of a table or a view: of its conditions, and of Jobs."""
    found = events_of(before.conditions, after.conditions)
    if isinstance(before, MaterializedViewStatus) and isinstance(after, MaterializedViewStatus):
        found += jobs.events(before.jobs, after.jobs)
        repair = after.last_repair
        if repair is not None and repair != before.last_repair:
            reason = "Repaired" if repair.whole else "NotRepaired"
            found.append(Event(reason, repair.message or "see the log of its Job", warning=not repair.whole))
    return found


__all__ = ["Found", "Phase", "events_of", "size", "status_of"]
