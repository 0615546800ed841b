"""End to end: a newer chart takes the place of an older one, and a newer engine that of an older one, under load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol.messages import PROTOCOL
from tests.kube import images
from tests.kube.cluster import Cluster
from tests.kube.installed import CHART, RELEASE, SHOP, SYSTEM, Installed, Load
from tests.kube.kubernetes import Kubernetes, until

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow, pytest.mark.long]
ROLES = ("coordinator", "distributor", "viewserver", "gateway")


def previous(folder: Path) -> Path:
    """The chart as it was one version ago: its definitions lack a field and a column of today."""
    chart = folder / "belvedere"
    shutil.copytree(CHART, chart)
    described = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(described | {"version": "0.0.9", "appVersion": "0.0.9"}))
    file = chart / "files" / "crds" / "belvedere.dev_materializedviews.yaml"
    definition = yaml.safe_load(file.read_text())
    (version,) = definition["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["zonePath"]
    version["additionalPrinterColumns"] = [c for c in version["additionalPrinterColumns"] if c["name"] != "Zones"]
    file.write_text(yaml.safe_dump(definition))
    return chart


def images_of(shop: Installed) -> set[str]:
    items = shop.cluster.get("pods", "-l", "belvedere.dev/pool=default", namespace=SHOP)["items"]
    return {container["image"] for pod in items for container in pod["spec"]["containers"]}


def test_a_chart_and_then_an_engine_are_upgraded_under_load(node: Kubernetes, tmp_path: Path) -> None:
    """Every pod of operator and pool is replaced, one at a time: nothing is lost, views are exact at every epoch that
    is looked at, and the operator's definitions are the new ones."""
    if not isinstance(node, Cluster):
        pytest.skip("images cannot be tagged in the cluster that BELVEDERE_E2E_KUBECONFIG names")
    for image in (images.BELVEDERE, images.OPERATOR):
        node.tag_image(image.name, f"{image.name.rpartition(':')[0]}:previous")
    shop = Installed(node)
    shop.install(previous(tmp_path), "previous")
    shop.apply_shop()
    assert images_of(shop) == {"localhost/belvedere:previous"}
    with Load(shop, seed=90) as load:
        shop.install()
        with shop.timed("upgrade of the chart to all pods of the pool replaced, under load"):
            until(lambda: images_of(shop) == {images.BELVEDERE.name}, 600.0, "pods of the new version alone")
        load.more()
    assert "Zones" in shop.kubectl("get", "crd", "materializedviews.belvedere.dev", "-o", "yaml")
    assert load.result["slowest"] < 60
    with Load(shop, seed=91) as load:
        following = (f"BELVEDERE_TEST_ENGINE={ENGINE_VERSION + 1}", f"BELVEDERE_TEST_PROTOCOL={PROTOCOL + 1}")
        for role in ROLES[:3]:
            assert engine(shop) == ENGINE_VERSION, "there are members that have nothing else"
            shop.kubectl("set", "env", f"deployment/default-{role}", *following)
            shop.kubectl("rollout", "status", f"deployment/default-{role}", "--timeout=300s")
            load.more(1)
        until(lambda: engine(shop) == ENGINE_VERSION + 1, 120.0, "the next engine")
        load.more()
    for name in ("spend", "order_lines", "city_revenue"):
        assert "equal a recomputation" in shop.verify(name)
    shop.cluster.kubectl("delete", "namespace", SHOP, "--timeout=600s", seconds=660)
    shop.cluster.helm("uninstall", RELEASE, "--namespace", SYSTEM, "--wait")
    shop.cluster.kubectl("delete", "namespace", SYSTEM, "--timeout=600s", seconds=660)


def engine(shop: Installed) -> int:
    status, told = shop.http("/v1/pool")
    assert status == 200, json.dumps(told)
    return int(told["engine"])
