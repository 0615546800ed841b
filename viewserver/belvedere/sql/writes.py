"""INSERT … VALUES and DELETE by key: constants only, so both become one atomic call of the database."""

from __future__ import annotations

import itertools
from decimal import Decimal

from sqlglot import exp

from belvedere.sql.binder.expressions import ExpressionBinder
from belvedere.sql.binder.scope import Scope
from belvedere.sql.binder.subqueries import conjuncts
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.coercion import INTEGERS, NUMBERS, cast
from belvedere.sql.expr import Literal, Value
from belvedere.sql.parser import SqlText, sql_text
from belvedere.sql.statements import Delete, Insert
from belvedere.types import STRING, Column, Kind


def _table(source: SqlText, catalog: Catalog, node: object) -> TableDef:
    if not isinstance(node, exp.Table):
        raise source.error("expected the name of one table", source.tokens[0], "INSERT INTO t …, DELETE FROM t …")
    for part in ("alias", "joins"):
        if node.args.get(part):
            raise source.unsupported(
                "a write names one table, without an alias", node, "INSERT INTO t …, DELETE FROM t …"
            )
    found = catalog.find(node.name)
    if isinstance(found, TableDef):
        return found
    if found is not None:
        raise source.error(f"{found.name!r} is a view and cannot be written", node, "write its base tables")
    known = ", ".join(sorted(catalog.tables)) or "none yet"
    raise source.error(f"no table {node.name!r}", node, f"tables: {known}")


def _column(source: SqlText, table: TableDef, node: exp.Expr) -> Column:
    if isinstance(node, exp.Column) and node.table and node.table.lower() != table.name.lower():
        raise source.error(f"no table {node.table!r} here for column {node.name!r}", node, f"tables: {table.name}")
    for column in table.columns:
        if column.name.lower() == node.name.lower():
            return column
    names = ", ".join(c.name for c in table.columns)
    raise source.error(f"no column {node.name!r} in table {table.name!r}", node, f"columns: {names}")


def _is_whole(value: Value) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()  # exact, whatever the context; % is not
    return not isinstance(value, float) or value.is_integer()


def _constant(source: SqlText, node: exp.Expr, column: Column) -> Value:
    bound = ExpressionBinder(source, Scope(()), "VALUES").bind(node)
    if not isinstance(bound, Literal):
        raise source.unsupported(f"{sql_text(node)!r} is not a constant", node, "compute values before writing them")
    if bound.value is None:
        return None
    kinds = (bound.type.kind, column.type.kind)
    fits = (
        kinds[0] is kinds[1]
        or kinds[0] is Kind.STRING
        or kinds[1] is Kind.STRING
        or (kinds[0] in NUMBERS and kinds[1] in NUMBERS)
        or kinds == (Kind.DATE, Kind.TIMESTAMP)
    )
    exact = kinds[1] not in INTEGERS or _is_whole(bound.value)
    if isinstance(bound.value, float) and kinds[1] is Kind.DECIMAL:
        bound = Literal(repr(bound.value), STRING)
    converted = cast(bound, column.type) if fits and exact else None
    if not isinstance(converted, Literal):
        raise source.error(
            f"{sql_text(node)} does not fit column {column.name!r} of type {column.type}",
            node,
            f"write a {column.type}",
        )
    return converted.value


def bind_insert(source: SqlText, tree: exp.Insert, catalog: Catalog) -> Insert:
    """INSERT INTO table [(columns)] VALUES (…), …"""
    target = tree.this
    table = _table(source, catalog, target.this if isinstance(target, exp.Schema) else target)
    listed = target.expressions if isinstance(target, exp.Schema) else []
    columns = [_column(source, table, c) for c in listed] if listed else list(table.columns)
    names = [c.name for c in columns]
    if len(set(names)) != len(names):
        raise source.error("a column is listed twice", target)
    missing = [k for k in table.key if k not in names]
    if missing:
        raise source.error(
            f"key column {missing[0]!r} of table {table.name!r} is missing", target, "list every key column"
        )
    values = tree.args.get("expression")
    if not isinstance(values, exp.Values):
        raise source.unsupported(
            "INSERT … SELECT is not supported", values or target, "INSERT … VALUES, or load a file"
        )
    rows = []
    for row in values.expressions:
        cells = row.expressions if isinstance(row, exp.Tuple) else [row.this if isinstance(row, exp.Paren) else row]
        if len(cells) != len(columns):
            raise source.error(f"{len(cells)} values for {len(columns)} columns", row, f"columns: {', '.join(names)}")
        converted = tuple(_constant(source, cell, column) for cell, column in zip(cells, columns, strict=True))
        for cell, value, column in zip(cells, converted, columns, strict=True):
            if value is None and not column.nullable:
                raise source.error(f"column {column.name!r} cannot be NULL", cell)
        rows.append(converted)
    return Insert(table.name, tuple(names), tuple(rows))


_DELETE_HINT = "DELETE FROM t WHERE key = … [AND key2 = …], or key IN (…)"


def bind_delete(source: SqlText, tree: exp.Delete, catalog: Catalog) -> Delete:
    """DELETE FROM table WHERE … by whole primary keys."""
    table = _table(source, catalog, tree.this)
    where = tree.args.get("where")
    if where is None:
        raise source.unsupported(f"DELETE needs the keys of table {table.name!r}", tree.this, _DELETE_HINT)
    by_column: dict[str, list[Value]] = {}
    conditions = conjuncts(where.this)
    for part in conditions:
        if isinstance(part, exp.In) and isinstance(part.this, exp.Tuple) and part.expressions:
            if len(conditions) > 1:
                raise source.unsupported("a condition beside a list of keys is not supported", part, _DELETE_HINT)
            return Delete(table.name, _tuples(source, table, part))
        left = part.this if isinstance(part, exp.EQ | exp.In) else None
        values = [part.expression] if isinstance(part, exp.EQ) else part.expressions
        if not isinstance(left, exp.Column) or not values:
            raise source.unsupported(f"DELETE by {sql_text(part)!r} is not supported", part, _DELETE_HINT)
        column = _column(source, table, left)
        if column.name not in table.key or column.name in by_column:
            raise source.unsupported(
                f"DELETE needs one condition for each key column of table {table.name!r}",
                left,
                f"key: {', '.join(table.key)}",
            )
        by_column[column.name] = [_key(source, part, _constant(source, v, column)) for v in values]
    missing = [k for k in table.key if k not in by_column]
    if missing:
        raise source.unsupported(f"DELETE lacks key column {missing[0]!r}", where.this, _DELETE_HINT)
    keys = tuple(dict.fromkeys(itertools.product(*(by_column[k] for k in table.key))))
    return Delete(table.name, keys)


def _key(source: SqlText, node: exp.Expr, value: Value) -> Value:
    if value is None:
        raise source.error("a key is never NULL", node)
    return value


def _tuples(source: SqlText, table: TableDef, part: exp.In) -> tuple[tuple[Value, ...], ...]:
    columns = [_column(source, table, c) for c in part.this.expressions]
    if sorted(c.name for c in columns) != sorted(table.key):
        raise source.unsupported("DELETE needs every key column", part, f"key: {', '.join(table.key)}")
    keys = []
    for row in part.expressions:
        if not isinstance(row, exp.Tuple) or len(row.expressions) != len(columns):
            raise source.error(f"expected a row of {len(columns)} constants", row)
        values = {
            c.name: _key(source, row, _constant(source, v, c)) for c, v in zip(columns, row.expressions, strict=True)
        }
        keys.append(tuple(values[k] for k in table.key))
    return tuple(dict.fromkeys(keys))
