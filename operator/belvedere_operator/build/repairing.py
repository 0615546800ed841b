"""The Job that puts right what is wrong with a view, because somebody asked for it."""

from __future__ import annotations

import hashlib

from belvedere_operator.api import API_VERSION
from belvedere_operator.build import certificates
from belvedere_operator.build.inputs import FLIGHT_PORT, Document, PoolInput
from belvedere_operator.build.restricted import container_security, pod_security
from belvedere_operator.build.verification import RESULT
from belvedere_operator.names import REQUEST, VIEW_LABEL, label_value

ROLE = "repair"
LEFT = 3
"""Exit code of `belvedere repair`: something is left, or would be replaced (a dry run)."""
OPTIONS = {"dry-run": "--dry-run", "all": "--all"}
"""Of the command, by what a request begins with."""
TRIES = 4
"""The same command again does nothing twice."""
DEADLINE_S = 6 * 3600


def repairing(pool: PoolInput, resource: str, uid: str, sql_name: str, request: str) -> Document:
    """One run; the same words are the same Job."""
    url = certificates.members_url(pool, FLIGHT_PORT)
    told = {"HOME": "/tmp"} | certificates.environment(pool)
    option = OPTIONS.get(request.partition("/")[0])
    words = [sql_name, *([option] if option else [])]
    container: Document = {
        "name": ROLE,
        "image": pool.image,
        "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "command": ["sh", "-c", f'exec belvedere --url "$0" repair "$@" > {RESULT}', url, *words],
        "terminationMessagePath": RESULT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        "securityContext": container_security(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *certificates.mounts(pool)],
    }
    pod: Document = {
        "restartPolicy": "Never",
        "serviceAccountName": pool.object_name("pool"),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *certificates.volumes(pool, "client")],
    }
    if pool.spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in pool.spec.image_pull_secrets]
    labels = pool.labels(ROLE) | {VIEW_LABEL: label_value(resource)}
    metadata = pool.meta(repairing_name(pool, resource, request), ROLE)
    metadata["labels"] |= labels
    metadata["annotations"] = {REQUEST: request}
    owner = {"apiVersion": API_VERSION, "kind": "MaterializedView", "name": resource, "uid": uid, "controller": True}
    metadata["ownerReferences"] = [owner]
    code = {"containerName": ROLE, "operator": "In", "values": [LEFT]}
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
            "activeDeadlineSeconds": DEADLINE_S,
            "ttlSecondsAfterFinished": 86_400,
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def repairing_name(pool: PoolInput, resource: str, request: str) -> str:
    return pool.object_name(ROLE, resource, hashlib.sha256(request.encode()).hexdigest()[:8])
