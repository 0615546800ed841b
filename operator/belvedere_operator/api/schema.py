"""Dataclasses of the API as structural schemas (OpenAPI v3), the form that a custom resource definition wants."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from belvedere_operator.api.fields import Rule, camel, meta_of

OPEN = "open"
"""In `extra`: an object whose fields belong to Kubernetes' own API and are not checked here."""


def object_schema(kind: type, description: str = "") -> dict[str, Any]:
    """The schema of one dataclass with everything below it."""
    hints = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for declared in dataclasses.fields(kind):
        name = camel(declared.name)
        meta = meta_of(declared)
        found = _type_schema(hints[declared.name])
        extra = dict(meta.extra)
        if extra.pop(OPEN, False):
            _open(found)
        for key, value in extra.items():
            if key.startswith("items_"):
                found["items"][key.removeprefix("items_")] = value
            else:
                found[key] = value
        if meta.default not in (None, (), {}):
            found["default"] = meta.default
        if meta.rules:
            found["x-kubernetes-validations"] = [rule.schema() for rule in meta.rules]
        properties[name] = {"description": meta.description, **found}
        if meta.required:
            required.append(name)
    schema: dict[str, Any] = {"type": "object"}
    if text := description or _described(kind):
        schema["description"] = text
    if required:
        schema["required"] = required
    schema["properties"] = properties
    rules: tuple[Rule, ...] = getattr(kind, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = [rule.schema() for rule in rules]
    return schema


def _open(schema: dict[str, Any]) -> None:
    target = schema["items"] if schema["type"] == "array" else schema
    target.clear()
    target.update({"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def _described(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def inner(hint: Any) -> Any:
    """Without `| None`."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (found,) = (part for part in typing.get_args(hint) if part is not type(None))
        return found
    return hint


def _type_schema(hint: Any) -> dict[str, Any]:
    hint = inner(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return {"type": "array", "items": _type_schema(arguments[0])}
    if origin is dict:
        if arguments[1] is Any:
            return {
                "type": "object",
                "additionalProperties": {
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
            }
        return {"type": "object", "additionalProperties": _type_schema(arguments[1])}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return object_schema(hint)
    simple: dict[Any, dict[str, Any]] = {
        str: {"type": "string"},
        bool: {"type": "boolean"},
        int: {"type": "integer", "format": "int64"},
        float: {"type": "number", "format": "double"},
    }
    return dict(simple[hint])
