"""Type names in SQL to types, with the aliases that Spark knows."""

from __future__ import annotations

from sqlglot import exp

from belvedere.sql.parser import Source, sql_text
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
_INSTEAD = {
    _Name.FLOAT: "double",
    _Name.TINYINT: "int",
    _Name.SMALLINT: "int",
    _Name.TIMESTAMPNTZ: "timestamp (always UTC)",
    _Name.UBIGINT: "decimal(20,0)",
    _Name.UINT: "bigint",
}
KNOWN = "boolean, int, bigint, double, decimal(p,s), string, binary, date, timestamp"


def bind_type(source: Source, node: exp.DataType) -> Type:
    """The type of a DataType node."""
    name = node.this
    if name is _Name.DECIMAL:
        return _decimal(source, node)
    found = _PLAIN.get(name)
    if found is None:
        instead = _INSTEAD.get(name)
        text = sql_text(node).lower()
        raise source.unsupported(
            f"type {text} is not supported", node, f"use {instead}" if instead else f"types: {KNOWN}"
        )
    return found


def _decimal(source: Source, node: exp.DataType) -> Type:
    sizes = [int(p.this.name) for p in node.expressions]
    precision = sizes[0] if sizes else 10
    scale = sizes[1] if len(sizes) > 1 else 0
    if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        raise source.error(
            f"decimal({precision},{scale}) does not exist", node, f"1 <= precision <= {MAX_PRECISION}, scale <= precision"
        )
    return decimal(precision, scale)
