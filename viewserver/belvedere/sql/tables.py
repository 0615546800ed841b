"""CREATE TABLE and ALTER TABLE: columns, their types, and the primary key."""

from __future__ import annotations

from dataclasses import replace

from sqlglot.tokenizer_core import Token, TokenType

from belvedere.errors import SqlError
from belvedere.sql.catalog import TableDef, Ties
from belvedere.sql.cursor import TokenCursor
from belvedere.sql.parser import SqlText
from belvedere.sql.statements import AddColumns, CreateTable
from belvedere.sql.types_by_name import named_type
from belvedere.types import Column, Type


def create_table(cursor: TokenCursor) -> CreateTable:
    """After CREATE TABLE."""
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name, at = cursor.identifier("a table name")
    cursor.expect("(", hint="CREATE TABLE name (column type, …, PRIMARY KEY (…))")
    columns: list[tuple[Column, Token]] = []
    inline: list[str] = []
    key: list[tuple[str, Token]] = []
    while True:
        if cursor.peek() in ("UNIQUE", "CHECK", "FOREIGN", "INDEX") and cursor.peek(1) in ("(", "KEY"):
            raise cursor.source.unsupported(
                f"{cursor.peek()} is not supported", cursor.token, "only PRIMARY KEY constraints are kept"
            )
        if cursor.peek() == "CONSTRAINT" and cursor.peek(2) in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN"):
            raise cursor.source.unsupported(
                "names of constraints are not kept", cursor.token, "without a name: PRIMARY KEY (a, b)"
            )
        if cursor.peek() == "PRIMARY":
            cursor.expect("PRIMARY", "KEY", hint="only PRIMARY KEY constraints are kept")
            if key or inline:
                cursor.fail("a second PRIMARY KEY")
            key = cursor.names("a key column")
        else:
            column, token, is_key = _column(cursor)
            if is_key:
                if inline or key:
                    raise cursor.source.error("a second PRIMARY KEY", token, "composite keys: PRIMARY KEY (a, b)")
                inline.append(column.name)
            columns.append((column, token))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    ties = _properties(cursor) if cursor.accept("TBLPROPERTIES") else Ties.LINEAGE
    if not cursor.done:
        raise cursor.source.unsupported(
            f"{cursor.words[cursor.position][0]!r} after the columns is not supported",
            cursor.token,
            "end the statement here, or give TBLPROPERTIES ('ties' = 'value')",
        )
    table = _table(cursor.source, name, at, columns, key, inline)
    return CreateTable(replace(table, ties=ties), if_not_exists)


def _properties(cursor: TokenCursor) -> Ties:
    found: Ties | None = None
    cursor.expect("(")
    while True:
        name, token = cursor.text("a property name in quotes")
        if name != "ties":
            raise cursor.source.unsupported(f"no table property {name!r}", token, "properties: ties")
        if found is not None:
            raise cursor.source.error("ties of the table twice", token, "keep one of them")
        cursor.expect("=")
        value, at = cursor.text("a property value in quotes")
        if value not in list(Ties):
            raise cursor.source.error(f"ties are settled by {' or '.join(Ties)}, not by {value!r}", at)
        found = Ties(value)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return found


def _table(
    source: SqlText,
    name: str,
    at: Token,
    columns: list[tuple[Column, Token]],
    key: list[tuple[str, Token]],
    inline: list[str],
) -> TableDef:
    by_name: dict[str, str] = {}
    for column, token in columns:
        if column.name.lower() in by_name:
            raise source.error(f"column {column.name!r} twice in table {name!r}", token, "column names ignore case")
        by_name[column.name.lower()] = column.name
    names = list(inline)
    for key_name, token in key:
        if key_name.lower() not in by_name:
            raise source.error(
                f"no column {key_name!r} for the primary key", token, f"columns: {', '.join(by_name.values())}"
            )
        if by_name[key_name.lower()] in names:
            raise source.error(f"column {key_name!r} twice in the primary key", token)
        names.append(by_name[key_name.lower()])
    if not names:
        raise source.error(
            f"table {name!r} has no primary key", at, "add PRIMARY KEY to a column, or PRIMARY KEY (a, b) at the end"
        )
    schema = tuple(Column(c.name, c.type, c.nullable and c.name not in names) for c, _ in columns)
    return TableDef(name, schema, tuple(names))


def _column(cursor: TokenCursor) -> tuple[Column, Token, bool]:
    name, token = cursor.identifier("a column name")
    cursor.accept(":")
    type_ = _type(cursor)
    nullable: bool | None = None
    is_key = False
    while cursor.peek() not in (",", ")", ""):
        at, said = cursor.token, (nullable, is_key)
        if cursor.accept("NOT", "NULL"):
            nullable = False if nullable is None else nullable
        elif cursor.accept("PRIMARY", "KEY"):
            is_key = True
        elif cursor.accept("NULL"):
            nullable = True if nullable is None else nullable
        else:
            raise cursor.source.unsupported(
                f"{cursor.peek()} of column {name!r} is not supported",
                cursor.token,
                "only NOT NULL and PRIMARY KEY are kept",
            )
        if said == (nullable, is_key) or (nullable and is_key):
            raise cursor.source.error(
                f"the options of column {name!r} repeat or contradict each other", at, "NOT NULL or PRIMARY KEY, once"
            )
    return Column(name, type_, nullable is not False), token, is_key


def _type(cursor: TokenCursor) -> Type:
    name, token = cursor.identifier("a type")
    sizes: list[int] = []
    if cursor.accept("("):
        while True:
            text, number = cursor.text("a number")
            if number.token_type is not TokenType.NUMBER or not text.isdigit():
                raise cursor.source.error(f"the size of a type must be a whole number, found {text!r}", number)
            sizes.append(int(text))
            if not cursor.accept(","):
                break
        cursor.expect(")")
    if cursor.accept("PRECISION") and name.lower() != "double":
        raise cursor.source.error(f"type {name.lower()} precision does not exist", token, "use double")
    try:
        return named_type(name, sizes)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise _refuse(cursor.source, message, token, hint) from None


def _refuse(source: SqlText, message: str, token: Token, hint: str) -> SqlError:
    return source.unsupported(message, token, hint or None)


def alter_table(cursor: TokenCursor) -> AddColumns:
    """After ALTER TABLE."""
    name, _ = cursor.identifier("a table name")
    if not cursor.accept("ADD"):
        raise cursor.source.unsupported(
            "only ALTER TABLE … ADD COLUMN is supported",
            cursor.token or cursor.source.tokens[-1],
            "ADD COLUMN name type",
        )
    if not cursor.accept("COLUMNS"):
        cursor.accept("COLUMN")
    many = cursor.accept("(")
    columns: list[Column] = []
    while True:
        column, token, is_key = _column(cursor)
        if is_key:
            raise cursor.source.unsupported("a primary key cannot grow", token, "create another table")
        if not column.nullable:
            raise cursor.source.unsupported(
                f"new column {column.name!r} cannot be NOT NULL", token, "existing rows hold NULL in it"
            )
        if column.name.lower() in (c.name.lower() for c in columns):
            raise cursor.source.error(f"column {column.name!r} twice", token)
        columns.append(column)
        if not cursor.accept(","):
            break
    if many:
        cursor.expect(")")
    cursor.end()
    return AddColumns(name, tuple(columns))
