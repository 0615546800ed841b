"""A driver in a pod: what Spark is told, what becomes an executor, and processes of another version than the pool."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from belvedere.cli.spark import cli
from belvedere.cli.verify import settings_of_spark
from belvedere.engine.version import ENGINE_VERSION, OLDEST_ENGINE_VERSION
from belvedere.errors import DataError
from belvedere.spark.engines import require_engine
from belvedere.spark.kubernetes import executor_command, executor_pod, pod_settings

POD = {"POD_NAME": "default-verify-spend-29001-x7k2p", "POD_IP": "10.1.2.3", "BELVEDERE_SPARK_IMAGE": "jobs:1"}
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "x-exec-3",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_HOME": "/opt/spark",
    "JAVA_HOME": "/opt/java",
}


def test_a_driver_tells_spark_where_it_is_and_who_owns_its_executors(tmp_path: Path) -> None:
    namespace = tmp_path / "namespace"
    namespace.write_text("shop\n")
    found = pod_settings({}, POD, namespace)
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "10.1.2.3", (
        "executors are told the latter"
    )
    assert found["spark.kubernetes.driver.pod.name"] == POD["POD_NAME"], "executors end with it"
    assert found["spark.kubernetes.namespace"] == "shop" and found["spark.kubernetes.container.image"] == "jobs:1"
    assert found["spark.driver.port"], "a NetworkPolicy names it"
    prefix = found["spark.kubernetes.executor.podNamePrefix"]
    assert prefix[0].isalpha() and len(prefix) <= 47 and POD["POD_NAME"].endswith(prefix)
    template = json.loads(Path(found["spark.kubernetes.executor.podTemplateFile"]).read_text())
    assert template == executor_pod()
    security = template["spec"]["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["automountServiceAccountToken"] is False


def test_what_a_user_sets_comes_first_and_a_template_may_be_given(tmp_path: Path) -> None:
    given = {
        "spark.driver.host": "driver.example",
        "spark.driver.bindAddress": "10.9.9.9",
        "spark.driver.port": "9999",
        "spark.kubernetes.namespace": "jobs",
        "spark.kubernetes.driver.pod.name": "mine",
    }
    own = json.dumps({"kind": "Pod", "spec": {"nodeSelector": {"disk": "fast"}}})
    found = pod_settings(given, {**POD, "BELVEDERE_SPARK_EXECUTOR": own}, tmp_path / "none")
    assert not given.keys() & found.keys()
    assert found["spark.kubernetes.executor.podNamePrefix"] == "mine"
    assert Path(found["spark.kubernetes.executor.podTemplateFile"]).read_text() == own
    options: dict[str, Any] = {"conf": ("a=1",), "executor_image": "other:2"}
    assert pod_settings(settings_of_spark(options), POD)["spark.driver.host"] == "10.1.2.3"
    assert settings_of_spark(options) == {"a": "1", "spark.kubernetes.container.image": "other:2"}


def test_without_an_image_for_executors_it_says_how_to_name_one() -> None:
    with pytest.raises(DataError, match="--executor-image or BELVEDERE_SPARK_IMAGE"):
        pod_settings({}, {"POD_IP": "10.1.2.3"})


def test_the_image_becomes_an_executor_as_spark_tells_it() -> None:
    options = {f"SPARK_JAVA_OPT_{i}": f"-Dspark.n{i}=a b" for i in (0, 1, 2, 10)}
    words = executor_command({**EXECUTOR, **options})
    assert words[0] == "/opt/java/bin/java"
    assert words[1:5] == [f"-Dspark.n{i}=a b" for i in (0, 1, 2, 10)], "in their order, each one word"
    assert "-Xmx1024m" in words and words[words.index("-cp") + 1] == "/opt/spark/jars/*"
    assert words[words.index("--podName") + 1] == "x-exec-3"
    told = CliRunner().invoke(cli, ["executor"])
    assert told.exit_code == 1 and "this is no executor: SPARK_" in told.output
    assert "executor" not in CliRunner().invoke(cli, ["--help"]).output.split("Commands:")[1]


def test_a_process_of_another_engine_is_refused_with_what_to_do() -> None:
    require_engine(0)
    require_engine(ENGINE_VERSION)
    for engine in (ENGINE_VERSION + 1, OLDEST_ENGINE_VERSION - 1):
        with pytest.raises(DataError, match=f"the pool has engine {engine}.*need an image"):
            require_engine(engine)


def test_sigterm_ends_a_driver_that_is_the_first_process_of_its_container() -> None:
    """Without a handler the kernel would not even deliver it there."""
    code = (
        "import signal, sys; from belvedere.cli import spark;"
        "spark.cli = lambda **_: (print('up', flush=True), signal.pause()); spark.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    process.stdout.close()
