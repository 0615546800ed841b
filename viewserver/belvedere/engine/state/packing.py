"""Named arrays as one byte string: how the state of a single group travels, or rests outside of its arrays."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

_HEAD = struct.Struct("<I")
_ITEM = struct.Struct("<BcBQ")


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Little-endian and self-describing; empty arrays are left out."""
    items = [(name.encode(), np.ascontiguousarray(a).reshape(-1)) for name, a in arrays.items() if a.size]
    parts = [_HEAD.pack(len(items))]
    for name, array in items:
        parts += [_ITEM.pack(len(name), array.dtype.kind.encode(), array.dtype.itemsize, array.nbytes), name]
        parts.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)


def unpack(data: bytes) -> dict[str, np.ndarray]:
    """What `pack` was given, flat."""
    (count,) = _HEAD.unpack_from(data)
    at = _HEAD.size
    out: dict[str, np.ndarray] = {}
    for _ in range(count):
        name_size, kind, item, size = _ITEM.unpack_from(data, at)
        at += _ITEM.size
        name = data[at : at + name_size].decode()
        at += name_size
        out[name] = np.frombuffer(data, np.dtype(f"<{kind.decode()}{item}"), size // item, at).copy()
        at += size
    return out
