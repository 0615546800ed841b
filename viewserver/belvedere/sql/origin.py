"""Where the rows of a base table live if they are another system's: its table, and which cell is which column.

A table with an origin is never created, written or dropped by a pool; it follows the origin's log.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from belvedere.types import Kind, Type


class Encoding(enum.StrEnum):
    """How a value stands in a cell or a row key. Numbers are big-endian, as HBase's `Bytes` writes them."""

    TEXT = "text"
    """UTF-8; what is not a string is read as CAST does."""
    RAW = "raw"
    SHORT = "short"
    INT = "int"
    """Also days since 1970."""
    LONG = "long"
    MILLIS = "millis"
    """A long: milliseconds since 1970, UTC."""
    MICROS = "micros"
    DOUBLE = "double"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    """`Bytes.toBytes(BigDecimal)`: four bytes for the scale, and the unscaled number."""
    JSON = "json"
    """A value of JSON, or a member of one."""
    AVRO = "avro"
    """A value of Avro without a header, or a field of one."""
    ORDERED = "ordered"
    """`OrderedBytes`, ascending: in row keys, where parts in this form follow each other without delimiters."""

    @property
    def width(self) -> int | None:
        """Bytes; None: as many as there are."""
        return _WIDTHS.get(self)

    def reads(self, type: Type) -> bool:
        """Whether values of that type can be read so."""
        if self in _NOT:
            return type.kind not in _NOT[self]
        return type.kind in _KINDS[self]


_WIDTHS = {
    Encoding.SHORT: 2,
    Encoding.INT: 4,
    Encoding.LONG: 8,
    Encoding.MILLIS: 8,
    Encoding.MICROS: 8,
    Encoding.DOUBLE: 8,
    Encoding.FLOAT: 4,
    Encoding.BOOLEAN: 1,
}
_NOT = {Encoding.TEXT: (Kind.BINARY,), Encoding.JSON: (Kind.BINARY,), Encoding.AVRO: ()}
_KINDS = {
    Encoding.RAW: (Kind.BINARY,),
    Encoding.SHORT: (Kind.INT, Kind.BIGINT),
    Encoding.INT: (Kind.INT, Kind.BIGINT, Kind.DATE),
    Encoding.LONG: (Kind.BIGINT,),
    Encoding.MILLIS: (Kind.TIMESTAMP,),
    Encoding.MICROS: (Kind.TIMESTAMP,),
    Encoding.DOUBLE: (Kind.DOUBLE,),
    Encoding.FLOAT: (Kind.DOUBLE,),
    Encoding.BOOLEAN: (Kind.BOOLEAN,),
    Encoding.DECIMAL: (Kind.DECIMAL,),
    Encoding.ORDERED: (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.STRING),
}
IN_CELLS_ONLY = (Encoding.DECIMAL, Encoding.JSON, Encoding.AVRO)
WITH_MEMBERS = (Encoding.JSON, Encoding.AVRO)


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the key stands in the row key, in the order of the key, and names no family; `width`: how many bytes
    a text or raw part of the row key has. `member`: of a cell in JSON or Avro the names that lead to the value;
    `schema`: Avro's, as JSON."""

    encoding: Encoding
    family: str = ""
    qualifier: str = ""
    width: int | None = None
    member: tuple[str, ...] = ()
    schema: str = ""


@dataclass(frozen=True, slots=True)
class RowKey:
    """What stands in row keys beside the columns. `skip`: bytes before them, such as a salt or a hash; `skip_to`: they
    begin behind the first of this text. `delimiter`: between two columns."""

    skip: int = 0
    skip_to: str = ""
    delimiter: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """`table`: its name there, with the namespace if that is not the default. `columns`: those of the base table.
    `set_scope`: whether its families may be set to be replicated, where they are not."""

    table: str
    columns: tuple[StoredColumn, ...]
    set_scope: bool = False
    row_key: RowKey = RowKey()

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.family for column in self.columns if column.family))
