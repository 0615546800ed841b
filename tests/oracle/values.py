"""Values as text and as comparable things: one canonical form for rows from Belvedere, DuckDB, Spark and test files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

RELATIVE = 1e-9
"""How far doubles of two engines may differ where the other engine adds in its own order (DuckDB, Spark)."""


def text(value: Any, type: str) -> str:
    """One value as test files write it; decimals show their scale, doubles are never mistaken for integers."""
    if value is None:
        return "NULL"
    if type == "double":
        return double_text(float(value))
    if type.startswith("decimal"):
        scale = int(type[:-1].split(",")[1])
        return f"{Decimal(value):.{scale}f}"
    if type == "boolean":
        return "true" if value else "false"
    if type == "timestamp":
        return str((value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None).isoformat(" "))
    if type == "binary":
        return f"X'{bytes(value).hex()}'"
    if type == "string":
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def double_text(value: float) -> str:
    """Shortest form that reads back as the same double; zeros have no sign, since -0.0 = 0.0 in SQL."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value + 0.0)


def arrow_name(type: pa.DataType) -> str:
    """An Arrow type by its SQL name."""
    if pa.types.is_decimal(type):
        return f"decimal({type.precision},{type.scale})"
    for check, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int32, "int"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_float64, "double"),
        (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"),
        (pa.types.is_binary, "binary"),
        (pa.types.is_large_binary, "binary"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_null, "void"),
    ):
        if check(type):
            return name
    return str(type)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a SQL type name, as the public interface gives it."""
    if name.startswith("decimal"):
        precision, scale = name[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }[name]


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of an Arrow table as Python tuples."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


def normal(value: Any) -> Any:
    """A value that equals what SQL calls equal: NaN is one value, numbers by value, naive times are UTC."""
    if isinstance(value, bool) or value is None:
        return ("bool", value) if value is not None else None
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def _order(row: Sequence[Any]) -> tuple[Any, ...]:
    """A total order over normal rows; doubles coarsely, since they may differ in the last bits."""
    return tuple(
        (0, "")
        if v is None
        else (1, f"{v:.6e}")
        if isinstance(v, (float, Decimal))
        else (1, f"{type(v).__name__}{v!r}")
        for v in row
    )


def same_bag(
    actual: Iterable[Sequence[Any]], wanted: Iterable[Sequence[Any]], *, exact: bool = False, relative: float = RELATIVE
) -> str | None:
    """None if both bags of rows are equal, else what is too much and what is missing.

    Doubles must be equal to the bit, or (unless `exact`) within `relative`: another engine rounds its sums differently.
    """
    left, right = Counter(map(_normal_row, actual)), Counter(map(_normal_row, wanted))
    extra, missing = list((left - right).elements()), list((right - left).elements())
    if not exact and len(extra) == len(missing):
        pairs = zip(sorted(extra, key=_order), sorted(missing, key=_order), strict=True)
        if all(_near(a, b, relative) for a, b in pairs) or _match(extra, missing, relative):
            return None
    if not extra and not missing:
        return None
    return f"not expected: {_some(extra)}; missing: {_some(missing)}"


def _normal_row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(normal(v) for v in row)


def _near(a: Sequence[Any], b: Sequence[Any], relative: float) -> bool:
    return all(_near_value(x, y, relative) for x, y in zip(a, b, strict=True))


def _near_value(x: Any, y: Any, relative: float) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return x == y or math.isclose(x, y, rel_tol=relative, abs_tol=1e-12)
    return bool(x == y)


def _match(extra: list[tuple[Any, ...]], missing: list[tuple[Any, ...]], relative: float) -> bool:
    """Pairing without an order, for the few rows whose rounded doubles sort differently."""
    left = list(missing)
    for row in extra:
        partner = next((i for i, other in enumerate(left) if _near(row, other, relative)), None)
        if partner is None:
            return False
        del left[partner]
    return True


def _some(rows: list[tuple[Any, ...]]) -> str:
    shown = ", ".join(map(_show, rows[:5]))
    return (shown or "nothing") + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")


def _show(row: tuple[Any, ...]) -> str:
    return "(" + ", ".join(str(v) if isinstance(v, (Decimal, date)) else repr(v) for v in row) + ")"
