"""`kubectl belvedere` on a real API server, with a real gateway behind it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from belvedere_operator.plugin.main import cli
from belvedere_operator.plugin.reaching import service_path
from belvedere_operator.plugin.report import clean_text, cleaned
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, until
from tests.operator.running import ROOT, RunningOperator, Shop, gateway, resource, table, view

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def shop(crds: Cluster, url: str) -> Iterator[Shop]:
    """A pool with a table, a good view, one whose row fails, and one that is refused."""
    crds.kubectl("create", "namespace", "plugin")
    found = Shop(crds, "plugin")
    running = RunningOperator(crds, urls={"plugin": url})
    running.start()
    try:
        found.apply(
            table("web-orders"),
            view("by-id", "SELECT id, total FROM web_orders"),
            view("shares", "SELECT id, 100 / total AS share FROM web_orders"),
            view("broken", "SELECT nope FROM web_orders"),
        )
        for name in ("by-id", "shares"):
            found.wait("mv", name, "Ready", "True")
            found.wait("mv", name, "Built", "True")
        found.wait("mv", "broken", "Accepted", "False")
        found.wait("vp", "default", "Ready", "True")  # said at the end of a round, after what is said of views
        pods = ("get", "pods", "-l", "belvedere.dev/role=viewserver", "-o", "name")
        until(lambda: found.kubectl(*pods).strip(), PATIENCE_S, "pods")
        rows = json.dumps([{"id": 1, "total": "4.00"}, {"id": 2, "total": "0.00"}]).encode()
        where = f"{url}/v1/relations/web_orders/rows"
        request = urllib.request.Request(where, rows, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            token = json.load(answer)["token"]
        after = {"Belvedere-After": token, "Belvedere-Wait": "60", "Content-Type": "application/json"}
        waits = urllib.request.Request(f"{url}/v1/wait", b"{}", after, method="POST")
        urllib.request.urlopen(waits, timeout=120).close()
        yield found
    finally:
        running.stop()
    crds.kubectl("delete", "namespace", "plugin", "--wait=false")


def plugin(shop: Shop, *words: str, url: str = "", code: int = 0) -> Result:
    environment = {name: shop.cluster.environment[name] for name in ("KUBECONFIG", "PATH")}
    given = ["-n", shop.namespace, *(["--url", url] if url else []), *words]
    found = CliRunner(env=environment).invoke(cli, given, prog_name="kubectl belvedere")
    assert found.exit_code == code, found.output + found.stderr
    return found


def test_status_names_what_is_wrong(shop: Shop) -> None:
    text = plugin(shop, "status", code=3).output
    assert "POOL      READY   SERVERS" in text and "default   True" in text
    assert "MaterializedView broken: Accepted=False (SqlError): spec.query: no column 'nope'" in text
    assert "by-id: " not in text


def test_views_are_known_by_either_name(shop: Shop, url: str) -> None:
    for name in ("by-id", "by_id"):
        assert json.loads(plugin(shop, "get", name, "1", url=url).output) == {"id": 1, "total": "4.00"}
    missing = plugin(shop, "get", "by-id", "7", url=url, code=1)
    assert missing.stderr == "error: 'by_id' has no row of that key\n"


def test_explain_lag_quarantine_and_verify(shop: Shop, url: str, tmp_path: Path) -> None:
    assert "web_orders" in plugin(shop, "explain", "shares", url=url).output
    (tmp_path / "new.sql").write_text("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM web_orders")
    assert "PRE-AGGREGATION" in plugin(shop, "explain", "-f", str(tmp_path / "new.sql"), url=url).output.upper()
    assert re.match(r"lag \d+\.\d{3} s, 0 rows wait, epoch \d+", plugin(shop, "lag", url=url).output)
    failing = plugin(shop, "quarantine", "shares", url=url, code=3)
    assert "1 rows in quarantine" in failing.stderr and "division" in failing.output.lower()
    assert plugin(shop, "quarantine", "by-id", url=url).stdout == ""
    assert "by_id: 2 rows at epoch" in plugin(shop, "verify", "by-id", url=url).output
    plugin(shop, "verify", "shares", url=url, code=3)  # incomplete


def test_scale(shop: Shop) -> None:
    plugin(shop, "scale", "2")
    assert shop.get("vp", "default")["spec"]["replicas"] == 2
    shop.apply(resource("ViewPool", "auto", autoscaling={"maxReplicas": 3}))
    refused = plugin(shop, "--pool", "auto", "scale", "2", code=1)
    assert "pool auto has an autoscaler (1 to 3), which would undo it" in refused.stderr


def test_through_the_api_server_without_port_forward(shop: Shop) -> None:
    """No pods run here, so the way ends at the Service: what the API server says of it is passed on."""
    refused = plugin(shop, "lag", code=1)
    assert "no endpoints available for service" in refused.stderr and "default-gateway" in refused.stderr
    assert service_path("shop", "default").endswith("/services/http:default-gateway:8080/proxy")


def test_somebody_without_rights_is_told_what_is_missing(shop: Shop) -> None:
    shop.kubectl("create", "serviceaccount", "nobody")
    token = shop.kubectl("create", "token", "nobody").strip()
    shop.cluster.kubectl("config", "view")  # the file itself stays as it is
    environment = {**shop.cluster.environment}
    config = json.loads(shop.cluster.kubectl("config", "view", "--raw", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    path = Path(environment["KUBECONFIG"]).with_name("nobody.kubeconfig")
    path.write_text(json.dumps(config))
    found = plugin(shop, "--kubeconfig", str(path), "lag", code=1)
    assert "you need `get` and `create` on services/proxy" in found.stderr


def test_a_report_has_what_helps_and_no_secret(shop: Shop, url: str, tmp_path: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}}
    shop.apply(secret)
    shop.kubectl("annotate", "mv", "by-id", "note=see postgres://ann:hunter2@db/x")
    path = tmp_path / "report.tar.gz"
    assert "files of namespace plugin" in plugin(shop, "report", "-o", str(path), url=url).output
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        texts = {m.name: archive.extractfile(m).read().decode() for m in archive.getmembers()}  # type: ignore[union-attr]
    assert {"materializedviews.json", "objects.json", "events.json"} <= {name.split("/", 1)[1] for name in texts}
    assert "by_id" in texts["belvedere-report/pools/default.json"]
    assert any(name.startswith("belvedere-report/logs/default-viewserver") for name in texts)
    assert "hunter2" not in "".join(texts.values()) and "managedFields" not in "".join(texts.values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "DB_PASSWORD", "value": "x"}, {"name": "DB_PASSWORD", "value": "(hidden)"}),
        ({"name": "BELVEDERE_POOL", "value": "default"}, {"name": "BELVEDERE_POOL", "value": "default"}),
        ({"credentialsSecret": "zk"}, {"credentialsSecret": "zk"}),
        ({"token": "abc"}, {"token": "(hidden)"}),
        ({"a": [{"b": "https://u:p@host/x"}]}, {"a": [{"b": "https://u:(hidden)@host/x"}]}),
    ],
)
def test_what_may_be_secret_is_hidden(value: Any, expected: Any) -> None:
    assert cleaned(value) == expected


def test_tokens_in_logs_are_hidden() -> None:
    text = "Authorization: Bearer abcdefghijkl and eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl end"
    assert clean_text(text) == "Authorization: Bearer (hidden) and (hidden) end"


def test_kubectl_finds_it(shop: Shop, tmp_path: Path) -> None:
    """As an executable `kubectl-belvedere` on the PATH."""
    script = tmp_path / "kubectl-belvedere"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m belvedere_operator.plugin "$@"\n')
    script.chmod(0o755)
    environment = {**shop.cluster.environment, "PYTHONPATH": str(ROOT / "operator")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["kubectl", "belvedere", "-n", "plugin", "status"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3 and "VIEW" in done.stdout, done.stderr
