"""The reference page of the API, made from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def page(document: Mapping[str, Any]) -> str:
    """Markdown."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield "# HTTP"
    yield ""
    yield "Made from the OpenAPI document, which is served at `/v1/openapi.json`. [How to use it](../howto/http.md);"
    yield "[the contract](../design/gateway.md) has headers, values, cursors, events and rights."
    yield ""
    yield "| method and path | what it does |"
    yield "|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            anchor = operation["operationId"].replace("_", "-")
            yield f"| [`{method.upper()} {path}`](#{anchor}) | {operation['summary']} |"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield from _operation(method.upper(), path, operation)
    yield from _schemas(document["components"]["schemas"])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"## {operation['operationId'].replace('_', ' ')}"
    yield ""
    yield f"`{method} {path}`: {operation['summary'].lower()}. {operation['description']}"
    if operation["parameters"]:
        yield ""
        yield "| parameter | in | meaning |"
        yield "|---|---|---|"
        for parameter in operation["parameters"]:
            required = ", required" if parameter["required"] else ""
            meaning = parameter.get("description", "")
            limits = _limits(parameter["schema"])
            yield f"| `{parameter['name']}` | {parameter['in']}{required} | {meaning}{limits} |"
    body = operation.get("requestBody")
    if body:
        yield ""
        yield f"Body{'' if body['required'] else ' (optional)'}: {_contents(body['content'])}."
    for status, answer in operation["responses"].items():
        if status != "default":
            contents = _contents(answer["content"]) if "content" in answer else "no content"
            yield ""
            yield f"Answer {status}: {contents}."


def _limits(schema: Mapping[str, Any]) -> str:
    told = []
    if "enum" in schema:
        told.append(" or ".join(f"`{value}`" for value in schema["enum"]))
    if "minimum" in schema and "maximum" in schema:
        told.append(f"{schema['minimum']:,} to {schema['maximum']:,}")
    if "default" in schema:
        default = schema["default"]
        told.append(f"default {str(default).lower() if isinstance(default, bool) else f'{default:,}'}")
    return f" ({'; '.join(told)})" if told else ""


def _contents(content: Mapping[str, Any]) -> str:
    return ", ".join(f"`{media}` {_named(media_type['schema'])}".strip() for media, media_type in content.items())


def _named(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"([{name}](#schemas))"
    told = schema.get("description", "")
    return f"({told})" if told else ""


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield "## Schemas"
    yield ""
    yield "| schema | what it is |"
    yield "|---|---|"
    for name, schema in schemas.items():
        yield f"| {name} | {_told(schema)} |"


def _told(schema: Mapping[str, Any]) -> str:
    if "description" in schema:
        return str(schema["description"]).replace("|", "\\|")
    if "properties" in schema:
        required = schema.get("required", ())
        return ", ".join(f"`{name}`{'' if name in required else '?'}" for name in schema["properties"]) or "an object"
    return _type(schema)


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "additionalProperties" in schema and schema.get("type") == "object" and schema["additionalProperties"]:
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "object"))
