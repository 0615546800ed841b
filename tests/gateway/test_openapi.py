"""The document says what there is: it is the one that is checked in, and answers are as it describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from belvedere.gateway import openapi, reference
from belvedere.gateway.routes import ENDPOINTS
from tests.gateway.serving import Served

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
DOCUMENT = openapi.document(ENDPOINTS)


def test_the_document_that_is_checked_in_is_the_one_that_is_served(served: Served) -> None:
    text = openapi.text(ENDPOINTS)
    assert (REFERENCE / "openapi.json").read_text() == text, "run `belvedere openapi > docs/reference/openapi.json`"
    assert served.get("/v1/openapi.json").text == text


def test_the_page_is_made_from_the_document() -> None:
    made = reference.page(DOCUMENT)
    assert (REFERENCE / "http.md").read_text() == made, "run `belvedere openapi --page > docs/reference/http.md`"


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if "$ref" in part else set()
        return own.union(*map(references, part.values()))
    return set().union(*map(references, part)) if isinstance(part, list) else set()


def test_every_reference_leads_somewhere() -> None:
    for reference_ in references(DOCUMENT):
        part: Any = DOCUMENT
        for name in reference_.removeprefix("#/").split("/"):
            part = part[name]


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("GET", "/v1", None),
        ("GET", "/v1/relations", None),
        ("GET", "/v1/relations/spend", None),
        ("GET", "/v1/relations/orders", None),
        ("GET", "/v1/relations/spend/row?key=7", None),
        ("GET", "/v1/relations/spend/rows?limit=3", None),
        ("GET", "/v1/relations/spend/status", None),
        ("GET", "/v1/relations/orders/status", None),
        ("GET", "/v1/status", None),
        ("GET", "/v1/lag", None),
        ("POST", "/v1/read", {"reads": [{"relation": "spend", "key": 7}]}),
        ("POST", "/v1/snapshots", {}),
        ("POST", "/v1/relations/orders/rows", [{"id": 1}]),
        ("POST", "/v1/sql", {"sql": "SELECT n FROM spend"}),
        ("POST", "/v1/verify", {"views": ["spend"]}),
        ("POST", "/v1/relations/spend/repair", {"dry_run": True}),
        ("GET", "/v1/nothing", None),
    ],
)
def test_answers_are_as_described(served: Served, method: str, path: str, content: Any) -> None:
    import jsonschema_rs  # schemathesis has it

    answer = served.http.request(method, path, json=content) if content is not None else served.get(path)
    route = path.partition("?")[0].replace("spend", "{relation}").replace("orders", "{relation}")
    operation = DOCUMENT["paths"].get(route, {}).get(method.lower())
    schema: dict[str, Any] = {"$ref": "#/components/schemas/Problem"}
    if operation is not None:
        schema = operation["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
    jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(answer.json())
