"""How queued messages are cut into chunks of a Flight stream, and put together again.

A chunk is some bytes (Flight's application metadata), and perhaps a body, which gRPC does not copy. A payload that is
not small travels as the body of a chunk of its own; everything else is packed into the bytes:

    last (1 byte), then for each message: number, length of the message, length of the payload, message, payload

`last` says that the sender now waits for an answer. A payload of length -1 is none, one of length -2 is the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from belvedere import errors
from belvedere.cluster.transport.outbox import OutboxEntry

INLINE = 16 << 10
"""Bytes of payload up to which a copy is cheaper than a body."""

_ENTRY = struct.Struct("<QIq")
_NONE, _BODY = -1, -2
_LAST, _MORE = b"\x01", b"\x00"


def pack(entries: Sequence[OutboxEntry]) -> Iterator[tuple[bytes, memoryview | None]]:
    """Chunks (bytes, body) that carry the entries; only the last one asks for an answer."""
    parts: list[bytes | memoryview] = []
    for at, entry in enumerate(entries):
        payload = entry.payload
        if payload is None:
            parts += (_ENTRY.pack(entry.number, len(entry.head), _NONE), entry.head)
        elif payload.nbytes <= INLINE:
            parts += (_ENTRY.pack(entry.number, len(entry.head), payload.nbytes), entry.head, payload)
        else:
            parts += (_ENTRY.pack(entry.number, len(entry.head), _BODY), entry.head)
            last = at == len(entries) - 1
            yield b"".join((_LAST if last else _MORE, *parts)), payload
            if last:
                return
            parts = []
    yield b"".join((_LAST, *parts)), None


def is_last(chunk: memoryview) -> bool:
    return bytes(chunk[:1]) == _LAST


def unpack(chunk: memoryview, body: memoryview | None) -> list[tuple[int, memoryview, memoryview | None]]:
    """(number, message, payload) of each message in a chunk."""
    found: list[tuple[int, memoryview, memoryview | None]] = []
    at, end = 1, chunk.nbytes
    while at < end:
        if at + _ENTRY.size > end:
            raise errors.Damaged(f"a chunk of {end} bytes that ends inside the head of a message")
        number, head, payload = _ENTRY.unpack_from(chunk, at)
        at += _ENTRY.size
        message, at = chunk[at : at + head], at + head
        if payload == _BODY:
            found.append((number, message, memoryview(b"") if body is None else body))
        elif payload == _NONE:
            found.append((number, message, None))
        else:
            found.append((number, message, chunk[at : at + payload]))
            at += payload
    if at != end:
        raise errors.Damaged(f"a chunk of {end} bytes that ends inside a message")
    return found
