"""The call by which a source gives changes to a distributor, as bytes."""

from __future__ import annotations

import json
import struct

from belvedere.protocol.exactly_once import SourceId

PUSH = "push"
"""Its name."""
_LENGTH = struct.Struct("<I")


def pack_request(source: SourceId, table: str, payload: bytes) -> bytes:
    head = json.dumps([source, table]).encode()
    head += b" " * (-(len(head) + _LENGTH.size) % 8)
    return _LENGTH.pack(len(head)) + head + payload


def unpack_request(request: bytes | memoryview) -> tuple[SourceId, str, memoryview]:
    (size,) = _LENGTH.unpack_from(request)
    start = _LENGTH.size + size
    source, table = json.loads(bytes(request[_LENGTH.size : start]))
    return SourceId(source), table, memoryview(request)[start:]
