"""Repairs that somebody asked for: a Job for each request, how it stands and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from belvedere_operator.api.materialized_view import (
    PENDING,
    REPAIR,
    RUNNING,
    JobStatus,
    MaterializedViewSpec,
    MaterializedViewStatus,
    RepairStatus,
)
from belvedere_operator.build.inputs import PoolInput, selector_text
from belvedere_operator.build.repairing import LEFT, ROLE, repairing
from belvedere_operator.decide import jobs
from belvedere_operator.decide.items import Item
from belvedere_operator.gateway import PoolFigures
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.names import VIEW_LABEL, label_value

EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class SeenRepairs:
    """By the name of the view's resource."""

    jobs: Mapping[str, tuple[JobStatus, ...]] = field(default_factory=dict)
    results: Mapping[str, RepairStatus] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)
    """Those that were answered in this round."""

    @property
    def under_way(self) -> bool:
        return any(one.phase in (PENDING, RUNNING) for each in self.jobs.values() for one in each)


class Repairs:
    """Of one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube, self._clock = kube, clock
        self._looked = float("-inf")
        self._seen = SeenRepairs()

    def tend(self, pool: PoolInput, items: Sequence[Item], figures: PoolFigures | None) -> SeenRepairs:
        views = {
            label_value(item.name): item
            for item in items
            if isinstance(item.spec, MaterializedViewSpec) and item.deleting is None and not item.paused
        }
        requests = {item.name: self._ask(pool, item) for item in views.values() if _is_due(item, figures)}
        now = self._clock()
        if requests or self._seen.under_way or now - self._looked >= EVERY_S:
            self._looked = now
            self._seen = self._look(pool, views)
        return replace(self._seen, requests=requests)

    def _ask(self, pool: PoolInput, item: Item) -> str:
        try:
            self._kube.create(repairing(pool, item.name, item.uid, item.sql_name, item.repair_request))
        except KubeError as error:
            if not error.conflict:  # else of a round that did not get to writing that it was answered
                raise
        return item.repair_request

    def _look(self, pool: PoolInput, views: Mapping[str, Item]) -> SeenRepairs:
        selector = selector_text(pool.selector(ROLE))
        found = self._kube.list("batch/v1", "Job", pool.namespace, labelSelector=selector)
        if not found:
            return SeenRepairs()
        pods = self._kube.list("v1", "Pod", pool.namespace, labelSelector=selector)
        by_view: dict[str, list[JobStatus]] = {}
        for job in found:
            item = views.get((job["metadata"].get("labels") or {}).get(VIEW_LABEL, ""))
            if item is not None:
                by_view.setdefault(item.name, []).append(jobs.job_status(job, pods, REPAIR))
        results: dict[str, RepairStatus] = {}
        for pod in pods:
            item = views.get((pod["metadata"].get("labels") or {}).get(VIEW_LABEL, ""))
            result = repair_of(pod)
            if item is not None and result is not None:
                known = results.get(item.name)
                if known is None or (known.time or "") < (result.time or ""):
                    results[item.name] = result
        return SeenRepairs({name: jobs.newest(each) for name, each in by_view.items()}, results)


def _is_due(item: Item, figures: PoolFigures | None) -> bool:
    assert isinstance(item.status, MaterializedViewStatus)
    asked = item.repair_request and item.repair_request != item.status.repair_request
    return bool(asked and not item.suspended and figures is not None and figures.view(item.sql_name) is not None)


def repair_of(pod: Resource) -> RepairStatus | None:
    """What became of it; None: the pod has not ended, or failed before it knew."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended and ended.get("exitCode") in (0, LEFT):
            lines = str(ended.get("message") or "").strip().splitlines()
            return RepairStatus(ended.get("finishedAt"), ended["exitCode"] == 0, lines[0][:1000] if lines else None)
    return None
