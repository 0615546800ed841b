"""The definitions on a real API server: what it accepts, refuses and shows, and what people read when it refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.kube.cluster import Cluster
from tests.kube.kubernetes import CommandFailed

pytestmark = pytest.mark.timeout(600)
HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))

TABLE: dict[str, Any] = {
    "columns": [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal(12,2)"}],
    "key": ["id"],
}
VIEW: dict[str, Any] = {"query": "SELECT id FROM orders"}
SPECS: dict[str, dict[str, Any]] = {"BaseTable": TABLE, "MaterializedView": VIEW, "ViewPool": {}}
ID, MORE = {"name": "id", "type": "BIGINT"}, {"name": "more", "type": "date"}


def resource(kind: str, /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "belvedere.dev/v1alpha1", "kind": kind, "metadata": {"name": "one"}, "spec": spec}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_accepted(crds: Cluster, namespace: str, path: Path) -> None:
    """`--validate=strict` is what people get: an unknown field is an error."""
    crds.kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(path))
    crds.kubectl("apply", "--server-side", "--dry-run=server", "-n", namespace, "-f", str(path), "--force-conflicts")


def blocks(page: Path) -> list[str]:
    """Manifests of a page."""
    return re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["kubernetes-views", "autoscaling"])
def test_manifests_of_the_pages_are_accepted_one_after_the_other(crds: Cluster, namespace: str, name: str) -> None:
    found = blocks(HOWTO / f"{name}.md")
    assert len(found) == 2
    for text in found:
        crds.kubectl("apply", "--server-side", "--validate=strict", "-n", namespace, "-f", "-", stdin=text)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("BaseTable", {**TABLE, "key": ["nope"]}, "key names a column that is not in columns"),
    ("BaseTable", {**TABLE, "key": []}, "should have at least 1 item"),
    ("BaseTable", {**TABLE, "ties": "newest"}, 'supported values: "lineage", "value"'),
    ("BaseTable", {**TABLE, "columns": [ID, ID]}, "duplicate entries"),
    ("BaseTable", {"columns": TABLE["columns"]}, 'missing required field "key"'),
    ("MaterializedView", {}, 'missing required field "query"'),
    ("MaterializedView", {**VIEW, "freshness": "0s"}, "freshness must be longer than nothing"),
    ("MaterializedView", {**VIEW, "freshness": "soon"}, "should match"),
    ("MaterializedView", {**VIEW, "build": "fast"}, 'supported values: "auto", "epochs", "spark"'),
    ("MaterializedView", {**VIEW, "verify": {"schedule": "daily"}}, "spec.verify.schedule"),
    ("MaterializedView", {**VIEW, "verify": {}}, "verify says nothing: give a schedule, changes: true, or an engine"),
    ("ViewPool", {"replicas": 0}, "should be greater than or equal to 1"),
    ("ViewPool", {"replicas": 2, "autoscaling": {"maxReplicas": 3}}, "replicas and autoscaling contradict each other"),
    ("ViewPool", {"autoscaling": {"minReplicas": 4, "maxReplicas": 3}}, "minReplicas must not be above maxReplicas"),
    ("ViewPool", {"backend": "served://s:1", "storage": {"size": "1Gi"}}, "backend and storage contradict each other"),
    ("ViewPool", {"sinkHostPort": 16021}, "sinkHostPort is for pools whose backend is an hbase"),
    ("ViewPool", {"backend": "hbase:x"}, "backend must be hbase://ZOOKEEPER:PORT/NAMESPACE or served://HOST:PORT"),
    ("ViewPool", {"storage": {"size": "big"}}, "spec.storage.size"),
    ("ViewPool", {"epoch": "0ms"}, "epoch must be longer than nothing"),
]


@pytest.mark.parametrize(("kind", "spec", "message"), REFUSED, ids=[message[:40] for _, _, message in REFUSED])
def test_what_is_refused(crds: Cluster, namespace: str, kind: str, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(CommandFailed, match=r"(?s).*" + message.replace("(", r"\(")):
        crds.apply(resource(kind, **spec), namespace=namespace)
    crds.apply(resource(kind, **SPECS[kind]), namespace=namespace)  # it was the field


CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("BaseTable", TABLE, {**TABLE, "columns": [*TABLE["columns"], MORE]}, None),
    ("BaseTable", TABLE, {**TABLE, "columns": [ID, TABLE["columns"][1]]}, None),
    ("BaseTable", TABLE, {**TABLE, "columns": [ID]}, "a column cannot be taken away"),
    (
        "BaseTable",
        TABLE,
        {**TABLE, "columns": [{"name": "id", "type": "int"}, TABLE["columns"][1]]},
        "type of a column",
    ),
    ("BaseTable", TABLE, {**TABLE, "key": ["id", "total"]}, "the key of a table cannot change"),
    ("BaseTable", TABLE, {**TABLE, "name": "other"}, "a table cannot be renamed"),
    ("BaseTable", TABLE, {**TABLE, "pool": "other"}, "cannot move to another pool"),
    ("BaseTable", TABLE, {**TABLE, "ties": "value"}, "how ties are settled cannot change"),
    ("MaterializedView", VIEW, {"query": "SELECT total FROM orders", "key": ["total"]}, None),
    ("MaterializedView", VIEW, {**VIEW, "name": "other"}, "a view cannot be renamed; create another one"),
    ("MaterializedView", VIEW, {**VIEW, "pool": "other"}, "cannot move to another pool"),
    ("ViewPool", {}, {"replicas": 3}, None),
    ("ViewPool", {"backend": "served://s:1"}, {}, "the backend of a pool cannot change"),
    ("ViewPool", {"replicas": 2}, {"autoscaling": {"maxReplicas": 3}}, None),
]


@pytest.mark.parametrize(("kind", "before", "after", "message"), CHANGES)
def test_changes(
    crds: Cluster, namespace: str, kind: str, before: dict[str, Any], after: dict[str, Any], message: str | None
) -> None:
    crds.apply(resource(kind, **before), namespace=namespace)
    if message is None:
        crds.apply(resource(kind, **after), namespace=namespace)
        return
    with pytest.raises(CommandFailed, match=message):
        crds.apply(resource(kind, **after), namespace=namespace)


def test_the_number_of_view_servers_is_scaled_beside_autoscaling(crds: Cluster, namespace: str) -> None:
    """An autoscaler writes spec.replicas of a pool that has autoscaling: that must stay possible."""
    crds.apply(resource("ViewPool", autoscaling={"maxReplicas": 5}), namespace=namespace)
    crds.kubectl("patch", "vp", "one", "-n", namespace, "--type=merge", "-p", '{"spec":{"replicas":1}}')
    crds.kubectl("scale", "vp/one", "--replicas=3", "-n", namespace)
    assert crds.get("vp", "one", namespace=namespace)["spec"]["replicas"] == 3


def test_defaults_are_seen(crds: Cluster, namespace: str) -> None:
    crds.apply(resource("MaterializedView", **VIEW), resource("BaseTable", **TABLE), namespace=namespace)
    view = crds.get("mv", "one", namespace=namespace)["spec"]
    assert view == VIEW | {"pool": "default", "build": "auto", "suspend": False, "reclaimPolicy": "Delete"}
    table = crds.get("bt", "one", namespace=namespace)["spec"]
    assert (table["pool"], table["ties"], table["reclaimPolicy"]) == ("default", "lineage", "Retain")


def test_kubectl_shows_and_explains(crds: Cluster, namespace: str) -> None:
    crds.apply(resource("MaterializedView", **VIEW), namespace=namespace)
    shown = crds.kubectl("get", "mv", "-n", namespace).splitlines()[0].split()
    assert shown == ["NAME", "POOL", "READY", "FRESH", "LAG", "ROWS", "AGE"]
    wide = crds.kubectl("get", "mv", "-n", namespace, "-o", "wide").splitlines()[0].split()
    assert {"ZONES", "EPOCH", "SIZE", "VERIFIED", "REASON"} <= set(wide)
    assert "materializedview.belvedere.dev/one" in crds.kubectl("get", "belvedere", "-n", namespace, "-o", "name")
    explained = crds.kubectl("explain", "mv.spec.freshness")
    assert "How far the view may be behind its base tables" in " ".join(explained.split())
