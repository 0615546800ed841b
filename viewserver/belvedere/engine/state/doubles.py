"""Exact, order-free, retractable sums of doubles per group: kernels over a sparse superaccumulator.

A double is m * 2^(p-1074) with 0 <= m < 2^53 and 0 <= p <= 2045. An accumulator is a row of int64 digits of weight
2^(52 i), so m << p touches two neighbouring digits and adds less than 2^52 to each. Digits stay in [-2^62, 2^62); a
carry moves up only when a digit leaves that range (once in 1024 additions at most), so nothing ripples whatever the
signs do.

Group record (8 words, a cache line): 4 consecutive digits, then meta: 0 empty, > 0 a window that starts at digit BIG -
meta, < 0 the digits live in dense row -meta-1 of a side table (44 digits, counts of NaN, +inf, -inf, link of the free
list). Values of ordinary range never leave the window. `ctl`: rows ever used, free list head + 1, rows in use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.jit import BLOCK
from belvedere.engine.state.wide import (
    EXPONENT,
    U0,
    bitlen,
    inlined,
    kernel,
    part,
    prefetch,
    quotient,
    round128,
    shl128,
)

DIGITS, RECORD, META = 4, 8, 4
DENSE, ROW = 44, 48
NAN, PLUS, MINUS, LINK = 44, 45, 46, 47
BIG = 1024
MASK = (1 << 52) - 1
LIMIT = np.uint64(1 << 62)
SIGN = np.uint64(1 << 63)


@inlined
def _shifted(d: Any) -> Any:
    """Has its top bit set iff d is outside [-2^62, 2^62); unsigned, because a signed test would be compiled away."""
    return np.uint64(d) + LIMIT


@inlined
def _low(m: Any, s: Any) -> Any:
    return np.int64((np.uint64(m) << np.uint64(s)) & np.uint64(MASK))


@inlined
def _parts(bits: Any) -> Any:
    """Mantissa, digit and shift inside it, of the bits of a finite double."""
    exponent = (bits >> 52) & 0x7FF
    normal = np.int64(exponent != 0)
    p = exponent - normal
    m = (bits & MASK) + (normal << 52)
    b = (p * 20165) >> 20  # p // 52 for every p that occurs
    return m, b, p - 52 * b


@part
def _carry(d: Any, i: Any) -> None:
    while True:
        t = d[i]
        if _shifted(t) < SIGN:
            return
        d[i] = t & MASK
        i += 1
        d[i] += t >> 52


@part
def _dense_add(dense: Any, o: Any, bits: Any, w: Any) -> None:
    if (bits & EXPONENT) == EXPONENT:
        if bits & MASK:
            dense[o + NAN] += w
        elif bits > 0:
            dense[o + PLUS] += w
        else:
            dense[o + MINUS] += w
        return
    m, b, s = _parts(bits)
    sign = bits >> 63
    w = (w ^ sign) - sign
    i = o + b
    dense[i] += _low(m, s) * w
    dense[i + 1] += (m >> (52 - s)) * w
    _carry(dense, i)
    _carry(dense, i + 1)


@part
def _spill(acc: Any, o: Any, dense: Any, ctl: Any) -> Any:
    """Move a record into a dense row; the caller made sure that there is room."""
    d = ctl[1] - 1
    if d >= 0:
        ctl[1] = dense[d * ROW + LINK]
        dense[d * ROW + LINK] = 0
    else:
        d = ctl[0]
        ctl[0] += 1
    ctl[2] += 1
    meta = acc[o + META]
    if meta > 0:
        q = d * ROW + BIG - meta
        for i in range(DIGITS):
            dense[q + i] = acc[o + i]
            acc[o + i] = 0
        for i in range(DIGITS):
            _carry(dense, q + i)
    acc[o + META] = -d - 1
    return d


@part
def _fix(acc: Any, o: Any, i: Any, dense: Any, ctl: Any) -> None:
    """Digits i, i + 1 may have left their range."""
    while i < DIGITS - 1:
        t = acc[o + i]
        if _shifted(t) >= SIGN:
            acc[o + i] = t & MASK
            acc[o + i + 1] += t >> 52
        i += 1
    if _shifted(acc[o + DIGITS - 1]) >= SIGN:  # a carry out of the window
        _spill(acc, o, dense, ctl)


@part
def _slow(acc: Any, o: Any, dense: Any, ctl: Any, bits: Any, w: Any) -> None:
    if (bits & 0x7FFFFFFFFFFFFFFF) == 0:  # zeros add nothing; fsum never returns -0.0 either
        return
    meta = acc[o + META]
    if meta < 0:
        _dense_add(dense, (-meta - 1) * ROW, bits, w)
        return
    if meta == 0 and (bits & EXPONENT) != EXPONENT:
        m, b, s = _parts(bits)
        base = min(max(b - 1, 0), DENSE - DIGITS)
        acc[o + META] = BIG - base
        sign = bits >> 63
        w = (w ^ sign) - sign
        acc[o + b - base] += _low(m, s) * w
        acc[o + b - base + 1] += (m >> (52 - s)) * w
        return
    d = _spill(acc, o, dense, ctl)
    _dense_add(dense, d * ROW, bits, w)


@kernel("i4[:] i8[:] i1[:] i8 i8[:] i8[:] i8[:]")
def add(slots: Any, bits: Any, weights: Any, start: Any, acc: Any, dense: Any, ctl: Any) -> Any:
    """acc[slots[i]] += weights[i] * value i from `start` on, values given as their int64 bits, |weight| <= 128.

    -> how far it came: less than all if there is no room for another dense row."""
    n = slots.shape[0]
    room = dense.shape[0] // ROW
    for j in range(start, n):
        if j + BLOCK < n:
            prefetch(acc, np.int64(slots[j + BLOCK]) * RECORD)
        x = bits[j]
        wj = np.int64(weights[j])
        o = np.int64(slots[j]) * RECORD
        m, b, s = _parts(x)
        sign = x >> 63
        w = (wj ^ sign) - sign
        i = b - BIG + acc[o + META]
        if np.uint64(i) <= np.uint64(DIGITS - 2) and (x & EXPONENT) != EXPONENT:
            a = acc[o + i] + _low(m, s) * w
            c = acc[o + i + 1] + (m >> (52 - s)) * w
            if (_shifted(a) | _shifted(c)) < SIGN:
                acc[o + i] = a
                acc[o + i + 1] = c
                continue
            if ctl[0] == room:
                return j
            acc[o + i] = a
            acc[o + i + 1] = c
            _fix(acc, o, i, dense, ctl)
        elif ctl[0] == room:
            return j
        else:
            _slow(acc, o, dense, ctl, x, wj)
    return n


@part
def _normal(scr: Any, n: Any) -> Any:
    """Digits -> magnitude digits in [0, 2^52), scr[n] catching what leaves on top; -> (negative, top index or -1)."""
    c = np.int64(0)
    for i in range(n):
        t = scr[i] + c
        c = t >> 52
        scr[i] = t & MASK
    negative = c < 0
    if negative:
        top = c
        c = np.int64(0)
        for i in range(n):
            t = c - scr[i]
            c = t >> 52
            scr[i] = t & MASK
        c = c - top
    scr[n] = c
    t = n
    while t >= 0 and scr[t] == 0:
        t -= 1
    return negative, t


@part
def _refold(acc: Any, o: Any, dense: Any, ctl: Any, scr: Any, top: Any, negative: Any) -> None:
    """A dense row whose (normalised) digits fit a window again, with a digit to spare, goes back into it."""
    q = (-acc[o + META] - 1) * ROW
    lo = np.int64(0)
    while lo < top and scr[lo] == 0:
        lo += 1
    if top - lo > DIGITS - 3 or top >= DENSE:
        return
    dense[q : q + DENSE] = 0
    dense[q + LINK] = ctl[1]
    ctl[1] = q // ROW + 1
    ctl[2] -= 1
    acc[o + META] = 0
    if top < 0:
        return
    base: Any = min(max(lo - 1, 0), DENSE - DIGITS)
    for i in range(lo, top + 1):
        acc[o + i - base] = -scr[i] if negative else scr[i]
    acc[o + META] = BIG - base


@part
def _leading(scr: Any, top: Any) -> Any:
    """The 128 highest bits of normalised digits as (lo, hi, sticky); the highest bit of hi is set."""
    lo, hi = U0, U0
    room = np.int64(128)
    width = bitlen(np.uint64(scr[top]))
    k = top
    while k >= 0 and room >= width:
        room -= width
        a, b = shl128(np.uint64(scr[k]), U0, room)
        lo |= a
        hi |= b
        width = np.int64(52)
        k -= 1
    sticky = False
    if k >= 0 and room > 0:
        cut = width - room
        lo |= np.uint64(scr[k]) >> np.uint64(cut)
        sticky = (scr[k] & ((np.int64(1) << cut) - 1)) != 0
        k -= 1
    while k >= 0 and not sticky:
        sticky = scr[k] != 0
        k -= 1
    return lo, hi, sticky


@kernel("i4[:] i8[:] i8[:] i8[:] i8[:] i8[:] i8[:] i8[:]")
def read(slots: Any, counts: Any, acc: Any, dense: Any, ctl: Any, sums: Any, means: Any, scr: Any) -> None:
    """Bits of the correctly rounded sum (if `sums` has room) and sum / counts[i] (if `means` has) of every slot."""
    want_sum, want_mean = sums.shape[0] > 0, means.shape[0] > 0
    n = slots.shape[0]
    for j in range(n):
        if j + BLOCK < n:
            prefetch(acc, np.int64(slots[j + BLOCK]) * RECORD)
        o = np.int64(slots[j]) * RECORD
        meta = acc[o + META]
        total = mean = np.int64(0)
        special = False
        negative, top, base = False, np.int64(-1), BIG - meta
        if meta > 0:
            for i in range(DIGITS):
                scr[i] = acc[o + i]
            negative, top = _normal(scr, np.int64(DIGITS))
            if top < 0:  # nothing left: the slot may serve values of another range
                acc[o : o + RECORD] = 0
        elif meta < 0:
            base = np.int64(0)
            q = (-meta - 1) * ROW
            if dense[q + NAN] != 0 or dense[q + PLUS] != 0 or dense[q + MINUS] != 0:
                special = True
                if dense[q + NAN] > 0 or (dense[q + PLUS] > 0 and dense[q + MINUS] > 0):
                    total = EXPONENT | np.int64(1 << 51)
                elif dense[q + PLUS] > 0:
                    total = EXPONENT
                else:
                    total = EXPONENT | np.int64(-(1 << 63))
                mean = total
            else:
                for i in range(DENSE):
                    scr[i] = dense[q + i]
                negative, top = _normal(scr, np.int64(DENSE))
                _refold(acc, o, dense, ctl, scr, top, negative)
        if not special and top >= 0:
            lo, hi, sticky = _leading(scr, top)
            weight = 52 * (base + top) + bitlen(np.uint64(scr[top])) - 128
            if want_sum:
                total = round128(lo, hi, weight, sticky, negative)
            if want_mean and counts[j] > 0:
                mean = quotient(lo, hi, weight, sticky, negative, counts[j])
        if want_sum:
            sums[j] = total
        if want_mean:
            means[j] = mean


@kernel("i4[:] i8[:] i8[:] i8[:]")
def clear(slots: Any, acc: Any, dense: Any, ctl: Any) -> None:
    """Empty the records."""
    for j in range(slots.shape[0]):
        o = np.int64(slots[j]) * RECORD
        meta = acc[o + META]
        if meta < 0:
            q = (-meta - 1) * ROW
            dense[q : q + ROW] = 0
            dense[q + LINK] = ctl[1]
            ctl[1] = q // ROW + 1
            ctl[2] -= 1
        acc[o : o + RECORD] = 0


@kernel("i4[:] i8[:] i8[:] i8[:,:] i8[:,:]")
def export(slots: Any, acc: Any, dense: Any, out: Any, spans: Any) -> None:
    """out[i] (47 words): signed digits in their one normal form, then the counts of specials, whatever form the record
    has; spans[i]: first digit that is not 0, and how many there are from it to the last."""
    for j in range(slots.shape[0]):
        o = np.int64(slots[j]) * RECORD
        meta = acc[o + META]
        row = out[j]
        row[:] = 0
        if meta > 0:
            for i in range(DIGITS):
                row[BIG - meta + i] = acc[o + i]
        elif meta < 0:
            q = (-meta - 1) * ROW
            for i in range(LINK):
                row[i] = dense[q + i]
        last = np.int64(DENSE - 1)
        c = np.int64(0)
        for i in range(last):  # the last digit takes what leaves the others, and has the sign of all
            t = row[i] + c
            c = t >> 52
            row[i] = t & MASK
        row[last] += c
        if row[last] < 0:
            c = np.int64(0)
            for i in range(last):
                t = c - row[i]
                c = t >> 52
                row[i] = -(t & MASK)
            row[last] -= c
        lo, hi = np.int64(0), last
        while hi >= 0 and row[hi] == 0:
            hi -= 1
        while lo < hi and row[lo] == 0:
            lo += 1
        spans[j, 0] = lo
        spans[j, 1] = hi + 1 - lo if hi >= 0 else 0


@kernel("i4[:] i8[:,:] i8[:,:] i8[:] i8[:] i8[:]")
def import_(slots: Any, rows: Any, spans: Any, acc: Any, dense: Any, ctl: Any) -> None:
    """Set empty records from exported ones: into windows where they fit with a digit to spare."""
    for j in range(slots.shape[0]):
        o = np.int64(slots[j]) * RECORD
        special = rows[j, NAN] != 0 or rows[j, PLUS] != 0 or rows[j, MINUS] != 0
        lo, count = spans[j, 0], spans[j, 1]
        if count == 0 and not special:
            continue
        if not special and count <= DIGITS - 2:
            base: Any = min(max(lo - 1, np.int64(0)), np.int64(DENSE - DIGITS))
            for i in range(lo, lo + count):
                acc[o + i - base] = rows[j, i]
            acc[o + META] = BIG - base
            continue
        q = _spill(acc, o, dense, ctl) * ROW
        for i in range(LINK):
            dense[q + i] = rows[j, i]
