"""The operator as processes: admission, election, external metrics, as the API server and kubectl see them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, CommandFailed, until
from tests.operator.running import NOBODY, ROOT, Shop, gateway, resource, table, view

pytestmark = pytest.mark.timeout(900)
LEASE_SECONDS = "24"
"""A leader that hears nothing from the API server for two thirds of it ends, which is not what these tests are of: a
busy machine may be silent for seconds."""


@dataclass
class Replica:
    process: subprocess.Popen[str]
    http: int
    https: int
    log: Path

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def http_leads(self) -> bool:
        """What it says; it must answer."""
        return bool(json.loads(self.get("/readyz"))["leads"])

    @property
    def leads(self) -> bool:
        if self.process.poll() not in (None, -signal.SIGKILL):
            pytest.fail(f"the operator has ended by itself:\n{self.log.read_text()[-2000:]}")
        try:
            return self.http_leads()
        except OSError:
            return False


def free_port() -> int:
    """Below those that the kernel gives to whoever connects to somebody: nobody takes it before the operator does."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextlib.contextmanager
def replica(
    cluster: Cluster, folder: Path, namespace: str, url: str, *, compiler: str = "", **more: str
) -> Iterator[Replica]:
    http, https = free_port(), free_port()
    told = {
        "name": f"operator-{namespace}",
        "namespace": namespace,
        "watch": namespace,
        "zookeeper": "zookeeper:2181",
        "gateway-url": url,
        "compiler": compiler,
        "gateway-role": "",
        "base-url": f"https://127.0.0.1:{https}",
        "host": "127.0.0.1",
        "http-port": str(http),
        "https-port": str(https),
        "lease-seconds": LEASE_SECONDS,
        "external-metrics": "false",
    } | {name.replace("_", "-"): value for name, value in more.items()}
    words = [word for name, value in told.items() for word in (f"--{name}", value)]
    path = f"{ROOT / 'viewserver'}{os.pathsep}{ROOT / 'operator'}"
    log = folder / f"operator-{https}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "belvedere_operator", *words],
            env={**cluster.environment, "PYTHONPATH": path},
            stderr=file,
            text=True,
        )
        try:
            yield Replica(process, http, https, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def guarded(crds: Cluster, tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Shop]:
    """A namespace whose tables and views are looked at before they are stored; pools have no gateway, only the
    compiler."""
    name = f"guarded-{uuid.uuid4().hex[:8]}"
    crds.kubectl("create", "namespace", name)
    with replica(crds, tmp_path_factory.mktemp("operator"), name, NOBODY, compiler=url):
        until(
            lambda: crds.kubectl("get", "validatingwebhookconfiguration", "-o", "name").strip(),
            PATIENCE_S,
            "the webhook",
        )
        shop = Shop(crds, name)

        def judged() -> bool:
            try:
                crds.kubectl("apply", "--dry-run=server", "-n", name, "-f", "-", stdin=json.dumps(view("x", "SELEC")))
            except CommandFailed as error:
                return "denied the request" in str(error)
            return False

        until(judged, PATIENCE_S, "the webhook at work")
        yield shop
    hook = f"operator-{name}"
    crds.kubectl("delete", "validatingwebhookconfiguration", hook, "--ignore-not-found")
    crds.kubectl("delete", "namespace", name, "--wait=false")


def refused(shop: Shop, *resources: dict[str, Any], dry_run: bool = False) -> str:
    words = ["apply", "-n", shop.namespace, "-f", "-", *(["--dry-run=server"] if dry_run else [])]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(resources)})
    with pytest.raises(CommandFailed) as caught:
        shop.cluster.kubectl(*words, stdin=text)
    return str(caught.value)


def warnings(shop: Shop, *resources: dict[str, Any]) -> str:
    """What kubectl prints beside what it does."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(resources)})
    words = ["kubectl", "apply", "-n", shop.namespace, "-f", "-"]
    done = subprocess.run(words, env=shop.cluster.environment, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_sql_errors_are_refused_at_apply_with_position_and_hint(guarded: Shop) -> None:
    guarded.apply(table("a-orders"))
    bad = view("a-bad", "SELECT id,\n  totl AS x\nFROM a_orders")
    for dry_run in (True, False):
        message = refused(guarded, bad, dry_run=dry_run)
        assert (
            "line 2, column 3" in message and "totl" in message and "did you mean total" in message.lower()
        ) or "columns: id, total" in message
    assert not guarded.exists("mv", "a-bad")


def test_a_view_that_waits_for_a_table_is_stored_with_a_warning(guarded: Shop) -> None:
    told = warnings(guarded, view("b-early", "SELECT id FROM b_later"))
    assert "no table or view 'b_later'" in told and "it waits" in told
    assert guarded.exists("mv", "b-early")


def test_the_cost_is_told(guarded: Shop) -> None:
    guarded.apply(table("c-orders"))
    told = warnings(guarded, view("c-sums", "SELECT total, count(*) AS n FROM c_orders GROUP BY total"))
    assert "Warning: cost of c_sums:" in told and "zones" in told


def test_a_file_is_judged_document_by_document_with_those_before_it(guarded: Shop) -> None:
    """None of them is in any pool yet: the compiler is told of all that a query mentions."""
    guarded.apply(table("d-orders"), view("d-one", "SELECT id, total FROM d_orders"))
    guarded.apply(view("d-two", "SELECT count(*) AS n FROM d_one"))
    assert "columns: id, total" in refused(guarded, view("d-three", "SELECT nope FROM d_one"))


def test_a_change_that_would_break_a_reader_is_refused(guarded: Shop) -> None:
    guarded.apply(table("e-orders"), view("e-one", "SELECT id, total FROM e_orders"))
    guarded.apply(view("e-two", "SELECT total FROM e_one"))
    patch = json.dumps({"status": {"applied": "yes"}})  # as the operator would say, were there a pool
    guarded.kubectl("patch", "mv", "e-two", "--subresource=status", "--type=merge", "-p", patch)
    message = refused(guarded, view("e-one", "SELECT id FROM e_orders"))
    assert "view 'e-two' reads it and would be refused" in message and "total" in message
    guarded.apply(view("e-one", "SELECT id, total, 1 AS one FROM e_orders"))


def test_names_in_sql_are_taken_once(guarded: Shop) -> None:
    guarded.apply(table("f-orders"))
    assert "is 'f_orders' in SQL already" in refused(guarded, view("f-other", "SELECT 1 AS x", name="f_orders"))


def test_what_others_read_is_not_deleted_and_the_namespace_goes_all_the_same(guarded: Shop) -> None:
    guarded.apply(table("g-orders"), view("g-view", "SELECT id FROM g_orders"))
    with pytest.raises(CommandFailed, match="table 'g-orders' is read by g_view; delete it first"):
        guarded.kubectl("delete", "bt", "g-orders", "--wait=false")
    with pytest.raises(CommandFailed, match="pool 'default' has tables and views"):
        guarded.kubectl("delete", "vp", "default", "--wait=false")
    guarded.kubectl("delete", "mv", "g-view", "--wait=false")
    guarded.kubectl("delete", "bt", "g-orders", "--wait=false")


EXTERNAL = "v1beta1.external.metrics.k8s.io"


@pytest.fixture
def own_objects(crds: Cluster, namespace: str) -> Iterator[None]:
    """What the operator makes for itself goes, whatever becomes of the test: one that nobody answers any more would
    hold up the deletion of every namespace."""
    yield
    crds.kubectl("delete", "apiservice", EXTERNAL, "--ignore-not-found")
    crds.kubectl("delete", "validatingwebhookconfiguration", f"operator-{namespace}", "--ignore-not-found")


@pytest.mark.usefixtures("own_objects")
def test_of_two_replicas_one_leads_and_the_other_takes_over(
    crds: Cluster, tmp_path: Path, namespace: str, url: str
) -> None:
    shop = Shop(crds, namespace)
    with replica(crds, tmp_path, namespace, url) as first:
        until(lambda: first.leads, PATIENCE_S, "a leader")
        with replica(crds, tmp_path, namespace, url) as second:
            until(lambda: "belvedere_operator_leads" in _text(second), PATIENCE_S, "the second")
            shop.apply(table("h-orders"), view("h-view", "SELECT id FROM h_orders"))
            shop.wait("mv", "h-view", "Ready", "True")
            assert first.http_leads() and not second.http_leads()
            first.process.kill()
            until(lambda: second.leads, PATIENCE_S, "the second leads")
            until(lambda: _stored(shop, view("h-more", "SELECT total FROM h_orders")), PATIENCE_S, "its webhook")
            shop.wait("mv", "h-more", "Ready", "True")
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(PATIENCE_S) == 0
        lease = crds.get("lease", f"operator-{namespace}", namespace=namespace)["spec"]
        assert lease["holderIdentity"] == "" and lease["leaseTransitions"] >= 2


def _stored(shop: Shop, one: dict[str, Any]) -> bool:
    """The webhook of these tests has an address of its own for each replica; a Service would have one for both."""
    with contextlib.suppress(CommandFailed):
        shop.apply(one)
        return True
    return False


def _text(one: Replica) -> str:
    try:
        return one.get("/metrics")
    except OSError:
        return ""


@pytest.mark.usefixtures("own_objects")
def test_the_autoscaler_reads_external_metrics_and_scales_the_pool(
    crds: Cluster, tmp_path: Path, namespace: str, url: str
) -> None:
    """A real HorizontalPodAutoscaler through the aggregation layer. The pool idles, so it goes to its least."""
    shop = Shop(crds, namespace)
    with replica(crds, tmp_path, namespace, url, external_metrics="true") as one:
        service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": one.https}]}
        shop.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"operator-{namespace}"}, "spec": service}
        )
        until(lambda: one.leads, PATIENCE_S, "a leader")
        until(
            lambda: "external.metrics" in crds.kubectl("get", "apiservice", "-o", "name"), PATIENCE_S, "the APIService"
        )
        port = json.dumps({"spec": {"service": {"port": one.https}}})
        crds.kubectl("patch", "apiservice", EXTERNAL, "--type=merge", "-p", port)
        shop.apply(
            resource("ViewPool", "scaled", autoscaling={"maxReplicas": 4, "minReplicas": 2, "scaleDownAfter": "0s"})
        )
        shop.wait("vp", "scaled", "Autoscaling", "True", "Active")
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/belvedere_busy_viewservers"

        def value() -> dict[str, Any] | None:
            try:
                found: dict[str, Any] = json.loads(crds.kubectl("get", "--raw", f"{path}?labelSelector=pool%3Dscaled"))
            except CommandFailed:
                return None
            return found["items"][0]

        item = until(value, PATIENCE_S, "a figure")
        assert (item["metricName"], item["metricLabels"]) == ("belvedere_busy_viewservers", {"pool": "scaled"})
        for_keda = json.loads(one.get(f"/scaling/{namespace}/scaled"))
        assert set(for_keda) == {"belvedere_busy_viewservers", "belvedere_lag_viewservers", "explanation"}
        assert for_keda["belvedere_lag_viewservers"] == 0.0 and "needed" in for_keda["explanation"]
        shop.kubectl("scale", "vp/scaled", "--replicas=3")
        until(
            lambda: shop.get("vp", "scaled")["spec"]["replicas"] == 2,
            PATIENCE_S,
            "what the autoscaler makes of an idle pool",
        )
        told = shop.get("hpa", "scaled-viewserver")
        assert told["spec"]["scaleTargetRef"]["kind"] == "ViewPool"
