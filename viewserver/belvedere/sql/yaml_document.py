"""YAML documents that are read field by field, so that every refusal says where: the document, the path inside it.

A key that stands twice in one place is refused. YAML forbids it and PyYAML takes the last one without a word: a second
`key:` further down would silently undo the first.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from belvedere.errors import SqlError
from belvedere.sql.durations import EXAMPLE, parse_duration

Reasons = Mapping[str, tuple[str, str]]
"""Fields that are known and cannot be honoured: why, and what would work."""


class YamlDocument:
    """A document, or a part of it and the way to it."""

    def __init__(self, number: int, value: Any, path: str = ""):
        self.number, self.value, self.path = number, value, path

    def fail(self, message: str, hint: str | None = None) -> SqlError:
        return SqlError(f"document {self.number}, {self.path or 'top level'}: {message}", hint=hint)

    @property
    def shown(self) -> str:
        """The value for a message. Not what is in lists and fields: aliases make a short text unfold without end."""
        return _kind(self.value) if isinstance(self.value, (list, dict)) else repr(self.value)

    def child(self, key: str | int) -> YamlDocument:
        path = f"{self.path}[{key}]" if isinstance(key, int) else f"{self.path}.{key}" if self.path else key
        return YamlDocument(self.number, self.value[key], path)

    def mapping(self, known: tuple[str, ...] | None = None, refused: Reasons | None = None) -> Mapping[str, Any]:
        """The fields. Without `known` any are fine. A field in `refused` is refused with its reason, unless it is null:
        Kubernetes writes null for what is not given."""
        if not isinstance(self.value, dict):
            raise self.fail(f"expected fields, found {_kind(self.value)}")
        for name in self.value:
            if refused is not None and name in refused:
                if self.value[name] is None:
                    continue
                reason, hint = refused[name]
                raise self.child(name).fail(reason, hint)
            if known is not None and name not in known:
                raise self.fail(f"unknown field {name!r}", closest(name, known, "fields"))
        return self.value

    def require(self, name: str) -> YamlDocument:
        if not isinstance(self.value, dict) or self.value.get(name) is None:
            raise self.fail(f"field {name!r} is missing")
        return self.child(name)

    def optional(self, name: str) -> YamlDocument | None:
        return None if self.value.get(name) is None else self.child(name)

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.fail(f"expected a text, found {_kind(self.value)}", "put it in quotes")
        if not self.value.strip():
            raise self.fail("the text is empty")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail(f"expected true or false, found {_kind(self.value)}")
        return self.value

    def number_from(self, least: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self.fail(f"expected a whole number, found {_kind(self.value)}")
        if self.value < least:
            raise self.fail(f"{self.value} is too small", f"at least {least}")
        return self.value

    def items(self) -> list[YamlDocument]:
        if not isinstance(self.value, list) or not self.value:
            found = "an empty one" if self.value == [] else _kind(self.value)
            raise self.fail(f"expected a list, found {found}", "- item")
        return [self.child(i) for i in range(len(self.value))]

    def duration(self, least_ms: int = 0) -> int:
        """Milliseconds."""
        found = parse_duration(self.value) if isinstance(self.value, str) else None
        if found is None:
            raise self.fail(f"{self.shown} is not a duration", EXAMPLE)
        if found < least_ms:
            raise self.fail(f"{self.value!r} is too short", f"at least {least_ms}ms")
        return found


def closest(name: object, known: Iterable[str], what: str) -> str:
    """The hint for a name that is not known."""
    known = tuple(known)
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"{what}: {', '.join(known)}"


def _kind(value: Any) -> str:
    names = {dict: "fields", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")


def documents(text: str) -> list[YamlDocument]:
    """The documents of a file, empty ones left out; YAML mistakes are refused with line and column."""
    try:
        loaded = list(yaml.load_all(text, _UniqueKeys))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise SqlError(
            f"the file is not YAML: {error.problem or 'syntax error'}",
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
            hint="check indentation and colons",
        ) from error
    except yaml.YAMLError as error:
        raise SqlError(f"the file is not YAML: {error}") from error
    except (ValueError, RecursionError) as error:  # 2024-13-45 is a date to YAML; brackets in brackets, a thousand deep
        raise SqlError(f"the file is not YAML: {error}", hint="put texts in quotes") from error
    return [YamlDocument(i, value) for i, value in enumerate(loaded, 1) if value is not None]


class _UniqueKeys(yaml.SafeLoader):
    """Plain values only. Keys are checked when nodes are composed: later, those that `<<` merges in stand beside those
    that override them."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"field {key.value!r} twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node
