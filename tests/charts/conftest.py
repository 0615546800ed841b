"""Fixtures of the tests of the chart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.fixtures import require_binaries
from tests.kube.kubernetes import Kubernetes, Object

CHART = Path(__file__).parents[2] / "charts" / "belvedere"
Render = Callable[..., list[Object]]


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Kubernetes:
    """Helm, which needs no cluster to render and to lint."""
    return Kubernetes(tmp_path_factory.mktemp("helm") / "none", require_binaries().directory)


@pytest.fixture(scope="session")
def render(helm: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """`render(zookeeper={"hosts": "zk:2181"})`: the objects, as release `shop` in namespace `systems`."""
    rendered: dict[str, list[Object]] = {}

    def run(**values: Any) -> list[Object]:
        text = yaml.safe_dump(values)
        if text not in rendered:
            file = tmp_path_factory.mktemp("values") / "values.yaml"
            file.write_text(text)
            words = ("template", "shop", str(CHART), "--namespace", "systems", "--values", str(file))
            rendered[text] = [document for document in yaml.safe_load_all(helm.helm(*words)) if document]
        return rendered[text]

    return run
