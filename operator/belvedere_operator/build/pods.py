"""Pods of a pool: the command, the settings of its process as environment, probes, and restricted Pod Security."""

from __future__ import annotations

from typing import Any

from belvedere_operator.api import durations
from belvedere_operator.build import certificates
from belvedere_operator.build.inputs import FLIGHT_PORT, GATEWAY_PORT, HTTP_PORT, Document, PoolInput
from belvedere_operator.names import TLS

GRACE_SECONDS = {"viewserver": 60, "distributor": 30, "coordinator": 30, "store": 60, "gateway": 45}
"""From SIGTERM to SIGKILL. A view server withdraws and drains in that time; see LEAVE_WITHIN."""
LEAVE_WITHIN = 45
"""Seconds that a view server may take to be released by its pool: less than its grace."""
DEFAULT_REQUESTS = {
    "coordinator": {"cpu": "100m", "memory": "256Mi"},
    "distributor": {"cpu": "100m", "memory": "384Mi"},
    "viewserver": {"cpu": "250m", "memory": "512Mi"},
    "store": {"cpu": "250m", "memory": "1Gi"},
    "gateway": {"cpu": "100m", "memory": "256Mi"},
}
ID = 10001
"""User and group of the images."""
CREDENTIALS, ZOOKEEPER_TLS = "/etc/belvedere/zookeeper", "/etc/belvedere/zookeeper-tls"


def pod_template(pool: PoolInput, role: str) -> Document:
    """The template of a Deployment or a StatefulSet."""
    given = pool.template(role)
    spec: Document = {
        "serviceAccountName": pool.object_name("pool"),
        "automountServiceAccountToken": role == "gateway",
        "enableServiceLinks": False,  # dozens of variables that nobody reads
        "terminationGracePeriodSeconds": GRACE_SECONDS[role],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": ID,
            "runAsGroup": ID,
            "fsGroup": ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(pool, role)],
        "volumes": _volumes(pool, role),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": pool.selector(role)},
            }
        ],
    }
    if pool.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in pool.spec.image_pull_secrets]
    for name, value in (
        ("nodeSelector", given.node_selector),
        ("tolerations", list(given.tolerations)),
        ("affinity", given.affinity),
        ("priorityClassName", given.priority_class_name),
    ):
        if value:
            spec[name] = value
    metadata: Document = {"labels": given.labels | pool.labels(role)}
    metadata["annotations"] = given.annotations | {TLS: pool.tls.mode}
    return {"metadata": metadata, "spec": spec}


def _container(pool: PoolInput, role: str) -> Document:
    given = pool.template(role)
    resources: Document = {"requests": DEFAULT_REQUESTS[role] | given.requests}
    if given.limits:
        resources["limits"] = dict(given.limits)
    ports = [{"name": "http", "containerPort": GATEWAY_PORT if role == "gateway" else HTTP_PORT}]
    if role != "gateway":
        ports.append({"name": "flight", "containerPort": FLIGHT_PORT})
    if role == "distributor" and pool.follows_hbase:
        shown = {"hostPort": pool.sink_port} if pool.spec.sink_host_port is not None else {}
        ports.append({"name": "sink", "containerPort": pool.sink_port, **shown})
    mounts: list[Document] = [{"name": "tmp", "mountPath": "/tmp"}]
    if role == "store":
        mounts.append({"name": "data", "mountPath": "/data"})
    elif role != "gateway":
        mounts.append({"name": "spill", "mountPath": "/spill"})
    if role != "gateway":
        mounts += [
            {"name": volume["name"], "mountPath": f"/etc/belvedere/{volume['name']}", "readOnly": True}
            for volume in zookeeper_volumes(pool)
        ]
    mounts += certificates.mounts(pool)
    return {
        "name": role,
        "image": pool.image,
        "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "args": _arguments(pool, role),
        "env": _environment(pool, role),
        # The last lines of a process that ended badly are in the status of its pod, and so in that of the pool.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": ports,
        "resources": resources,
        "startupProbe": _probe("/healthz", period=2, failures=90),
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=3, failures=2),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _probe(path: str, *, period: int, failures: int) -> Document:
    get = {"path": path, "port": "http"}
    return {"httpGet": get, "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5}


def _arguments(pool: PoolInput, role: str) -> list[str]:
    """What no variable says."""
    if role != "gateway":
        return [role]
    # From SIGTERM the gateway goes on for the time that it takes until nobody is sent to it any more.
    store = ["--store", pool.spec.backend] if pool.spec.backend is not None else []
    return [role, "--notice-seconds", "5", "--drain-seconds", "20", *store]


def _environment(pool: PoolInput, role: str) -> list[Document]:
    if role == "gateway":
        told = certificates.environment(pool) | {
            "BELVEDERE_URL": certificates.members_url(pool, FLIGHT_PORT),
            "BELVEDERE_HTTP_HOST": "0.0.0.0",
            "BELVEDERE_HTTP_PORT": GATEWAY_PORT,
            "BELVEDERE_AUTHENTICATION": "kubernetes",
        }
        return [{"name": name, "value": str(value)} for name, value in told.items()]
    own: dict[str, Any] = {
        "BELVEDERE_ZOOKEEPER": pool.zookeeper,
        "BELVEDERE_POOL": pool.name,
        "BELVEDERE_HOST": "0.0.0.0",
        "BELVEDERE_PORT": FLIGHT_PORT,
        "BELVEDERE_HTTP_PORT": HTTP_PORT,
        "BELVEDERE_DIRECTORY": "/data" if role == "store" else "/spill",
        "BELVEDERE_LOG_FORM": "json",
    }
    own |= certificates.environment(pool)
    if memory_limit := pool.template(role).memory_limit:
        own["BELVEDERE_MEMORY_LIMIT"] = memory_limit
    if role == "viewserver":
        own["BELVEDERE_LEAVE_WITHIN"] = LEAVE_WITHIN
    if pool.spec.backend is not None and role != "store":
        own["BELVEDERE_STORE"] = pool.spec.backend
    if role == "coordinator":
        if pool.spec.epoch is not None:
            own["BELVEDERE_EPOCH_MS"] = max(1, durations.milliseconds(pool.spec.epoch))
        if pool.spec.retention is not None:
            own["BELVEDERE_RETENTION"] = f"{durations.seconds(pool.spec.retention):g}"
    if role == "store" and pool.spec.storage is not None and pool.spec.storage.backlog_limit:
        own["BELVEDERE_BACKLOG_LIMIT"] = pool.spec.storage.backlog_limit
    own |= zookeeper_environment(pool)
    if role == "distributor" and pool.follows_hbase:
        own["BELVEDERE_SINK_PORT"] = pool.sink_port
    found: list[Document] = [{"name": name, "value": str(value)} for name, value in own.items()]
    found.append({"name": "BELVEDERE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    # Pods of a Deployment have no name in DNS, and the address of a pod is never used again while it lives.
    found.append({"name": "BELVEDERE_ADVERTISE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if role == "distributor" and pool.spec.sink_host_port is not None:
        node = {"fieldRef": {"fieldPath": "status.hostIP"}}
        found.append({"name": "BELVEDERE_SINK_ADVERTISE", "valueFrom": node})
    return found


def zookeeper_environment(pool: PoolInput) -> dict[str, str]:
    found = {}
    if pool.zookeeper_secret:
        found["BELVEDERE_ZOOKEEPER_CREDENTIALS"] = f"{CREDENTIALS}/credentials"
    if (tls := pool.zookeeper_tls) is not None:
        files = {"AUTHORITY": "ca.crt"} | (
            {"CERTIFICATE": "tls.crt", "KEY": "tls.key"} if tls.client_certificate else {}
        )
        found |= {f"BELVEDERE_ZOOKEEPER_TLS_{name}": f"{ZOOKEEPER_TLS}/{file}" for name, file in files.items()}
    return found


def zookeeper_volumes(pool: PoolInput) -> list[Document]:
    """Each is mounted where it is called after."""
    found: list[Document] = []
    if pool.zookeeper_secret:
        items = [{"key": "credentials", "path": "credentials"}]
        secret = {"secretName": pool.zookeeper_secret, "items": items, "defaultMode": 0o440}
        found.append({"name": "zookeeper", "secret": secret})
    if (tls := pool.zookeeper_tls) is not None:
        found.append({"name": "zookeeper-tls", "secret": {"secretName": tls.secret, "defaultMode": 0o440}})
    return found


def _volumes(pool: PoolInput, role: str) -> list[Document]:
    found: list[Document] = [{"name": "tmp", "emptyDir": {}}]
    if role not in ("store", "gateway"):
        found.append({"name": "spill", "emptyDir": {}})
    if role != "gateway":
        found += zookeeper_volumes(pool)
    return found + certificates.volumes(pool, role)
