"""The OpenAPI document, made from the table of routes; `docs/reference/openapi.json` is compared with it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from belvedere import __version__
from belvedere.gateway import api, problems
from belvedere.gateway.api import ARROW, EVENTS, JSON, NDJSON, SQL, SVG, TEXT, YAML, Access, Endpoint
from belvedere.gateway.schemas import ITEMS, SCHEMAS

_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Belvedere-After": ("tokens that the answer includes, separated by blanks", {"type": "string"}),
    "Belvedere-Wait": (
        "seconds to wait for them",
        {"type": "number", "minimum": 0, "maximum": api.MAX_WAIT, "default": api.DEFAULT_WAIT},
    ),
    "Idempotency-Key": (
        "a name of this write: repeated within an hour, it changes nothing",
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    ),
    "Last-Event-ID": ("goes on after this event", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
}
_TEXTS = {"type": "string"}
_BINARY = {"type": "string", "format": "binary"}


def text(endpoints: Sequence[Endpoint]) -> str:
    """The document as it is served and checked in."""
    return json.dumps(document(endpoints), indent=1, sort_keys=False) + "\n"


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Belvedere",
            "version": __version__,
            "summary": "Materialized views over key-value tables, exact and fresh",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, "Problem": _problem()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "an error (RFC 9457)",
                    "content": {problems.MEDIA_TYPE: {"schema": _ref("Problem")}},
                }
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": endpoint.run.__name__ if endpoint.run.__name__ != "wait" else "wait_for_token",
        "summary": endpoint.summary,
        "description": f"Right: {endpoint.access.value}.",
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)],
        "responses": {
            str(endpoint.status): _answer(endpoint),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    }
    if endpoint.consumes:
        content = {media: {"schema": _body(endpoint, media)} for media in endpoint.consumes}
        found["requestBody"] = {"required": not endpoint.optional_body, "content": content}
    if endpoint.access is Access.OPEN:
        found["security"] = []
    return found


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", endpoint.path)
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": param.name,
            "in": "query",
            "required": param.required,
            "description": param.meaning,
            "schema": dict(param.schema),
        }
        for param in endpoint.params
    ]


def _header_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    names = [
        *(["Belvedere-After", "Belvedere-Wait"] if endpoint.reads_after else []),
        *(["Idempotency-Key"] if endpoint.idempotent else []),
        *(["Last-Event-ID"] if EVENTS in endpoint.produces else []),
    ]
    return [
        {"name": name, "in": "header", "required": False, "description": _HEADERS[name][0], "schema": _HEADERS[name][1]}
        for name in names
    ]


def _answer(endpoint: Endpoint) -> dict[str, Any]:
    if not endpoint.answer:
        return {"description": "done"}
    content = {media: {"schema": _answer_schema(endpoint, media)} for media in endpoint.produces}
    return {"description": endpoint.summary, "content": content}


def _answer_schema(endpoint: Endpoint, media: str) -> dict[str, Any]:
    if media == ARROW:
        return {**_BINARY, "description": "an Arrow IPC stream"}
    if media == NDJSON:
        return {**_TEXTS, "description": "one object per line"}
    if media in (EVENTS, TEXT, SVG):
        return _TEXTS
    return _ref(endpoint.answer)


def _body(endpoint: Endpoint, media: str) -> dict[str, Any]:
    if media == JSON:
        return _ref(endpoint.body)
    if media == ARROW:
        return {**_BINARY, "description": "an Arrow IPC stream"}
    if media == NDJSON:
        return {**_TEXTS, "description": f"one {ITEMS[endpoint.body]} per line"}
    return {**_TEXTS, "description": "SQL" if media == SQL else "manifests" if media == YAML else ""}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _problem() -> dict[str, Any]:
    names = sorted({kind.name for kind in problems.KINDS.values()} | {"no-such-row", *problems.BAD.values()})
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "error"],
        "properties": {
            "type": {"type": "string", "examples": [problems.BASE + name for name in names]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "error": {"type": "string", "description": "the class of belvedere.errors"},
            "hint": {"type": "string"},
            "line": {"type": "integer"},
            "column": {"type": "integer"},
            "reason": {"type": "string"},
            "epoch": {"type": "integer"},
            "lag_ms": {"type": "number"},
            "documents": {"type": "array", "items": {"type": "object"}},
        },
    }
