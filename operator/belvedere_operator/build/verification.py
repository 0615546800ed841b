"""The CronJob that recomputes a view and compares it, where its manifest has a schedule."""

from __future__ import annotations

from belvedere_operator.api import API_VERSION, durations
from belvedere_operator.api.materialized_view import VerifySpec
from belvedere_operator.build import certificates
from belvedere_operator.build.inputs import FLIGHT_PORT, Document, PoolInput
from belvedere_operator.build.pods import ID
from belvedere_operator.names import TRIAL_LABEL, VIEW_LABEL, label_value

RESULT = "/dev/termination-log"
"""What is written there becomes the message of the pod's end, where the operator reads it."""
DIFFERENT = 3
"""Exit code of `belvedere verify`: the view differs, or rows of it are in quarantine."""


def verification(pool: PoolInput, resource: str, uid: str, sql_name: str, spec: VerifySpec, suspend: bool) -> Document:
    """It goes with the view. A run that is still going when the next one is due is not disturbed."""
    labels = pool.labels("verify") | {VIEW_LABEL: label_value(resource)}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": _meta(pool, pool.object_name("verify", resource), resource, uid, {}),
        "spec": {
            "schedule": spec.schedule,
            "timeZone": "Etc/UTC",
            "suspend": suspend,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 300,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": labels}, "spec": _job(pool, sql_name, spec, labels)},
        },
    }


def trial(pool: PoolInput, resource: str, uid: str, sql_name: str, digest: str, spec: VerifySpec) -> Document:
    """One run, of the new version of a view. `sql_name`: under which it is built; `digest`: of its text."""
    more = {TRIAL_LABEL: digest}
    labels = pool.labels("verify") | {VIEW_LABEL: label_value(resource)} | more
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(pool, trial_job_name(pool, resource, digest), resource, uid, more),
        "spec": _job(pool, sql_name, spec, labels),
    }


def trial_job_name(pool: PoolInput, resource: str, digest: str) -> str:
    return pool.object_name("try", resource, digest)


def _meta(pool: PoolInput, name: str, resource: str, uid: str, labels: dict[str, str]) -> Document:
    meta = pool.meta(name)
    owner = {"apiVersion": API_VERSION, "kind": "MaterializedView", "name": resource, "uid": uid, "controller": True}
    meta["ownerReferences"] = [owner]
    meta["labels"] |= {VIEW_LABEL: label_value(resource)} | labels
    return meta


def _job(pool: PoolInput, sql_name: str, spec: VerifySpec, labels: dict[str, str]) -> Document:
    url = certificates.members_url(pool, FLIGHT_PORT)
    told = {"HOME": "/tmp"} | certificates.environment(pool)
    container: Document = {
        "name": "verify",
        "image": pool.image,
        "imagePullPolicy": pool.spec.image_pull_policy or pool.settings.image_pull_policy,
        "command": ["sh", "-c", f'exec belvedere --url "$0" --json verify "$1" > {RESULT}', url, sql_name],
        "terminationMessagePath": RESULT,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{"name": name, "value": value} for name, value in told.items()],
        "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *certificates.mounts(pool)],
    }
    pod: Document = {
        "restartPolicy": "Never",
        "serviceAccountName": pool.object_name("pool"),
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": ID,
            "runAsGroup": ID,
            "fsGroup": ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *certificates.volumes(pool, "client")],
    }
    return {
        "backoffLimit": 2,
        "activeDeadlineSeconds": max(1, int(durations.seconds(spec.deadline))),
        "ttlSecondsAfterFinished": 86_400,
        # A difference is a result: to compute it again would only say it twice.
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "verify", "operator": "In", "values": [DIFFERENT]},
                }
            ]
        },
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
