"""A pool asked from outside, for people: which coordinator leads, and what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from belvedere import errors
from belvedere.cluster.transport import calls
from belvedere.rpc.client import RpcClient


def status_of(coordinators: Sequence[str], timeout: float) -> dict[str, Any]:
    """The status as the leader tells it; `{"error": …}` if none does."""
    client = RpcClient()
    reasons = []
    try:
        for address in coordinators:
            try:
                found: dict[str, Any] = json.loads(client.call(address, calls.STATUS, b"", timeout))
                return found
            except errors.BelvedereError as error:
                reasons.append(str(error))
    finally:
        client.close()
    return {"error": "; ".join(reasons)}
