"""Statements as values: what `parse_statement` returns and `Database.execute` carries out."""

from __future__ import annotations

from dataclasses import dataclass

from belvedere.sql.catalog import TableDef, ViewDef
from belvedere.sql.expr import Value
from belvedere.sql.origin import StoredColumn
from belvedere.types import Schema


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: TableDef
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    """ALTER TABLE … ADD COLUMN: new columns are nullable and NULL in existing rows. `stored`: of a table of another
    system where they are there, which only a manifest can say."""

    table: str
    columns: Schema
    stored: tuple[StoredColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateView:
    """`build`: how it is built from rows that are there."""

    view: ViewDef
    or_replace: bool = False
    if_not_exists: bool = False
    build: str = "auto"


@dataclass(frozen=True, slots=True)
class Drop:
    """DROP TABLE | DROP MATERIALIZED VIEW."""

    kind: str  # "table" or "view"
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW TABLES | SHOW VIEWS (`what` is "tables" or "views"), or SHOW CREATE TABLE/VIEW name (`what` = "create")."""

    what: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    name: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN view | EXPLAIN SELECT …: a ViewDef that is planned and not created."""

    view: ViewDef
    format: str = "text"


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO table [(columns)] VALUES (…), …: constant rows only, as one atomic put."""

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE FROM table WHERE key = … [AND …] | key IN (…): by whole primary keys only."""

    table: str
    keys: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Select:
    """An ad-hoc query; answered by DuckDB over one snapshot (`sql` is the text, `view` its bound form)."""

    sql: str
    view: ViewDef


Statement = CreateTable | AddColumns | CreateView | Drop | Show | Describe | Explain | Insert | Delete | Select
