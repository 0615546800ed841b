"""Statements: the entry of the SQL front end. Text and a catalog in, one value of `belvedere.sql.statements` out.

Queries and writes are parsed by sqlglot; what is ours (views with options, SHOW, EXPLAIN, …) word by word, so that each
refusal can name the word it stumbled over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from belvedere.errors import SqlError
from belvedere.sql import adhoc, tables, views, writes
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.cursor import TokenCursor
from belvedere.sql.parser import SqlText, statements
from belvedere.sql.reading import read
from belvedere.sql.statements import Describe, Drop, Show, Statement
from belvedere.sql.views import bind_query

__all__ = ["bind_query", "parse_script", "parse_statement"]

_HINT = (
    "statements: SELECT, INSERT, DELETE, CREATE TABLE, ALTER TABLE, CREATE MATERIALIZED VIEW, DROP, SHOW, DESCRIBE, "
    "EXPLAIN"
)


def parse_statement(text: str, catalog: Catalog) -> Statement:
    """The one statement of a text (a trailing semicolon is fine)."""
    found = statements(text)
    if not found:
        raise SqlError("an empty statement", line=1, column=1, hint=_HINT)
    if len(found) > 1:
        raise found[1].error("more than one statement", found[1].tokens[0], "run them one at a time, or as a script")
    return _statement(found[0], catalog)


def parse_script(text: str, catalog_provider: Callable[[], Catalog]) -> Iterator[Statement]:
    """The statements of a script, one by one; the catalog is asked for anew before each, so earlier ones can be
    carried out in between."""
    for source in statements(text):
        yield _statement(source, catalog_provider())


def _statement(source: SqlText, catalog: Catalog) -> Statement:
    cursor = TokenCursor(source)
    first = cursor.peek()
    if first in ("SELECT", "WITH", "FROM", "(", "VALUES"):
        return adhoc.bind_select(source, catalog)
    if first in ("INSERT", "DELETE"):
        return _write(source, catalog)
    cursor.position += 1
    if first == "CREATE":
        return _create(cursor, catalog)
    if first == "ALTER":
        cursor.expect("TABLE", hint="ALTER TABLE name ADD COLUMN …; a view is changed by CREATE OR REPLACE")
        return tables.alter_table(cursor)
    if first == "DROP":
        return _drop(cursor)
    if first == "SHOW":
        return _show(cursor, catalog)
    if first in ("DESCRIBE", "DESC"):
        return Describe(_named(cursor, catalog))
    if first == "EXPLAIN":
        return views.explain(cursor, catalog)
    raise source.unsupported(f"{source.tokens[0].text!r} does not begin a statement", source.tokens[0], _HINT)


def _create(cursor: TokenCursor, catalog: Catalog) -> Statement:
    replace = cursor.accept("OR", "REPLACE")
    if cursor.accept("MATERIALIZED", "VIEW"):
        return views.create_view(cursor, catalog, replace)
    if cursor.peek() == "VIEW":
        raise cursor.source.unsupported("only materialized views are kept", cursor.token, "CREATE MATERIALIZED VIEW …")
    if cursor.peek() == "TABLE":
        if replace:
            raise cursor.source.unsupported("a table cannot be replaced", cursor.token, "DROP TABLE, then CREATE TABLE")
        cursor.accept("TABLE")
        return tables.create_table(cursor)
    cursor.fail("expected TABLE or MATERIALIZED VIEW after CREATE", "CREATE TABLE …, CREATE MATERIALIZED VIEW …")


def _drop(cursor: TokenCursor) -> Drop:
    kind = "table" if cursor.accept("TABLE") else "view"
    if kind == "view":
        cursor.accept("MATERIALIZED")
        if not cursor.accept("VIEW"):
            cursor.fail("expected TABLE or MATERIALIZED VIEW after DROP")
    if_exists = cursor.accept("IF", "EXISTS")
    name, _ = cursor.identifier(f"a {kind} name")
    if cursor.peek() == "CASCADE":
        raise cursor.source.unsupported("CASCADE is not supported", cursor.token, "drop what depends on it first")
    cursor.end()
    return Drop(kind, name, if_exists)


def _named(cursor: TokenCursor, catalog: Catalog) -> str:
    """[TABLE | [MATERIALIZED] VIEW] name, to the end of the statement. Spark says TABLE for views as well."""
    if cursor.peek() in ("EXTENDED", "FORMATTED") and cursor.peek(1):
        raise cursor.source.unsupported(f"{cursor.peek()} is not supported here", cursor.token, "DESCRIBE name")
    view = cursor.accept("MATERIALIZED", "VIEW") or (bool(cursor.peek(1)) and cursor.accept("VIEW"))
    if not view and cursor.peek(1):
        cursor.accept("TABLE")
    name, token = cursor.identifier("a table or view name")
    cursor.end()
    if view and isinstance(catalog.find(name), TableDef):
        raise cursor.source.error(f"{name!r} is a base table, not a view", token, "leave out VIEW")
    return name


def _show(cursor: TokenCursor, catalog: Catalog) -> Show:
    if cursor.accept("CREATE"):
        if cursor.peek() not in ("TABLE", "VIEW", "MATERIALIZED"):
            cursor.fail("expected TABLE or VIEW after SHOW CREATE")
        return Show("create", _named(cursor, catalog))
    if cursor.accept("TABLES"):
        cursor.end()
        return Show("tables")
    if cursor.accept("VIEWS") or cursor.accept("MATERIALIZED", "VIEWS"):
        cursor.end()
        return Show("views")
    cursor.fail("expected TABLES, VIEWS or CREATE after SHOW", "SHOW TABLES, SHOW VIEWS, SHOW CREATE TABLE name")


def _write(source: SqlText, catalog: Catalog) -> Statement:
    tree = read(source)
    if isinstance(tree, exp.Insert):
        return writes.bind_insert(source, tree, catalog)
    if isinstance(tree, exp.Delete):
        return writes.bind_delete(source, tree, catalog)
    raise source.error("this statement cannot be read", source.tokens[0], _HINT)
