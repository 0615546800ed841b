"""Jobs that recompute a view and compare it: on a schedule, when somebody asks, and before a change is taken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from belvedere_operator.api import API_VERSION, durations
from belvedere_operator.api.materialized_view import SPARK, VerifySpec
from belvedere_operator.build import certificates
from belvedere_operator.build.inputs import FLIGHT_PORT, Document, PoolInput
from belvedere_operator.build.restricted import container_security, pod_security
from belvedere_operator.build.spark import driver_pod
from belvedere_operator.names import ENGINE_LABEL, REQUEST, TRIAL_LABEL, VIEW_LABEL, label_value

RESULT = "/dev/termination-log"
"""What is written there becomes the message of the pod's end, where the operator reads it."""
DIFFERENT = 3
"""Exit code of `belvedere verify`: the view differs, or rows of it are in quarantine."""
CONTAINER = "verify"
TRIES = {SPARK: 6}
"""How often a pod may fail before the Job does: a driver of Spark works longer, so more happens to it."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A view as its verification has to know it. `sql_name`: under which it is compared."""

    resource: str
    uid: str
    sql_name: str
    engine: str


def verification(pool: PoolInput, view: Verified, spec: VerifySpec, suspend: bool) -> Document:
    """It goes with the view. A run that is still going when the next one is due is not disturbed."""
    labels = _labels(pool, view)
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": _meta(pool, pool.object_name("verify", view.resource), view, {}),
        "spec": {
            "schedule": spec.schedule,
            "timeZone": "Etc/UTC",
            "suspend": suspend,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 300,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": labels}, "spec": _job(pool, view, spec, labels)},
        },
    }


def trial(pool: PoolInput, view: Verified, digest: str, spec: VerifySpec) -> Document:
    """One run, of the new version of a view, which is built under a name of its own. `digest`: of its text."""
    more = {TRIAL_LABEL: digest}
    labels = _labels(pool, view) | more
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(pool, trial_job_name(pool, view.resource, digest), view, more),
        "spec": _job(pool, view, spec, labels),
    }


def trial_job_name(pool: PoolInput, resource: str, digest: str) -> str:
    return pool.object_name("try", resource, digest)


def requested(pool: PoolInput, view: Verified, request: str, spec: VerifySpec) -> Document:
    """One run, because somebody asked for it in these words. The same words are the same Job."""
    name = pool.object_name("verify", view.resource, hashlib.sha256(request.encode()).hexdigest()[:8])
    metadata = _meta(pool, name, view, {})
    metadata["annotations"] = {REQUEST: request}
    labels = _labels(pool, view)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job(pool, view, spec, labels)}


def _labels(pool: PoolInput, view: Verified) -> dict[str, str]:
    return pool.labels("verify") | {VIEW_LABEL: label_value(view.resource), ENGINE_LABEL: view.engine}


def _meta(pool: PoolInput, name: str, view: Verified, labels: dict[str, str]) -> Document:
    meta = pool.meta(name)
    owner = {"apiVersion": API_VERSION, "kind": "MaterializedView", "name": view.resource, "uid": view.uid}
    meta["ownerReferences"] = [owner | {"controller": True}]
    meta["labels"] |= _labels(pool, view) | labels
    return meta


def _job(pool: PoolInput, view: Verified, spec: VerifySpec, labels: dict[str, str]) -> Document:
    template = _spark(pool, view, labels) if view.engine == SPARK else _duckdb(pool, view, labels)
    # A difference is a result: to compute it again would only say it twice. What takes a pod away is no failure of it.
    rules = [
        {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [DIFFERENT]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    return {
        "backoffLimit": TRIES.get(view.engine, 2),
        "activeDeadlineSeconds": max(1, int(durations.seconds(spec.deadline))),
        "ttlSecondsAfterFinished": 86_400,
        "podFailurePolicy": {"rules": rules},
        "template": template,
    }


def _spark(pool: PoolInput, view: Verified, labels: dict[str, str]) -> Document:
    words = ["verify", view.sql_name, "--summary", RESULT]
    return driver_pod(pool, CONTAINER, words, labels)


def _duckdb(pool: PoolInput, view: Verified, labels: dict[str, str]) -> Document:
    url = certificates.members_url(pool, FLIGHT_PORT)
    told = {"HOME": "/tmp"} | certificates.environment(pool)
    container: Document = {
        "name": CONTAINER,
        "image": pool.image,
        "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "command": ["sh", "-c", f'exec belvedere --url "$0" --json verify "$1" > {RESULT}', url, view.sql_name],
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
        "securityContext": pod_security(),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *certificates.volumes(pool, "client")],
    }
    return {"metadata": {"labels": labels}, "spec": pod}
