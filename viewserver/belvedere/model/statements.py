"""`execute`: every statement of the SQL front end, carried out. Writes and DDL are left to whoever can write.

Parser, planner and DuckDB are loaded by the first statement that needs them: who only reads and writes rows does not
wait for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from belvedere.errors import CatalogError
from belvedere.model.session import Session, SessionDatabase
from belvedere.model.token import Token
from belvedere.plan.nodes import Plan
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.query import relations
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.model.verify import Report

Result: TypeAlias = "Token | pa.Table | str | None"
NO_PREFIXES: Mapping[str, Sequence[Any]] = MappingProxyType({})


class Executing(ABC):
    """Statements that only read, for every kind of database."""

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """Tables and views that can be read now."""

    @abstractmethod
    def key_columns(self, relation: str) -> tuple[Column, ...]:
        """The key of a table or view."""

    @abstractmethod
    def _row_counts(self) -> Mapping[str, int]:
        """Rows of each view, as far as that is known."""

    @abstractmethod
    def _consistent(
        self, names: set[str], prefixes: Mapping[str, Sequence[Any]] = NO_PREFIXES
    ) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
        """Rows of tables and views, all at one epoch; and how many rows of each view are in quarantine then.
        `prefixes`: of these only rows whose key begins so are needed."""

    def together(self, names: set[str]) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
        """Rows of tables and views, all at one epoch; and how many rows of each view are in quarantine then."""
        return self._consistent(names)

    @abstractmethod
    def _plan(self) -> tuple[Plan, Any]:
        """What is maintained now, and the sizes of its state, if known."""

    @abstractmethod
    def _token(self, value: Any) -> Token:
        """A token from its text or an epoch."""

    def session(self, *, after: Any = None, timeout: float | None = None) -> Session:
        """Reads that include the session's own writes and never go back: `with db.session() as s: s.put(…); s.get(…)`.

        `after`: go on where another session was, with its token or the token's text. `timeout`: seconds that a read
        waits for what it must include.
        """
        # the reads are in `Reading` here and in the cluster's client there, with the same signatures
        return Session(cast(SessionDatabase, self), self._token, after, timeout)

    def execute(self, sql: str, *, wait: bool = True) -> Result:
        """Carry out one statement. DDL and writes give a token, queries an Arrow table, EXPLAIN and SHOW CREATE text.

        `wait`: CREATE MATERIALIZED VIEW returns when the view is built; writes go on meanwhile.
        """
        from belvedere.sql import parse_statement

        return self._carry_out(parse_statement(sql, self.catalog), wait)

    def _carry_out(self, statement: st.Statement, wait: bool) -> Result:
        match statement:
            case st.Show():
                return self._show(statement)
            case st.Describe():
                return self._describe(statement.name)
            case st.Explain():
                return self._explain(statement)
            case st.Select():
                return self._select(statement)
        return self._write_statement(statement, wait)

    @abstractmethod
    def _write_statement(self, statement: st.Statement, wait: bool) -> Result:
        """A statement that changes something."""

    def _show(self, statement: st.Show) -> pa.Table | str:
        from belvedere.sql.text import create_text

        catalog = self.catalog
        if statement.what == "create":
            assert statement.name is not None
            return create_text(catalog.relation(statement.name))
        if statement.what == "tables":
            tables = catalog.tables.values()
            return pa.table(
                {
                    "table": pa.array([t.name for t in tables], pa.string()),
                    "columns": pa.array([len(t.columns) for t in tables], pa.int64()),
                    "key": pa.array([", ".join(t.key) for t in tables], pa.string()),
                }
            )
        views = catalog.views.values()
        held = self._row_counts()
        return pa.table(
            {
                "view": pa.array([v.name for v in views], pa.string()),
                "rows": pa.array([held.get(v.name, 0) for v in views], pa.int64()),
                "key": pa.array([", ".join(c.name for c in self.key_columns(v.name)) for v in views], pa.string()),
                "reads": pa.array([", ".join(sorted(v.reads)) for v in views], pa.string()),
            }
        )

    def _describe(self, name: str) -> pa.Table:
        relation = self.catalog.relation(name)
        key = {c.name for c in self.key_columns(relation.name)}
        columns = relation.columns
        return pa.table(
            {
                "column": pa.array([c.name for c in columns], pa.string()),
                "type": pa.array([str(c.type) for c in columns], pa.string()),
                "nullable": pa.array([c.nullable for c in columns], pa.bool_()),
                "key": pa.array([c.name in key for c in columns], pa.bool_()),
            }
        )

    def _explain(self, statement: st.Explain) -> str:
        from belvedere.plan.explain import explain
        from belvedere.plan.planner import plan_views

        plan, sizes = self._plan()
        view = statement.view
        known = next((v for v in plan.views if v.name.lower() == view.name.lower()), None)
        if known is not None and self.catalog.views.get(known.name) is view:
            return explain(Plan((known,)), statement.format, sizes)
        others = Plan(tuple(v for v in plan.views if v is not known))
        return explain(Plan(plan_views(self.catalog, [view], others)), statement.format)

    def _select(self, statement: st.Select) -> pa.Table:
        from belvedere.model.recompute import answering, connect
        from belvedere.sql.adhoc import key_prefixes, select_to_duckdb

        query = statement.view.query
        names = {self.catalog.relation(n).name for n in relations(query)}
        found = key_prefixes(query, lambda n: [c.name for c in self.key_columns(n)])
        _, tables, _ = self._consistent(names, {self.catalog.relation(n).name: p for n, p in found.items()})
        connection, name = connect(tables)
        wanted = pa.schema([pa.field(c.name, c.type.arrow) for c in statement.view.columns])
        try:
            sql = select_to_duckdb(statement, lambda n: name(self.catalog.relation(n).name))
            with answering():
                rows = connection.sql(sql).to_arrow_table()
                return rows if rows.schema.equals(wanted) else _as(rows, wanted)
        finally:
            connection.close()

    def _foreign_cells(self, view: str) -> list[str]:
        """What somebody else wrote to where a view is stored, if others can."""
        return []

    def verify(self, view: str | None = None, *, state: bool = False, base: bool = False) -> Report:
        """Recompute a view (or all) from base rows with DuckDB and compare, at one epoch. `state`, `base`: compare the
        state behind it, or base rows, instead; where that can be done."""
        from belvedere.model import verify as verification

        if state or base:
            what = "state" if state else "base rows"
            raise CatalogError(f"{what} cannot be verified here: who only reads has none of its own")

        catalog = self.catalog
        if view is None:
            wanted = list(catalog.views.values())
        else:
            found = catalog.relation(view)
            if isinstance(found, TableDef):
                raise CatalogError(f"{found.name!r} is a base table; only views can be verified")
            wanted = [found]
        needed = verification.below(catalog, wanted)
        epoch, tables, failed = self._consistent({v.name for v in wanted} | needed)
        keys = {v.name: verification.visible_key(v, self.key_columns(v.name)) for v in wanted}
        reports = [
            verification.with_foreign(
                verification.compare(catalog, v, epoch, tables, failed, keys[v.name]), self._foreign_cells(v.name)
            )
            for v in wanted
        ]
        return reports[0] if view is not None else verification.together(reports, epoch)


def _as(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The table in other types; DuckDB has no type for a column that is nothing but NULL."""
    columns = [
        pa.nulls(len(table)) if pa.types.is_null(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, wanted, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=wanted)
