"""`BaseTable` and `MaterializedView` manifests: the YAML of `kubectl apply` and of `belvedere apply`, as statements.

Every refusal names the document, the path inside it, what was found and what would work. Names follow Kubernetes
(`daily-sales`); in SQL the dashes are underscores, and `spec.name` says something else if need be.

    apiVersion: belvedere.dev/v1alpha1                 apiVersion: belvedere.dev/v1alpha1
    kind: BaseTable                                    kind: MaterializedView
    metadata: {name: orders}                           metadata: {name: spend}
    spec:                                              spec:
      columns:                                           query: SELECT customer, sum(total) AS total FROM orders GROUP
      BY 1
        - {name: id, type: bigint}                       key: [customer]        # optional, as is everything below
        - {name: total, type: decimal(12,2)}             pool: default
      key: [id]                                          freshness: 5s
                                                         retention: 1h
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from belvedere.errors import SqlError
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.durations import EXAMPLE, parse_duration
from belvedere.sql.parser import statements
from belvedere.sql.reading import read
from belvedere.sql.statements import CreateTable, CreateView
from belvedere.sql.types_by_name import parse_type
from belvedere.sql.views import make_view
from belvedere.types import Column

API_VERSION = "belvedere.dev/v1alpha1"
_STORES = ("hbase", "cassandra", "embedded")
_TABLE_FIELDS = ("name", "columns", "key", "store", *_STORES)
_VIEW_FIELDS = ("name", "query", "key", "pool", "freshness", "retention", "build", "suspend")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document: the statement it stands for, and what only a cluster cares about (pool, build, `hbase:`, …)."""

    statement: CreateTable | CreateView
    number: int
    resource: str
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Document:
    """A YAML document and the way to the part that is being looked at, for messages."""

    def __init__(self, number: int, value: Any, path: str = ""):
        self.number, self.value, self.path = number, value, path

    def fail(self, message: str, hint: str | None = None) -> SqlError:
        where = f"document {self.number}, {self.path or 'top level'}: {message}"
        return SqlError(where, hint=hint)

    def child(self, key: str | int) -> _Document:
        path = f"{self.path}[{key}]" if isinstance(key, int) else f"{self.path}.{key}" if self.path else key
        return _Document(self.number, self.value[key], path)

    def mapping(self, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise self.fail(f"expected fields, found {_kind(self.value)}")
        for name in self.value:
            if known is not None and name not in known:
                close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
                hint = f"did you mean {close[0]}?" if close else f"fields: {', '.join(known)}"
                raise self.fail(f"unknown field {name!r}", hint)
        return self.value

    def require(self, name: str) -> _Document:
        if not isinstance(self.value, dict) or self.value.get(name) is None:
            raise self.fail(f"field {name!r} is missing")
        return self.child(name)

    def optional(self, name: str) -> _Document | None:
        return None if self.value.get(name) is None else self.child(name)

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.fail(f"expected a text, found {_kind(self.value)}", "put it in quotes")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.fail(f"expected true or false, found {_kind(self.value)}")
        return self.value

    def items(self) -> list[_Document]:
        if not isinstance(self.value, list) or not self.value:
            raise self.fail(f"expected a list, found {_kind(self.value)}", "- item")
        return [self.child(i) for i in range(len(self.value))]

    def duration(self) -> int:
        found = parse_duration(self.value) if isinstance(self.value, str) else None
        if found is None:
            raise self.fail(f"{self.value!r} is not a duration", EXAMPLE)
        return found


def _kind(value: Any) -> str:
    names = {dict: "fields", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def parse_manifests(text: str, catalog_provider: Callable[[], Catalog]) -> Iterator[Manifest]:
    """The documents of a file, one by one; the catalog is asked for anew before each, so a view may use a table of the
    same file once that was created."""
    for document in documents(text):
        yield _manifest(document, catalog_provider())


def documents(text: str) -> list[_Document]:
    """The documents of a file, empty ones left out; YAML mistakes are refused with line and column."""
    try:
        loaded = list(yaml.safe_load_all(text))
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
    return [_Document(i, value) for i, value in enumerate(loaded, 1) if value is not None]


def _manifest(document: _Document, catalog: Catalog) -> Manifest:
    document.mapping(("apiVersion", "kind", "metadata", "spec", "status"))
    version = document.require("apiVersion")
    if version.value != API_VERSION:
        raise version.fail(f"unknown apiVersion {version.value!r}", f"use {API_VERSION}")
    kind = document.require("kind")
    metadata = document.require("metadata")
    metadata.mapping()
    resource = metadata.require("name").text()
    spec = document.require("spec")
    if kind.value == "BaseTable":
        spec.mapping(_TABLE_FIELDS)
        statement: CreateTable | CreateView = _table(spec, resource)
        kept = ("store", *_STORES)
    elif kind.value == "MaterializedView":
        spec.mapping(_VIEW_FIELDS)
        statement = _view(spec, resource, catalog)
        kept = ("pool", "freshness", "build", "suspend")
    else:
        raise kind.fail(f"unknown kind {kind.value!r}", "kinds: BaseTable, MaterializedView")
    return Manifest(statement, document.number, resource, {k: spec.value[k] for k in kept if k in spec.value})


def sql_name(resource: str) -> str:
    """The SQL name of a Kubernetes name."""
    return resource.replace("-", "_").replace(".", "_")


def _name(spec: _Document, resource: str) -> str:
    given = spec.optional("name")
    return given.text() if given is not None else sql_name(resource)


def _table(spec: _Document, resource: str) -> CreateTable:
    columns: list[Column] = []
    key = [k.text() for k in spec.require("key").items()]
    for item in spec.require("columns").items():
        fields = item.mapping()  # a store keeps encodings and the like beside name and type
        name = item.require("name").text()
        type_field = item.require("type")
        try:
            type_ = parse_type(type_field.text())
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            raise type_field.fail(message, hint or None) from None
        nullable = item.child("nullable").flag() if "nullable" in fields else True
        if name.lower() in (c.name.lower() for c in columns):
            raise item.fail(f"column {name!r} twice", "column names ignore case")
        columns.append(Column(name, type_, nullable))
    by_name = {c.name.lower(): c.name for c in columns}
    for position, name in enumerate(key):
        at = spec.child("key").child(position)
        if name.lower() not in by_name:
            raise at.fail(f"no column {name!r}", f"columns: {', '.join(by_name.values())}")
        if name.lower() in (k.lower() for k in key[:position]):
            raise at.fail(f"column {name!r} twice in the key")
    names = tuple(by_name[k.lower()] for k in key)
    schema = tuple(Column(c.name, c.type, c.nullable and c.name not in names) for c in columns)
    return CreateTable(TableDef(_name(spec, resource), schema, names), if_not_exists=True)


def _view(spec: _Document, resource: str, catalog: Catalog) -> CreateView:
    query = spec.require("query")
    key_field = spec.optional("key")
    key = [(k.text(), None) for k in key_field.items()] if key_field is not None else None
    retention = spec.optional("retention")
    freshness = spec.optional("freshness")
    if freshness is not None:
        freshness.duration()
    for name in ("pool", "build"):
        part = spec.optional(name)
        if part is not None and not (name == "build" and isinstance(part.value, dict)):
            part.text()
    suspend = spec.optional("suspend")
    if suspend is not None:
        suspend.flag()
    found = statements(query.text())
    if len(found) != 1:
        raise query.fail("expected one SELECT", None)
    try:
        view = make_view(
            _name(spec, resource),
            found[0],
            read(found[0]),
            catalog,
            key,
            retention.duration() if retention is not None else None,
        )
    except SqlError as error:
        raise type(error)(
            f"document {query.number}, {query.path}: {error.reason}",
            line=error.line,
            column=error.column,
            hint=error.hint,
        ) from error
    return CreateView(view, or_replace=True)
