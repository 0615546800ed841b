"""Messages and records as bytes: JSON, one object each, with the class name under `_`.

The classes of `messages.py` are the schema: how a field is written and read follows from its type, looked up once per
class. A reader ignores fields that it does not know and gives missing ones their default; so protocol N may add fields
that have a default, and N-1 lives without them. A class, a value of an enum or a required field that a reader does not
have is no detail that it could do without, and it says so (`Incompatible`).

Equal records are equal bytes (keys are sorted), so that a plan written twice has one digest.

    dataclass  {"_": "Expect", "batches": 4, ...}      inside another one: without "_", the field's type says what it is
    tuple      [...]                                   mapping   {...}, keys that are integers as their digits
    enum       its value                               None      null
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import operator
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from belvedere import errors
from belvedere.protocol import messages
from belvedere.protocol.exactly_once import Chunk, ChunkId, InputPiece

Convert: TypeAlias = Callable[[Any], Any]

TAG = "_"


class _Mismatch(Exception):
    """A value that its type cannot have been written from; becomes `Incompatible` with the name of the class."""


@dataclasses.dataclass(frozen=True)
class _Shape:
    """How values of one type become JSON and come back. `write` is None where a value is JSON already."""

    write: Convert | None
    read: Convert


class Codec:
    """Writes and reads some dataclasses and everything that they are made of."""

    def __init__(self, classes: Iterable[type[Any]]) -> None:
        self._by_name = {cls.__name__: cls for cls in classes}
        self._readers: dict[str, Convert] = {}
        self._writers: dict[type[Any], Convert] = {}
        self._shapes: dict[Any, _Shape] = {}
        self._dump = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=operator.index).encode
        self._load = json.JSONDecoder().decode

    def encode(self, value: Any) -> bytes:
        writer = self._writers.get(type(value))
        if writer is None:
            writer = self._prepare(type(value))
        plain = writer(value)
        plain[TAG] = type(value).__name__
        return self._dump(plain).encode("ascii")

    def decode(self, data: bytes | bytearray | memoryview) -> Any:
        try:
            plain = self._load(str(data, "utf-8"))
        except (ValueError, RecursionError):
            raise errors.Damaged(f"a message that is not JSON: {bytes(data[:40])!r}") from None
        if type(plain) is not dict or type(plain.get(TAG)) is not str:
            raise errors.Incompatible(f"a message without a type: {bytes(data[:40])!r}")
        name = plain.pop(TAG)
        reader = self._readers.get(name)
        if reader is None:
            if name not in self._by_name:
                known = ", ".join(sorted(self._by_name))
                raise errors.Incompatible(f"message type {name} is unknown to protocol {messages.PROTOCOL}: {known}")
            self._prepare(self._by_name[name])
            reader = self._readers[name]
        try:
            return reader(plain)
        except _Mismatch as mismatch:
            raise errors.Incompatible(f"message {name}: {mismatch}") from None

    def _prepare(self, cls: type[Any]) -> Convert:
        if self._by_name.get(cls.__name__) is not cls:
            raise TypeError(f"{cls.__name__} is not a message; messages are {', '.join(sorted(self._by_name))}")
        shape = self._shape(cls)
        assert shape.write is not None
        self._readers[cls.__name__] = shape.read
        self._writers[cls] = shape.write
        return shape.write

    # --- shapes of types

    def _shape(self, hint: Any) -> _Shape:
        found = self._shapes.get(hint)
        if found is None:
            found = self._shapes[hint] = self._make(hint)
        return found

    def _make(self, hint: Any) -> _Shape:
        if isinstance(hint, typing.NewType):
            return self._shape(hint.__supertype__)
        if hint in _PLAIN:
            return _Shape(None, _PLAIN[hint])
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._optional(hint, arguments)
        if origin is tuple:
            return self._tuple(arguments)
        if origin in (abc.Mapping, dict):
            return self._mapping(*arguments)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _Shape(operator.attrgetter("value"), functools.partial(_read_enum, hint))
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._dataclass(hint)
        raise TypeError(f"type {hint} cannot be part of a message")

    def _optional(self, hint: Any, arguments: tuple[Any, ...]) -> _Shape:
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) != 1 or len(others) == len(arguments):
            raise TypeError(f"type {hint} cannot be part of a message: of unions only `X | None`")
        write, read = self._shape(others[0]).write, self._shape(others[0]).read
        return _Shape(
            None if write is None else lambda value: None if value is None else write(value),
            lambda plain: None if plain is None else read(plain),
        )

    def _tuple(self, arguments: tuple[Any, ...]) -> _Shape:
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            return self._fixed_tuple(arguments)
        write, read = self._shape(arguments[0]).write, self._shape(arguments[0]).read

        def read_all(plain: Any) -> tuple[Any, ...]:
            return tuple([read(item) for item in _expect(list, plain)])

        return _Shape(list if write is None else lambda value: [write(item) for item in value], read_all)

    def _fixed_tuple(self, arguments: tuple[Any, ...]) -> _Shape:
        shapes = [self._shape(argument) for argument in arguments]

        def write(value: tuple[Any, ...]) -> list[Any]:
            return [
                item if shape.write is None else shape.write(item) for shape, item in zip(shapes, value, strict=True)
            ]

        def read(plain: Any) -> tuple[Any, ...]:
            if len(_expect(list, plain)) != len(shapes):
                raise _Mismatch(f"{len(plain)} values where {len(shapes)} belong")
            return tuple([shape.read(item) for shape, item in zip(shapes, plain, strict=True)])

        return _Shape(write, read)

    def _mapping(self, key: Any, item: Any) -> _Shape:
        while isinstance(key, typing.NewType):
            key = key.__supertype__
        if key not in _KEYS:
            raise TypeError(f"keys of type {key} cannot be part of a message")
        write_key, read_key = _KEYS[key]
        write, read = self._shape(item).write, self._shape(item).read
        write_item: Convert = write or _same

        def write_all(value: Mapping[Any, Any]) -> dict[str, Any]:
            return {write_key(name): write_item(found) for name, found in value.items()}

        def read_all(plain: Any) -> dict[Any, Any]:
            return {read_key(name): read(found) for name, found in _expect(dict, plain).items()}

        return _Shape(dict if key is str and write is None else write_all, read_all)

    def _dataclass(self, cls: type[Any]) -> _Shape:
        hints = typing.get_type_hints(cls)
        fields = {field.name: self._shape(hints[field.name]) for field in dataclasses.fields(cls) if field.init}
        writes = [(name, shape.write) for name, shape in fields.items()]
        reads = [(name, shape.read) for name, shape in fields.items()]
        required = frozenset(name for name, parameter in _parameters(cls) if parameter.default is parameter.empty)

        def write(value: Any) -> dict[str, Any]:
            plain = {}
            for name, convert in writes:
                item = getattr(value, name)
                plain[name] = item if convert is None else convert(item)
            return plain

        def read(plain: Any) -> Any:
            found = {}
            _expect(dict, plain)
            for name, convert in reads:
                if name in plain:
                    try:
                        found[name] = convert(plain[name])
                    except _Mismatch as mismatch:
                        raise _Mismatch(f"{name}: {mismatch}") from None
            if not required <= found.keys():
                raise _Mismatch(f"{cls.__name__} lacks {', '.join(sorted(required - found.keys()))}")
            return cls(**found)

        return _Shape(write, read)


def _parameters(cls: type[Any]) -> Iterable[tuple[str, inspect.Parameter]]:
    return inspect.signature(cls).parameters.items()


def _same(value: Any) -> Any:
    return value


def _expect(kind: type[Any], plain: Any) -> Any:
    if type(plain) is not kind:
        raise _Mismatch(f"{_JSON_NAMES[kind]} expected, found {str(plain)[:60]!r}")
    return plain


def _read_int(plain: Any) -> int:
    return plain if type(plain) is int else typing.cast(int, _expect(int, plain))


def _read_str(plain: Any) -> str:
    return plain if type(plain) is str else typing.cast(str, _expect(str, plain))


def _read_float(plain: Any) -> float:
    return float(plain) if type(plain) is int else typing.cast(float, _expect(float, plain))


def _read_digits(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise _Mismatch(f"a number expected, found {name[:60]!r}") from None


def _read_enum(cls: type[enum.Enum], plain: Any) -> enum.Enum:
    try:
        return cls(plain)
    except ValueError:
        known = ", ".join(str(value.value) for value in cls)
        raise _Mismatch(f"{str(plain)[:60]!r} is none of {known}") from None


_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    str: "a string",
    bool: "a boolean",
}

_PLAIN: dict[Any, Convert] = {
    int: _read_int,
    str: _read_str,
    float: _read_float,
    bool: functools.partial(_expect, bool),
}

_KEYS: dict[Any, tuple[Convert, Convert]] = {
    str: (_same, _same),
    int: (lambda key: str(operator.index(key)), _read_digits),
}


def _defined_in(module: types.ModuleType) -> list[type[Any]]:
    found = [value for value in vars(module).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return [cls for cls in found if cls.__module__ == module.__name__]


_CODEC = Codec([*_defined_in(messages), InputPiece, Chunk, ChunkId])

encode = _CODEC.encode
"""The bytes of a message or record."""

decode = _CODEC.decode
"""What `encode` made bytes of. `Damaged`: no JSON. `Incompatible`: of a protocol that this version does not speak."""


def digest(data: bytes) -> str:
    """Tells whether two records have the same bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def agree(members: Iterable[messages.Member]) -> int:
    """The newest protocol that all of them speak."""
    everyone = list(members)
    if not everyone:
        return messages.PROTOCOL
    limit = min(everyone, key=lambda member: (member.newest_protocol, member.id))
    strict = max(everyone, key=lambda member: (member.oldest_protocol, member.id))
    if strict.oldest_protocol > limit.newest_protocol:
        raise errors.Incompatible(
            f"{limit.role.value} {limit.id} speaks protocol {limit.newest_protocol} at most, {strict.role.value} "
            f"{strict.id} needs {strict.oldest_protocol} at least; upgrade one version at a time"
        )
    return limit.newest_protocol
