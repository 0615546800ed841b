"""The typed API: what is made from it is up to date, and it agrees with the manifests that the database reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from belvedere.errors import SqlError
from belvedere.sql import durations as database_durations
from belvedere.sql import manifest, view_pool
from belvedere.sql.catalog import Catalog
from belvedere.sql.statements import CreateTable, CreateView
from belvedere_operator.api import durations, generate
from belvedere_operator.api.crds import BY_NAME, KINDS, Kind, definition
from belvedere_operator.api.materialized_view import CRON, MaterializedViewSpec
from belvedere_operator.api.reading import InvalidSpec, read, written
from belvedere_operator.api.view_pool import AutoscalingSpec, ViewPoolSpec

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(generate.files()))
def test_what_is_made_from_the_api_is_up_to_date(name: str) -> None:
    assert (ROOT / name).read_text() == generate.files()[name], "run python -m belvedere_operator.api.generate"


def test_the_folder_of_definitions_has_nothing_else() -> None:
    assert {path.name for path in (ROOT / "crds").glob("*.yaml")} == {kind.file for kind in KINDS}


def schemas(schema: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, field in schema.get("properties", {}).items():
        found += schemas(field, f"{path}.{name}")
    if "items" in schema:
        found += schemas(schema["items"], f"{path}[]")
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_field_is_described_and_bounded(kind: Kind) -> None:
    top = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, schema in schemas(top["properties"]["spec"], "spec"):
        if not path.endswith("[]"):
            assert schema["description"].endswith("."), path
        if schema["type"] == "string" and "enum" not in schema and not path.endswith("[]"):
            assert "maxLength" in schema, f"{path}: rules and storage need a bound"


def fields(kind: str) -> set[str]:
    schema = definition(BY_NAME[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return set(schema["properties"])


def test_fields_are_those_of_the_manifests_that_the_database_reads() -> None:
    """Kubernetes and the database accept the same; what only one of them can honour, the other names with a reason."""
    table, view = fields("BaseTable"), fields("MaterializedView")
    assert set(manifest.TABLE_FIELDS) <= table <= {*manifest.TABLE_FIELDS, *manifest.TABLE_REFUSED}
    assert set(manifest.VIEW_FIELDS) <= view <= {*manifest.VIEW_FIELDS, *manifest.VIEW_REFUSED}
    assert fields("ViewPool") == {*view_pool.POOL_FIELDS, *view_pool.KUBERNETES_FIELDS}
    pool = definition(BY_NAME["ViewPool"])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(pool["properties"]["autoscaling"]["properties"]) == set(view_pool.AUTOSCALING_FIELDS)
    (columns,) = (
        found for path, found in schemas({"properties": {"spec": table_schema()}}, "") if path == ".spec.columns[]"
    )
    assert set(columns["properties"]) == set(manifest.COLUMN_FIELDS)


def table_schema() -> dict[str, Any]:
    found: dict[str, Any] = definition(BY_NAME["BaseTable"])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {"type": "object", **found["properties"]["spec"]}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_read_by_the_database_and_by_the_operator(path: Path) -> None:
    catalogs = [Catalog()]
    for read_manifest in manifest.parse_manifests(path.read_text(), lambda: catalogs[-1]):
        match read_manifest.content:
            case CreateTable(table=table):
                catalogs.append(catalogs[-1].with_table(table))
            case CreateView(view=view):
                catalogs.append(catalogs[-1].with_view(view))
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    assert documents
    for document in documents:
        read(BY_NAME[document["kind"]].spec, document["spec"])


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (ViewPoolSpec, {"replicsa": 3}, "spec: unknown field 'replicsa'"),
        (ViewPoolSpec, {"replicas": "3"}, "spec.replicas: expected a whole number, found '3'"),
        (ViewPoolSpec, {"replicas": True}, "spec.replicas: expected a whole number"),
        (ViewPoolSpec, {"autoscaling": {"minReplicas": 1}}, "spec.autoscaling: field 'maxReplicas' is missing"),
        (MaterializedViewSpec, {"query": "select 1", "key": "a"}, "spec.key: expected a list"),
        (MaterializedViewSpec, [], "spec: expected fields"),
    ],
)
def test_what_cannot_be_read_is_named(kind: type, value: Any, message: str) -> None:
    with pytest.raises(InvalidSpec, match=re.escape(message)):
        read(kind, value)


def test_reading_and_writing_are_inverse() -> None:
    spec = {"autoscaling": {"maxReplicas": 8, "targetLag": "2s"}, "templates": {"viewserver": {"limits": {"cpu": 1}}}}
    found = read(ViewPoolSpec, spec)
    assert found.autoscaling == AutoscalingSpec(max_replicas=8, target_lag="2s")
    assert read(ViewPoolSpec, written(found)) == found
    assert written(found)["templates"] == {"viewserver": {"limits": {"cpu": 1}}}


units = st.sampled_from(["ms", "s", "sec", "m", "min", "minutes", "h", "Hours", "d", "w", "x", "", "months"])
numbers = st.sampled_from(["0", "1", "30", "1.5", "0.0001", "-1", "", "1e3"])
pieces = st.lists(st.tuples(numbers, st.sampled_from(["", " "]), units).map("".join), max_size=3)


@given(pieces.map(" ".join))
def test_durations_are_those_of_the_database(text: str) -> None:
    expected = database_durations.parse_duration(text)
    try:
        found: int | None = durations.milliseconds(text)
    except ValueError:
        found = None
    assert found == expected
    if expected is not None:
        assert re.search(durations.PATTERN, text), "the schema would refuse it"


@pytest.mark.parametrize(("ms", "text"), [(0, "<1s"), (999, "<1s"), (1500, "1s"), (119_000, "119s"), (120_000, "2m")])
def test_durations_are_shown_coarsely(ms: int, text: str) -> None:
    assert durations.shown(ms) == text


@pytest.mark.parametrize("text", ["0 3 * * *", "*/5 1-3 * JAN,FEB MON", "@daily"])
def test_schedules(text: str) -> None:
    assert re.search(CRON, text)


@pytest.mark.parametrize("text", ["", "daily", "0 3 * *", "0 3 * * * *", "@reboot"])
def test_what_is_no_schedule(text: str) -> None:
    assert not re.search(CRON, text)


def test_fields_that_only_kubernetes_honours_are_refused_by_the_database_with_a_reason() -> None:
    text = (
        (ROOT / "examples" / "shop.yaml")
        .read_text()
        .replace("  key: [id]\n", "  key: [id]\n  reclaimPolicy: Delete\n", 1)
    )
    with pytest.raises(SqlError, match="reclaimPolicy: there is no resource"):
        list(manifest.parse_manifests(text, Catalog))
