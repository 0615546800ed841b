"""Named numpy arrays in one file, aligned, with a checksum: state that is loaded as it was, without parsing."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import numpy as np
import xxhash

from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.records import ALIGN, aligned
from belvedere.errors import Damaged
from belvedere.model.physical import Buffer

_MAGIC = b"belvarr\0"
_HEAD = struct.Struct("<8sQ")


def write_file(files: Files, path: str, buffers: list[Buffer]) -> dict[str, int]:
    """Write a new file (not synced); returns what its manifest says about it."""
    appender = files.append(path)
    try:
        appender.truncate(0)
        appender.write(buffers)
    finally:
        appender.close()
    digest = xxhash.xxh3_64()
    size = 0
    for buffer in buffers:
        digest.update(buffer)
        size += memoryview(buffer).nbytes
    return {"size": size, "xxh3": digest.intdigest()}


def sync_file(files: Files, path: str) -> None:
    """Make a written file durable."""
    appender = files.append(path)
    try:
        appender.sync()
    finally:
        appender.close()


def read_file(files: Files, path: str, expected: Mapping[str, int]) -> memoryview:
    """A file's content, checked against its manifest."""
    try:
        content = files.read(path)
    except FileNotFoundError as error:
        raise Damaged(f"file {path!r} of the snapshot is missing") from error
    if len(content) != expected["size"]:
        raise Damaged(f"file {path!r} has {len(content)} bytes, its manifest says {expected['size']}")
    if xxhash.xxh3_64_intdigest(content) != expected["xxh3"]:
        raise Damaged(f"file {path!r}: the checksum over bytes 0 to {len(content)} does not hold")
    return content


def pack(arrays: Mapping[str, np.ndarray]) -> list[Buffer]:
    """Buffers of a file that holds the arrays."""
    index, out, at = [], [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        index.append([name, data.dtype.str, list(data.shape), at])
        if data.nbytes:
            out.append(data.reshape(-1).view(np.uint8).data)
        pad = -data.nbytes % ALIGN
        if pad:
            out.append(memoryview(bytes(pad)))
        at += aligned(data.nbytes)
    meta = json.dumps(index).encode()
    head = _HEAD.pack(_MAGIC, len(meta)) + meta
    return [head + bytes(-len(head) % ALIGN), *out]


def unpack(content: memoryview) -> dict[str, np.ndarray]:
    """The arrays of a file's content, as (writable, where the content is) views of it."""
    magic, length = _HEAD.unpack(content[: _HEAD.size])
    if magic != _MAGIC:
        raise Damaged(f"state that begins with {bytes(magic)!r} at byte 0 cannot be read")
    index = json.loads(bytes(content[_HEAD.size : _HEAD.size + length]))
    base = aligned(_HEAD.size + length)
    out = {}
    for name, dtype, shape, at in index:
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        out[name] = np.frombuffer(content, kind, count, base + at).reshape(shape)
    return out
