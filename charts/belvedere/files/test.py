"""What `helm test` runs in a pod: the operator is ready, takes a good definition and refuses a bad one with its place.

    python -c … OPERATOR
"""

import json
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAMESPACE = (ACCOUNT / "namespace").read_text()
API = f"https://kubernetes.default.svc/apis/belvedere.dev/v1alpha1/namespaces/{NAMESPACE}"


def dry_run(plural: str, kind: str, name: str, spec: dict) -> tuple[int, str]:
    """Status and message."""
    resource = {"apiVersion": "belvedere.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{API}/{plural}?dryRun=All", json.dumps(resource).encode(), headers)
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)["message"]


def check(what: str, good: bool, found: object) -> None:
    print(f"{'ok    ' if good else 'FAILED'} {what}: {found}", flush=True)
    if not good:
        sys.exit(1)


operator = f"http://{sys.argv[1]}.{NAMESPACE}.svc:8080"
with urllib.request.urlopen(f"{operator}/readyz", timeout=10) as answer:
    check("the operator is ready", answer.status == 200, answer.read().decode())
columns = [{"name": "id", "type": "bigint"}, {"name": "total", "type": "bigint"}]
found = dry_run("basetables", "BaseTable", "helm-test", {"columns": columns, "key": ["id"]})
check("a table is accepted", found[0] == 201, found)
found = dry_run("materializedviews", "MaterializedView", "helm-test", {"query": "SELECT FROM WHERE"})
check("a query that cannot be read is refused", found[0] in (400, 403, 422), found)
check("the refusal says where", "line" in found[1].lower() or "position" in found[1].lower(), found[1])
