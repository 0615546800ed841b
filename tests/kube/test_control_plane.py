"""A real API server answers: types of our own, rules in them, controllers that follow, and who did what."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from tests.kube import cluster
from tests.kube.cluster import Cluster
from tests.kube.fixtures import require_binaries
from tests.kube.kubernetes import PATIENCE_S, CommandFailed, until

pytestmark = pytest.mark.timeout(600)
GROUP = "fixtures.belvedere.dev"


def crd() -> dict[str, Any]:
    size = {
        "type": "integer",
        "minimum": 1,
        "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "size cannot shrink"}],
    }
    spec = {"type": "object", "properties": {"size": size}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"boxes.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def box(size: int) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Box", "metadata": {"name": "one"}, "spec": {"size": size}}


def test_a_type_is_applied_and_its_rules_hold(control_plane: Cluster, namespace: str) -> None:
    control_plane.apply(crd())
    control_plane.established(f"boxes.{GROUP}")
    control_plane.apply(box(3), namespace=namespace)
    assert control_plane.get("box", "one", namespace=namespace)["spec"] == {"size": 3}
    with pytest.raises(CommandFailed, match="size cannot shrink"):
        control_plane.apply(box(2), namespace=namespace)


def test_controllers_follow_objects(control_plane: Cluster, namespace: str) -> None:
    """Deployments get pods, which stay Pending; what they own goes with them."""
    container = {"name": "main", "image": "localhost/none:1"}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    control_plane.apply(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}, namespace=namespace
    )

    def pods() -> list[str]:
        return [pod["status"]["phase"] for pod in control_plane.get("pods", namespace=namespace)["items"]]

    until(lambda: pods() == ["Pending", "Pending"], PATIENCE_S, "two pods")
    control_plane.kubectl("delete", "deployment", "a", "--namespace", namespace)
    until(lambda: pods() == [], PATIENCE_S, "no pods")


def test_requests_of_a_service_account_are_judged_and_on_record(control_plane: Cluster, namespace: str) -> None:
    control_plane.kubectl("create", "serviceaccount", "reader", "--namespace", namespace)
    role = ("create", "role", "reader", "--verb=get,watch", "--resource=configmaps", "--namespace", namespace)
    control_plane.kubectl(*role)
    words = ("create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:reader")
    control_plane.kubectl(*words, "--namespace", namespace)
    user = f"system:serviceaccount:{namespace}:reader"
    control_plane.allowed(user, "watch", "configmaps", "--namespace", namespace)
    made = ("get", "configmap", "kube-root-ca.crt", "--namespace", namespace)
    until(lambda: control_plane.succeeds(*made), PATIENCE_S, "what each new namespace gets")
    token = control_plane.kubectl("create", "token", "reader", "--namespace", namespace).strip()
    settings = client.Configuration()
    config.load_kube_config(str(control_plane.kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
    settings.cert_file = settings.key_file = None
    settings.api_key = {"authorization": f"Bearer {token}"}
    with client.ApiClient(settings) as api:
        reader = client.CoreV1Api(api)
        found = reader.read_namespaced_config_map("kube-root-ca.crt", namespace)
        assert found.data is not None and "BEGIN CERTIFICATE" in found.data["ca.crt"]
        with pytest.raises(client.ApiException, match="Forbidden"):
            reader.list_namespaced_secret(namespace)
        watch = {"watch": True, "timeout_seconds": 1, "_preload_content": False}
        reader.list_namespaced_config_map(namespace, **watch).read()

    def asked() -> set[tuple[str, str, int]]:
        lines = control_plane.layout.audit_log.read_text().rpartition("\n")[0].splitlines()
        return {
            (e["verb"], e["objectRef"]["resource"], e["responseStatus"]["code"])
            for e in map(json.loads, lines)
            if e["user"]["username"] == user
        }

    until(lambda: len(asked()) >= 3, PATIENCE_S, "a record of each request")
    assert asked() == {("get", "configmaps", 200), ("list", "secrets", 403), ("watch", "configmaps", 200)}


def test_kubectl_explains_and_finds_types_with_the_environment_that_tests_get(control_plane: Cluster) -> None:
    done = subprocess.run(
        ["kubectl", "version", "-o", "json"], env=control_plane.environment, capture_output=True, text=True
    )
    versions = json.loads(done.stdout)
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert os.environ.get("KUBECONFIG") != control_plane.environment["KUBECONFIG"]


def test_one_kill_ends_all_of_it(control_plane: Cluster, tmp_path: Path) -> None:
    """The kill of its first process, without a word to the others; what is left is removed by the next `down`."""
    binaries = require_binaries()
    another = cluster.up_control_plane(tmp_path / "state", binaries, ends_with_parent=True)
    assert another.layout.api_port != control_plane.layout.api_port
    assert another.process is not None
    until(lambda: len(running_in(tmp_path)) == 5, PATIENCE_S, "its five processes")
    another.process.kill()
    until(lambda: not running_in(tmp_path), PATIENCE_S, "the end of every process")
    assert cluster.existing(tmp_path / "state", binaries) is None
    another.down()
    assert not (tmp_path / "state").exists()


def running_in(directory: Path) -> list[str]:
    """Processes whose command line names the directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found += [command] if str(directory) in command else []
    return found
