"""Tables and views as the gateway describes them: their columns and keys, and the catalog that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from belvedere.errors import DataError
from belvedere.gateway.client.forms import to_json
from belvedere.model import order
from belvedere.model.describe import type_of
from belvedere.model.keys import KeyCodec, key_codec
from belvedere.model.rows import quote
from belvedere.sql.catalog import Catalog, TableDef, Ties, ViewDef
from belvedere.sql.query import Join, JoinKind, Project, Query, Scan
from belvedere.types import Column, Schema


@dataclass(frozen=True, slots=True)
class Relation:
    """A table or view. `key_columns`: also such as are hidden."""

    name: str
    is_view: bool
    columns: Schema
    key_columns: Schema
    sql: str
    reads: tuple[str, ...] = ()
    version: int = 1
    retention_ms: int | None = None
    ties: Ties = Ties.LINEAGE

    @property
    def owner(self) -> str:
        """What errors call it."""
        return f"{'view' if self.is_view else 'table'} {self.name!r}"

    def codec(self) -> KeyCodec:
        return key_codec(self.key_columns, range(len(self.key_columns)))

    def table(self) -> TableDef:
        return TableDef(self.name, self.columns, tuple(c.name for c in self.key_columns), self.ties)

    def view(self) -> ViewDef:
        """As far as a client knows it. What the query computes is the database's business: here it says what is read
        and what comes out."""
        head, _, query = self.sql.partition(" AS\n")
        key = tuple(c.name for c in self.key_columns) if " KEY (" in head else None
        return ViewDef(self.name, query, _outline(self.reads, self.columns), key, self.retention_ms, self.version)


def relation_of(told: Mapping[str, Any]) -> Relation:
    """From a Description of the API."""
    return Relation(
        told["name"],
        told["kind"] == "view",
        _columns(told["columns"]),
        _columns(told["key_columns"]),
        told["sql"],
        tuple(told.get("reads") or ()),
        told.get("version") or 1,
        told.get("retention_ms"),
        Ties(told.get("ties") or Ties.LINEAGE),
    )


def catalog_of(relations: Iterable[Relation]) -> Catalog:
    """What there is."""
    found = list(relations)
    return Catalog({r.name: r.table() for r in found if not r.is_view}, {r.name: r.view() for r in found if r.is_view})


def _columns(told: Sequence[Mapping[str, Any]]) -> Schema:
    return tuple(Column(c["name"], type_of(c["type"]), c["nullable"]) for c in told)


def _outline(reads: Sequence[str], columns: Schema) -> Query:
    below: Query | None = None
    for name in reads:
        scan = Scan(name, ())
        below = scan if below is None else Join(below, scan, JoinKind.CROSS, None, ())
    return Project(Scan("", ()) if below is None else below, (), columns)


# ---------------------------------------------------------------------- keys


def as_given(key: Any) -> Any:
    """A key of what is not known here: a relation of an older epoch. The database looks whether it fits."""
    if isinstance(key, dict):
        return {str(name): _plain(value) for name, value in key.items()}
    return [_plain(value) for value in key] if isinstance(key, (tuple, list)) else [_plain(key)]


def _plain(value: Any) -> Any:
    try:
        return to_json(value)
    except TypeError:
        raise DataError(f"{quote(value)} is no value of a key; nothing was read") from None


def key_of(relation: Relation, key: Any) -> list[Any]:
    """The values of a whole key in JSON, each of the type of its column; `DataError` as from any other database."""
    columns = relation.key_columns
    values = order.key_values(columns, key, relation.owner)
    vecs = order.key_vecs(columns, values, f"key of {relation.owner}")
    return [to_json(vec.to_arrow()[0].as_py()) for vec in vecs]


def prefix_of(relation: Relation, prefix: Sequence[Any], limit: int | None, reverse: bool) -> list[Any]:
    """The first values of a key, for `lookup`."""
    order.prefix_range(relation.codec(), prefix, limit, reverse, relation.owner)
    given = prefix[0] if len(prefix) == 1 and isinstance(prefix[0], (dict, tuple, list)) else tuple(prefix)
    return _first_values(relation, given)


def bounds_of(relation: Relation, start: Any, stop: Any, limit: int | None, reverse: bool) -> list[list[Any] | None]:
    """Where a `scan` begins and ends."""
    order.key_range(relation.codec(), start, stop, limit, reverse, relation.owner)
    return [None if bound is None else _first_values(relation, bound) for bound in (start, stop)]


def check_columns(relation: Relation, columns: Sequence[str] | None) -> None:
    order.positions(relation.columns, columns, relation.owner)


def _first_values(relation: Relation, given: Any) -> list[Any]:
    values = order.key_values(relation.key_columns, given, relation.owner, prefix=True)
    vecs = order.key_vecs(relation.key_columns, values, f"key of {relation.owner}")
    return [to_json(vec.to_arrow()[0].as_py()) for vec in vecs]


Ask = Callable[[str], Relation]


class Relations:
    """What was heard of relations. It may be old: who refuses something because of it asks again first."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: dict[str, Relation] = {}

    def get(self, name: str) -> Relation:
        found = self._known.get(name.lower())
        return self.fresh(name) if found is None else found

    def fresh(self, name: str) -> Relation:
        """As it is now; raises `UnknownRelation`."""
        try:
            found = self._known[name.lower()] = self._ask(name)
        except BaseException:
            self._known.pop(name.lower(), None)
            raise
        return found
