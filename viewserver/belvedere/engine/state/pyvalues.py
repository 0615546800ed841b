"""Single values as Python objects, for reads of one row: Decimal, date, UTC datetime and the plain ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from belvedere.types import Kind, Type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_EXACT = Context(prec=80)
_WORD = (1 << 64) - 1


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """unscaled * 10**-scale, exactly."""
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def converter(type: Type) -> Callable[[Any], Any] | None:
    """From the physical value (int, float, bool, bytes, or a pair of words) to the Python object; None: as it is."""
    kind = type.kind
    if kind is Kind.STRING:
        return bytes.decode
    if kind is Kind.DATE:
        return lambda v: date.fromordinal(_DAY_ZERO + v)
    if kind is Kind.TIMESTAMP:
        return lambda v: _EPOCH + timedelta(microseconds=v)
    if kind is Kind.DECIMAL:
        scale = type.scale
        if type.wide:
            return lambda v: decimal_of((v[1] << 64) | (v[0] & _WORD), scale)
        return lambda v: decimal_of(v, scale)
    return None
