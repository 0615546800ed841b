"""How a field of the API is declared: a dataclass field with its description and what values it may have.

    freshness: str | None = prop("How far the view may be behind.", duration=True)

The Python name is in snake case, the name in manifests in camel case.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from belvedere_operator.api import durations

META = "belvedere"


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule (x-kubernetes-validations) with the message that people get."""

    rule: str
    message: str
    on_create_too: bool = False
    """A rule that names `oldSelf` holds for changes only; with this it gets an optional one and holds on creation."""

    def schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"rule": self.rule, "message": self.message}
        return found | {"optionalOldSelf": True} if self.on_create_too else found


@dataclass(frozen=True, slots=True)
class Meta:
    """What the schema says of a field beyond its type. `extra`: parts of the schema as they are."""

    description: str
    extra: dict[str, Any]
    rules: tuple[Rule, ...]
    default: Any
    required: bool


def prop(
    description: str,
    *,
    default: Any = None,
    required: bool = False,
    duration: bool = False,
    rules: tuple[Rule, ...] = (),
    schema: Mapping[str, Any] = MappingProxyType({}),
    **extra: Any,
) -> Any:
    """A field. `default` is written into the resource by the API server, so that it can be seen there.

    `extra` and `schema` are keywords of JSON schema: minimum, enum, pattern, maxLength, ...
    """
    extra |= schema
    if duration:
        extra = {"pattern": durations.PATTERN, "maxLength": 64} | extra
    meta = Meta(description, extra, rules, default, required)
    if required:
        return field(metadata={META: meta})
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: default, metadata={META: meta})
    return field(default=default, metadata={META: meta})


def meta_of(declared: dataclasses.Field[Any]) -> Meta:
    found = declared.metadata[META]
    assert isinstance(found, Meta)
    return found


def camel(name: str) -> str:
    """`min_replicas` is `minReplicas` in manifests; a trailing underscore only avoids a keyword of Python."""
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name.rstrip("_"))
