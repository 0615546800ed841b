"""Types by their names in SQL and in manifests."""

from __future__ import annotations

from collections.abc import Sequence

from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, MAX_PRECISION, STRING, TIMESTAMP, Type, decimal

TYPE_NAMES: dict[str, Type] = {
    **dict.fromkeys(("boolean", "bool"), BOOLEAN),
    **dict.fromkeys(("int", "integer"), INT),
    **dict.fromkeys(("bigint", "long"), BIGINT),
    **dict.fromkeys(("double",), DOUBLE),
    **dict.fromkeys(("string", "varchar", "char", "text"), STRING),
    **dict.fromkeys(("binary", "bytes"), BINARY),
    "date": DATE,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), TIMESTAMP),
}
_INSTEAD = {
    **dict.fromkeys(("float", "real"), "double"),
    **dict.fromkeys(("tinyint", "smallint", "byte", "short"), "int"),
    "timestamp_ntz": "timestamp (always UTC)",
}
_DECIMALS = ("decimal", "dec", "numeric")
KNOWN = "boolean, int, bigint, double, decimal(p,s), string, binary, date, timestamp"


def is_type(name: str) -> bool:
    """Whether a type has this name, in lower case."""
    return name in TYPE_NAMES or name in _DECIMALS


def named_type(name: str, sizes: Sequence[int]) -> Type:
    """The type of that name; a ValueError says what would work."""
    name = name.lower()
    if name in _DECIMALS:
        precision = sizes[0] if sizes else 10
        scale = sizes[1] if len(sizes) > 1 else 0
        if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision or len(sizes) > 2:
            listed = ",".join(map(str, sizes))
            raise ValueError(
                f"type {name}({listed}) does not exist; 1 <= precision <= {MAX_PRECISION}, scale <= precision"
            )
        return decimal(precision, scale)
    if name not in TYPE_NAMES:
        instead = _INSTEAD.get(name)
        raise ValueError(f"type {name} is not supported; " + (f"use {instead}" if instead else f"types: {KNOWN}"))
    if sizes and name in ("varchar", "char"):
        raise ValueError(f"type {name} with a length is not supported; use string: lengths are not checked")
    if sizes:
        raise ValueError(f"type {name} takes no size")
    return TYPE_NAMES[name]


def parse_type(text: str) -> Type:
    """A type from its text, as in manifests: `decimal(12,2)`."""
    name, _, rest = text.strip().partition("(")
    try:
        sizes = [int(part) for part in rest.rstrip(") ").split(",")] if rest else []
    except ValueError:
        raise ValueError(f"type {text!r} cannot be read; types: {KNOWN}") from None
    return named_type(name.strip(), sizes)
