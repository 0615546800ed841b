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
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    FLOAT = "float"
    BOOLEAN = "boolean"

    @property
    def width(self) -> int | None:
        """Bytes; None: as many as there are."""
        return _WIDTHS.get(self)

    def reads(self, type: Type) -> bool:
        """Whether values of that type can be read so."""
        return (self is Encoding.TEXT and type.kind is not Kind.BINARY) or type.kind in _KINDS.get(self, ())


_WIDTHS = {Encoding.INT: 4, Encoding.LONG: 8, Encoding.DOUBLE: 8, Encoding.FLOAT: 4, Encoding.BOOLEAN: 1}
_KINDS = {
    Encoding.RAW: (Kind.BINARY,),
    Encoding.INT: (Kind.INT, Kind.BIGINT),
    Encoding.LONG: (Kind.BIGINT,),
    Encoding.DOUBLE: (Kind.DOUBLE,),
    Encoding.FLOAT: (Kind.DOUBLE,),
    Encoding.BOOLEAN: (Kind.BOOLEAN,),
}


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of the key stands in the row key, in the order of the key, and names no family."""

    encoding: Encoding
    family: str = ""
    qualifier: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """`table`: its name there, with the namespace if that is not the default. `columns`: those of the base table.
    `set_scope`: whether its families may be set to be replicated, where they are not."""

    table: str
    columns: tuple[StoredColumn, ...]
    set_scope: bool = False

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column.family for column in self.columns if column.family))
