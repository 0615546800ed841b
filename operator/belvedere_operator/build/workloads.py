"""Deployments of a pool's roles, and the StatefulSet of its store."""

from __future__ import annotations

from belvedere_operator.api.base_table import RETAIN
from belvedere_operator.api.view_pool import StorageSpec
from belvedere_operator.build.inputs import Document, PoolInput
from belvedere_operator.build.pods import GRACE_SECONDS, pod_template
from belvedere_operator.names import ZOOKEEPER_PATH


def deployments(pool: PoolInput) -> list[Document]:
    """Everything that can be thrown away at any time."""
    counts = {
        "coordinator": pool.spec.coordinators,
        "distributor": pool.spec.distributors,
        "viewserver": pool.replicas,
        "gateway": pool.spec.gateways,
    }
    return [_deployment(pool, role, replicas) for role, replicas in counts.items()]


def _deployment(pool: PoolInput, role: str, replicas: int) -> Document:
    """One pod is replaced at a time, the new one is ready before: rows move once, reads have somebody to ask."""
    one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pool.meta(pool.object_name(role), role),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": pool.selector(role)},
            "strategy": {"type": "Recreate"} if role in pool.at_once else one_by_one,
            "minReadySeconds": 2,
            "progressDeadlineSeconds": 300 + GRACE_SECONDS[role],
            "revisionHistoryLimit": 3,
            "template": pod_template(pool, role),
        },
    }


def store(pool: PoolInput) -> list[Document]:
    """The store with its volume, where the pool has one of its own. The volume remembers where the pool lies in
    ZooKeeper: each belongs to the other, and neither is of use without it."""
    if not pool.owns_store:
        return []
    storage = pool.spec.storage or StorageSpec()
    claim: Document = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    }
    if storage.storage_class_name is not None:
        claim["storageClassName"] = storage.storage_class_name
    when_deleted = "Retain" if pool.spec.reclaim_policy == RETAIN else "Delete"
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": pool.meta(pool.object_name("store"), "store"),
            "spec": {
                "replicas": 1,
                "serviceName": pool.object_name("store"),
                "selector": {"matchLabels": pool.selector("store")},
                "podManagementPolicy": "Parallel",
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": "Retain"},
                "template": pod_template(pool, "store"),
                "volumeClaimTemplates": [
                    {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "metadata": {
                            "name": "data",
                            "labels": pool.selector("store"),
                            "annotations": {ZOOKEEPER_PATH: pool.zookeeper.partition("/")[2]},
                        },
                        "spec": claim,
                    }
                ],
            },
        }
    ]


def volume_claim_name(store: str) -> str:
    return f"data-{store}-0"
