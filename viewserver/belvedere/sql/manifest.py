"""`BaseTable`, `MaterializedView` and `ViewPool` manifests: the YAML of `kubectl apply` and of `belvedere apply`.

A field that is accepted has an effect. One that cannot have any is refused by name with the reason, and so is one that
nobody knows, at every depth. Every refusal names the document, the path inside it, what was found and what would work.
What depends on the database that a manifest is applied to (its pool, how long it keeps history) is in
`manifest_target.py`.

Names are Kubernetes' (`daily-sales`); in SQL the dashes are underscores (`daily_sales`). A Kubernetes name has no
underscores, so two names never become one. `spec.name` gives any other name, and has to where there is a dot.

    apiVersion: belvedere.dev/v1alpha1                 apiVersion: belvedere.dev/v1alpha1
    kind: BaseTable                                    kind: MaterializedView
    metadata: {name: orders}                           metadata: {name: daily-sales}
    spec:                                              spec:
      columns:                                           query: SELECT day, sum(total) AS total FROM orders GROUP BY day
        - {name: id, type: bigint}                       key: [day]             # optional, as is everything below
        - {name: day, type: date}                        pool: default
        - {name: total, type: "decimal(12,2)"}           retention: 1h
      key: [id]                                          build: auto
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from belvedere.errors import SqlError
from belvedere.sql.catalog import Catalog, Deletes, TableDef, Ties
from belvedere.sql.origin_manifest import IN_HBASE, read_origin
from belvedere.sql.parser import statements
from belvedere.sql.reading import read
from belvedere.sql.statements import CreateTable, CreateView
from belvedere.sql.types_by_name import parse_type
from belvedere.sql.view_pool import ViewPool, read_pool
from belvedere.sql.views import make_view
from belvedere.sql.yaml_document import Reasons, YamlDocument, closest, documents
from belvedere.types import Column

GROUP = "belvedere.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KINDS = ("BaseTable", "MaterializedView", "ViewPool")
BUILDS = ("auto", "epochs", "spark")
MAX_RESOURCE_NAME = 253
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_RESOURCE_NAME = re.compile(rf"{_PART}(\.{_PART})*")

_SERVER = ("this is what a server tells of an object, not what somebody wants", "leave it out")
METADATA_FIELDS = ("name", "labels", "annotations")
METADATA_REFUSED: Reasons = {
    "namespace": ("a database has no namespaces", "leave it out; for Kubernetes: kubectl apply -n NAMESPACE"),
    "generateName": ("a table, a view or a pool is known by its name", "use name"),
    "finalizers": ("nothing here waits for a finalizer", "leave it out"),
    "ownerReferences": ("nothing here is deleted with its owner", "leave it out"),
    **dict.fromkeys(("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"), _SERVER),
    **dict.fromkeys(("deletionGracePeriodSeconds", "managedFields", "selfLink"), _SERVER),
}

_LIVES = "a base table lives in the database that it is created in, or in HBase"
_OUTSIDE: Reasons = dict.fromkeys(("store", "cassandra", "embedded"), (_LIVES, "leave it out"))
_RECLAIM = ("there is no resource whose deletion could drop or retain anything", "leave it out; DROP drops")
COLUMN_FIELDS = ("name", "type", "nullable", *IN_HBASE)
COLUMN_REFUSED: Reasons = {**_OUTSIDE, "hbase": ("the table is in HBase or is not", "say it in spec.hbase")}
TABLE_FIELDS = ("name", "columns", "key", "pool", "ties", "hbase")
TABLE_REFUSED: Reasons = {**_OUTSIDE, "reclaimPolicy": _RECLAIM}

VIEW_FIELDS = ("name", "query", "key", "pool", "retention", "build", "suspend")
VIEW_REFUSED: Reasons = {
    "freshness": (
        "a view has no pace of its own: every epoch brings all views of a database up to date together",
        "leave it out; `belvedere lag` shows how far they are behind, and --epoch-ms of the coordinators is how often"
        " a cluster does it",
    ),
    "verify": ("views are verified when somebody asks", "leave it out; run `belvedere verify VIEW`"),
    "reclaimPolicy": _RECLAIM,
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document: what it stands for. `spec`: its fields, to say where something is wrong."""

    content: CreateTable | CreateView | ViewPool
    resource: str
    spec: YamlDocument

    @property
    def name(self) -> str:
        """In SQL; of a pool, its own."""
        match self.content:
            case CreateTable(table=table):
                return table.name
            case CreateView(view=view):
                return view.name
            case ViewPool(name=name):
                return name


def parse_manifests(text: str, catalog_provider: Callable[[], Catalog]) -> Iterator[Manifest]:
    """The documents of a file, one by one; the catalog is asked for anew before each, so a view may use a table of the
    same file once that was created."""
    taken: dict[tuple[bool, str], Manifest] = {}
    for document in documents(text):
        manifest = _manifest(document, catalog_provider())
        before = taken.setdefault((isinstance(manifest.content, ViewPool), manifest.name.lower()), manifest)
        if before is not manifest:
            raise document.fail(
                f"{manifest.name!r} is described twice, in document {before.spec.number} as well",
                "leave one of them out, or give one another name",
            )
        yield manifest


def _manifest(document: YamlDocument, catalog: Catalog) -> Manifest:
    document.mapping(("apiVersion", "kind", "metadata", "spec"), {"status": _SERVER})
    version = document.require("apiVersion")
    if version.value != API_VERSION:
        raise version.fail(f"unknown apiVersion {version.shown}", f"use {API_VERSION}")
    kind = document.require("kind")
    resource = _resource(document.require("metadata"))
    spec = document.require("spec")
    match kind.value:
        case "BaseTable":
            return Manifest(_table(spec, resource), resource, spec)
        case "MaterializedView":
            return Manifest(_view(spec, resource, catalog), resource, spec)
        case "ViewPool":
            return Manifest(read_pool(spec, resource), resource, spec)
    raise kind.fail(f"unknown kind {kind.shown}", closest(kind.shown, KINDS, "kinds"))


def _resource(metadata: YamlDocument) -> str:
    """The name. Labels and annotations are notes for people and other tools; ours would be wishes, and are refused."""
    metadata.mapping(METADATA_FIELDS, METADATA_REFUSED)
    for field in ("labels", "annotations"):
        notes = metadata.optional(field)
        for key in () if notes is None else notes.mapping():
            assert notes is not None
            if not isinstance(key, str):
                raise notes.fail(f"expected a text as name, found {key!r}", "put it in quotes")
            note = notes.child(key)
            if not isinstance(note.value, str):
                raise note.fail(f"expected a text, found {note.shown}", "put it in quotes")
            if key.partition("/")[0].endswith(GROUP):
                raise notes.fail(f"{key!r} has no meaning here", "leave it out")
    name = metadata.require("name")
    resource = name.text()
    if len(resource) > MAX_RESOURCE_NAME:
        raise name.fail(f"a name of {len(resource)} characters", f"Kubernetes takes {MAX_RESOURCE_NAME}")
    if not _RESOURCE_NAME.fullmatch(resource):
        better = re.sub("[^a-z0-9.]+", "-", resource.lower()).strip("-.")
        raise name.fail(
            f"{resource!r} is no name in Kubernetes: lower case letters, digits, '-' and '.'",
            f"use {better!r}; in SQL dashes are underscores, and spec.name gives any other name"
            if _RESOURCE_NAME.fullmatch(better)
            else "spec.name is the name in SQL",
        )
    return resource


def _name(spec: YamlDocument, resource: str) -> str:
    """In SQL."""
    given = spec.optional("name")
    if given is not None:
        return given.text()
    if "." in resource:
        raise spec.fail(f"{resource!r} has a dot, a name in SQL has none", "say with spec.name what it is in SQL")
    return resource.replace("-", "_")


def _table(spec: YamlDocument, resource: str) -> CreateTable:
    spec.mapping(TABLE_FIELDS, TABLE_REFUSED)
    _pool(spec)
    columns: list[Column] = []
    fields: dict[str, YamlDocument] = {}
    key = [k.text() for k in spec.require("key").items()]
    for item in spec.require("columns").items():
        item.mapping(COLUMN_FIELDS, COLUMN_REFUSED)
        name = item.require("name").text()
        type_field = item.require("type")
        try:
            type_ = parse_type(type_field.text())
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            raise type_field.fail(message, hint or None) from None
        nullable = item.optional("nullable")
        if name.lower() in (c.name.lower() for c in columns):
            raise item.fail(f"column {name!r} twice", "column names ignore case")
        columns.append(Column(name, type_, True if nullable is None else nullable.flag()))
        fields[name] = item
    by_name = {c.name.lower(): c.name for c in columns}
    for position, name in enumerate(key):
        at = spec.child("key").child(position)
        if name.lower() not in by_name:
            raise at.fail(f"no column {name!r}", f"columns: {', '.join(by_name.values())}")
        if name.lower() in (k.lower() for k in key[:position]):
            raise at.fail(f"column {name!r} twice in the key")
    names = tuple(by_name[k.lower()] for k in key)
    schema = tuple(Column(c.name, c.type, c.nullable and c.name not in names) for c in columns)
    table = TableDef(_name(spec, resource), schema, names, _ties(spec))
    origin = read_origin(spec, table, fields)
    if origin is not None:
        table = replace(table, deletes=Deletes.CELLS, origin=origin)
    return CreateTable(table, if_not_exists=True)


def _ties(spec: YamlDocument) -> Ties:
    field = spec.optional("ties")
    if field is None:
        return Ties.LINEAGE
    if field.text() not in list(Ties):
        raise field.fail(f"ties are settled by {' or '.join(Ties)}, not by {field.text()!r}")
    return Ties(field.text())


def _view(spec: YamlDocument, resource: str, catalog: Catalog) -> CreateView:
    spec.mapping(VIEW_FIELDS, VIEW_REFUSED)
    query = spec.require("query")
    key_field = spec.optional("key")
    key = [(k.text(), None) for k in key_field.items()] if key_field is not None else None
    retention = spec.optional("retention")
    _pool(spec)
    build = _build(spec)
    _suspend(spec)
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
    return CreateView(view, or_replace=True, build=build)


def _pool(spec: YamlDocument) -> None:
    pool = spec.optional("pool")
    if pool is not None:
        pool.text()


def _build(spec: YamlDocument) -> str:
    """How a view is built from the rows that are there."""
    build = spec.optional("build")
    if build is None:
        return "auto"
    if build.text() not in BUILDS:
        raise build.fail(f"unknown way to build a view {build.value!r}", closest(build.value, BUILDS, "ways"))
    return str(build.value)


def _suspend(spec: YamlDocument) -> None:
    suspend = spec.optional("suspend")
    if suspend is not None and suspend.flag():
        raise suspend.fail(
            "a view cannot be suspended: to catch up later it would need every change since, so the input of the whole"
            " database would have to be kept, without limit, and views over it or with shared state would stop with it",
            "drop the view; applying it again builds it anew",
        )
