"""For tests of rolling upgrades only: the next version of the protocol, as this version knows nothing of it.

A process with `BELVEDERE_TEST_PROTOCOL` writes messages and records with one more field. It reads what others write
without it, and others overlook it: that is what a version N+1 may rely on.
"""

from __future__ import annotations

import json
from typing import Any

from belvedere.protocol import wire

FIELD = "of_the_next_version"


def speak_next() -> None:
    """From now on this process writes the next version."""
    encode = wire.encode

    def encode_next(value: Any) -> bytes:
        record = json.loads(encode(value))
        return json.dumps(record | {FIELD: True}, separators=(",", ":"), sort_keys=True).encode("ascii")

    wire.encode = encode_next
