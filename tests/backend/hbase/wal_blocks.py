"""Replication requests as a region server writes them, made byte by byte: the naive other side of the decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14


@dataclass(frozen=True)
class KeyValue:
    row: bytes
    family: bytes
    qualifier: bytes
    ts: int
    type: int = PUT
    value: bytes = b""
    tags: bytes = b""

    def encode(self) -> bytes:
        key = struct.pack(">h", len(self.row)) + self.row + bytes([len(self.family)]) + self.family + self.qualifier
        key += struct.pack(">qB", self.ts, self.type)
        body = struct.pack(">ii", len(key), len(self.value)) + key + self.value
        if self.tags:
            body += struct.pack(">H", len(self.tags)) + self.tags
        return struct.pack(">i", len(body)) + body


@dataclass(frozen=True)
class LogEntry:
    table: bytes
    region: bytes
    seq: int
    cells: Sequence[KeyValue]
    written: int = 1_700_000_000_000

    def encode(self) -> bytes:
        """A WALEntry: its key, with a scope and a cluster that nobody reads, and how many cells follow."""
        scope = _bytes(1, b"f") + _number(2, 1)
        cluster = _number(1, 5) + _number(2, 2**64 - 7)
        key = _bytes(1, self.region) + _bytes(2, self.table) + _number(3, self.seq) + _number(4, self.written)
        key += _bytes(6, scope) + _bytes(8, cluster) + _number(9, 12) + b"\x5d\1\2\3\4" + b"\x61" + bytes(8)
        return _bytes(1, key) + _number(3, len(self.cells))


def request(entries: Sequence[LogEntry]) -> tuple[bytes, bytes]:
    """The message, and the block of cells."""
    message = b"".join(_bytes(1, entry.encode()) for entry in entries) + _bytes(2, b"cluster") + _bytes(3, b"/hbase")
    return message, b"".join(cell.encode() for entry in entries for cell in entry.cells)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
