"""A pool on the served backend as plain objects, without the operator: what the images and the roles need of a cluster.

Everything is as the strictest Pod Security wants it: no root, no writable root file system, no capabilities.
"""

from __future__ import annotations

from typing import Any

from tests.kube.components import APP_USER
from tests.kube.images import BELVEDERE, ZOOKEEPER
from tests.kube.kubernetes import Object

FLIGHT, HTTP, ZOOKEEPER_PORT = 7070, 8080, 2181
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": APP_USER,
    "runAsGroup": APP_USER,
    "fsGroup": APP_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SETTINGS = """\
dataDir=/data
clientPort=2181
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
"""


def zookeeper() -> list[Object]:
    main = container("zookeeper", ZOOKEEPER, [], {"zookeeper": ZOOKEEPER_PORT})
    main["volumeMounts"] += [{"name": "settings", "mountPath": "/conf"}, {"name": "data", "mountPath": "/data"}]
    main["readinessProbe"] = {"tcpSocket": {"port": "zookeeper"}, "periodSeconds": 1}
    main["env"] = [{"name": "SERVER_JVMFLAGS", "value": "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}]
    volumes = [{"name": "settings", "configMap": {"name": "zookeeper"}}]
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "zookeeper"}, "data": {"zoo.cfg": SETTINGS}},
        service("zookeeper", {"zookeeper": ZOOKEEPER_PORT}),
        stateful("zookeeper", main, volumes),
    ]


def pool() -> list[Object]:
    """One store with a volume, and each other role as a Deployment."""
    return [
        service("store", {"flight": FLIGHT}),
        stateful("store", role("store", "--directory", "/data", mounts=[{"name": "data", "mountPath": "/data"}])),
        service("coordinator", {"flight": FLIGHT}),
        *(deployment(name, role(name), replicas=1) for name in ("coordinator", "distributor", "viewserver")),
        # In the cluster, with the client and a Python: where tests write and read from.
        deployment("client", container("client", BELVEDERE.name, ["-c", "sleep infinity"], {}, command=["sh"])),
    ]


def role(name: str, *words: str, mounts: list[Object] | None = None) -> Object:
    main = container(name, BELVEDERE.name, [name, *words], {"flight": FLIGHT, "http": HTTP})
    address = {"fieldRef": {"fieldPath": "status.podIP"}}
    values = {
        "BELVEDERE_ZOOKEEPER": f"zookeeper:{ZOOKEEPER_PORT}",
        "BELVEDERE_HOST": "0.0.0.0",
        "BELVEDERE_PORT": str(FLIGHT),
        "BELVEDERE_HTTP_PORT": str(HTTP),
    }
    main["env"] = [
        *({"name": key, "value": value} for key, value in values.items()),
        {"name": "BELVEDERE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BELVEDERE_ADVERTISE", "valueFrom": address},
    ]
    main["volumeMounts"] += mounts or []
    probe = {"port": "http", "scheme": "HTTP"}
    main["startupProbe"] = {"httpGet": {**probe, "path": "/healthz"}, "periodSeconds": 1, "failureThreshold": 120}
    main["readinessProbe"] = {"httpGet": {**probe, "path": "/readyz"}, "periodSeconds": 1}
    main["livenessProbe"] = {"httpGet": {**probe, "path": "/healthz"}, "periodSeconds": 10, "failureThreshold": 6}
    return main


def container(
    name: str, image: str, arguments: list[str], ports: dict[str, int], command: list[str] | None = None
) -> Object:
    made: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    return made | ({"command": command} if command else {})


def pod(main: Object, volumes: list[Object] | None = None) -> Object:
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1 if main["name"] in ("client", "zookeeper") else 30,
        "securityContext": POD_SECURITY,
        "containers": [main],
        "volumes": [{"name": "scratch", "emptyDir": {}}, *(volumes or [])],
    }


def deployment(name: str, main: Object, replicas: int = 1) -> Object:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(main)}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def stateful(name: str, main: Object, volumes: list[Object] | None = None) -> Object:
    """With one volume of its own, `data`."""
    claim: dict[str, Any] = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(main, volumes)}
    spec = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
        "volumeClaimTemplates": [claim],
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


def service(name: str, ports: dict[str, int]) -> Object:
    """Headless: members know each other by address, and clients find coordinators by this name."""
    spec = {
        "clusterIP": "None",
        "selector": {"app": name},
        "publishNotReadyAddresses": True,
        "ports": [{"name": port, "port": number} for port, number in ports.items()],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
