"""Materialized views from SQL: CREATE, EXPLAIN, and what a query must fulfil to become one."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from belvedere.errors import CatalogError
from belvedere.sql.binder import bind_tree
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.cursor import TokenCursor
from belvedere.sql.durations import EXAMPLE, parse_duration, parse_interval
from belvedere.sql.parser import SqlText, statements
from belvedere.sql.query import Query, relations
from belvedere.sql.reading import read
from belvedere.sql.statements import CreateView, Explain
from belvedere.types import Kind

ADHOC = "query"
"""Name of the view that stands for a SELECT which is only explained or answered."""


def bind_query(sql: str, catalog: Catalog) -> Query:
    """The bound form of one SELECT."""
    found = statements(sql)
    if len(found) != 1:
        raise SqlText(sql, found[1].tokens if found else ()).error(
            "expected one query" if found else "an empty query", found[1].tokens[0] if found else None
        )
    return bind_tree(found[0], read(found[0]), catalog)


def create_view(cursor: TokenCursor, catalog: Catalog, or_replace: bool) -> CreateView:
    """After CREATE [OR REPLACE] MATERIALIZED VIEW."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name, at = cursor.identifier("a view name")
    if or_replace and if_not_exists:
        raise cursor.source.error("OR REPLACE and IF NOT EXISTS contradict each other", at, "keep one of them")
    key: list[tuple[str, Token]] | None = None
    retention: int | None = None
    while not cursor.accept("AS"):
        if (cursor.peek() == "KEY" and key is not None) or (cursor.peek() == "RETENTION" and retention is not None):
            raise cursor.source.error(f"{cursor.peek()} of view {name!r} twice", cursor.token, "keep one of them")
        if cursor.accept("KEY"):
            key = cursor.names("a key column")
        elif cursor.accept("RETENTION"):
            retention = _retention(cursor)
        elif cursor.accept("TBLPROPERTIES"):
            key, retention = _properties(cursor, key, retention)
        elif cursor.peek() == "(":
            raise cursor.source.unsupported(
                "column names after the view's name are not supported",
                cursor.token,
                "name them in the SELECT: x AS name",
            )
        else:
            cursor.fail("expected AS SELECT …", "options are KEY (…), RETENTION '1h' and TBLPROPERTIES (…)")
    body = cursor.rest()
    view = make_view(name, body, read(body), catalog, key, retention, at)
    return CreateView(view, or_replace, if_not_exists)


def _retention(cursor: TokenCursor) -> int:
    interval = cursor.accept("INTERVAL")
    text, token = cursor.text("a duration such as '1h'")
    if interval and text.strip().isdigit():
        unit, _ = cursor.identifier("a unit such as HOUR")
        text = f"{text} {unit}"
    found = parse_interval(text) if interval else parse_duration(text)
    if found is None:
        what, hint = ("an interval", "INTERVAL '1' HOUR, or RETENTION '1h'") if interval else ("a duration", EXAMPLE)
        raise cursor.source.error(f"{text!r} is not {what}", token, hint)
    return found


def _properties(
    cursor: TokenCursor, key: list[tuple[str, Token]] | None, retention: int | None
) -> tuple[list[tuple[str, Token]] | None, int | None]:
    cursor.expect("(")
    while True:
        name, token = cursor.text("a property name in quotes")
        cursor.expect("=")
        value, at = cursor.text("a property value in quotes")
        if (name == "key" and key is not None) or (name == "retention" and retention is not None):
            raise cursor.source.error(f"{name} of the view twice", token, "keep one of them")
        if name == "key":
            key = [(part.strip(), at) for part in value.split(",")]
        elif name == "retention":
            retention = parse_duration(value)
            if retention is None:
                raise cursor.source.error(f"{value!r} is not a duration", at, EXAMPLE)
        else:
            raise cursor.source.unsupported(f"no view property {name!r}", token, "properties: key, retention")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return key, retention


def make_view(
    name: str,
    body: SqlText,
    tree: exp.Expr,
    catalog: Catalog,
    key: Sequence[tuple[str, Token | None]] | None = None,
    retention_ms: int | None = None,
    at: Token | None = None,
) -> ViewDef:
    """Bind the query of a view and check what only views must fulfil."""
    query = bind_tree(body, tree, catalog)
    seen: dict[str, str] = {}
    for column in query.schema:
        if column.name.lower() in seen:
            raise body.error(
                f"view {name!r} has two columns {column.name!r}", at or body.tokens[0], "name one of them: x AS other"
            )
        if column.type.kind is Kind.NULL:
            raise body.error(
                f"column {column.name!r} of view {name!r} is NULL without a type",
                at or body.tokens[0],
                "cast(null as string)",
            )
        seen[column.name.lower()] = column.name
    names: list[str] = []
    for key_name, token in key or ():
        if key_name.lower() not in seen:
            raise body.error(
                f"key column {key_name!r} is not a column of view {name!r}",
                token or body.tokens[0],
                f"columns: {', '.join(seen.values())}",
            )
        if seen[key_name.lower()] in names:
            raise body.error(f"column {key_name!r} twice in the key of view {name!r}", token or body.tokens[0])
        names.append(seen[key_name.lower()])
    _refuse_cycle(name, query, catalog)
    return ViewDef(name, body.sql, query, tuple(names) if key is not None else None, retention_ms)


def _refuse_cycle(name: str, query: Query, catalog: Catalog) -> None:
    def path(below: Query, trail: tuple[str, ...]) -> tuple[str, ...] | None:
        for relation in sorted(relations(below)):
            if relation.lower() == name.lower():
                return (*trail, relation)
            found = catalog.find(relation)
            if isinstance(found, ViewDef):
                deeper = path(found.query, (*trail, relation))
                if deeper is not None:
                    return deeper
        return None

    trail = path(query, (name,))
    if trail is not None:
        raise CatalogError(f"view {name!r} would read itself: {' reads '.join(trail)}")


def explain(cursor: TokenCursor, catalog: Catalog) -> Explain:
    """After EXPLAIN."""
    format_ = "text"
    if cursor.accept("FORMAT"):
        cursor.accept("=")
        word, token = cursor.identifier("a format")
        format_ = word.lower()
        if format_ not in ("text", "json", "svg"):
            raise cursor.source.error(f"no format {word!r}", token, "formats: text, json, svg")
    if cursor.peek() == "CREATE":
        cursor.accept("CREATE")
        replace = cursor.accept("OR", "REPLACE")
        cursor.expect("MATERIALIZED", "VIEW")
        return Explain(create_view(cursor, catalog, replace).view, format_)
    if cursor.peek() in ("SELECT", "WITH", "FROM", "("):
        body = cursor.rest()
        return Explain(make_view(ADHOC, body, read(body), catalog), format_)
    if cursor.peek() in ("ANALYZE", "EXTENDED", "FORMATTED", "CODEGEN", "COST") and cursor.peek(1):
        raise cursor.source.unsupported(
            f"EXPLAIN {cursor.peek()} is not supported", cursor.token, "EXPLAIN [FORMAT text | json | svg] SELECT …"
        )
    if not cursor.accept("MATERIALIZED", "VIEW") and cursor.peek(1):
        cursor.accept("VIEW")
    name, token = cursor.identifier("a view name or a SELECT")
    cursor.end()
    found = catalog.find(name)
    if isinstance(found, TableDef):
        raise cursor.source.error(f"{name!r} is a base table, which has no plan", token, "explain a view or a SELECT")
    if found is None:
        known = ", ".join(sorted(catalog.views)) or "none yet"
        raise cursor.source.error(f"no view {name!r}", token, f"views: {known}")
    return Explain(found, format_)
