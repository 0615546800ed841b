"""Checksummed records in append-only segments: the frame that the input log and the output changelog share.

A segment is a 64-byte header (magic, format version, number of its first record) and records. A record is a 64-byte
head and a body: a JSON description, then buffers, each aligned to 64 bytes so that Arrow can read them in place.
The head has a checksum of its own, so records can be skipped without reading their bodies, and says up to which
record the writer knew everything to be durable: that is how a torn tail (never synced, cut) differs from damage
(synced, an error).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from belvedere.errors import Damaged, FormatError
from belvedere.model.physical import PAGE, PAGED_BYTES, Buffer

FORMAT_VERSION = 1
ALIGN = 64
MORE = 1
"""Flag: the same epoch goes on in the next record."""

_SEGMENT = struct.Struct("<8sIIQQ32x")
_HEAD = struct.Struct("<4sIQIIQQQQ")
_CHECK = struct.Struct("<Q")
_MARKER = b"BREC"
HEAD_SIZE = 64
_ZEROS = bytes(ALIGN)


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One record; `body` is empty where only heads were read. `end` is the offset after it."""

    offset: int
    end: int
    flags: int
    epoch: int
    sequence: int
    synced: int
    meta_length: int
    length: int
    checksum: int
    body: memoryview

    @property
    def meta(self) -> Any:
        return json.loads(bytes(self.body[: self.meta_length]))

    def buffers(self, sizes: Iterable[int]) -> list[memoryview]:
        """The buffers behind the description, given their sizes."""
        at = aligned(self.meta_length)
        out = []
        for size in sizes:
            out.append(self.body[at : at + size])
            at += aligned(size)
        return out


def aligned(size: int) -> int:
    return (size + ALIGN - 1) & ~(ALIGN - 1)


def segment_header(magic: bytes, first: int) -> bytes:
    """The first 64 bytes of a segment."""
    check = xxhash.xxh3_64_intdigest(struct.pack("<8sIIQ", magic, FORMAT_VERSION, 0, first))
    return _SEGMENT.pack(magic, FORMAT_VERSION, 0, first, check)


def check_segment(content: memoryview, magic: bytes, path: str) -> int | None:
    """Number of the segment's first record; None if the header never got to the disk whole."""
    if len(content) < _SEGMENT.size:
        return None
    found, version, flags, first, check = _SEGMENT.unpack(content[: _SEGMENT.size])
    if xxhash.xxh3_64_intdigest(struct.pack("<8sIIQ", found, version, flags, first)) != check:
        return None
    if found != magic:
        raise Damaged(f"file {path!r}: it is no {magic!r} segment but {found!r}, at byte 0")
    if version > FORMAT_VERSION:
        raise FormatError(
            f"file {path!r} has format version {version}, this program reads up to {FORMAT_VERSION}; use a newer one"
        )
    return int(first)


def encode(
    epoch: int,
    sequence: int,
    synced: int,
    meta: bytes,
    buffers: Sequence[Sequence[Buffer]],
    flags: int = 0,
    offset: int | None = None,
) -> tuple[list[Buffer], int]:
    """What to write for one record, and its size; each buffer is given in pieces. The body is read once, for its
    checksum. `offset`: where the record will begin, if a big one shall be of whole pages (see `files`): then spaces
    behind the description and zeros behind the last buffer fill them up."""
    paged = offset is not None and sum(memoryview(p).nbytes for b in buffers for p in b) >= PAGED_BYTES
    if paged:
        meta += b" " * (-(HEAD_SIZE + len(meta)) % PAGE)
    out: list[Buffer] = [b"", meta]
    digest = xxhash.xxh3_64(meta)
    size = len(meta)
    for pieces in buffers:
        if pad := -size % ALIGN:
            out.append(_ZEROS[:pad])
            digest.update(_ZEROS[:pad])
            size += pad
        for piece in pieces:
            out.append(piece)
            digest.update(piece)
            size += memoryview(piece).nbytes
    if paged and offset is not None and (pad := -(offset + HEAD_SIZE + size) % PAGE):
        out.append(bytes(pad))
        digest.update(out[-1])
        size += pad
    head = _HEAD.pack(_MARKER, flags, size, len(meta), 0, epoch, sequence, synced, digest.intdigest())
    out[0] = head + _CHECK.pack(xxhash.xxh3_64_intdigest(head))
    if pad := -size % ALIGN:
        out.append(_ZEROS[:pad])
    return out, HEAD_SIZE + aligned(size)


def read_head(content: memoryview, offset: int, base: int = 0) -> SegmentRecord | None:
    """The record that starts at `offset` of the content, without its body, or None. `base`: file offset of the
    content."""
    raw = content[offset : offset + HEAD_SIZE]
    if len(raw) < HEAD_SIZE or raw[:4] != _MARKER:
        return None
    if xxhash.xxh3_64_intdigest(raw[: _HEAD.size]) != _CHECK.unpack(raw[_HEAD.size :])[0]:
        return None
    _, flags, length, meta_length, _, epoch, sequence, synced, check = _HEAD.unpack(raw[: _HEAD.size])
    at = base + offset
    end = at + HEAD_SIZE + aligned(length)
    return SegmentRecord(at, end, flags, epoch, sequence, synced, meta_length, length, check, content[:0])


def read_record(content: memoryview, offset: int, base: int = 0) -> SegmentRecord | None:
    """The record that starts at `offset` of the content, checked, or None."""
    head = read_head(content, offset, base)
    if head is None:
        return None
    body = content[offset + HEAD_SIZE : offset + HEAD_SIZE + head.length]
    # the padding belongs to the record: without it the next one would start past the end of the file
    if head.end - base > len(content) or xxhash.xxh3_64_intdigest(body) != head.checksum:
        return None
    return with_body(head, body)


def with_body(head: SegmentRecord, body: memoryview) -> SegmentRecord:
    return SegmentRecord(
        head.offset, head.end, head.flags, head.epoch, head.sequence, head.synced, head.meta_length, head.length,
        head.checksum, body,
    )  # fmt: skip


def durable_after(content: memoryview, offset: int, sequence: int) -> int | None:
    """Offset of a later record which proves that record `sequence`, unreadable at `offset`, had been durable; or
    None."""
    at = aligned(offset + 1)
    raw = content.obj if isinstance(content.obj, bytes) and len(content.obj) == len(content) else bytes(content)
    while (at := raw.find(_MARKER, at)) >= 0:
        if at % ALIGN == 0:
            found = read_head(content, at)
            if found is not None and found.synced >= sequence:
                return at
        at += 1
    return None
