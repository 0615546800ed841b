"""Certificates and credentials of pools on a real API server: made before the pods that mount them, and replaced."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from belvedere_operator import pki
from tests.kube.cluster import Cluster
from tests.kube.kubernetes import PATIENCE_S, until
from tests.operator.running import SETTINGS, RunningOperator, Shop, resource

ROLES = ("coordinator", "distributor", "viewserver", "store", "gateway", "client")


pytestmark = pytest.mark.timeout(900)


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
    until(lambda: shop.exists("deployment", "default-viewserver"), PATIENCE_S, "pods")
    line = data(shop, "default-zookeeper")["credentials"].decode()
    assert line.startswith("belvedere:") and len(line) > 64
    assert shop.get("vp", "default")["status"]["zookeeper"].endswith(".owned")
    spec = shop.get("deployment", "default-viewserver")["spec"]["template"]["spec"]
    mounted = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
    assert mounted == {"default-tls-viewserver", "default-zookeeper"}
    shop.kubectl("delete", "vp", "default")
    until(lambda: not shop.kubectl("get", "secrets", "-o", "name").strip(), PATIENCE_S, "the end of its Secrets")


def test_somebody_asks_for_another_authority(crds: Cluster, namespace: str, running: RunningOperator) -> None:
    shop = Shop(crds, namespace)
    shop.apply(resource("ViewPool", "default", replicas=1))
    shop.wait("vp", "default", "Secured", "True", "MutualTLS")
    shop.kubectl("annotate", "vp", "default", "belvedere.dev/rotate=once")
    # Told when all Secrets are written, that of the authorities being the first of them.
    shop.told("ViewPool", "default", "AuthorityRetired", "authority 1")
    reasons = [reason for reason, _ in shop.events("ViewPool", "default") if reason.startswith("Authority")]
    assert reasons == ["AuthorityIntroduced", "AuthorityInForce", "AuthorityRetired"]
    assert set(data(shop, "default-authority")) == {"2.crt", "2.key"}, "the second authority alone"
    second = data(shop, "default-authority")["2.crt"]
    for role in ROLES:
        found = data(shop, f"default-tls-{role}")
        assert pki.signed(found["tls.crt"], second) and pki.split(found["ca.crt"]) == [second]


def test_a_pool_that_gets_tls_replaces_its_pods_at_once(
    crds: Cluster, namespace: str, running: RunningOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strategy is another one for as long as the change takes, which may be too short to be looked at: what the
    operator applies is recorded."""
    shop = Shop(crds, namespace)
    applied: list[dict[str, Any]] = []
    apply = running.kube.apply

    def recorded(document: dict[str, Any], **more: Any) -> Any:
        if (document["kind"], document["metadata"].get("namespace")) == ("Deployment", namespace):
            applied.append(document)
        return apply(document, **more)

    monkeypatch.setattr(running.kube, "apply", recorded)

    def deployment() -> dict[str, Any]:
        found: dict[str, Any] = shop.get("deployment", "default-distributor")["spec"]
        return found

    def changed() -> list[dict[str, Any]]:
        """As the operator applied it since the pool has TLS."""
        mine = [one["spec"] for one in applied if one["metadata"]["name"] == "default-distributor"]
        return [one for one in mine if one["template"]["metadata"]["annotations"]["belvedere.dev/tls"] == "mutual"]

    shop.apply(resource("ViewPool", "default", replicas=1, tls={"mode": "none"}))
    shop.wait("vp", "default", "Secured", "False", "PlainText")
    until(lambda: shop.exists("deployment", "default-distributor"), PATIENCE_S, "pods")
    assert deployment()["strategy"]["type"] == "RollingUpdate"
    assert not shop.exists("secret", "default-authority")
    shop.apply(resource("ViewPool", "default", replicas=1, tls={"mode": "mutual"}))
    until(changed, PATIENCE_S, "pods that are replaced")
    assert changed()[0]["strategy"]["type"] == "Recreate", "at once: those before cannot talk to those after"
    until(lambda: deployment()["strategy"]["type"] == "RollingUpdate", PATIENCE_S, "the end of the change")


def test_the_clock_of_the_api_server_is_known(crds: Cluster, running: RunningOperator) -> None:
    running.kube.get("v1", "Namespace", None, "default")
    assert abs(running.kube.clock_offset_s) < 30.0
    running.kube._compare_clocks("Thu, 01 Jan 2099 00:00:00 GMT")
    assert running.kube.clock_offset_s > 86_400.0
    running.kube._compare_clocks("nonsense")
