"""Type names in SQL to types, with the aliases that Spark knows."""

from __future__ import annotations

from sqlglot import exp

from belvedere.sql.parser import SqlText, first_offset, nearest_offset, sql_text
from belvedere.sql.types_by_name import KNOWN
from belvedere.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    Type,
    decimal,
)

_Name = exp.DataType.Type
_PLAIN = {
    _Name.BOOLEAN: BOOLEAN,
    _Name.INT: INT,
    _Name.BIGINT: BIGINT,
    _Name.DOUBLE: DOUBLE,
    _Name.TEXT: STRING,
    _Name.VARCHAR: STRING,
    _Name.CHAR: STRING,
    _Name.BINARY: BINARY,
    _Name.DATE: DATE,
    _Name.TIMESTAMPTZ: TIMESTAMP,
    _Name.TIMESTAMP: TIMESTAMP,
    _Name.TIMESTAMPLTZ: TIMESTAMP,
}
BINDABLE = frozenset([*_PLAIN, _Name.DECIMAL])
"""What sqlglot may call a type that exists here."""
_INSTEAD = {
    _Name.FLOAT: "double",
    _Name.TINYINT: "int",
    _Name.SMALLINT: "int",
    _Name.TIMESTAMPNTZ: "timestamp (always UTC)",
    _Name.UBIGINT: "decimal(20,0)",
    _Name.UINT: "bigint",
}


def bind_type(source: SqlText, node: exp.DataType, cast: exp.Expr) -> Type:
    """The type of a DataType node inside a cast."""
    at = _offset(source, node, cast)
    name = node.this
    if name is _Name.DECIMAL:
        return _decimal(source, node, at)
    found = _PLAIN.get(name)
    if found is None:
        instead = _INSTEAD.get(name)
        # as written: sqlglot calls VARBINARY a binary
        written = next((t.text.lower() for t in source.tokens if t.start == at and t.text[:1].isalpha()), None)
        text = written or sql_text(node).lower()
        raise source.unsupported(
            f"type {text} is not supported", at, f"use {instead}" if instead else f"types: {KNOWN}"
        )
    if node.expressions and name in (_Name.VARCHAR, _Name.CHAR):
        text = sql_text(node).lower()
        raise source.unsupported(f"type {text} is not supported", at, "use string, and left(s, n) to cut it")
    if node.expressions:
        raise source.error(f"type {sql_text(node).lower()} takes no size", at, "only decimal(p,s) has sizes")
    return found


def _offset(source: SqlText, node: exp.DataType, cast: exp.Expr) -> int | None:
    # Type names carry no mark: the word after the first AS or :: that follows the value, or, if that is a keyword and
    # has no mark either, after the first AS or :: before this type.
    start = first_offset(cast.this)
    name = sql_text(node).upper().partition("(")[0].partition("<")[0]
    for token, following in zip(source.tokens, source.tokens[1:], strict=False):
        if token.text.upper() not in ("AS", "::"):
            continue
        if following.text.upper() == name if start is None else token.start > start:
            return following.start
    return nearest_offset(cast)


def _size(source: SqlText, node: exp.Expr) -> int:
    if (
        not isinstance(node, exp.Literal)
        or node.is_string
        or not (node.name.isascii() and node.name.isdigit() and len(node.name) < 9)
    ):
        raise source.error(f"the size of a type must be a whole number, found {sql_text(node)}", node, "decimal(12,2)")
    return int(node.name)


def _decimal(source: SqlText, node: exp.DataType, at: int | None) -> Type:
    sizes = [_size(source, p.this) for p in node.expressions]
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision or len(sizes) > 2:
        listed = ",".join(map(str, sizes or [precision, scale]))
        raise source.error(
            f"decimal({listed}) does not exist", at, f"1 <= precision <= {MAX_PRECISION}, scale <= precision"
        )
    return decimal(precision, scale)
