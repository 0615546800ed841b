"""Jobs of Spark: the driver is the Job's pod (client mode), and makes a pod for each executor.

Executors are owned by the driver's pod: they end with it, however it ends. All that a driver needs is in its command
line and environment; `belvedere-spark` adds what only the pod knows.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from belvedere_operator.api.view_pool import SparkPodSpec
from belvedere_operator.build import certificates
from belvedere_operator.build.inputs import FLIGHT_PORT, Document, PoolInput
from belvedere_operator.build.network import EXECUTOR
from belvedere_operator.build.restricted import container_security, pod_security

MASTER = "k8s://https://kubernetes.default.svc"
DRIVER = SparkPodSpec(heap="1g", overhead="512m", cpu="250m")
WORKER = SparkPodSpec(heap="1g", overhead="1g", cpu="250m")
EXECUTORS, CORES = 2, 1
_UNITS = {"m": 1 << 20, "g": 1 << 30}


def driver_pod(pool: PoolInput, container: str, words: list[str], labels: dict[str, str]) -> Document:
    """The template of a Job. `words`: the command of `belvedere-spark` with its arguments."""
    given = _with_defaults(pool.spark.driver, DRIVER)
    memory = str(_bytes(given.heap) + _bytes(given.overhead))
    told = {
        "HOME": "/tmp",
        "BELVEDERE_SPARK_IMAGE": str(pool.spark.image),
        "BELVEDERE_SPARK_EXECUTOR": json.dumps(executor_pod(pool), sort_keys=True),
    } | certificates.environment(pool)
    env: list[Document] = [{"name": name, "value": value} for name, value in told.items()]
    env += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (("POD_NAME", "metadata.name"), ("POD_IP", "status.podIP"))
    ]
    spec: Document = {
        "restartPolicy": "Never",
        "serviceAccountName": pool.object_name("spark"),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security(),
        "containers": [
            {
                "name": container,
                "image": pool.spark.image,
                "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
                "args": ["--url", certificates.members_url(pool, FLIGHT_PORT), *words, *_places(pool)],
                "env": env,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {
                    "requests": {"cpu": given.cpu, "memory": memory},
                    "limits": {"memory": memory},
                },
                "securityContext": container_security(),
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *certificates.mounts(pool)],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *certificates.volumes(pool, "client")],
        **_placed(pool, given),
    }
    metadata: Document = {"labels": given.labels | labels}
    if given.annotations:
        metadata["annotations"] = given.annotations
    return {"metadata": metadata, "spec": spec}


def _places(pool: PoolInput) -> list[str]:
    """Where Spark runs, as options of the command."""
    spark, driver = pool.spark, _with_defaults(pool.spark.driver, DRIVER)
    worker = _with_defaults(pool.spark.executor, WORKER)
    executors, cores = spark.executors or EXECUTORS, spark.cores or CORES
    conf = {
        "spark.driver.memory": driver.heap,
        "spark.executor.instances": executors,
        "spark.executor.cores": cores,
        "spark.executor.memory": worker.heap,
        "spark.executor.memoryOverhead": worker.overhead,
        "spark.kubernetes.executor.request.cores": worker.cpu,
        "spark.kubernetes.container.image.pullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "spark.kubernetes.namespace": pool.namespace,
        "spark.sql.shuffle.partitions": max(8, 2 * executors * cores),
    }
    if pool.spec.image_pull_secrets:
        conf["spark.kubernetes.container.image.pullSecrets"] = ",".join(pool.spec.image_pull_secrets)
    told = {name: str(value) for name, value in conf.items()} | spark.conf
    return ["--master", MASTER, *(word for name, value in told.items() for word in ("--conf", f"{name}={value}"))]


def executor_pod(pool: PoolInput) -> Document:
    """From which Spark makes executors. They have no rights on this cluster, and certificates of the pool's clients."""
    given = _with_defaults(pool.spark.executor, WORKER)
    spec: Document = {
        "serviceAccountName": pool.object_name("pool"),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [
            {
                "name": EXECUTOR,
                "securityContext": container_security(),
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *certificates.mounts(pool)],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *certificates.volumes(pool, "client")],
        **_placed(pool, given),
    }
    metadata: Document = {"labels": given.labels | pool.labels(EXECUTOR), "annotations": given.annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _placed(pool: PoolInput, given: SparkPodSpec) -> Document:
    """On which nodes, and from which registry."""
    found = {
        "nodeSelector": given.node_selector,
        "tolerations": list(given.tolerations),
        "affinity": given.affinity,
        "priorityClassName": given.priority_class_name,
        "imagePullSecrets": [{"name": name} for name in pool.spec.image_pull_secrets],
    }
    return {name: value for name, value in found.items() if value}


def _with_defaults(given: SparkPodSpec | None, default: SparkPodSpec) -> SparkPodSpec:
    if given is None:
        return default
    merged: dict[str, Any] = {}
    for one in fields(SparkPodSpec):
        value = getattr(given, one.name)
        merged[one.name] = getattr(default, one.name) if value in (None, {}, ()) else value
    return SparkPodSpec(**merged)


def _bytes(java: str | None) -> int:
    """Of `512m` or `1g`, in Java's units: Kubernetes' own m is a thousandth."""
    assert java is not None
    return int(java[:-1]) * _UNITS[java[-1]]
