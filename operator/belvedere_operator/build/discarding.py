"""The Job that removes what a pool has in HBase when the pool is deleted: its replication peer, its namespace, and its
record in ZooKeeper."""

from __future__ import annotations

from belvedere_operator.build.inputs import Document, PoolInput
from belvedere_operator.build.pods import zookeeper_environment, zookeeper_volumes
from belvedere_operator.build.restricted import container_security, pod_security

ROLE = "discard"
TRIES = 3
DEADLINE_S = 240
"""Less than the operator waits for it: see `decide.farewell`."""


def discarding(pool: PoolInput) -> Document:
    """`pool` has a backend that is an hbase."""
    assert pool.spec.backend is not None
    told = {"HOME": "/tmp", "BELVEDERE_ZOOKEEPER": pool.zookeeper} | zookeeper_environment(pool)
    mounts: list[Document] = [{"name": "tmp", "mountPath": "/tmp"}]
    volumes = zookeeper_volumes(pool)
    mounts += [{"name": one["name"], "mountPath": f"/etc/belvedere/{one['name']}", "readOnly": True} for one in volumes]
    container: Document = {
        "name": ROLE,
        "image": pool.image,
        "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "args": ["discard", pool.spec.backend, "--pool", pool.name, "--yes"],
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": container_security(),
        "volumeMounts": mounts,
    }
    pod: Document = {
        "restartPolicy": "Never",
        "serviceAccountName": pool.object_name("pool"),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
    }
    if pool.spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in pool.spec.image_pull_secrets]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": pool.meta(discarding_name(pool), ROLE),
        "spec": {
            "backoffLimit": TRIES,
            "activeDeadlineSeconds": DEADLINE_S,
            "template": {"metadata": {"labels": pool.labels(ROLE)}, "spec": pod},
        },
    }


def discarding_name(pool: PoolInput) -> str:
    return pool.object_name(ROLE)
