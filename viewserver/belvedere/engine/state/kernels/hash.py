"""Kernels of the 128-bit row hash: two 64-bit lanes, each folded through its own bijective mixer.

Given the lanes so far, one 64-bit value always leads to different lanes than another, so ids of tables with one integer
key never collide. Strings are reduced to two words first (two wyhash-like lanes over the same 16-byte blocks).
The constants are part of the format of snapshots: they must never change.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel, load32, load64, mul_wide, part

_U = np.uint64
SEED_A = _U(0x9E3779B97F4A7C15)
SEED_B = _U(0xC2B2AE3D27D4EB4F)
_M1 = _U(0xFF51AFD7ED558CCD)
_M2 = _U(0xC4CEB9FE1A85EC53)
_M3 = _U(0xBF58476D1CE4E5B9)
_M4 = _U(0x94D049BB133111EB)
_NULL_A = _U(0xA0761D6478BD642F)
_NULL_B = _U(0xE7037ED1A0B428DB)
_K1 = _U(0x8EBC6AF09C88C6E3)
_K2 = _U(0x589965CC75374CC3)
_K3 = _U(0x1D8E4E27C47D124F)
_K4 = _U(0xEB44ACCAB455D165)
_S33 = _U(33)
_S29 = _U(29)
_S30 = _U(30)
_S27 = _U(27)
_S31 = _U(31)
_S32 = _U(32)
_ONE = _U(1)
_ZERO = _U(0)
_SIGN = _U(0x8000000000000000)
_INF = _U(0x7FF0000000000000)
_NAN = _U(0x7FF8000000000000)


@part
def mix_a(x):  # type: ignore[no-untyped-def]
    """Murmur3's finalizer."""
    x ^= x >> _S33
    x *= _M1
    x ^= x >> _S29
    x *= _M2
    x ^= x >> _S32
    return x


@part
def mix_b(x):  # type: ignore[no-untyped-def]
    """Splitmix64's finalizer."""
    x ^= x >> _S30
    x *= _M3
    x ^= x >> _S27
    x *= _M4
    x ^= x >> _S31
    return x


@kernel("u8[:] u1[:] b1 b1 u8[:,:]")
def fold_words(words, status, first, double, out):  # type: ignore[no-untyped-def]
    """Fold a column of 64-bit words into the lanes of `out`. `status` may be empty: all rows hold values. `double`: the
    words are floats, of which all NaNs and both zeros are one."""
    checked = status.shape[0] > 0
    for i in range(words.shape[0]):
        a = SEED_A
        b = SEED_B
        if not first:
            a = out[i, 0]
            b = out[i, 1]
        if checked and status[i] != 1:
            code = _U(status[i])
            a = mix_a(a ^ (_NULL_A + code))
            b = mix_b(b ^ (_NULL_B + code))
        else:
            v = words[i]
            if double:
                if v == _SIGN:
                    v = _ZERO
                elif (v & ~_SIGN) > _INF:
                    v = _NAN
            a = mix_a(a ^ v)
            b = mix_b(b + ((v << _S32) | (v >> _S32)))
        if a == _ZERO and b == _ZERO:
            b = _ONE
        out[i, 0] = a
        out[i, 1] = b


@kernel("i4[:] u1[:] u1[:] b1 u8[:,:]")
def fold_strings(offsets, values, status, first, out):  # type: ignore[no-untyped-def]
    """Fold a column of byte strings into the lanes of `out`."""
    checked = status.shape[0] > 0
    for i in range(offsets.shape[0] - 1):
        a = SEED_A
        b = SEED_B
        if not first:
            a = out[i, 0]
            b = out[i, 1]
        if checked and status[i] != 1:
            code = _U(status[i])
            a = mix_a(a ^ (_NULL_A + code))
            b = mix_b(b ^ (_NULL_B + code))
        else:
            p = np.int64(offsets[i])
            n = np.int64(offsets[i + 1]) - p
            s = _K1 ^ _U(n)
            t = _K2 + _U(n)
            end = p + n
            while end - p > 16:
                x = load64(values, p)
                y = load64(values, p + 8)
                s = mul_wide(x ^ _K3, y ^ s)
                t = mul_wide(x ^ t, y ^ _K4)
                p += 16
            rest = end - p
            x = _ZERO
            y = _ZERO
            if rest >= 8:
                x = load64(values, p)
                y = load64(values, end - 8)
            elif rest >= 4:
                x = load32(values, p)
                y = load32(values, end - 4)
            elif rest > 0:
                x = (_U(values[p]) << _S32) | _U(values[p + (rest >> 1)])
                y = _U(values[end - 1])
            s = mul_wide(x ^ _K3, y ^ s)
            t = mul_wide(x ^ t, y ^ _K4)
            a = mix_a(a ^ s)
            b = mix_b(b + t)
        if a == _ZERO and b == _ZERO:
            b = _ONE
        out[i, 0] = a
        out[i, 1] = b


@kernel("u8[:,:] u8[:,:] u8[:,:]")
def combine_ids(a, b, out):  # type: ignore[no-untyped-def]
    """An id made of two, in this order."""
    for i in range(a.shape[0]):
        x = mix_a(a[i, 0] ^ _K1) ^ b[i, 0]
        y = mix_b(a[i, 1] ^ _K2) + b[i, 1]
        x = mix_a(x)
        y = mix_b(y)
        if x == _ZERO and y == _ZERO:
            y = _ONE
        out[i, 0] = x
        out[i, 1] = y
