"""Scheduled verifications: a CronJob for each view that wants one, and what the newest run of it has found."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from belvedere_operator.api.materialized_view import MaterializedViewSpec, MaterializedViewStatus, VerificationStatus
from belvedere_operator.build.inputs import PoolInput, selector_text
from belvedere_operator.build.pool import key
from belvedere_operator.build.verification import DIFFERENT, trial, trial_job_name, verification
from belvedere_operator.decide import trials
from belvedere_operator.decide.items import Item
from belvedere_operator.kube.client import Kube, Resource
from belvedere_operator.names import TRIAL_LABEL, VIEW_LABEL, label_value
from belvedere_operator.reconcile.objects import PoolObjects

EVERY_S = 30.0
Result = tuple[bool, VerificationStatus]


class Verifications:
    """Of one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube, self._clock = kube, clock
        self._objects = PoolObjects(kube, clock)
        self._looked = float("-inf")
        self._results: dict[str, Result] = {}

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

    def tend(self, pool: PoolInput, items: Sequence[Item], tried: Sequence[Item] = ()) -> dict[str, Result]:
        """Makes and removes CronJobs; results by name of the view. `tried`: views whose trial is to be verified."""
        views = [
            item
            for item in items
            if isinstance(item.spec, MaterializedViewSpec) and item.deleting is None and not item.paused
        ]
        wanted = [
            verification(pool, item.name, item.uid, item.sql_name, item.spec.verify, item.suspended)
            for item in views
            if isinstance(item.spec, MaterializedViewSpec) and item.spec.verify and item.spec.verify.schedule
        ]
        runs = [
            trial(pool, item.name, item.uid, trials.trial_name(item), trials.digest_of(item), item.spec.verify)
            for item in tried
            if isinstance(item.spec, MaterializedViewSpec) and item.spec.verify
        ]
        self._objects.apply([*wanted, *runs], {})
        now = self._clock()
        if now - self._looked < EVERY_S:
            return self._results
        self._looked = now
        selector = selector_text(pool.selector("verify")) if wanted else selector_text(pool.selector())
        keys = {key(document) for document in wanted}
        for found in self._kube.list(
            "batch/v1", "CronJob", pool.namespace, labelSelector=selector_text(pool.selector())
        ):
            if key(found) not in keys:
                self._kube.delete(found)
        self._results = self._newest(pool, views, selector) if wanted else {}
        return self._results

    def _newest(self, pool: PoolInput, views: Sequence[Item], selector: str) -> dict[str, Result]:
        by_label = {label_value(item.name): item for item in views}
        newest: dict[str, Result] = {}
        for pod in self._kube.list("v1", "Pod", pool.namespace, labelSelector=selector):
            labels = pod["metadata"].get("labels") or {}
            item, result = by_label.get(labels.get(VIEW_LABEL, "")), result_of(pod)
            if item is None or result is None or TRIAL_LABEL in labels:
                continue
            known = newest.get(item.name)
            if known is None or (known[1].time or "") < (result[1].time or ""):
                newest[item.name] = result
        return {name: found for name, found in newest.items() if not _said(name, found, views)}


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
        status = VerificationStatus(
            time=ended.get("finishedAt"), epoch=epoch, rows=rows, differences=differences, message=text
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
