"""A pool that is deleted and has something in another system: its members are stopped, and a Job removes it."""

from __future__ import annotations

from belvedere_operator.build.discarding import discarding, discarding_name
from belvedere_operator.build.inputs import PoolInput, selector_text
from belvedere_operator.decide.farewell import Farewell, Step, next_step
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.names import ROLE_LABEL

MEMBERS = ("coordinator", "distributor", "viewserver", "store")
"""Roles whose pods work on the store of a pool."""


def take_leave(kube: Kube, pool: PoolInput, age_s: float) -> Farewell:
    """Does the next step, and says which it was. `age_s`: since the deletion."""
    if not pool.follows_hbase:
        return next_step(pool, age_s, 0, None)
    job = kube.get("batch/v1", "Job", pool.namespace, discarding_name(pool))
    pods = kube.list("v1", "Pod", pool.namespace, labelSelector=selector_text(pool.selector()))
    members = sum(1 for pod in pods if (pod["metadata"].get("labels") or {}).get(ROLE_LABEL) in MEMBERS)
    farewell = next_step(pool, age_s, members, job)
    if farewell.step is Step.STOP:
        _stop(kube, pool)
    elif farewell.step is Step.DISCARD:
        try:
            kube.create(discarding(pool))
        except KubeError as error:
            if error.status == 403:
                return next_step(pool, age_s, members, job, namespace_goes=True)
            if not error.conflict:
                raise
    return farewell


def _stop(kube: Kube, pool: PoolInput) -> None:
    """Members get SIGTERM, and are not made again: nobody applies the objects of a pool that goes."""
    for kind in ("Deployment", "StatefulSet"):
        for one in kube.list("apps/v1", kind, pool.namespace, labelSelector=selector_text(pool.selector())):
            if (one.get("spec") or {}).get("replicas"):
                kube.merge(one, {"spec": {"replicas": 0}})
