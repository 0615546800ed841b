"""Certificates and credentials of pools on a real API server: made before the pods that mount them, and replaced."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from belvedere_operator import pki
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import until
from tests.operator.running import SETTINGS, RunningOperator, Shop, resource

ROLES = ("coordinator", "distributor", "viewserver", "store", "gateway", "client")


pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def running(crds: Cluster) -> Iterator[RunningOperator]:
    """One that gives members no time to read: here are none."""
    made = RunningOperator(crds, settings=replace(SETTINGS, rotation_pause_s=1.0))
    made.start()
    yield made
    made.stop()


def data(shop: Shop, secret: str) -> dict[str, bytes]:
    return {name: base64.b64decode(value) for name, value in shop.get("secret", secret)["data"].items()}


def test_a_pool_gets_certificates_and_credentials_and_they_go_with_it(
    crds: Cluster, namespace: str, running: RunningOperator
) -> None:
    shop = Shop(crds, namespace)
    shop.apply(resource("ViewPool", "default", replicas=1))
    shop.wait("vp", "default", "Secured", "True", "MutualTLS")
    (authority,) = (text for name, text in data(shop, "default-authority").items() if name.endswith(".crt"))
    for role in ROLES:
        found = data(shop, f"default-tls-{role}")
        assert pki.signed(found["tls.crt"], authority) and pki.split(found["ca.crt"]) == [authority]
        (owner,) = shop.get("secret", f"default-tls-{role}")["metadata"]["ownerReferences"]
        assert owner["kind"] == "ViewPool"
    until(lambda: shop.exists("deployment", "default-viewserver"), 30.0, "pods")
    line = data(shop, "default-zookeeper")["credentials"].decode()
    assert line.startswith("belvedere:") and len(line) > 64
    assert shop.get("vp", "default")["status"]["zookeeper"].endswith(".owned")
    spec = shop.get("deployment", "default-viewserver")["spec"]["template"]["spec"]
    mounted = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert mounted == {"default-tls-viewserver", "default-zookeeper"}
    shop.kubectl("delete", "vp", "default")
    until(lambda: not shop.kubectl("get", "secrets", "-o", "name").strip(), 60.0, "the end of its Secrets")


def test_somebody_asks_for_another_authority(crds: Cluster, namespace: str, running: RunningOperator) -> None:
    shop = Shop(crds, namespace)
    shop.apply(resource("ViewPool", "default", replicas=1))
    shop.wait("vp", "default", "Secured", "True", "MutualTLS")
    shop.kubectl("annotate", "vp", "default", "belvedere.dev/rotate=once")
    until(lambda: set(data(shop, "default-authority")) == {"2.crt", "2.key"}, 90.0, "the second authority alone")
    reasons = [reason for reason, _ in shop.events("ViewPool", "default") if reason.startswith("Authority")]
    assert reasons == ["AuthorityIntroduced", "AuthorityInForce", "AuthorityRetired"]
    second = data(shop, "default-authority")["2.crt"]
    for role in ROLES:
        found = data(shop, f"default-tls-{role}")
        assert pki.signed(found["tls.crt"], second) and pki.split(found["ca.crt"]) == [second]


def test_a_pool_that_gets_tls_replaces_its_pods_at_once(
    crds: Cluster, namespace: str, running: RunningOperator
) -> None:
    shop = Shop(crds, namespace)

    def deployment() -> dict[str, Any]:
        found: dict[str, Any] = shop.get("deployment", "default-distributor")["spec"]
        return found

    shop.apply(resource("ViewPool", "default", replicas=1, tls={"mode": "none"}))
    shop.wait("vp", "default", "Secured", "False", "PlainText")
    until(lambda: shop.exists("deployment", "default-distributor"), 30.0, "pods")
    assert deployment()["strategy"]["type"] == "RollingUpdate"
    assert not shop.exists("secret", "default-authority")
    shop.apply(resource("ViewPool", "default", replicas=1, tls={"mode": "mutual"}))
    until(lambda: deployment()["strategy"]["type"] == "Recreate", 60.0, "pods that are replaced at once")
    assert deployment()["template"]["metadata"]["annotations"]["belvedere.dev/tls"] == "mutual"


def test_the_clock_of_the_api_server_is_known(crds: Cluster, running: RunningOperator) -> None:
    running.kube.get("v1", "Namespace", None, "default")
    assert abs(running.kube.clock_offset_s) < 30.0
    running.kube._compare_clocks("Thu, 01 Jan 2099 00:00:00 GMT")
    assert running.kube.clock_offset_s > 86_400.0
    running.kube._compare_clocks("nonsense")
