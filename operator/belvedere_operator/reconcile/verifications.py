"""Verifications of views: Jobs on a schedule, on request, and for changes; how they stand and what they found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from belvedere_operator.api.materialized_view import (
    AUTO,
    DUCKDB,
    PENDING,
    RUNNING,
    SPARK,
    JobStatus,
    MaterializedViewSpec,
    MaterializedViewStatus,
    VerificationStatus,
    VerifySpec,
)
from belvedere_operator.build.inputs import PoolInput, selector_text
from belvedere_operator.build.network import EXECUTOR
from belvedere_operator.build.pool import key
from belvedere_operator.build.verification import (
    DIFFERENT,
    Verified,
    requested,
    trial,
    trial_job_name,
    verification,
)
from belvedere_operator.decide import engines, jobs, trials
from belvedere_operator.decide.items import Item
from belvedere_operator.gateway import PoolFigures
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.names import ENGINE_LABEL, ROLE_LABEL, TRIAL_LABEL, VIEW_LABEL, label_value
from belvedere_operator.reconcile.objects import PoolObjects

EVERY_S, WHILE_RUNNING_S = 30.0, 2.0
"""How often is looked at what is there; while a Job is under way, so that status and Events follow it."""
Result = tuple[bool, VerificationStatus]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of verifications, by the name of the view's resource."""

    results: Mapping[str, Result] = field(default_factory=dict)
    looked: bool = False
    """Whether `jobs` is what there is now."""
    jobs: Mapping[str, tuple[JobStatus, ...]] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    """Requests that were answered in this round, by a Job or by a problem."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a view cannot be verified as it asks for."""

    @property
    def under_way(self) -> bool:
        return any(one.phase in (PENDING, RUNNING) for each in self.jobs.values() for one in each)


class Verifications:
    """Of one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube, self._clock = kube, clock
        self._objects = PoolObjects(kube, clock)
        self._looked = float("-inf")
        self._seen = Seen()

    def verdicts(self, pool: PoolInput, items: Sequence[Item]) -> dict[str, trials.Verdict]:
        """Of trials whose Job has ended, by the name of the trial."""
        found = {}
        for item in items:
            if trials.is_asked_for(item) and not item.paused:
                name = trial_job_name(pool, item.name, trials.digest_of(item))
                verdict = self._verdict(pool, self._kube.get("batch/v1", "Job", pool.namespace, name))
                if verdict is not None:
                    found[trials.trial_name(item)] = verdict
        return found

    def _verdict(self, pool: PoolInput, job: Resource | None) -> trials.Verdict | None:
        ended = [
            one
            for one in ((job or {}).get("status") or {}).get("conditions") or ()
            if one["type"] in ("Complete", "Failed") and one["status"] == "True"
        ]
        if job is None or not ended:
            return None
        labels = {name: job["metadata"]["labels"][name] for name in (VIEW_LABEL, TRIAL_LABEL)}
        selector = selector_text(pool.selector("verify") | labels)
        results = [result_of(pod) for pod in self._kube.list("v1", "Pod", pool.namespace, labelSelector=selector)]
        for result in results:
            if result is not None:
                return trials.Verdict(result[0], result[1].message or "")
        if ended[0]["type"] == "Complete":
            return trials.Verdict(True, "no row differs")
        text = ended[0].get("message") or ended[0].get("reason") or "no reason was given"
        again = f"delete Job {job['metadata']['name']} to try again"
        return trials.Verdict(False, f"it could not be verified: {text}; {again}")

    def tend(
        self,
        pool: PoolInput,
        items: Sequence[Item],
        figures: PoolFigures | None = None,
        tried: Sequence[Item] = (),
    ) -> Seen:
        """Makes and removes Jobs. `tried`: views whose trial is to be verified."""
        views = [
            item
            for item in items
            if isinstance(item.spec, MaterializedViewSpec) and item.deleting is None and not item.paused
        ]
        problems: dict[str, str] = {}
        wanted = []
        for item in views:
            spec = _spec(item)
            if spec.schedule:
                chosen = self._verified(pool, item, item.sql_name, figures, spec.engine)
                if chosen.problem:
                    problems[item.name] = chosen.problem
                else:
                    wanted.append(verification(pool, chosen.verified, spec, item.suspended))
        runs = []
        for item in tried:
            chosen = self._verified(pool, item, trials.trial_name(item), figures, _spec(item).engine)
            if chosen.problem:  # a change is not held up by that: the other engine can do it
                chosen = self._verified(pool, item, trials.trial_name(item), figures, DUCKDB)
            runs.append(trial(pool, chosen.verified, trials.digest_of(item), _spec(item)))
        self._objects.apply([*wanted, *runs], {})
        requests = self._answer_requests(pool, views, figures, problems)
        now = self._clock()
        pause = WHILE_RUNNING_S if self._seen.under_way or requests or tried else EVERY_S
        if now - self._looked >= pause:
            self._looked = now
            self._remove_all_but(pool, {key(document) for document in wanted})
            self._seen = self._look(pool, views)
        return replace(self._seen, looked=True, requests=requests, problems=problems)

    def _verified(
        self, pool: PoolInput, item: Item, sql_name: str, figures: PoolFigures | None, wanted: str
    ) -> _Chosen:
        choice = engines.choose(wanted, sql_name, figures, pool.has_spark, pool.spark.auto_above)
        return _Chosen(Verified(item.name, item.uid, sql_name, choice.engine), choice.problem)

    def _answer_requests(
        self, pool: PoolInput, views: Sequence[Item], figures: PoolFigures | None, problems: dict[str, str]
    ) -> dict[str, str]:
        """A Job for each request that was not answered. The status remembers it, so that a Job that is cleaned up is
        not made again; a Job that is there already is of a round that did not get to writing that."""
        found = {}
        for item in views:
            assert isinstance(item.status, MaterializedViewStatus)
            if not item.verify_request or item.verify_request == item.status.verify_request or item.suspended:
                continue
            if figures is None or figures.view(item.sql_name) is None:
                continue  # it waits until the view can be read
            asked = item.verify_request.partition("/")[0]
            spec = _spec(item)
            engine = asked if asked in (SPARK, DUCKDB) else spec.engine
            chosen = self._verified(pool, item, item.sql_name, figures, engine)
            found[item.name] = item.verify_request
            if chosen.problem:
                problems[item.name] = chosen.problem
                continue
            try:
                self._kube.create(requested(pool, chosen.verified, item.verify_request, spec))
            except KubeError as error:
                if not error.conflict:
                    raise
        return found

    def _remove_all_but(self, pool: PoolInput, keys: set[tuple[str, str, str]]) -> None:
        for there in self._kube.list(
            "batch/v1", "CronJob", pool.namespace, labelSelector=selector_text(pool.selector())
        ):
            if key(there) not in keys:
                self._kube.delete(there)

    def _look(self, pool: PoolInput, views: Sequence[Item]) -> Seen:
        selector = selector_text(pool.selector("verify"))
        found = self._kube.list("batch/v1", "Job", pool.namespace, labelSelector=selector)
        by_label = {label_value(item.name): item for item in views}
        roles = f"{selector_text(pool.selector())},{ROLE_LABEL} in (verify,{EXECUTOR})"
        pods = self._kube.list("v1", "Pod", pool.namespace, labelSelector=roles) if found or views else []
        by_view: dict[str, list[JobStatus]] = {}
        for job in found:
            labels = job["metadata"].get("labels") or {}
            item = by_label.get(labels.get(VIEW_LABEL, ""))
            if item is not None and TRIAL_LABEL not in labels:
                by_view.setdefault(item.name, []).append(jobs.job_status(job, pods))
        told = {name: jobs.newest(each) for name, each in by_view.items()}
        return Seen(self._newest(pods, views), jobs=told)

    def _newest(self, pods: Sequence[Resource], views: Sequence[Item]) -> dict[str, Result]:
        by_label = {label_value(item.name): item for item in views}
        newest: dict[str, Result] = {}
        for pod in pods:
            labels = pod["metadata"].get("labels") or {}
            item, result = by_label.get(labels.get(VIEW_LABEL, "")), result_of(pod)
            if item is None or result is None or TRIAL_LABEL in labels:
                continue
            known = newest.get(item.name)
            if known is None or (known[1].time or "") < (result[1].time or ""):
                newest[item.name] = result
        return {name: found for name, found in newest.items() if not _said(name, found, views)}


@dataclass(frozen=True, slots=True)
class _Chosen:
    verified: Verified
    problem: str


def _spec(item: Item) -> VerifySpec:
    spec = item.spec.verify if isinstance(item.spec, MaterializedViewSpec) else None
    return spec or VerifySpec(engine=AUTO)


def _said(name: str, found: Result, views: Sequence[Item]) -> bool:
    """It is in the status already, perhaps from a pod that is gone by now."""
    status = next(item.status for item in views if item.name == name)
    before = status.last_verification if isinstance(status, MaterializedViewStatus) else None
    return before is not None and (before.time or "") >= (found[1].time or "")


def result_of(pod: Resource) -> Result | None:
    """What a pod that ended has found. One that failed for another reason than a difference has found nothing."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if not ended or ended.get("exitCode") not in (0, DIFFERENT):
            continue
        told = _report(str(ended.get("message") or ""))
        rows, epoch, differences = told.get("rows"), told.get("epoch"), told.get("differences")
        good = ended["exitCode"] == 0
        if good:
            text = f"{rows if rows is not None else 'all'} rows equal a recomputation"
        else:
            text = str(told.get("problem") or f"{differences} rows differ") if told else "it differs, or is incomplete"
        engine = told.get("engine") or ((pod.get("metadata") or {}).get("labels") or {}).get(ENGINE_LABEL)
        status = VerificationStatus(
            time=ended.get("finishedAt"),
            epoch=epoch,
            rows=rows,
            differences=differences,
            message=text,
            engine=engine,
        )
        return good, status
    return None


def _report(message: str) -> dict[str, Any]:
    for line in reversed(message.strip().splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}
