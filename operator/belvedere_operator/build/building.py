"""The Job that computes views which a pool leaves to Spark."""

from __future__ import annotations

from belvedere_operator.api.materialized_view import SPARK
from belvedere_operator.build.inputs import Document, PoolInput
from belvedere_operator.build.spark import driver_pod
from belvedere_operator.gateway import SparkBuild
from belvedere_operator.names import ENGINE_LABEL, VIEWS

ROLE = "build"
TRIES = 20
"""A build goes on where it was, however often its driver is taken away."""
CHANGED = 3
"""Exit code of `belvedere-spark build`: its views were changed or dropped meanwhile."""


def building(pool: PoolInput, build: SparkBuild) -> Document:
    """One Job for a view group. It goes with the pool: a group may have views of several resources."""
    labels = pool.labels(ROLE) | {ENGINE_LABEL: SPARK}
    metadata = pool.meta(building_name(pool, build), ROLE)
    metadata["labels"] |= labels
    metadata["annotations"] = {VIEWS: ",".join(sorted(build.views))}
    code = {"containerName": ROLE, "operator": "In", "values": [CHANGED]}
    rules = [
        {"action": "FailJob", "onExitCodes": code},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": TRIES,
            "ttlSecondsAfterFinished": 86_400,
            "podFailurePolicy": {"rules": rules},
            "template": driver_pod(pool, ROLE, ["build", *sorted(build.views)], labels),
        },
    }


def building_name(pool: PoolInput, build: SparkBuild) -> str:
    return pool.object_name(ROLE, str(build.view_group))
