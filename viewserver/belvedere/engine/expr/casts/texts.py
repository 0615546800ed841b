"""Casts to strings, spelled as Spark (that is, Java) does, and of integers to their bytes."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr import calendar
from belvedere.engine.vec import Vec
from belvedere.types import Type


def java_double(x: float) -> str:
    """Double.toString: plain from 1e-3 up to 1e7, otherwise d.dddE[-]n, always with a digit after the point."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "Infinity" if x > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, x) < 0 else ""
    x = abs(x)
    if x == 0:
        return sign + "0.0"
    shortest = repr(x)
    if len(shortest.partition("e")[0].replace(".", "").strip("0")) == 1:
        # Java prints two digits at least, and of these the nearest: 4.9E-324, not 5.0E-324.
        shortest = f"{x:.1e}"
    digits, _, power = shortest.partition("e")
    whole, _, fraction = digits.partition(".")
    shift = int(power or 0)
    figures = (whole + fraction).lstrip("0")
    # x = 0.figures * 10^point
    point = len(whole) + shift - (len(whole + fraction) - len(figures))
    figures = figures.rstrip("0")
    if 1e-3 <= x < 1e7:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{figures}"
        if len(figures) <= point:
            return f"{sign}{figures}{'0' * (point - len(figures))}.0"
        return f"{sign}{figures[:point]}.{figures[point:]}"
    return f"{sign}{figures[0]}.{figures[1:] or '0'}E{point - 1}"


def from_double(vec: Vec, type: Type) -> Vec:
    return Vec(type, pa.array([java_double(x) for x in vec.data.tolist()], pa.string()), vec.status)


def from_integer(vec: Vec, type: Type) -> Vec:
    return Vec(type, pc.cast(pa.array(vec.data), pa.string()), vec.status)


def from_boolean(vec: Vec, type: Type) -> Vec:
    return Vec(type, pc.if_else(pa.array(vec.data), "true", "false"), vec.status)


def from_decimal(vec: Vec, type: Type) -> Vec:
    """All digits of the scale, never an exponent."""
    scale = vec.type.scale
    if vec.type.wide:
        buffer = pa.py_buffer(np.ascontiguousarray(vec.data))
        plain = pc.cast(pa.Array.from_buffers(pa.decimal128(38, 0), len(vec), [None, buffer], 0), pa.string())
        negative = vec.data[:, 1] < 0
    else:
        plain = pc.cast(pa.array(vec.data), pa.string())
        negative = vec.data < 0
    if scale == 0:
        return Vec(type, plain, vec.status)
    digits = pc.utf8_lpad(pc.ascii_ltrim(plain, characters="-"), width=scale + 1, padding="0")
    sign = pc.if_else(pa.array(negative), "-", "")
    whole, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    text = pc.binary_join_element_wise(sign, whole, ".", fraction, "")
    return Vec(type, text, vec.status)


def from_date(vec: Vec, type: Type) -> Vec:
    days = np.clip(vec.data, calendar.MIN_DAY, calendar.MAX_DAY).astype(np.int32)
    return Vec(type, pc.cast(pa.array(days).cast(pa.date32()), pa.string()), vec.status)


def from_timestamp(vec: Vec, type: Type) -> Vec:
    """yyyy-mm-dd hh:mm:ss, then microseconds without trailing zeros if there are any."""
    micros = np.clip(vec.data, calendar.MIN_MICROS, calendar.MAX_MICROS)
    text = pc.cast(pa.array(micros).cast(pa.timestamp("us")), pa.string())
    # Arrow always prints six digits, so the zeros trimmed are those of the fraction.
    return Vec(type, pc.ascii_rtrim(pc.ascii_rtrim(text, characters="0"), characters="."), vec.status)
