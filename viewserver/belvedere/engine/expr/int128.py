"""128-bit arithmetic for decimals: unsigned helpers on (low, high) word pairs and the loops over rows that use them.

Numba has no 128-bit integers and gives signed overflow no meaning, so everything is uint64, magnitudes and signs apart.
A row whose exact intermediate result needs more than 128 bits is flagged SLOW, and the caller computes it with Python
integers. Constants must be uint64 too: mixed with a signed integer, numba would go to floating point.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel, part

OK, SLOW, TOO_BIG, BY_ZERO = 0, 1, 2, 3

POWERS = np.array([[10**k & 0xFFFFFFFFFFFFFFFF, 10**k >> 64] for k in range(39)], np.uint64)
"""10^k as (low, high) words."""

_0, _1 = np.uint64(0), np.uint64(1)
_32, _63, _64 = np.uint64(32), np.uint64(63), np.uint64(64)
_LOW = np.uint64(0xFFFFFFFF)
_BASE = np.uint64(1 << 32)
_SIGN = np.uint64(1 << 63)


@part
def mul64(a, b):  # type: ignore[no-untyped-def]  # compiled: all words are uint64
    """a * b as (low, high)."""
    a0, a1, b0, b1 = a & _LOW, a >> _32, b & _LOW, b >> _32
    p00, p01, p10, p11 = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    middle = (p00 >> _32) + (p01 & _LOW) + (p10 & _LOW)
    return (p00 & _LOW) | (middle << _32), p11 + (p01 >> _32) + (p10 >> _32) + (middle >> _32)


@part
def mul128(al, ah, bl, bh):  # type: ignore[no-untyped-def]
    """a * b as (low, high, fits)."""
    low, high = mul64(al, bl)
    if ah == _0 and bh == _0:
        return low, high, True
    if ah != _0 and bh != _0:
        return low, high, False
    x, carry = mul64(ah, bl) if ah != _0 else mul64(al, bh)
    total = high + x
    return low, total, carry == _0 and total >= high


@part
def leading_zeros(x):  # type: ignore[no-untyped-def]
    n = _0
    while x & _SIGN == _0:
        x <<= _1
        n += _1
    return n


@part
def div_2_by_1(high, low, d):  # type: ignore[no-untyped-def]
    """(high, low) / d for high < d: quotient and remainder (Hacker's Delight, divlu)."""
    s = leading_zeros(d)
    d <<= s
    d1, d0 = d >> _32, d & _LOW
    top = high << s
    if s > _0:
        top |= low >> (_64 - s)
    rest = low << s
    r1, r0 = rest >> _32, rest & _LOW
    q1 = top // d1
    r = top - q1 * d1
    while q1 >= _BASE or q1 * d0 > (r << _32) + r1:
        q1 -= _1
        r += d1
        if r >= _BASE:
            break
    middle = (top << _32) + r1 - q1 * d
    q0 = middle // d1
    r = middle - q0 * d1
    while q0 >= _BASE or q0 * d0 > (r << _32) + r0:
        q0 -= _1
        r += d1
        if r >= _BASE:
            break
    return (q1 << _32) + q0, ((middle << _32) + r0 - q0 * d) >> s


@part
def divmod128(nl, nh, dl, dh):  # type: ignore[no-untyped-def]
    """n / d: (quotient low, high, remainder low, high); d is not zero."""
    if dh == _0:
        if nh == _0:
            q = nl // dl
            return q, _0, nl - q * dl, _0
        qh = nh // dl
        ql, r = div_2_by_1(nh - qh * dl, nl, dl)
        return ql, qh, r, _0
    s = leading_zeros(dh)
    top = dh << s
    if s > _0:
        top |= dl >> (_64 - s)
    q, _ = div_2_by_1(nh >> _1, (nl >> _1) | (nh << _63), top)
    # q is floor(n / 2 / top); undo both shifts: at most one too big, so start one below.
    q = (q << s) >> _63 if s == _0 else q >> (_63 - s)
    if q != _0:
        q -= _1
    pl, ph, _ = mul128(dl, dh, q, _0)
    rl = nl - pl
    rh = nh - ph - (_1 if nl < pl else _0)
    if rh > dh or (rh == dh and rl >= dl):
        q += _1
        borrow = _1 if rl < dl else _0
        rl -= dl
        rh -= dh + borrow
    return q, _0, rl, rh


@part
def div_half_up(nl, nh, dl, dh):  # type: ignore[no-untyped-def]
    """n / d rounded to the nearest, ties away from zero (magnitudes): (low, high)."""
    ql, qh, rl, rh = divmod128(nl, nh, dl, dh)
    # r >= d - r, which unlike 2 r cannot overflow
    xl = dl - rl
    xh = dh - rh - (_1 if dl < rl else _0)
    if rh > xh or (rh == xh and rl >= xl):
        ql += _1
        if ql == _0:
            qh += _1
    return ql, qh


@part
def magnitude(low, high):  # type: ignore[no-untyped-def]
    """Of a two's complement pair: (low, high, is negative)."""
    if high & _SIGN == _0:
        return low, high, False
    low = ~low + _1
    high = ~high
    if low == _0:
        high += _1
    return low, high, True


@part
def store(out, flags, i, low, high, negative, precision):  # type: ignore[no-untyped-def]
    """Write a magnitude with its sign, or flag that it has too many digits."""
    ll, lh = POWERS[precision, 0], POWERS[precision, 1]
    if high > lh or (high == lh and low >= ll):
        flags[i] = TOO_BIG
        low = high = _0
    if negative:
        low = ~low + _1
        high = ~high
        if low == _0:
            high += _1
    out[i, 0] = low
    out[i, 1] = high


@kernel("u8[:,:] u8[:,:] i8 i8 b1 i8 i8 u8[:,:] u1[:]")
def add_rows(a, b, up_a, up_b, subtract, down, precision, out, flags):  # type: ignore[no-untyped-def]
    """(a 10^up_a + b 10^up_b) / 10^down; one-row operands stand for all rows."""
    step_a, step_b = (1 if len(a) == len(out) else 0), (1 if len(b) == len(out) else 0)
    for i in range(len(out)):
        al, ah, an = magnitude(a[i * step_a, 0], a[i * step_a, 1])
        bl, bh, bn = magnitude(b[i * step_b, 0], b[i * step_b, 1])
        bn = bn != subtract
        al, ah, fits_a = mul128(al, ah, POWERS[up_a, 0], POWERS[up_a, 1])
        bl, bh, fits_b = mul128(bl, bh, POWERS[up_b, 0], POWERS[up_b, 1])
        if not (fits_a and fits_b) or (ah | bh) & _SIGN != _0:
            flags[i] = SLOW
            continue
        if an == bn:
            low = al + bl
            high = ah + bh + (_1 if low < al else _0)
        else:
            if ah < bh or (ah == bh and al < bl):
                al, ah, bl, bh = bl, bh, al, ah
                an = bn
            low = al - bl
            high = ah - bh - (_1 if al < bl else _0)
        if down > 0:
            low, high = div_half_up(low, high, POWERS[down, 0], POWERS[down, 1])
        store(out, flags, i, low, high, an, precision)


@kernel("u8[:,:] u8[:,:] i8 i8 u8[:,:] u1[:]")
def mul_rows(a, b, down, precision, out, flags):  # type: ignore[no-untyped-def]
    """a b / 10^down."""
    step_a, step_b = (1 if len(a) == len(out) else 0), (1 if len(b) == len(out) else 0)
    for i in range(len(out)):
        al, ah, an = magnitude(a[i * step_a, 0], a[i * step_a, 1])
        bl, bh, bn = magnitude(b[i * step_b, 0], b[i * step_b, 1])
        low, high, fits = mul128(al, ah, bl, bh)
        if not fits:
            flags[i] = SLOW
            continue
        if down > 0:
            low, high = div_half_up(low, high, POWERS[down, 0], POWERS[down, 1])
        store(out, flags, i, low, high, an != bn, precision)


@kernel("u8[:] u8[:] u8[:,:]")
def mul_narrow_rows(a, b, out):  # type: ignore[no-untyped-def]
    """Exact products of int64 (given as uint64 bits), which always fit; one-element operands stand for all rows."""
    step_a, step_b = (1 if len(a) == len(out) else 0), (1 if len(b) == len(out) else 0)
    for i in range(len(out)):
        x, y = a[i * step_a], b[i * step_b]
        low, high = mul64(x, y)
        if x & _SIGN != _0:
            high -= y
        if y & _SIGN != _0:
            high -= x
        out[i, 0] = low
        out[i, 1] = high


@kernel("u8[:,:] u8[:,:] i8 i8 u8[:,:] u1[:]")
def div_rows(a, b, up, precision, out, flags):  # type: ignore[no-untyped-def]
    """a 10^up / b."""
    step_a, step_b = (1 if len(a) == len(out) else 0), (1 if len(b) == len(out) else 0)
    for i in range(len(out)):
        al, ah, an = magnitude(a[i * step_a, 0], a[i * step_a, 1])
        bl, bh, bn = magnitude(b[i * step_b, 0], b[i * step_b, 1])
        if bl == _0 and bh == _0:
            flags[i] = BY_ZERO
            continue
        al, ah, fits = mul128(al, ah, POWERS[up, 0], POWERS[up, 1])
        if not fits:
            flags[i] = SLOW
            continue
        low, high = div_half_up(al, ah, bl, bh)
        store(out, flags, i, low, high, an != bn, precision)


@kernel("u8[:,:] u8[:,:] i8 i8 i8 u8[:,:] u1[:]")
def mod_rows(a, b, up_a, up_b, precision, out, flags):  # type: ignore[no-untyped-def]
    """Remainder of a 10^up_a by b 10^up_b, with the sign of a."""
    step_a, step_b = (1 if len(a) == len(out) else 0), (1 if len(b) == len(out) else 0)
    for i in range(len(out)):
        al, ah, an = magnitude(a[i * step_a, 0], a[i * step_a, 1])
        bl, bh, _ = magnitude(b[i * step_b, 0], b[i * step_b, 1])
        if bl == _0 and bh == _0:
            flags[i] = BY_ZERO
            continue
        al, ah, fits_a = mul128(al, ah, POWERS[up_a, 0], POWERS[up_a, 1])
        bl, bh, fits_b = mul128(bl, bh, POWERS[up_b, 0], POWERS[up_b, 1])
        if not (fits_a and fits_b):
            flags[i] = SLOW
            continue
        _, _, low, high = divmod128(al, ah, bl, bh)
        store(out, flags, i, low, high, an, precision)


@kernel("u8[:,:] i8 i8 i8 i8 u8[:,:] u1[:]")
def rescale_rows(a, up, down, mode, precision, out, flags):  # type: ignore[no-untyped-def]
    """a 10^up / 10^down; mode 0 rounds half up, 1 truncates, 2 floors, 3 ceils."""
    for i in range(len(out)):
        low, high, negative = magnitude(a[i, 0], a[i, 1])
        low, high, fits = mul128(low, high, POWERS[up, 0], POWERS[up, 1])
        if not fits:
            flags[i] = TOO_BIG
            continue
        if down > 0:
            if mode == 0:
                low, high = div_half_up(low, high, POWERS[down, 0], POWERS[down, 1])
            else:
                low, high, rl, rh = divmod128(low, high, POWERS[down, 0], POWERS[down, 1])
                if (rl | rh) != _0 and ((mode == 2 and negative) or (mode == 3 and not negative)):
                    low += _1
                    if low == _0:
                        high += _1
        store(out, flags, i, low, high, negative, precision)
