"""Resources as Kubernetes gives them (JSON) read into the API's dataclasses, and back.

The API server has checked a resource against the schema. Reading is strict all the same: a resource that was stored
under an older definition, or without one, is refused by the path of the field, and not misread.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from belvedere_operator.api.fields import camel, meta_of
from belvedere_operator.api.schema import inner

T = TypeVar("T")


class InvalidSpec(ValueError):
    """A resource has a field that cannot be read; the text names it."""


def read(kind: type[T], value: Any, path: str = "spec") -> T:
    """An object of `kind`. Fields that are not given or null have their default; unknown ones are refused."""
    if not isinstance(value, Mapping):
        raise InvalidSpec(f"{path}: expected fields, found {value!r}")
    hints, declared = _declared(kind)  # type: ignore[arg-type]  # classes can be hashed; their metaclass need not
    if unknown := [name for name in value if name not in declared]:
        raise InvalidSpec(f"{path}: unknown field {unknown[0]!r}; fields: {', '.join(declared)}")
    found: dict[str, Any] = {}
    for name, one in declared.items():
        given = value.get(name)
        if given is None:
            if meta_of(one).required:
                raise InvalidSpec(f"{path}: field {name!r} is missing")
            continue
        found[one.name] = _read(hints[one.name], given, f"{path}.{name}")
    return kind(**found)


@functools.cache
def _declared(kind: type) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Types by the names in Python, fields by those in manifests. Asked for with every resource, so remembered."""
    return typing.get_type_hints(kind), {camel(one.name): one for one in dataclasses.fields(kind)}


def _read(hint: Any, value: Any, path: str) -> Any:
    hint = inner(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        if not isinstance(value, list):
            raise InvalidSpec(f"{path}: expected a list, found {value!r}")
        return tuple(_read(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidSpec(f"{path}: expected fields, found {value!r}")
        return {str(name): _read(arguments[1], item, f"{path}.{name}") for name, item in value.items()}
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return read(typing.cast(type, hint), value, path)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names = {str: "a text", int: "a whole number", bool: "true or false", float: "a number"}
        raise InvalidSpec(f"{path}: expected {names[hint]}, found {value!r}")
    return value


def written(value: Any) -> Any:
    """JSON of an object of the API; what is None or empty is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        _, declared = _declared(type(value))
        found = {name: written(getattr(value, one.name)) for name, one in declared.items()}
        return {name: item for name, item in found.items() if item is not None and item != [] and item != {}}
    if isinstance(value, (list, tuple)):
        return [written(item) for item in value]
    if isinstance(value, dict):
        return {name: written(item) for name, item in value.items()}
    return value
