"""Builds by Spark: a Job for each view group that the pool leaves to it, and how they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from belvedere_operator.api.materialized_view import BUILD, PENDING, RUNNING, JobStatus
from belvedere_operator.build.building import ROLE, building, building_name
from belvedere_operator.build.inputs import PoolInput, selector_text
from belvedere_operator.build.network import EXECUTOR
from belvedere_operator.decide import builds, jobs
from belvedere_operator.decide.items import Item
from belvedere_operator.gateway import PoolFigures
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.names import ROLE_LABEL, VIEWS

EVERY_S = 30.0


class Builds:
    """Of one pool."""

    def __init__(self, kube: Kube, clock: Callable[[], float]) -> None:
        self._kube, self._clock = kube, clock
        self._looked = float("-inf")
        self._seen: dict[str, tuple[JobStatus, ...]] = {}
        self.under_way = False

    def tend(
        self, pool: PoolInput, items: Sequence[Item], figures: PoolFigures | None
    ) -> dict[str, tuple[JobStatus, ...]]:
        """By name of the view's resource. A Job that failed stays for a day, and is made again when it is deleted: the
        pool waits for it as long as it has the view."""
        wanted = builds.due(figures.spark_builds) if figures is not None and pool.has_spark else []
        now = self._clock()
        if not wanted and not self.under_way and now - self._looked < EVERY_S:
            return self._seen
        self._looked = now
        found = self._kube.list("batch/v1", "Job", pool.namespace, labelSelector=selector_text(pool.selector(ROLE)))
        there = {job["metadata"]["name"] for job in found}
        for one in wanted:
            if building_name(pool, one) not in there:
                try:
                    self._kube.create(building(pool, one))
                except KubeError as error:
                    if not error.conflict:
                        raise
        self._seen = self._statuses(pool, items, found)
        told = [one for each in self._seen.values() for one in each]
        self.under_way = bool(wanted) or any(one.phase in (PENDING, RUNNING) for one in told)
        return self._seen

    def _statuses(
        self, pool: PoolInput, items: Sequence[Item], found: Sequence[Resource]
    ) -> dict[str, tuple[JobStatus, ...]]:
        if not found:
            return {}
        roles = f"{selector_text(pool.selector())},{ROLE_LABEL} in ({ROLE},{EXECUTOR})"
        pods = self._kube.list("v1", "Pod", pool.namespace, labelSelector=roles)
        by_name = {item.sql_name.lower(): item.name for item in items}
        by_view: dict[str, list[JobStatus]] = {}
        for job in found:
            status = jobs.job_status(job, pods, BUILD)
            for view in str((job["metadata"].get("annotations") or {}).get(VIEWS, "")).split(","):
                if view.lower() in by_name:
                    by_view.setdefault(by_name[view.lower()], []).append(status)
        return {name: jobs.newest(each) for name, each in by_view.items()}
