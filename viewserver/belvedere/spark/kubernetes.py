"""Client mode on Kubernetes: this process is the driver, in a pod, and Spark starts a pod for each executor.

What Spark cannot know is read from the pod: its address, since executors call the driver back and pods of Jobs have no
name in DNS; and its name, since executors that are owned by it end with it, however it ends. Ports are fixed, so that
NetworkPolicies can name them. Pods are as the restricted Pod Security standard wants them.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belvedere.errors import DataError

SCHEME = "k8s://"
DRIVER_PORT, BLOCKS_PORT = 7078, 7079
"""Of the driver, and of the blocks of the driver and of each executor."""
IMAGE = "BELVEDERE_SPARK_IMAGE"
"""The image of executors. That of the driver does: only it is sure to have the same versions of everything."""
TEMPLATE = "BELVEDERE_SPARK_EXECUTOR"
"""A pod as JSON from which Spark makes executors, instead of `executor_pod`."""
MOST_OF_PREFIX = 47
"""Characters that Spark takes before `-exec-` and a number."""
POD_NAME, POD_ADDRESS = "POD_NAME", "POD_IP"
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def pod_settings(
    given: Mapping[str, Any], environment: Mapping[str, str] | None = None, namespace_file: Path = _NAMESPACE
) -> dict[str, str]:
    """Settings of Spark for a driver in a pod; what is `given` comes first."""
    env = os.environ if environment is None else environment
    image = str(given.get("spark.kubernetes.container.image") or env.get(IMAGE) or "")
    if not image and "spark.kubernetes.executor.container.image" not in given:
        raise DataError(
            f"Spark on Kubernetes needs the image of executors: name it with --executor-image or {IMAGE}; it has to be "
            "the image that the driver runs in"
        )
    found = {
        "spark.kubernetes.container.image": image,
        "spark.submit.deployMode": "client",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        # Settings reach executors by their environment. Each of these would need one more right.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.executor.deleteOnTermination": "true",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        # An API server, or a node, that is busy: the 10 s that are Spark's default end the driver.
        "spark.kubernetes.driver.requestTimeout": "120000",
        "spark.kubernetes.driver.connectionTimeout": "120000",
        # A lost executor is noticed, and replaced, within seconds.
        "spark.kubernetes.allocation.batch.delay": "1s",
        "spark.kubernetes.executor.apiPollingInterval": "5s",
    }
    address = str(given.get("spark.driver.host") or env.get(POD_ADDRESS) or socket.gethostbyname(socket.gethostname()))
    # On Kubernetes executors are told the address that the driver listens on, so it is not 0.0.0.0.
    found |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    if "spark.kubernetes.driver.pod.name" not in given and (name := env.get(POD_NAME)):
        found["spark.kubernetes.driver.pod.name"] = name
    prefix = found.get("spark.kubernetes.driver.pod.name") or str(given.get("spark.kubernetes.driver.pod.name") or "")
    # Names of executors have a number behind it, and are names of hosts.
    found["spark.kubernetes.executor.podNamePrefix"] = prefix[-MOST_OF_PREFIX:].lstrip("-.0123456789") or "belvedere"
    if "spark.kubernetes.namespace" not in given and namespace_file.exists():
        found["spark.kubernetes.namespace"] = namespace_file.read_text().strip()
    if "spark.kubernetes.executor.podTemplateFile" not in given:
        text = env.get(TEMPLATE) or json.dumps(executor_pod())
        found["spark.kubernetes.executor.podTemplateFile"] = _written(text)
    return {name: value for name, value in found.items() if name not in given}


def executor_pod() -> dict[str, Any]:
    """A pod with no rights on this cluster, that writes nowhere but in /tmp and Spark's own directories."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "executor",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def _written(text: str) -> str:
    """A file of the text; Spark reads it whenever it makes an executor."""
    handle, name = tempfile.mkstemp(prefix="belvedere-executor-", suffix=".yaml")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return name


def executor_command(environment: Mapping[str, str]) -> list[str]:
    """What a container is to become that Spark started as an executor: Spark says everything in its environment."""
    try:
        named = {
            option: environment[variable]
            for option, variable in (
                ("--driver-url", "SPARK_DRIVER_URL"),
                ("--executor-id", "SPARK_EXECUTOR_ID"),
                ("--cores", "SPARK_EXECUTOR_CORES"),
                ("--app-id", "SPARK_APPLICATION_ID"),
                ("--hostname", "SPARK_EXECUTOR_POD_IP"),
                ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
                ("--podName", "SPARK_EXECUTOR_POD_NAME"),
            )
        }
        memory, home = environment["SPARK_EXECUTOR_MEMORY"], environment["SPARK_HOME"]
    except KeyError as error:
        raise DataError(
            f"this is no executor: {error.args[0]} is not set; Spark on Kubernetes starts executors itself"
        ) from None
    prefix = "SPARK_JAVA_OPT_"
    options = sorted((int(n.removeprefix(prefix)), text) for n, text in environment.items() if n.startswith(prefix))
    java_home = environment.get("JAVA_HOME")
    classes = ":".join(filter(None, (environment.get("SPARK_EXTRA_CLASSPATH"), f"{home}/jars/*")))
    return [
        f"{java_home}/bin/java" if java_home else "java",
        *(text for _, text in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classes,
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *(word for pair in named.items() for word in pair),
    ]
